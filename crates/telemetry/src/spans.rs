//! Requests that belong to traces of their callers (W3C Trace Context), as spans: the last ones of a thread.
//!
//! Bounded memory: [`SPANS`] of them, the oldest make room. Never decides which requests these are.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Waits;
use crate::queries::QueryFingerprint;

/// How many are kept on a thread.
pub const SPANS: usize = 1_000;

/// A request of a client, from when it was sent to its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The caller's trace.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub parent_id: [u8; 8],
    /// As clients name it.
    pub database: Arc<str>,
    /// Who asked.
    pub user: Arc<str>,
    /// When it ended, in microseconds since 1970.
    pub end_us: u64,
    /// How long it took, what its client waited for included, in microseconds.
    pub took_us: u64,
    /// What its client waited for.
    pub waits: Waits,
    /// It ended in an error.
    pub failed: bool,
    /// The kind of its first statement; None if it has none.
    pub shape: Option<Arc<QueryFingerprint>>,
}

/// The last spans, each with its number.
#[derive(Debug, Default)]
pub struct Spans {
    last: VecDeque<Span>,
    /// Of the next one.
    number: u64,
}

impl Spans {
    /// One more.
    pub fn push(&mut self, span: Span) {
        if self.last.len() == SPANS {
            self.last.pop_front();
        }
        self.last.push_back(span);
        self.number += 1;
    }

    /// Each with its number, which counts from 0 since the start of the process.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Span)> {
        (self.number - self.last.len() as u64..).zip(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_with_their_numbers() {
        let mut spans = Spans::default();
        let span = |took_us| Span {
            trace_id: [1; 16],
            parent_id: [2; 8],
            database: "d".into(),
            user: "u".into(),
            end_us: 9,
            took_us,
            waits: Waits::default(),
            failed: false,
            shape: None,
        };
        assert_eq!(spans.iter().count(), 0);
        (0..SPANS as u64 + 7).for_each(|number| spans.push(span(number)));
        assert_eq!(spans.iter().count(), SPANS);
        assert!(spans.iter().all(|(number, span)| number == span.took_us && number >= 7));
    }
}
