//! `pool_size = auto`: what one shard has counted until its last report, and the search for the size, where that is this shard's.
//!
//! Data and arithmetic; when it is looked at is `pools::auto_size`'s to decide.

use pool::{SizeController, SizeReport};
use telemetry::Counters;

/// A transaction goes on for much longer than is usual: for at least this long, and for this many times the mean.
const LONG_US: u64 = 1_000_000;
const LONG_FACTOR: u64 = 10;

/// What is kept of a local pool.
#[derive(Default)]
pub(crate) struct Sizing {
    /// When the last report was made; None before the first.
    reported_us: Option<u64>,
    reported: SizeReport,
    /// The mean time of a transaction in the last report that had any.
    mean_us: u64,
    /// Servers whose transactions go on for long, counted since the last report.
    pub(crate) stuck: u32,
    /// The search, and what all shards had counted when it was told last.
    pub(crate) search: Option<Box<Search>>,
}

/// The search for the size.
pub(crate) struct Search {
    pub(crate) controller: SizeController,
    pub(crate) seen: SizeReport,
    pub(crate) seen_us: u64,
}

impl Sizing {
    /// What was counted since the last report; None if this is the first.
    pub(crate) fn report(&mut self, counters: &Counters, now_us: u64) -> Option<SizeReport> {
        let sum = SizeReport {
            elapsed_us: now_us,
            transactions: counters.xact_count,
            server_us: counters.xact_time,
            wait_us: counters.wait_time,
        };
        let is_first = self.reported_us.replace(now_us).is_none();
        let report = sum.since(&std::mem::replace(&mut self.reported, sum));
        if is_first {
            return None;
        }
        if let Some(mean_us) = report.server_us.checked_div(report.transactions) {
            self.mean_us = mean_us;
        }
        Some(report)
    }

    /// A transaction has gone on for so long: much longer than is usual here.
    pub(crate) fn is_long(&self, time_us: u64) -> bool {
        time_us > LONG_US.max(self.mean_us.saturating_mul(LONG_FACTOR))
    }

    /// The size is not this pool's to find; true if it was.
    pub(crate) fn stop(&mut self) -> bool {
        let was = self.reported_us.is_some();
        if was {
            *self = Sizing::default();
        }
        was
    }
}
