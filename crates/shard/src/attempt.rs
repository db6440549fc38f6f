//! A request whose answer is not passed on unseen: a standby runs it, and it may be repeated by the primary (`read_write_split`), or its answer is stored (`query_cache`).
//!
//! Owns the copy of the request, and the answer until it says something. What is a refusal is `session`'s; what comes of one, `link::repeat`'s; what is stored, `link::cached`'s.

use session::{Cause, FirstAnswer, Refusal};

/// A longer request is not copied.
const MAX_REQUEST_BYTES: usize = 8 * 1024;

/// The first request of a client on a standby.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    state: State,
    request: Vec<u8>,
    /// The number of replies, before the answer, to settings that were sent in front of the request.
    leading_replies: usize,
    /// The beginning of the answer, which says nothing yet.
    answer: Vec<u8>,
    /// Its client has had it cancelled: no other server runs it.
    is_cancelled: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is to be repeated.
    #[default]
    Over,
    /// Nothing of the answer has been passed on. `recorded`: it is to be stored.
    Open { recorded: bool },
    /// The answer is passed on, and stored (`query_cache`).
    Recorded,
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

/// A request that a standby has not run.
#[derive(Default)]
pub(crate) struct NotRun {
    pub(crate) request: Vec<u8>,
    /// Why it was refused; None if the standby is gone.
    pub(crate) cause: Option<Cause>,
    /// Its client does not want it any more.
    pub(crate) is_cancelled: bool,
}

impl Attempt {
    /// Whether a request of this length is copied.
    pub(crate) fn may_have(bytes: usize) -> bool {
        bytes <= MAX_REQUEST_BYTES
    }

    /// This request, which can be repeated, has been sent, all of it. `leading_replies`: the number of replies owed to settings that were sent in front of it. `unread`: the beginning of a message that came before, which is looked at with what comes next; None if the client
    /// has a part of it.
    pub(crate) fn begin(
        &mut self,
        request: &[u8],
        leading_replies: usize,
        unread: impl FnOnce() -> Option<Vec<u8>>,
    ) {
        self.request.clear();
        self.answer.clear(); // An attempt that was given up may have left some.
        self.is_cancelled = false;
        if Attempt::may_have(request.len())
            && let Some(unread) = unread()
        {
            (self.answer, self.leading_replies) = (unread, leading_replies);
            self.request.extend_from_slice(request);
            self.state = State::Open { recorded: false };
        }
    }

    /// The answer to what has been sent is stored as it passes.
    pub(crate) fn record(&mut self) {
        self.state = match self.state {
            State::Open { .. } => State::Open { recorded: true },
            State::Over | State::Recorded | State::Refused(_) => State::Recorded,
        };
    }

    /// What the server has said, and what it says next, is stored.
    pub(crate) fn is_recorded(&self) -> bool {
        self.state == State::Recorded
    }

    /// What the server says is not passed on unseen.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Over
    }

    /// A cancel request came for it.
    pub(crate) fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// The server leaves its client, or the answer is the client's.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.state = State::Over;
    }

    /// True if the server has sent this, which is all of an answer and the client's, and nothing before it. False changes nothing.
    #[inline]
    pub(crate) fn passes_at_once(&mut self, bytes: &[u8]) -> bool {
        let passes = self.state == State::Open { recorded: false }
            && self.answer.is_empty()
            && self.leading_replies == 0
            && FirstAnswer::is_passed_whole(bytes);
        if passes {
            self.state = State::Over;
        }
        passes
    }

    /// The server has sent this.
    pub(crate) fn answered(&mut self, bytes: &[u8]) -> Answer {
        let recorded = match self.state {
            State::Open { recorded } => recorded,
            State::Recorded => return Answer::Passed(None),
            State::Over | State::Refused(_) => return Answer::Dropped,
        };
        let is_first = self.answer.is_empty();
        if !is_first {
            self.answer.extend_from_slice(bytes);
        }
        match FirstAnswer::judge(if is_first { bytes } else { &self.answer }, self.leading_replies) {
            FirstAnswer::Open if is_first => {
                self.answer.extend_from_slice(bytes);
                Answer::Open
            }
            FirstAnswer::Open => Answer::Open,
            FirstAnswer::Refused(refusal) => {
                self.state = State::Refused(refusal.cause);
                let answer = if is_first { bytes.to_vec() } else { std::mem::take(&mut self.answer) };
                Answer::Refused(refusal, answer)
            }
            FirstAnswer::Passed => {
                self.state = if recorded { State::Recorded } else { State::Over };
                Answer::Passed((!is_first).then(|| std::mem::take(&mut self.answer)))
            }
        }
    }

    /// The request, which was refused.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }

    /// What the standby has not run, if that can be told.
    pub(crate) fn take(&mut self) -> Option<NotRun> {
        let cause = match std::mem::take(&mut self.state) {
            State::Over | State::Recorded => return None,
            State::Open { .. } => None,
            State::Refused(cause) => Some(cause),
        };
        self.answer = Vec::new();
        Some(NotRun { request: std::mem::take(&mut self.request), cause, is_cancelled: self.is_cancelled })
    }
}
