//! The memory that the answers of one entry take over all shards (`query_cache`): an atomic, touched when an answer is stored or dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use.
#[derive(Debug, Default)]
pub struct CacheBudget {
    used: AtomicU64,
}

impl CacheBudget {
    /// Takes this many bytes, if no more than `limit` are in use then.
    pub fn take(&self, bytes: u64, limit: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Gives them back.
    pub fn give_back(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(before >= bytes, "more was given back than taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_the_limit() {
        let budget = CacheBudget::default();
        assert!(budget.take(60, 100) && !budget.take(41, 100) && budget.take(40, 100));
        assert!(!budget.take(1, 90), "a smaller limit holds at once");
        budget.give_back(60);
        assert!(budget.take(50, 90) && !budget.take(u64::MAX, u64::MAX));
    }
}
