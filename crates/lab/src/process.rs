//! Programs the lab starts: daemons that are stopped by their own process id when their guard is dropped, and
//! commands that run to their end while their lines are watched. Children get a process group of their own, so
//! that a Ctrl-C in the terminal reaches the lab alone and the lab ends them in order.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::{Interrupt, LOOK_EVERY};

/// How long a program has after each signal, before the next one or SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lines of a log that are shown of a program that ended or is not ready.
pub const LAST_WORDS: usize = 8;

/// A program that runs in the background until it is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    signals: &'static [Signal],
}

impl Daemon {
    /// Starts `command` as `identity`, with what it prints going to `log`. `signals` end it: each is tried in
    /// turn before SIGKILL is.
    ///
    /// # Errors
    /// When the log cannot be made or the program does not start.
    pub fn start(
        mut command: Command,
        name: &str,
        identity: &Identity,
        log: &Path,
        signals: &'static [Signal],
    ) -> Result<Self> {
        let file =
            securefs::create(log, 0o600).map_err(LabError::system(format!("making {}", log.display())))?;
        let again = file.try_clone().map_err(LabError::system(format!("making {}", log.display())))?;
        identity.apply(&mut command);
        command.stdin(Stdio::null()).stdout(file).stderr(again).process_group(0);
        let child = command.spawn().map_err(LabError::system(format!("starting {name}")))?;
        Ok(Self { child, name: name.to_owned(), signals })
    }

    /// Its process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it is ready: what `ready` finds, or nothing when the time is over.
    ///
    /// # Errors
    /// When it ends instead, with the last lines of its `log`; when interrupted.
    pub fn wait_until<T>(
        &mut self,
        within: Duration,
        log: &Path,
        interrupt: &Interrupt,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        interrupt.wait_for(within, || match self.ended() {
            Some(status) => {
                Err(LabError::program(&self.name, format!("{status}\n  {}", tail(log, LAST_WORDS))))
            }
            None => Ok(ready()),
        })
    }

    /// Ends it and waits until it is gone.
    pub fn stop(&mut self) {
        let child = &mut self.child;
        if !self.signals.iter().any(|signal| end_within(child, *signal, PATIENCE)) {
            eprintln!("{} (process {}) did not end when asked, killing it", self.name, self.child.id());
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All lines of its standard error.
    pub stderr: Vec<String>,
}

impl Finished {
    /// How it ended and its last words, for an error message.
    #[must_use]
    pub fn last_words(&self) -> String {
        let from = self.stderr.len().saturating_sub(5);
        format!("{}\n  {}", self.status, self.stderr[from..].join("\n  "))
    }

    /// The output, or an error with the last words.
    ///
    /// # Errors
    /// [`LabError::Program`] unless it ended well.
    pub fn success(self, name: &str) -> Result<String> {
        if self.status.success() { Ok(self.stdout) } else { Err(LabError::program(name, self.last_words())) }
    }
}

/// Runs `command` as `identity` to its end. `watch` sees each line of standard error as it comes (a carriage
/// return ends a line too).
///
/// # Errors
/// When it does not start, or [`LabError::Interrupted`], after it was ended.
pub fn run(
    command: Command,
    identity: &Identity,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&str),
) -> Result<Finished> {
    run_within(command, None, identity, interrupt, watch)
}

/// As [`run`], but ends a command that takes longer than `limit`.
///
/// # Errors
/// As [`run`], and [`LabError::Program`] when the time was over.
fn run_within(
    command: Command,
    limit: Option<Duration>,
    identity: &Identity,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&str),
) -> Result<Finished> {
    run_watched(command, limit, identity, interrupt, &mut |news| {
        if let ProcessEvent::Line(line) = news {
            watch(line);
        }
    })
}

/// Events of a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent<'a> {
    /// It runs, as this process.
    Started(u32),
    /// A line of its standard error.
    Line(&'a str),
}

/// As [`run_within`]; `watch` also gets the process.
///
/// # Errors
/// As [`run_within`].
pub fn run_watched(
    mut command: Command,
    limit: Option<Duration>,
    identity: &Identity,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(ProcessEvent<'_>),
) -> Result<Finished> {
    let begin = Instant::now();
    let name = command.get_program().to_string_lossy().into_owned();
    identity.apply(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(LabError::system(format!("starting {name}")))?;
    let (Some(mut out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(LabError::program(&name, "it has no output"));
    };
    watch(ProcessEvent::Started(child.id()));
    let stdout = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || lines(err, &sender));
    let mut stderr = Vec::new();
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                watch(ProcessEvent::Line(&line));
                stderr.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_late = limit.is_some_and(|limit| begin.elapsed() > limit);
        if interrupt.is_set() || is_late {
            if !end_within(&mut child, Signal::TERM, PATIENCE) {
                let _ = child.kill();
                let _ = child.wait();
            }
            interrupt.check()?;
            return Err(LabError::program(&name, format!("not done after {} s", begin.elapsed().as_secs())));
        }
    }
    let status = child.wait().map_err(LabError::system(format!("waiting for {name}")))?;
    Ok(Finished { status, stdout: stdout.join().unwrap_or_default(), stderr })
}

/// The last `count` lines of a log file, for an error message.
#[must_use]
pub fn tail(log: &Path, count: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n  ")
}

fn lines(mut source: impl Read, sender: &mpsc::Sender<String>) {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    let send = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        line.clear();
        text.is_empty() || sender.send(text).is_ok()
    };
    while let Ok(count @ 1..) = source.read(&mut buffer) {
        for &byte in &buffer[..count] {
            if byte != b'\n' && byte != b'\r' {
                line.push(byte);
            } else if !send(&mut line) {
                return;
            }
        }
    }
    send(&mut line);
}

/// Sends `signal` and waits; false when the child is still there after `time`.
fn end_within(child: &mut Child, signal: Signal, time: Duration) -> bool {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return true;
    }
    if let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, signal);
    }
    let end = Instant::now() + time;
    while Instant::now() < end {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn me() -> Identity {
        Identity::choose().unwrap()
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_is_run_to_its_end_and_its_lines_are_seen() {
        let mut seen = Vec::new();
        let script = "printf 'a\\rb\\nc' >&2; echo out; exit 3";
        let finished =
            run(shell(script), &me(), &Interrupt::default(), &mut |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["a", "b", "c"]);
        assert_eq!((finished.status.code(), finished.stdout.as_str()), (Some(3), "out\n"));
        assert!(finished.success("sh").unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let limit = Some(Duration::from_millis(50));
        let command = shell("exec sleep 1000");
        let error = run_within(command, limit, &me(), &Interrupt::default(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("not done after"), "{error}");
    }

    #[test]
    fn a_dropped_daemon_is_gone() {
        let log = std::env::temp_dir().join(format!("weir-daemon-{}", std::process::id()));
        let daemon = Daemon::start(shell("exec sleep 1000"), "sleep", &me(), &log, &[Signal::TERM]).unwrap();
        let id = daemon.process_id();
        assert!(Path::new(&format!("/proc/{id}")).exists());
        drop(daemon);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        std::fs::remove_file(log).unwrap();
    }
}
