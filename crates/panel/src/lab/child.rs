//! The lab's process: started, listened to on a thread of its own, waited for.
//! Owns what its exit status and its last line mean. Never reads a line that is longer than any should be.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use programs::Status;
use rustix::process::{Pid, setpriority_process};
use serde::Deserialize;

use crate::lab::start_run::LabCommand;
use crate::lab::{LabRun, RunEnd, RunState, SizeAdvice};
use crate::supervision;
use crate::time::now_rfc3339;

/// The file that this process runs, even where its path is gone or another program's (after an upgrade). `weir bench` becomes `weir-bench`.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A line of progress is shorter.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// So much is kept of what it says when it fails.
const MAX_STDERR_BYTES: u64 = 4 * 1024;

/// How much less than others it gets of the processors.
const NICENESS: i32 = 10;

/// Starts the process, in `scratch_dir`, and the thread that listens to it.
pub(super) fn start(run: &Arc<LabRun>, lab_command: &LabCommand, scratch_dir: &Path) -> io::Result<()> {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("weir");
    command.args(&lab_command.args).args(["--progress", "json", "--out"]).arg(run.directory.path());
    command.current_dir(scratch_dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(password) = &lab_command.password {
        command.env("PGPASSWORD", password);
    }
    // The thread first: the process must not start without a reader.
    let (sender, receiver) = channel();
    let listener = Arc::clone(run);
    let follow = move || receiver.recv().map_or((), |child| follow(&listener, child));
    thread::Builder::new().name(supervision::LAB.to_owned()).spawn(follow)?;
    let child = command.spawn()?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // Those that it starts are its heirs in this too.
    let _ = setpriority_process(process, NICENESS);
    run.output().process = process;
    let _ = sender.send(child);
    Ok(())
}

/// Until the process has ended, or its output cannot be read any more.
fn follow(run: &LabRun, mut child: Child) {
    let end = catch_unwind(AssertUnwindSafe(|| listen(run, &mut child))).unwrap_or_else(|_| {
        run.interrupt();
        end(child.wait(), "", "the panel panicked while it read the output; see the log")
    });
    run.end(end);
}

/// Reads what it says, and waits for its end.
fn listen(run: &LabRun, child: &mut Child) -> RunEnd {
    let stderr = child.stderr.take();
    let args = thread::Builder::new().name(supervision::LAB.to_owned()).spawn(move || {
        let mut args = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.by_ref().take(MAX_STDERR_BYTES).read_to_string(&mut args);
            let _ = io::copy(&mut stderr, &mut io::sink());
        }
        args
    });
    let mut last = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while matches!(stdout.by_ref().take(MAX_LINE_BYTES).read_line(&mut line), Ok(1..)) {
            if let Some(whole) = line.strip_suffix('\n') {
                run.add(whole);
                whole.clone_into(&mut last);
            }
            line.clear();
        }
    }
    let status = child.wait();
    let args = args.ok().and_then(|args| args.join().ok()).unwrap_or_default();
    end(status, &last, &args)
}

/// The last line, as far as it matters here.
#[derive(Default, Deserialize)]
struct LastLine {
    #[serde(default)]
    report: bool,
    #[serde(default)]
    advice: Vec<Advised>,
}

#[derive(Deserialize)]
struct Advised {
    target: String,
    #[serde(flatten)]
    advice: SizeAdvice,
}

fn end(status: io::Result<ExitStatus>, last: &str, args: &str) -> RunEnd {
    // So early a signal ends it before it can say anything.
    let is_ended = |status: &ExitStatus| status.signal() == Some(rustix::process::Signal::TERM.as_raw());
    let state = match status.ok().map(|status| (status.code().and_then(Status::of), is_ended(&status))) {
        Some((Some(Status::Done | Status::CannotTell), _)) => RunState::Done,
        Some((Some(Status::Interrupted), _) | (_, true)) => RunState::Interrupted,
        _ => RunState::Failed,
    };
    let LastLine { report, advice: advised } = serde_json::from_str(last).unwrap_or_default();
    let own = advised.iter().position(|advised| advised.target == "weir").unwrap_or(0);
    let advice = advised.into_iter().nth(own).map(|advised| advised.advice);
    let error = (state == RunState::Failed).then(|| args.trim().to_owned());
    RunEnd { state, ended: now_rfc3339(), advice, report, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_large_the_pool_should_be() {
        let ended = |code: i32, last: &str| end(Ok(ExitStatus::from_raw(code << 8)), last, "words\n");
        let last = r#"{"event":"end","status":0,"report":true,"advice":[{"target":"direct","size":9,"verdict":"no","line":null},
            {"target":"weir","size":16,"verdict":"16 are enough","doubts":["perhaps"],"line":"pool_size=16"}]}"#;
        let end = ended(0, last);
        assert_eq!(end.advice.as_ref().map(|advice| &*advice.doubts), Some(&["perhaps".to_owned()][..]));
        let size = end.advice.and_then(|advice| advice.size);
        assert_eq!((end.state, size, end.report, end.error), (RunState::Done, Some(16), true, None));
        let end =
            ended(3, r#"{"advice":[{"target":"weir","size":null,"verdict":"cannot tell","line":null}]}"#);
        assert_eq!(
            (end.state, end.advice.map(|advice| advice.size), end.report),
            (RunState::Done, Some(None), false)
        );
        assert_eq!(ended(130, "").state, RunState::Interrupted);
        assert_eq!(super::end(Ok(ExitStatus::from_raw(15)), "", "").state, RunState::Interrupted);
        assert_eq!(ended(1, "x").error.as_deref(), Some("words"));
    }
}
