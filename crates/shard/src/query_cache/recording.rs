//! An answer that is stored as it passes (`query_cache`).
//!
//! Owns that one answer is recorded, from its beginning to its end, and how much of it is kept.

use session::{AnswerEnd, answer_end};

use crate::query_cache::Dependencies;

/// A longer answer is not stored.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// The answer to a client's request.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) key: Box<[u8]>,
    pub(crate) dependencies: Dependencies,
    request_bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The request has not been sent.
    Waiting,
    /// So much has passed, of which whole messages were looked at up to there.
    Passing { answer: Vec<u8>, checked: usize },
}

/// What comes of more of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// More has to come.
    Open,
    /// It is whole.
    Whole(Box<[u8]>),
    /// It is not to be stored.
    Refused,
}

impl Recording {
    /// Of a request of this many bytes, which are the end of the key.
    pub(crate) fn new(key: Box<[u8]>, dependencies: Dependencies, request_bytes: usize) -> Recording {
        Recording { key, dependencies, request_bytes, state: State::Waiting }
    }

    /// This has been sent. True if that is the request, and nothing was before.
    pub(crate) fn begin(&mut self, sent: &[u8]) -> bool {
        let is_it = matches!(self.state, State::Waiting) && sent == self.request();
        if is_it {
            self.state = State::Passing { answer: Vec::new(), checked: 0 };
        }
        is_it
    }

    /// The key ends with the request.
    fn request(&self) -> &[u8] {
        &self.key[self.key.len().saturating_sub(self.request_bytes)..]
    }

    /// The request has been sent.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.state, State::Passing { .. })
    }

    /// This has been passed on.
    pub(crate) fn passed(&mut self, bytes: &[u8]) -> Recorded {
        let State::Passing { answer, checked } = &mut self.state else { return Recorded::Refused };
        if answer.len() + bytes.len() > MAX_ANSWER_BYTES {
            return Recorded::Refused;
        }
        answer.extend_from_slice(bytes);
        let (next, end) = answer_end(answer, *checked);
        *checked = next;
        match end {
            AnswerEnd::Open => Recorded::Open,
            AnswerEnd::At(end) => {
                answer.truncate(end);
                Recorded::Whole(std::mem::take(answer).into_boxed_slice())
            }
            AnswerEnd::Other => Recorded::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::backend::Status;
    use wire::encode;

    use super::*;

    fn recording() -> Recording {
        let mut recording = Recording::new(b"user request"[..].into(), Dependencies::default(), 7);
        assert!(!recording.begin(b"reques") && !recording.begin(b"another") && !recording.is_passing());
        assert!(recording.begin(b"request") && recording.is_passing() && !recording.begin(b"request"));
        recording
    }

    fn answer() -> Vec<u8> {
        let mut out = Vec::new();
        encode::data_row(&mut out, [Some(&b"x"[..])]);
        encode::command_complete(&mut out, "SELECT 1");
        encode::ready(&mut out, Status::Idle);
        out
    }

    #[test]
    fn one_answer_is_kept_however_it_comes_and_what_is_behind_it_is_not() {
        let (whole, mut recording) = (answer(), recording());
        let (head, last) = whole.split_at(whole.len() - 1);
        for byte in head {
            assert_eq!(recording.passed(&[*byte]), Recorded::Open);
        }
        let behind = [last, &whole].concat();
        assert_eq!(recording.passed(&behind), Recorded::Whole(whole.into()));
    }

    #[test]
    fn a_long_answer_or_another_than_rows_is_not_kept() {
        let mut error = Vec::new();
        encode::error(&mut error, "ERROR", "42601", "no");
        assert_eq!(recording().passed(&error), Recorded::Refused);
        let mut long = recording();
        let mut row = Vec::new();
        encode::data_row(&mut row, [Some(&[b'x'; 60_000][..])]);
        let outcomes: Vec<Recorded> = (0..5).map(|_| long.passed(&row)).collect();
        assert_eq!(outcomes.last(), Some(&Recorded::Refused));
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Recorded::Open).count(), 4);
        let mut waiting = Recording::new(b"request"[..].into(), Dependencies::default(), 7);
        assert_eq!(waiting.passed(&answer()), Recorded::Refused);
    }
}
