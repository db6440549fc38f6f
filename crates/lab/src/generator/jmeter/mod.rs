//! JMeter 5 with pgjdbc as a load generator: it runs `plan.jmx`, or a plan of the user's that reads the same
//! properties. The plan logs each transaction in the form of pgbench's log; JMeter's own table of samples, in whole
//! milliseconds, is kept beside it.

mod errors;
mod home;
mod url;

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use home::Home;

use super::follow::{self, FollowOptions};
use super::timed;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::load::{Asked, Event, Figures, Generator, Job, Left, RawFiles};
use crate::record::{self, RawKind, WorkloadRecord};
use std::io::Write as _;

/// The plan that opens in JMeter as it is.
pub const PLAN: &str = include_str!("plan.jmx");

/// The workloads of the plan: pgbench's own.
pub const NAMES: &[&str] = &["tpcb-like", "simple-update", "select-only"];

/// What JMeter leaves, and what is in it.
const LEFT: [(&str, RawKind); 3] = [
    ("transactions", RawKind::Transactions),
    ("complaints", RawKind::Complaints),
    ("samples.jtl", RawKind::Samples),
];

/// JMeter, ready to make load. It has a thread for each client.
#[derive(Clone, Debug)]
pub struct Jmeter {
    home: Home,
    /// A plan of the user's.
    plan: Option<PathBuf>,
}

impl Jmeter {
    /// This JMeter, with its own plan or the user's.
    ///
    /// # Errors
    /// When the plan is not there.
    pub fn new(home: Home, plan: Option<&Path>) -> Result<Self> {
        let doing = |plan: &Path| LabError::system(format!("reading the plan {}", plan.display()));
        let plan = plan.map(|plan| plan.canonicalize().map_err(doing(plan))).transpose()?;
        Ok(Self { home, plan })
    }

    fn command(&self, job: &Job<'_>, plan: &Path, properties: &Path) -> Command {
        let mut command = Command::new(self.home.java());
        command.args(["-Xms256m", "-Djava.awt.headless=true", "-jar"]).arg(self.home.program());
        command.arg("-n").arg("-t").arg(plan).arg("-q").arg(properties);
        command.args(["-j", "jmeter.log", "-l", "samples.jtl"]).current_dir(job.directory);
        job.address.equip(&mut command);
        // It stands in the closed file of properties.
        command.env_remove("PGPASSWORD").env("LC_ALL", "C.UTF-8");
        command
    }
}

/// The workload of a name that the lab's plan knows; of a plan of the user's any name.
///
/// # Errors
/// [`LabError::Missing`] with the names that there are.
pub fn workload(name: &str, plan: Option<&Path>) -> Result<WorkloadRecord> {
    if let Some(plan) = plan {
        let what = format!("{name} of your own plan {}", plan.display());
        return Ok(WorkloadRecord { name: name.to_owned(), what, ..WorkloadRecord::default() });
    }
    if !NAMES.contains(&name) {
        return Err(LabError::Missing {
            what: format!("the plan for JMeter has no workload {name:?}"),
            remedy: format!("one of {}; or a plan of your own: --jmeter-plan FILE.jmx", NAMES.join(", ")),
        });
    }
    Ok(WorkloadRecord { arguments: vec![name.to_owned()], ..crate::workload::named(name)? })
}

impl Generator for Jmeter {
    fn record(&self) -> record::Generator {
        record::Generator { name: "jmeter".to_owned(), version: self.home.version(), threads: 0 }
    }

    fn run(&self, job: &Job<'_>, interrupt: &Interrupt, watch: &mut dyn FnMut(Event)) -> Result<Vec<Left>> {
        job.refuse_sums("JMeter")?;
        let plan = match &self.plan {
            Some(plan) => plan.clone(),
            None => {
                let plan = job.shared.join("plan.jmx");
                std::fs::write(&plan, PLAN)
                    .map_err(LabError::system(format!("writing {}", plan.display())))?;
                plan
            }
        };
        let properties = Closed::write(&job.shared.join("jmeter.properties"), &properties(job)?)?;
        let manner = FollowOptions { begins: |line| line == "weir: the first transaction is done", second };
        let said = follow::follow(self.command(job, &plan, &properties.0), &manner, job, interrupt, watch)?;
        let left = LEFT.into_iter().filter(|(name, _)| job.directory.join(name).is_file());
        Ok(std::iter::once(said).chain(left.map(|(name, kind)| (name.to_owned(), kind))).collect())
    }
}

/// The figures of what it left.
///
/// # Errors
/// As [`timed::figures`].
pub(super) fn figures(files: &RawFiles<'_>, asked: &Asked) -> Result<Figures> {
    timed::figures(files, asked, errors::find)
}

/// A file that only its owner reads and that goes when it was used: a password is in it.
struct Closed(PathBuf);

impl Closed {
    fn write(path: &Path, text: &str) -> Result<Self> {
        let doing = || LabError::system(format!("writing {}", path.display()));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(doing())?;
        file.write_all(text.as_bytes()).map_err(doing())?;
        Ok(Self(path.to_path_buf()))
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn properties(job: &Job<'_>) -> Result<String> {
    let rate = job.rate_tps.map_or(0.0, |rate| rate / f64::from(job.clients));
    let workload = job.workload.arguments.first().unwrap_or(&job.workload.name);
    let password = job.address.password.as_ref().map_or("", |password| password.reveal());
    let rows = [
        ("weir.url", url::of(job.address, job.query_mode)?),
        ("weir.user", job.address.user.clone()),
        ("weir.password", password.to_owned()),
        ("weir.workload", workload.clone()),
        ("weir.scale", job.scale.unwrap_or(1).to_string()),
        ("weir.clients", job.clients.to_string()),
        ("weir.seconds", job.span.total_s().to_string()),
        ("weir.rate", format!("{rate:.6}")),
        ("weir.directory", job.directory.display().to_string()),
        ("summariser.interval", "1".to_owned()),
        ("jmeterengine.nongui.port", "0".to_owned()),
        ("jmeter.save.saveservice.output_format", "csv".to_owned()),
        ("jmeter.save.saveservice.print_field_names", "true".to_owned()),
        ("jmeter.save.saveservice.subresults", "false".to_owned()),
    ];
    Ok(rows.map(|(name, value)| format!("{name}={}\n", escaped(&value))).concat())
}

/// A value as a file of Java's properties has it.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for (at, letter) in value.char_indices() {
        match letter {
            '\\' => text.push_str("\\\\"),
            ' ' if at == 0 => text.push_str("\\ "),
            letter if letter.is_ascii_graphic() || letter == ' ' => text.push(letter),
            letter => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text
}

/// `summary +   1234 in 00:00:01 = 1234.0/s Avg: … Err:     2 (0.16%) Active: …`.
fn second(line: &str) -> Option<(f64, u64)> {
    let rest = line.strip_prefix("summary +")?;
    let tps = rest.split_once(" = ")?.1.trim_start().split_once("/s")?.0.parse().ok()?;
    let failed = rest.split_once("Err:")?.1.split_whitespace().next()?.parse().ok()?;
    Some((tps, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_read() {
        let line = "summary +    801 in 00:00:01 =  812.4/s Avg:     4 Min:     1 Max:    33 Err:     2 (0.25%) Active: 4 Started: 4 Finished: 0";
        assert_eq!(second(line), Some((812.4, 2)));
        assert_eq!(second("summary =    801 in 00:00:01 =  812.4/s Avg: 4 Err: 2 (0.25%)"), None);
    }

    #[test]
    fn values_survive_javas_properties() {
        assert_eq!(escaped(" a\\b=c é\n"), "\\ a\\\\b=c \\u00e9\\u000a");
        assert_eq!(escaped("😀"), "\\ud83d\\ude00");
    }

    #[test]
    fn the_plan_reads_what_it_is_given() {
        for name in
            ["url", "user", "password", "workload", "scale", "clients", "seconds", "rate", "directory"]
        {
            assert!(PLAN.contains(&format!("weir.{name}")), "{name}");
        }
        assert!(NAMES.iter().all(|name| PLAN.contains(&format!("testname=\"{name}\""))));
    }
}
