//! A request that a standby runs, as long as it may be repeated by the primary (`read_write_split`).
//!
//! Owns the copy of the request, and the answer until it says something. What is a refusal is `session`'s; what comes of one, `link::repeat`'s.

use session::{Cause, FirstAnswer, Refusal, is_repeatable};

/// A longer request is not copied.
const MAX_REQUEST_BYTES: usize = 8 * 1024;

/// The first request of a client on a standby.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    state: State,
    request: Vec<u8>,
    /// The beginning of the answer, which says nothing yet.
    answer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is to be repeated.
    #[default]
    Over,
    /// Nothing of the answer has been passed on.
    Open,
    /// It was refused, and is repeated once the refusal is read to its end.
    Refused(Cause),
}

/// What comes of bytes of the answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// More has to come.
    Open,
    /// It is passed on; with what had come before, if something had.
    Passed(Option<Vec<u8>>),
    /// The standby has refused the request: all that it has said.
    Refused(Refusal, Vec<u8>),
    /// More of a refusal.
    Dropped,
}

impl Attempt {
    /// This request has been sent, all of it.
    pub(crate) fn begin(&mut self, request: &[u8]) {
        self.request.clear();
        self.answer.clear(); // An attempt that was given up may have left some.
        if request.len() <= MAX_REQUEST_BYTES && is_repeatable(request) {
            self.request.extend_from_slice(request);
            self.state = State::Open;
        }
    }

    /// What the server says is not passed on unseen.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Over
    }

    /// The server leaves its client, or the answer is the client's.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.state = State::Over;
    }

    /// The server has sent this.
    pub(crate) fn answered(&mut self, bytes: &[u8]) -> Answer {
        if self.state != State::Open {
            return Answer::Dropped;
        }
        let is_first = self.answer.is_empty();
        if !is_first {
            self.answer.extend_from_slice(bytes);
        }
        match FirstAnswer::judge(if is_first { bytes } else { &self.answer }) {
            FirstAnswer::Open if is_first => {
                self.answer.extend_from_slice(bytes);
                Answer::Open
            }
            FirstAnswer::Open => Answer::Open,
            FirstAnswer::Passed => {
                self.end();
                Answer::Passed((!is_first).then(|| std::mem::take(&mut self.answer)))
            }
            FirstAnswer::Refused(refusal) => {
                self.state = State::Refused(refusal.cause);
                let answer = if is_first { bytes.to_vec() } else { std::mem::take(&mut self.answer) };
                Answer::Refused(refusal, answer)
            }
        }
    }

    /// The request, which was refused.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }

    /// The request is to be repeated now, and why it was refused; None if the standby is gone.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, Option<Cause>)> {
        let cause = match std::mem::take(&mut self.state) {
            State::Over => return None,
            State::Open => None,
            State::Refused(cause) => Some(cause),
        };
        self.answer = Vec::new();
        Some((std::mem::take(&mut self.request), cause))
    }
}
