//! The last lines of the log, kept for the panel: so many, so long. Whoever logs pays for a short copy; readers come
//! with the number of the next line and wait for nobody. Never decides what is logged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many lines are kept.
const MOST_LINES: usize = 1_000;

/// What is longer is cut.
const MOST_BYTES: usize = 2_000;

/// The last lines, for one who writes them and many who read them.
#[derive(Debug, Default)]
pub struct Journal {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<Arc<str>>,
    /// The number of the first of them.
    first: u64,
}

impl Journal {
    /// Keeps a line, with or without its end.
    pub fn push(&self, line: &str) {
        let line = line.trim_end_matches('\n');
        let line: Arc<str> = line[..line.floor_char_boundary(MOST_BYTES)].into();
        let mut kept = self.kept();
        if kept.lines.len() == MOST_LINES {
            kept.lines.pop_front();
            kept.first += 1;
        }
        kept.lines.push_back(line);
    }

    /// The last lines, at most `most`.
    pub(crate) fn last(&self, most: usize) -> Vec<Arc<str>> {
        let kept = self.kept();
        kept.lines.iter().skip(kept.lines.len().saturating_sub(most)).cloned().collect()
    }

    /// The number that the next line will have.
    pub(crate) fn next(&self) -> u64 {
        let kept = self.kept();
        kept.first + kept.lines.len() as u64
    }

    /// What is still there of the lines from number `from` on, and the number to come back with.
    pub(crate) fn since(&self, from: u64) -> (Vec<Arc<str>>, u64) {
        let kept = self.kept();
        let known = usize::try_from(from.saturating_sub(kept.first)).unwrap_or(usize::MAX);
        let lines = kept.lines.iter().skip(known).cloned().collect();
        (lines, kept.first + kept.lines.len() as u64)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_kept_and_readers_go_on_where_they_were() {
        let journal = Journal::default();
        let (none, from) = journal.since(journal.next());
        assert!(none.is_empty());
        for number in 0..MOST_LINES + 3 {
            journal.push(&format!("line {number}\n"));
        }
        let (lines, from) = journal.since(from);
        assert_eq!((lines.len(), &*lines[0]), (MOST_LINES, "line 3"));
        assert!(journal.since(from).0.is_empty());
        journal.push("more");
        assert_eq!(*journal.since(from).0, ["more".into()]);
        assert_eq!(*journal.last(2), [format!("line {}", MOST_LINES + 2).into(), "more".into()]);
    }

    #[test]
    fn what_is_long_is_cut_between_letters_and_no_line_is_hidden() {
        let journal = Journal::default();
        journal.push(&"ü".repeat(MOST_BYTES));
        journal.push("LOG user \"panel token: \"");
        let lines = journal.last(9);
        assert_eq!((lines.len(), lines[0].len()), (2, MOST_BYTES));
    }
}
