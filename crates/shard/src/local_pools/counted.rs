//! Counters of a local pool on the path of a query: plain additions, of times that are known anyway.
//!
//! Owns that counters and histograms count the same events. The histograms are allocated at the first checkout.

use crate::local_pools::local_pool::LocalPool;

impl LocalPool {
    /// A client got a server that it had waited for so long (0: it was there).
    #[inline]
    pub(crate) fn assigned(&mut self, wait_us: u64) {
        self.counters.server_assignment_count += 1;
        self.counters.wait_time += wait_us;
        self.histograms.get_or_insert_default().wait.add(wait_us);
    }

    /// Counts answered queries and their total time.
    #[inline]
    pub(crate) fn answered(&mut self, queries: u32, took_us: u64) {
        self.counters.query_count += u64::from(queries);
        self.counters.query_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.query.add_shares(took_us, queries);
        }
    }

    /// Counts finished transactions and their total time.
    #[inline]
    pub(crate) fn transacted(&mut self, transactions: u32, took_us: u64) {
        self.counters.xact_count += u64::from(transactions);
        self.counters.xact_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.transaction.add_shares(took_us, transactions);
        }
    }
}
