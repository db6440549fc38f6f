//! Runs a load generator other than pgbench to its end and keeps all that it says in `progress.txt`, with lines of the
//! lab's own: the command, when the clients began, how it ended. Judges nothing; `timed` reads the file.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::load::{Event, Job, Left};
use crate::process::{self, ProcessEvent};
use crate::record::{RawKind, Second};

/// What the lab's own lines begin with.
pub(super) const OWN: &str = "lab: ";
/// The line that says when the clients began, in seconds since 1970.
pub(super) const BEGAN: &str = "lab: began ";
/// The line that says how the generator ended.
pub(super) const ENDED: &str = "lab: ended ";

/// The file with all that was said.
pub(super) const PROGRESS: &str = "progress.txt";

/// How one generator talks.
pub(super) struct FollowOptions {
    /// Whether with this line the clients begin.
    pub(super) begins: fn(&str) -> bool,
    /// A line about a second that is over: transactions per second, and how many failed.
    pub(super) second: fn(&str) -> Option<(f64, u64)>,
}

/// Runs `command`, whose both outputs are one, to its end.
///
/// # Errors
/// When it does not start, never ends, or is interrupted; when the file cannot be written.
pub(super) fn follow(
    command: Command,
    manner: &FollowOptions,
    job: &Job<'_>,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(Event),
) -> Result<Left> {
    let path = job.directory.join(PROGRESS);
    let doing = || LabError::system(format!("writing {}", path.display()));
    let mut file = File::create(&path).map_err(doing())?;
    let mut fault = None;
    let mut say = |line: &str| fault = fault.take().or(writeln!(file, "{line}").err());
    let words = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    say(&format!("{OWN}{words}"));
    let mut seconds = 0.0;
    let mut heed = |news: ProcessEvent<'_>| {
        let line = match news {
            ProcessEvent::Started(process_id) => return watch(Event::Started { process_id }),
            ProcessEvent::Line(line) => line,
        };
        say(line);
        if (manner.begins)(line) {
            say(&format!("{BEGAN}{:.3}", now_s()));
        }
        if let Some((tps, failed)) = (manner.second)(line) {
            seconds += 1.0;
            let warm_up = seconds <= f64::from(job.span.warm_up_s);
            watch(Event::Second(Second { at_s: seconds, warm_up, tps, mean_ms: None, failed }));
        }
    };
    let finished = process::run_watched(
        merged(command),
        Some(crate::pgbench::limit(job.span.total_s())),
        &Identity::caller(),
        interrupt,
        &mut heed,
    )?;
    say(&format!("{ENDED}{}", finished.status));
    fault.map_or(Ok((PROGRESS.to_owned(), RawKind::Progress)), |fault| Err(doing()(fault)))
}

/// Only standard error is followed line by line: what goes to standard output goes there too.
fn merged(command: Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" >&2", "sh"]).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
