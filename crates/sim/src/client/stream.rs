//! A stream in both directions at once, from the client's side: what it must hear, what it says meanwhile, when it ends it.

use super::context::ClientContext;
use super::expect::{Group, Kind, Step, Verdict};
use super::session::Client;
use crate::protocol::{Fields, message, text};
use crate::sql::Statement;

/// How often a client answers a message of the stream, in a million.
const ANSWERS: u32 = 400_000;

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The client ends it after this many messages.
    stops_at: u32,
    said: u32,
    /// The client has said CopyDone.
    stopped: bool,
    /// The server has.
    ended: bool,
    /// The first of the two words that end it has come.
    completed: bool,
}

impl Step {
    /// A message came for a stream: what it means, or why it is wrong.
    pub(super) fn accept_stream(&mut self, kind: u8, body: &[u8]) -> Result<Verdict, String> {
        let streams = self.begun && !self.stream.ended;
        match kind {
            b'W' if !self.begun => self.begun = true,
            b'd' if streams => {
                self.rows += 1;
                let due = format!("{}|{}", self.tag, self.rows);
                if body != due.as_bytes() {
                    return Err(self.wrong(kind, &due));
                }
            }
            b'c' if streams && (self.stream.stopped || self.rows == self.statement.rows()) => {
                self.stream.ended = true;
            }
            b'C' if self.stream.ended && self.stream.stopped => {
                let due = if self.stream.completed { "START_REPLICATION" } else { "START_STREAMING" };
                if Fields(body).text() != Some(due.as_bytes()) {
                    return Err(self.wrong(kind, due));
                }
                let done = std::mem::replace(&mut self.stream.completed, true);
                return Ok(if done { Verdict::Done } else { Verdict::More });
            }
            _ => return Err(self.wrong(kind, "the stream")),
        }
        Ok(Verdict::Streams)
    }
}

impl Client {
    /// Asks for a stream; nothing may be sent behind it.
    pub(super) fn compose_stream(&mut self, context: &mut ClientContext<'_>) -> bool {
        let tag = self.next_tag();
        let messages = u32::try_from(context.prng.log_between(1, context.client_mix.rows_most)).unwrap_or(1);
        let statement = Statement::Stream(messages);
        let words = format!("{statement} /*{tag}*/");
        self.send(|out| message(out, b'Q', |body| text(body, words.as_bytes())));
        let mut step = Step::new(Kind::Query, statement, tag);
        step.stream.stops_at = if context.prng.chance(500_000) {
            u32::try_from(context.prng.below(u64::from(messages))).unwrap_or(0)
        } else {
            u32::MAX
        };
        self.groups.push_back(Group {
            synced: true,
            needs_server: true,
            steps: [step].into(),
            ..Group::default()
        });
        false
    }

    /// Something of a stream came: the client answers it now and then, and ends the stream when it has enough or the server
    /// has ended it.
    pub(super) fn stream_on(&mut self, context: &mut ClientContext<'_>) {
        if self.gives_up() {
            return;
        }
        let Some(step) = self.groups.front_mut().and_then(|group| group.steps.front_mut()) else { return };
        if step.stream.stopped {
            return;
        }
        if step.stream.ended || step.rows >= step.stream.stops_at {
            step.stream.stopped = true;
            return self.send(|out| message(out, b'c', |_| ()));
        }
        if context.prng.chance(ANSWERS) {
            step.stream.said += 1;
            let words = format!("{}|{}", step.tag, step.stream.said);
            self.send(|out| message(out, b'd', |body| body.extend_from_slice(words.as_bytes())));
        }
    }
}
