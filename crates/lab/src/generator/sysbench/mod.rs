//! sysbench as a load generator: its own `oltp_*` scripts, those of Percona's sysbench-tpcc, or any other of the
//! user's. It runs them inside `timed.lua`, which logs the time of each event. Sees that a script's tables are there;
//! never drops any that hold rows without leave.

mod errors;
mod tables;
mod workload;

use std::path::PathBuf;
use std::process::Command;

pub use tables::TableState;
pub use workload::{Size, names, workload};

use super::follow::{self, FollowOptions};
use super::timed;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::load::{Asked, Event, Figures, Generator, Job, Left, RawFiles};
use crate::record::{self, RawKind, WorkloadRecord};
use crate::target::Address;

/// Runs another script and logs its events.
const TIMED: &str = include_str!("timed.lua");

/// What the parts of the log are named by before they are one; `.CLIENT` follows.
const PART: &str = "part";
const LOG: &str = "transactions";

/// sysbench says no more of errors that it expects: it begins the event again.
const REPEATED: &str =
    "a deadlock, a serialization failure or a duplicate key, after which sysbench tried again";

/// sysbench, ready to make load. It has a thread for each client.
#[derive(Clone, Debug)]
pub struct Sysbench {
    program: PathBuf,
    version: String,
}

impl Sysbench {
    /// The sysbench of this machine, or the one at `program`.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the package that has it, or when it knows no PostgreSQL.
    pub fn find(program: Option<PathBuf>) -> Result<Self> {
        let program = program.unwrap_or_else(|| PathBuf::from("sysbench"));
        let said = |argument: &str| {
            let output = Command::new(&program).arg(argument).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let missing = |what: String| LabError::Missing {
            what,
            remedy: "Debian, Ubuntu: apt-get install sysbench; or name it with --sysbench".to_owned(),
        };
        let version =
            said("--version").ok_or_else(|| missing(format!("{} does not start", program.display())))?;
        if !said("--help").is_some_and(|help| help.contains("pgsql")) {
            return Err(missing(format!("{} knows no PostgreSQL", program.display())));
        }
        Ok(Self { program, version: version.trim().to_owned() })
    }

    /// sysbench with a workload's own arguments but its script, on `address`.
    fn command(&self, script: &str, workload: &WorkloadRecord, address: &Address) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(script).args(workload.arguments.iter().skip(1)).arg("--db-driver=pgsql");
        let (port, Address { host, user, database, .. }) = (address.port, address);
        command.arg(format!("--pgsql-host={host}")).arg(format!("--pgsql-port={port}"));
        // Its libpq takes the password, and what TLS is to be, from the environment.
        command.arg(format!("--pgsql-user={user}")).arg(format!("--pgsql-db={database}"));
        address.equip(&mut command);
        command.env("LC_ALL", "C");
        command
    }
}

impl Generator for Sysbench {
    fn record(&self) -> record::Generator {
        record::Generator { name: "sysbench".to_owned(), version: self.version.clone(), threads: 0 }
    }

    fn run(&self, job: &Job<'_>, interrupt: &Interrupt, watch: &mut dyn FnMut(Event)) -> Result<Vec<Left>> {
        let timed = job.shared.join("timed.lua");
        std::fs::write(&timed, TIMED).map_err(LabError::system(format!("writing {}", timed.display())))?;
        let mut command = self.command(&timed.display().to_string(), job.workload, job.address);
        command.args([prepared(job.query_mode)?.to_owned(), format!("--threads={}", job.clients)]);
        command.args([format!("--time={}", job.span.total_s()), "--report-interval=1".to_owned()]);
        command.args(["--percentile=0", "run"]).current_dir(job.directory);
        command.env("WEIR_SCRIPT", job.workload.arguments.first().map_or("", String::as_str));
        command.env("WEIR_LOG", job.directory.join(PART));
        match job.rate_tps {
            Some(rate) => command.env("WEIR_RATE", format!("{:.6}", rate / f64::from(job.clients))),
            None => command.env_remove("WEIR_RATE"),
        };
        job.refuse_sums("sysbench")?;
        let manner = FollowOptions { begins: |line| line == "Threads started!", second };
        let said = follow::follow(command, &manner, job, interrupt, watch)?;
        join(job)?;
        Ok(vec![said, (LOG.to_owned(), RawKind::Transactions)])
    }
}

/// The figures of what it left.
///
/// # Errors
/// As [`timed::figures`].
pub(super) fn figures(files: &RawFiles<'_>, asked: &Asked) -> Result<Figures> {
    let mut figures = timed::figures(files, asked, errors::find)?;
    if figures.failed > 0 && figures.errors.is_empty() {
        figures.errors.insert(REPEATED.to_owned(), figures.failed);
    }
    Ok(figures)
}

fn prepared(query_mode: &str) -> Result<&'static str> {
    match query_mode {
        "simple" => Ok("--db-ps-mode=disable"),
        "prepared" => Ok("--db-ps-mode=auto"),
        other => Err(LabError::Missing {
            what: format!("sysbench has no query mode {other}"),
            remedy: "simple or prepared".to_owned(),
        }),
    }
}

/// One log of all clients' logs: a run has hundreds of clients.
fn join(job: &Job<'_>) -> Result<()> {
    let whole = job.directory.join(LOG);
    let doing = || LabError::system(format!("writing {}", whole.display()));
    let mut to = std::fs::File::create(&whole).map_err(doing())?;
    for entry in std::fs::read_dir(job.directory).map_err(doing())? {
        let entry = entry.map_err(doing())?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{PART}.")) {
            let mut from = std::fs::File::open(entry.path()).map_err(doing())?;
            std::io::copy(&mut from, &mut to).map_err(doing())?;
            std::fs::remove_file(entry.path()).map_err(doing())?;
        }
    }
    Ok(())
}

/// `[ 1s ] thds: 2 tps: 239.84 qps: … err/s: 1.00 reconn/s: 0.00`.
fn second(line: &str) -> Option<(f64, u64)> {
    let rest = line.strip_prefix("[ ")?;
    let number = |name: &str| rest.split_once(name)?.1.split_whitespace().next()?.parse::<f64>().ok();
    let failed = number(" err/s: ").unwrap_or(0.0);
    Some((number(" tps: ")?, crate::pgbench::whole(failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_read() {
        let line = "[ 2s ] thds: 2 tps: 388.06 qps: 7831.28 (r/w/o: 5490.90/1550.25/790.13) lat (ms,95%): 6.55 err/s: 3.00 reconn/s: 0.00";
        assert_eq!(second(line), Some((388.06, 3)));
        assert_eq!(second("Threads started!"), None);
        assert_eq!(second("[ 2s ] odd"), None);
    }

    #[test]
    fn query_modes_are_those_that_it_has() {
        assert_eq!(prepared("simple").ok(), Some("--db-ps-mode=disable"));
        assert!(prepared("extended").is_err());
    }
}
