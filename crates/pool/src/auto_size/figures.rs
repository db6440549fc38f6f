//! What shards count for the size of a pool that sizes itself, three times a second each and never on the path of a query, and the size that was decided.
//!
//! Owns the atomics. One shard decides ([`super::SizeController`]), all follow.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sums over all shards; a report adds to them all.
#[derive(Debug, Default)]
pub struct SizeFigures {
    /// The size that was decided; 0 before the first decision.
    target: AtomicU32,
    /// The shard that decides, and one more; 0 is none.
    decider: AtomicU32,
    /// Shards that report.
    reporters: AtomicU32,
    elapsed_us: AtomicU64,
    transactions: AtomicU64,
    server_us: AtomicU64,
    wait_us: AtomicU64,
    /// Servers whose transactions have gone on for much longer than is usual, as the shards have told last.
    stuck: AtomicU32,
}

/// What one shard has counted since its last report, or all of them since some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeReport {
    /// How long that was; of several shards, for all of them together.
    pub elapsed_us: u64,
    /// Transactions that have ended.
    pub transactions: u64,
    /// How long they took at their servers, in all.
    pub server_us: u64,
    /// How long clients waited before they got a server, in all.
    pub wait_us: u64,
}

impl SizeReport {
    /// What has been added since an earlier sum.
    #[must_use]
    pub fn since(&self, earlier: &SizeReport) -> SizeReport {
        SizeReport {
            elapsed_us: self.elapsed_us.saturating_sub(earlier.elapsed_us),
            transactions: self.transactions.saturating_sub(earlier.transactions),
            server_us: self.server_us.saturating_sub(earlier.server_us),
            wait_us: self.wait_us.saturating_sub(earlier.wait_us),
        }
    }

    pub(super) fn add(&mut self, other: &SizeReport) {
        self.elapsed_us += other.elapsed_us;
        self.transactions += other.transactions;
        self.server_us += other.server_us;
        self.wait_us += other.wait_us;
    }
}

impl SizeFigures {
    /// The size that was decided; None before the first decision.
    #[must_use]
    pub fn target(&self) -> Option<u32> {
        Some(self.target.load(Ordering::Acquire)).filter(|size| *size > 0)
    }

    /// A size was decided.
    pub fn set_target(&self, size: u32) {
        self.target.store(size, Ordering::Release);
    }

    /// The process before has decided this, and none has here.
    pub fn import(&self, size: u32) {
        _ = self.target.compare_exchange(0, size, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the shard decides: it does from now on if none does.
    pub fn decides(&self, shard: u16) -> bool {
        let me = u32::from(shard) + 1;
        let claimed = self.decider.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() || claimed == Err(me)
    }

    /// The shard decides no more.
    pub fn cease(&self, shard: u16) {
        let me = u32::from(shard) + 1;
        _ = self.decider.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Adds what a shard has counted.
    pub fn report(&self, report: &SizeReport) {
        self.transactions.fetch_add(report.transactions, Ordering::Relaxed);
        self.server_us.fetch_add(report.server_us, Ordering::Relaxed);
        self.wait_us.fetch_add(report.wait_us, Ordering::Relaxed);
        self.elapsed_us.fetch_add(report.elapsed_us, Ordering::Relaxed);
    }

    /// What all shards have counted so far.
    #[must_use]
    pub fn sum(&self) -> SizeReport {
        SizeReport {
            elapsed_us: self.elapsed_us.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            server_us: self.server_us.load(Ordering::Relaxed),
            wait_us: self.wait_us.load(Ordering::Relaxed),
        }
    }

    /// Shards that report.
    #[must_use]
    pub fn reporters(&self) -> u32 {
        self.reporters.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_reporting(&self) {
        self.reporters.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_reporting(&self, stuck: u32) {
        self.reporters.fetch_sub(1, Ordering::Relaxed);
        self.change_stuck(stuck, 0);
    }

    /// A shard's number of stuck servers changes from one to the other.
    pub(crate) fn change_stuck(&self, before: u32, now: u32) {
        if before != now {
            self.stuck.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Servers of all shards whose transactions have gone on for much longer than is usual.
    #[must_use]
    pub fn stuck(&self) -> u32 {
        self.stuck.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_to_sums_that_are_read_by_difference() {
        let figures = SizeFigures::default();
        assert_eq!(figures.target(), None);
        let report = SizeReport { elapsed_us: 10, transactions: 2, server_us: 7, wait_us: 5 };
        figures.report(&report);
        let before = figures.sum();
        figures.report(&report);
        figures.report(&report);
        assert_eq!(
            figures.sum().since(&before),
            SizeReport { elapsed_us: 20, transactions: 4, server_us: 14, wait_us: 10 }
        );
        figures.change_stuck(0, 3);
        figures.begin_reporting();
        assert_eq!((figures.stuck(), figures.reporters()), (3, 1));
        assert!(figures.decides(4) && figures.decides(4) && !figures.decides(0));
        figures.cease(0);
        assert!(!figures.decides(0));
        figures.cease(4);
        assert!(figures.decides(0));
        figures.import(6);
        figures.import(7);
        assert_eq!(figures.target(), Some(6));
        figures.end_reporting(3);
        assert_eq!((figures.stuck(), figures.reporters()), (0, 0));
    }
}
