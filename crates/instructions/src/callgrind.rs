//! Has valgrind run this program with one scenario and count its instructions.
//! Owns valgrind's command line and the file that it writes; never judges a count.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::counted;
use crate::scenario::Scenario;

/// Why there is no count.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A program could not be started.
    Missing(&'static str, std::io::Error),
    /// The scenario, or valgrind, failed; what it said.
    Failed(&'static str, String),
    /// Valgrind's file is not what it should be.
    NoCount(PathBuf),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing(program, error) => {
                write!(out, "{program} does not start ({error}): apt-get install valgrind")
            }
            Fault::Failed(what, said) => write!(out, "{what} failed:\n{said}"),
            Fault::NoCount(file) => write!(out, "{} has no count", file.display()),
        }
    }
}

/// Instructions of doing the scenario once.
pub(crate) fn count(scenario: &Scenario) -> Result<u64, Fault> {
    let profile = Profile::take(scenario)?;
    Ok(profile.total()? / scenario.times)
}

/// The functions that most instructions of a scenario are in, as `callgrind_annotate` lists them.
pub(crate) fn hottest(scenario: &Scenario) -> Result<String, Fault> {
    let profile = Profile::take(scenario)?;
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--auto=no", "--threshold=98"]).arg(&profile.file);
    run("callgrind_annotate", annotate)
}

/// What valgrind wrote, until it is dropped.
struct Profile {
    file: PathBuf,
}

impl Profile {
    fn take(scenario: &Scenario) -> Result<Profile, Fault> {
        let program = std::env::current_exe().map_err(|error| Fault::Missing("this program", error))?;
        let name = format!("weir-instructions-{}-{}", std::process::id(), scenario.name);
        let profile = Profile { file: std::env::temp_dir().join(name) };
        let mut valgrind = Command::new("valgrind");
        valgrind
            .arg("--tool=callgrind")
            .arg(format!("--toggle-collect={}", counted::PATTERN))
            .arg(format!("--callgrind-out-file={}", profile.file.display()))
            .arg(program)
            .args(["--run", scenario.name]);
        // What the environment holds lies on the stack, and moves what comes after it.
        let path = std::env::var_os("PATH").unwrap_or_default();
        valgrind.env_clear().env("PATH", path);
        run("valgrind", valgrind)?;
        Ok(profile)
    }

    fn total(&self) -> Result<u64, Fault> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        total(&text).ok_or_else(|| Fault::NoCount(self.file.clone()))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        remove(&self.file);
    }
}

/// A file that is there no more was never written.
fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

fn run(what: &'static str, mut command: Command) -> Result<String, Fault> {
    let output = command.output().map_err(|error| Fault::Missing(what, error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Fault::Failed(what, String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// The sum in a file of callgrind's format; none if nothing was counted.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok().filter(|total| *total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_count_is_noticed() {
        assert_eq!(total("events: Ir\nfn=(1) main\n1 5\n\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("events: Ir\ntotals: 0\n"), None, "the function was not found by its name");
        assert_eq!(total(""), None);
    }
}
