//! A stream in both directions at once (CopyBoth), as a WAL sender answers START_REPLICATION.
//!
//! Owns what is said and heard while it runs. Both sides number what they say, so that nothing is lost, doubled or
//! overtaken unseen. Never decides when a stream is asked for.

use super::reply;
use super::session::{Progress, Session, SessionContext};
use crate::protocol::message;

/// The most messages that are said at once.
const SLICE_MESSAGES: u64 = 8;

/// How far a stream has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    said: u32,
    heard: u32,
    /// CopyDone was said: the client's is waited for.
    closed: bool,
}

impl Session {
    pub(super) fn is_streaming(&self) -> bool {
        let running = self.work.as_ref().and_then(|work| work.running.as_ref());
        running.is_some_and(|running| running.stream.is_some())
    }

    /// Says a few messages more; how long until the next, None if nothing more is to be said.
    pub(crate) fn stream_on(&mut self, near: &mut SessionContext<'_>) -> Option<u64> {
        let running = self.work.as_mut().and_then(|work| work.running.as_mut())?;
        let (messages, tag) = (running.statement.rows(), running.tag?);
        let stream = running.stream.as_mut().filter(|stream| !stream.closed)?;
        for _ in 0..near.prng.between(1, SLICE_MESSAGES) {
            if stream.said == messages {
                stream.closed = true;
                reply::bare(&mut self.out, b'c');
                break;
            }
            stream.said += 1;
            let text = format!("{tag}|{}", stream.said);
            message(&mut self.out, b'd', |body| body.extend_from_slice(text.as_bytes()));
        }
        self.chatter(near);
        self.flush();
        Some(1 + near.prng.below(near.servers.work_us))
    }

    /// A message while a stream runs.
    pub(super) fn stream_message(
        &mut self,
        kind: u8,
        body: &[u8],
        near: &mut SessionContext<'_>,
    ) -> Progress {
        let Some(running) = self.work.as_mut().and_then(|work| work.running.as_mut()) else {
            return Progress::Waiting;
        };
        let (tag, Some(stream)) = (running.tag, running.stream.as_mut()) else { return Progress::Waiting };
        match kind {
            b'd' => {
                stream.heard += 1;
                let expected = tag.map(|tag| format!("{tag}|{}", stream.heard));
                if expected.as_ref().is_some_and(|expected| expected.as_bytes() != body) {
                    let found = String::from_utf8_lossy(body);
                    near.strange
                        .push(("I1", format!("a stream was sent `{found}` in place of {expected:?}")));
                }
                Progress::Waiting
            }
            b'c' => {
                if !stream.closed {
                    reply::bare(&mut self.out, b'c');
                }
                // A WAL sender says it twice.
                reply::complete(&mut self.out, "START_STREAMING");
                self.done("START_REPLICATION");
                Progress::Again
            }
            b'X' => Progress::Ended,
            other => self.end_fatally("08P01", &format!("invalid standby message type {other}")),
        }
    }
}
