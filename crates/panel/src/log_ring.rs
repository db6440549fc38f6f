//! The last lines of the log, kept for the panel. Writing a line costs a short copy; readers ask by the number of the next
//! line and never block the writer. Never decides what is logged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of lines that are kept.
const MAX_LINES: usize = 1_000;

/// Readers that may follow it at once.
const MAX_READERS: usize = 50;

/// What is longer is cut.
const MAX_BODY_BYTES: usize = 2_000;

/// The last lines, with one writer and many readers.
#[derive(Debug, Default)]
pub struct LogRing {
    locked: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<Arc<str>>,
    /// The number of the first of them.
    first: u64,
}

impl LogRing {
    /// Keeps a line, with or without its end.
    pub fn push(&self, line: &str) {
        let line = line.trim_end_matches('\n');
        let line: Arc<str> = line[..line.floor_char_boundary(MAX_BODY_BYTES)].into();
        let mut locked = self.locked();
        if locked.lines.len() == MAX_LINES {
            locked.lines.pop_front();
            locked.first += 1;
        }
        locked.lines.push_back(line);
    }

    /// The last lines, at most `most`.
    pub(crate) fn last(&self, most: usize) -> Vec<Arc<str>> {
        let locked = self.locked();
        locked.lines.iter().skip(locked.lines.len().saturating_sub(most)).cloned().collect()
    }

    /// The number that the next line will have.
    pub(crate) fn next(&self) -> u64 {
        let locked = self.locked();
        locked.first + locked.lines.len() as u64
    }

    /// What is still there of the lines from number `from` on, and the number to come back with.
    pub(crate) fn since(&self, from: u64) -> (Vec<Arc<str>>, u64) {
        let locked = self.locked();
        let known = usize::try_from(from.saturating_sub(locked.first)).unwrap_or(usize::MAX);
        let lines = locked.lines.iter().skip(known).cloned().collect();
        (lines, locked.first + locked.lines.len() as u64)
    }

    fn locked(&self) -> MutexGuard<'_, Lines> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines for those who read them, of whom a limited number may follow.
#[derive(Debug)]
pub(crate) struct LogReaders {
    ring: Arc<LogRing>,
    places: Arc<Semaphore>,
}

impl LogReaders {
    pub(crate) fn new(ring: Arc<LogRing>) -> LogReaders {
        LogReaders { ring, places: Arc::new(Semaphore::new(MAX_READERS)) }
    }

    /// The lines.
    pub(crate) fn ring(&self) -> &Arc<LogRing> {
        &self.ring
    }

    /// A place for one more reader that follows, until it is dropped; None where all are taken.
    pub(crate) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_kept_and_readers_go_on_where_they_were() {
        let log_ring = LogRing::default();
        let (none, from) = log_ring.since(log_ring.next());
        assert!(none.is_empty());
        for number in 0..MAX_LINES + 3 {
            log_ring.push(&format!("line {number}\n"));
        }
        let (lines, from) = log_ring.since(from);
        assert_eq!((lines.len(), &*lines[0]), (MAX_LINES, "line 3"));
        assert!(log_ring.since(from).0.is_empty());
        log_ring.push("more");
        assert_eq!(*log_ring.since(from).0, ["more".into()]);
        assert_eq!(*log_ring.last(2), [format!("line {}", MAX_LINES + 2).into(), "more".into()]);
    }

    #[test]
    fn what_is_long_is_cut_between_letters_and_no_line_is_hidden() {
        let log_ring = LogRing::default();
        log_ring.push(&"ü".repeat(MAX_BODY_BYTES));
        log_ring.push("LOG user \"panel token: \"");
        let lines = log_ring.last(9);
        assert_eq!((lines.len(), lines[0].len()), (2, MAX_BODY_BYTES));
    }
}
