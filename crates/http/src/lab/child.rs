//! The lab's process: started, listened to on a thread of its own, waited for.
//! Owns what its exit status and its last line mean. Never reads a line that is longer than any should be.

use std::borrow::Cow;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, setpriority_process};
use serde::Deserialize;

use crate::lab::wish::Task;
use crate::lab::{Advice, End, Run};
use crate::threads;
use crate::time::now_rfc3339;

/// The file that this process runs, even where its path is gone or another program's (after an upgrade).
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A line of progress is shorter.
const LONGEST_LINE: u64 = 64 * 1024;

/// So much is kept of what it says when it fails.
const LAST_WORDS: u64 = 4 * 1024;

/// How much less than others it gets of the processors.
const NICENESS: i32 = 10;

/// Starts the process, in `scratch_dir`, and the thread that listens to it.
pub(super) fn start(run: &Arc<Run>, task: &Task, scratch_dir: &Path) -> io::Result<()> {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("weir");
    command.args(&task.words).args(["--progress", "json", "--out"]).arg(run.directory.path());
    command.current_dir(scratch_dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(password) = &task.password {
        command.env("PGPASSWORD", password);
    }
    // The thread first: what nobody listens to must not begin.
    let (sender, receiver) = channel();
    let listener = Arc::clone(run);
    let follow = move || receiver.recv().map_or((), |child| follow(&listener, child));
    thread::Builder::new().name(threads::LAB.to_owned()).spawn(follow)?;
    let child = command.spawn()?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // Those that it starts are its heirs in this too.
    let _ = setpriority_process(process, NICENESS);
    run.told().process = process;
    let _ = sender.send(child);
    Ok(())
}

/// Until the process has ended, or nobody can listen to it any more.
fn follow(run: &Run, mut child: Child) {
    let end = catch_unwind(AssertUnwindSafe(|| listen(run, &mut child))).unwrap_or_else(|_| {
        run.interrupt();
        end(child.wait(), "", "the panel ran into a bug while it listened: the log has more")
    });
    run.end(end);
}

/// Reads what it says, and waits for its end.
fn listen(run: &Run, child: &mut Child) -> End {
    let stderr = child.stderr.take();
    let words = thread::Builder::new().name(threads::LAB.to_owned()).spawn(move || {
        let mut words = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.by_ref().take(LAST_WORDS).read_to_string(&mut words);
            let _ = io::copy(&mut stderr, &mut io::sink());
        }
        words
    });
    let mut last = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while matches!(stdout.by_ref().take(LONGEST_LINE).read_line(&mut line), Ok(1..)) {
            if let Some(whole) = line.strip_suffix('\n') {
                run.add(whole);
                whole.clone_into(&mut last);
            }
            line.clear();
        }
    }
    let status = child.wait();
    let words = words.ok().and_then(|words| words.join().ok()).unwrap_or_default();
    end(status, &last, &words)
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
    advice: Advice,
}

fn end(status: io::Result<ExitStatus>, last: &str, words: &str) -> End {
    // So early a signal ends it before it can say anything.
    let is_ended = |status: &ExitStatus| status.signal() == Some(rustix::process::Signal::TERM.as_raw());
    let state = match status.ok().map(|status| (status.code(), is_ended(&status))) {
        Some((Some(0 | 3), _)) => "done",
        Some((Some(130), _) | (_, true)) => "interrupted",
        _ => "failed",
    };
    let LastLine { report, advice: advised } = serde_json::from_str(last).unwrap_or_default();
    let own = advised.iter().position(|advised| advised.target == "weir").unwrap_or(0);
    let advice = advised.into_iter().nth(own).map(|advised| advised.advice);
    let error = (state == "failed").then(|| words.trim().to_owned());
    End { state: Cow::Borrowed(state), ended: now_rfc3339(), advice, report, error }
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
        assert_eq!((&*end.state, size, end.report, end.error), ("done", Some(16), true, None));
        let end =
            ended(3, r#"{"advice":[{"target":"weir","size":null,"verdict":"cannot tell","line":null}]}"#);
        assert_eq!(
            (&*end.state, end.advice.map(|advice| advice.size), end.report),
            ("done", Some(None), false)
        );
        assert_eq!(ended(130, "").state, "interrupted");
        assert_eq!(super::end(Ok(ExitStatus::from_raw(15)), "", "").state, "interrupted");
        assert_eq!(ended(1, "x").error.as_deref(), Some("words"));
    }
}
