//! A watch of one kind of objects: from a revision on, for as long as the API server has what comes behind it.
//!
//! Owns that nothing is left out where the API server ends a watch, as it does every minute here, and that one of which nothing is heard ends.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use fleet::Revision;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::failure::Failure;
use super::http::Lines;
use super::objects::{metadata, read_revision};
use super::requests::Requests;

/// How long the API server lets a watch run; the next one goes on where it ended.
const WATCH_S: u64 = 60;

/// Changes that wait to be taken.
const MOST_WAITING: usize = 64;

/// For the beginning of an answer.
const BEGIN: Duration = Duration::from_secs(6);

/// A watch that ends earlier than this is not begun again at once.
const SHORT: Duration = Duration::from_secs(1);

/// A change.
pub(crate) enum Change {
    /// It was created, or written.
    Written(Value),
    /// The last state of what is deleted, with the revision of that.
    Deleted(Value),
}

/// A running watch; ends when dropped.
pub(crate) struct Stream {
    changes: mpsc::Receiver<Result<Change, Failure>>,
    task: JoinHandle<()>,
}

impl Stream {
    /// Watches what is at this path, from behind a revision. `silence`: without any line for this long it is lost.
    ///
    /// # Errors
    /// [`Failure`]: it has not begun.
    pub(crate) async fn begin(
        requests: &Arc<Requests>,
        path: String,
        from: Revision,
        silence: Option<Duration>,
    ) -> Result<Stream, Failure> {
        // By then the API server has ended a watch that works.
        let longest = Duration::from_secs(WATCH_S + 10);
        let silence = silence.map_or(longest, |silence| silence.min(longest));
        let requests = Arc::clone(requests);
        let lines = open(&requests, &path, from).await?;
        let (sender, changes) = mpsc::channel(MOST_WAITING);
        let task = tokio::spawn(async move {
            let failure = run(&requests, &path, (lines, from), silence, &sender).await;
            let _ = sender.send(Err(failure)).await;
        });
        Ok(Stream { changes, task })
    }

    /// The next change. May be dropped and called again.
    ///
    /// # Errors
    /// [`Failure`]: the watch is over.
    pub(crate) async fn next(&mut self) -> Result<Change, Failure> {
        self.changes.recv().await.unwrap_or_else(|| Err(Failure::answer("the watch has ended")))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn open(requests: &Requests, path: &str, Revision(from): Revision) -> Result<Lines, Failure> {
    let path = format!(
        "{path}?{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={from}",
        requests.objects.selector()
    );
    let lines = timeout(BEGIN, requests.http.lines(&path)).await;
    lines.unwrap_or_else(|_| Err(Failure::Transport("no answer to a watch".to_owned())))
}

async fn run(
    requests: &Requests,
    path: &str,
    (mut lines, mut from): (Lines, Revision),
    silence: Duration,
    changes: &mpsc::Sender<Result<Change, Failure>>,
) -> Failure {
    loop {
        let began = Instant::now();
        if let Err(failure) = pass_on(&mut lines, &mut from, silence, changes).await {
            return failure;
        }
        if began.elapsed() < SHORT {
            sleep(SHORT).await;
        }
        lines = match open(requests, path, from).await {
            Ok(lines) => lines,
            Err(failure) => return failure,
        };
    }
}

/// Passes changes on until the API server ends the watch.
async fn pass_on(
    lines: &mut Lines,
    from: &mut Revision,
    silence: Duration,
    changes: &mpsc::Sender<Result<Change, Failure>>,
) -> Result<(), Failure> {
    loop {
        let line = timeout(silence, lines.next()).await.unwrap_or_else(|_| {
            let why = format!("nothing was heard of a watch for {} s", silence.as_secs());
            Err(Failure::Transport(why))
        });
        let Some(mut line) = line? else { return Ok(()) };
        let object = line.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = line.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind == "ERROR" {
            return Err(error(&object));
        }
        *from = read_revision(metadata(&object, "resourceVersion").unwrap_or_default())?;
        let change = match kind {
            "ADDED" | "MODIFIED" => Change::Written(object),
            "DELETED" => Change::Deleted(object),
            // A bookmark, or what newer API servers send.
            _ => continue,
        };
        if changes.send(Ok(change)).await.is_err() {
            return Err(Failure::answer("the watch has ended"));
        }
    }
}

/// Of a `Status` that a watch sends.
fn error(status: &Value) -> Failure {
    let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    Failure::Refused(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), message.to_owned())
}
