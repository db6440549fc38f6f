//! pgbench as a load generator: the arguments of a job, its environment, and the raw files that it leaves: what it
//! printed, its progress with times of day, its log of transactions. Reads none of them; `figures` does.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::parse;
use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::load::{Event, Generator, Job, Left};
use crate::process::{self, ProcessEvent};
use crate::record::{self, RawKind, Second};

/// How long clients may take to get in, and the last ones to be done: longer than a pooler's own patience with either.
const PATIENCE: Duration = Duration::from_secs(150);

/// What the names of the transaction logs begin with; `.PROCESS` and `.PROCESS.THREAD` follow.
const LOG_PREFIX: &str = "transactions";

/// What the lab's own lines in the progress file begin with.
pub(super) const OWN: &str = "lab: ";

/// pgbench, ready to make load. It runs as the user who started the lab.
#[derive(Clone, Debug)]
pub struct Loader {
    program: PathBuf,
    version: String,
    threads: u32,
}

impl Loader {
    /// This pgbench, with a number of threads.
    ///
    /// # Errors
    /// [`LabError::Missing`] when it does not start.
    pub fn new(program: &Path, threads: u32) -> Result<Self> {
        let output = Command::new(program).arg("--version").output();
        let version = output.ok().filter(|output| output.status.success());
        let version = version.ok_or_else(|| LabError::Missing {
            what: format!("{} does not start", program.display()),
            remedy:
                "install pgbench (Debian, Ubuntu: apt-get install postgresql-contrib), or name its directory \
                     with --pg-bin"
                    .to_owned(),
        })?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        Ok(Self { program: program.to_path_buf(), version, threads })
    }

    /// How many threads it has.
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }

    fn command(&self, job: &Job<'_>) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(arguments(job)?).current_dir(job.directory).env("LC_ALL", "C");
        job.address.equip(&mut command);
        Ok(command)
    }
}

impl Generator for Loader {
    fn record(&self) -> record::Generator {
        record::Generator { name: "pgbench".to_owned(), version: self.version.clone(), threads: self.threads }
    }

    fn run(&self, job: &Job<'_>, interrupt: &Interrupt, watch: &mut dyn FnMut(Event)) -> Result<Vec<Left>> {
        let command = self.command(job)?;
        let words = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut said = Said::begin(&job.directory.join("progress.txt"))?;
        said.line(&format!("{OWN}pgbench {words}"));
        let finished = process::run_watched(
            command,
            // The duration of a number of transactions is what is measured.
            job.span.transactions.is_none().then(|| limit(job.span.total_s())),
            &Identity::caller(),
            interrupt,
            &mut |news| match news {
                ProcessEvent::Started(process_id) => watch(Event::Started { process_id }),
                ProcessEvent::Line(line) => {
                    said.line(line);
                    if let Some(second) = said.second(line, job.span.warm_up_s) {
                        watch(Event::Second(second));
                    }
                }
            },
        )?;
        said.line(&format!("{OWN}{}", finished.status));
        said.end()?;
        let summary = job.directory.join("summary.txt");
        std::fs::write(&summary, &finished.stdout)
            .map_err(LabError::system(format!("writing {}", summary.display())))?;
        left(job)
    }
}

/// The raw files in the job's directory.
fn left(job: &Job<'_>) -> Result<Vec<Left>> {
    let doing = || LabError::system(format!("looking into {}", job.directory.display()));
    let of_log = if job.aggregate_s.is_some() { RawKind::Aggregates } else { RawKind::Transactions };
    let mut left = Vec::new();
    for entry in std::fs::read_dir(job.directory).map_err(doing())? {
        let name = entry.map_err(doing())?.file_name().to_string_lossy().into_owned();
        let kind = match name.as_str() {
            "progress.txt" => RawKind::Progress,
            "summary.txt" => RawKind::Summary,
            log if log.starts_with(LOG_PREFIX) => of_log,
            _ => continue,
        };
        left.push((name, kind));
    }
    left.sort_by(|one: &Left, other| one.0.cmp(&other.0));
    Ok(left)
}

/// Standard error, as it goes into its file, and the seconds in it.
#[derive(Debug)]
struct Said {
    file: File,
    path: PathBuf,
    fault: Option<std::io::Error>,
    /// When the clients began.
    began: Option<f64>,
}

impl Said {
    fn begin(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(LabError::system(format!("making {}", path.display())))?;
        Ok(Self { file, path: path.to_path_buf(), fault: None, began: None })
    }

    fn line(&mut self, line: &str) {
        let written = writeln!(self.file, "{line}");
        self.fault = self.fault.take().or(written.err());
    }

    fn second(&mut self, line: &str, warm_up_s: u32) -> Option<Second> {
        let found = parse::progress(line)?;
        let at_s = found.seconds - *self.began.get_or_insert(found.seconds - 1.0);
        Some(Second {
            at_s,
            warm_up: at_s.round() <= f64::from(warm_up_s),
            tps: found.tps,
            mean_ms: found.mean_ms,
            failed: found.failed,
        })
    }

    fn end(self) -> Result<()> {
        match self.fault {
            None => Ok(()),
            Some(fault) => Err(LabError::system(format!("writing {}", self.path.display()))(fault)),
        }
    }
}

/// The time limit of a load of this many seconds.
pub(crate) fn limit(seconds: u32) -> Duration {
    PATIENCE + 2 * Duration::from_secs(u64::from(seconds))
}

/// What a server or pgbench complained of in the progress file, where the lab's own lines are no complaints.
pub(super) fn complaints(said: &str) -> Vec<String> {
    parse::complaints(said.lines().filter(|line| !line.starts_with(OWN)))
}

fn arguments(job: &Job<'_>) -> Result<Vec<String>> {
    let mut words =
        ["-n", "-P", "1", "--progress-timestamp", "-M", job.query_mode].map(str::to_owned).to_vec();
    let threads = job.threads.min(job.clients).max(1);
    let length = match job.span.transactions {
        Some(transactions) => ("-t", transactions),
        None => ("-T", job.span.total_s()),
    };
    for (option, number) in [("-c", job.clients), ("-j", threads), length] {
        words.extend([option.to_owned(), number.to_string()]);
    }
    words.extend(body(job)?);
    words.extend(job.rate_tps.map(|rate| format!("--rate={rate:.3}")));
    let is_logged = job.sampling > 0.0 || job.aggregate_s.is_some();
    words.extend(
        is_logged.then(|| ["-l".to_owned(), format!("--log-prefix={LOG_PREFIX}")]).into_iter().flatten(),
    );
    match job.aggregate_s {
        Some(seconds) => words.push(format!("--aggregate-interval={seconds}")),
        None if is_logged && job.sampling < 1.0 => words.push(format!("--sampling-rate={}", job.sampling)),
        None => {}
    }
    Ok(words)
}

/// The workload's own arguments, and its scripts as files.
fn body(job: &Job<'_>) -> Result<Vec<String>> {
    let mut words = job.workload.arguments.clone();
    if job.workload.scripts.is_empty() {
        return Ok(words);
    }
    // What pgbench finds out by itself for its own scripts.
    words.extend(job.scale.iter().flat_map(|scale| ["-s".to_owned(), scale.to_string()]));
    for (number, script) in job.workload.scripts.iter().enumerate() {
        let path = job.shared.join(format!("{}-{number}.sql", file_name(&job.workload.name)));
        if !path.exists() {
            std::fs::write(&path, &script.text)
                .map_err(LabError::system(format!("writing {}", path.display())))?;
        }
        words.extend(["-f".to_owned(), format!("{}@{}", path.display(), script.weight)]);
    }
    Ok(words)
}

/// A name that is safe as a file's.
pub(crate) fn file_name(name: &str) -> String {
    let keep = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let safe: String = name.chars().map(|letter| if keep(letter) { letter } else { '_' }).take(40).collect();
    safe.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Span;
    use crate::record::{Script, WorkloadRecord};
    use crate::target::Address;

    fn words(workload: &WorkloadRecord, change: impl Fn(&mut Job<'_>)) -> String {
        let address = Address::local(5432, "u", "d");
        let shared = std::env::temp_dir();
        let mut job = Job {
            address: &address,
            workload,
            clients: 50,
            threads: 2,
            span: Span::seconds(2, 5),
            query_mode: "simple",
            rate_tps: None,
            sampling: 1.0,
            aggregate_s: None,
            scale: Some(10),
            directory: Path::new("/nowhere"),
            shared: &shared,
        };
        change(&mut job);
        arguments(&job).unwrap().join(" ")
    }

    #[test]
    fn a_job_becomes_pgbenchs_arguments() {
        let arguments = vec!["-b".into(), "select-only".into()];
        let builtin = WorkloadRecord { arguments, ..WorkloadRecord::default() };
        assert_eq!(
            words(&builtin, |_| {}),
            "-n -P 1 --progress-timestamp -M simple -c 50 -j 2 -T 8 -b select-only -l --log-prefix=transactions"
        );
        let counted = words(&builtin, |job| job.span.transactions = Some(700));
        assert!(counted.contains(" -j 2 -t 700 -b ") && !counted.contains(" -T "), "{counted}");
        let open = words(&builtin, |job| (job.rate_tps, job.sampling) = (Some(1234.5), 0.25));
        assert!(open.contains(" --rate=1234.500 ") && open.ends_with(" --sampling-rate=0.25"), "{open}");
        let silent = words(&builtin, |job| job.sampling = 0.0);
        assert!(silent.ends_with(" -b select-only"), "{silent}");
        let sums = words(&builtin, |job| (job.aggregate_s, job.clients) = (Some(5), 1));
        assert!(sums.contains(" -c 1 -j 1 ") && sums.ends_with(" --aggregate-interval=5"), "{sums}");
    }

    #[test]
    fn scripts_become_files_with_weights() {
        let script = Script { name: "a".into(), weight: 3, text: "SELECT 1;\n".into(), think_us: 0 };
        let name = format!("own {}/..", std::process::id());
        let own = WorkloadRecord {
            name,
            scripts: vec![script],
            arguments: vec!["-C".into()],
            ..WorkloadRecord::default()
        };
        let told = words(&own, |_| {});
        let path = std::env::temp_dir().join(format!("own_{}_..-0.sql", std::process::id()));
        assert!(told.contains(&format!(" -C -s 10 -f {}@3 ", path.display())), "{told}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "SELECT 1;\n");
        std::fs::remove_file(path).unwrap();
    }
}
