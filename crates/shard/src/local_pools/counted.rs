//! What one pool's part counts on the path of a query: plain adds, of times that are known anyway.
//!
//! Owns that counters and histograms tell of the same things. The histograms are made when the first server is lent.

use crate::state::LocalPool;

impl LocalPool {
    /// A client got a server that it had waited for so long (0: it was there).
    #[inline]
    pub(crate) fn assigned(&mut self, wait_us: u64) {
        self.counters.server_assignment_count += 1;
        self.counters.wait_time += wait_us;
        self.histograms.get_or_insert_default().wait.add(wait_us);
    }

    /// So many queries were answered, which took so long together.
    #[inline]
    pub(crate) fn answered(&mut self, queries: u32, took_us: u64) {
        self.counters.query_count += u64::from(queries);
        self.counters.query_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.query.add_shares(took_us, queries);
        }
    }

    /// So many transactions ended, which took so long together.
    #[inline]
    pub(crate) fn transacted(&mut self, transactions: u32, took_us: u64) {
        self.counters.xact_count += u64::from(transactions);
        self.counters.xact_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.transaction.add_shares(took_us, transactions);
        }
    }
}
