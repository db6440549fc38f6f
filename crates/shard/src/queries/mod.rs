//! Statistics of queries by fingerprint (`track_queries`) and a log of slow ones (`log_slow_queries`), beside the path that queries take.
//!
//! Owns which clients are tracked and when their requests have been answered. Nothing of it exists while the setting is
//! off; a client is tracked from the first request on that begins while it is on. Never changes what is passed on.

mod shapes;
mod slow;
mod tracker;

use std::sync::Arc;

use messages::QueryRow;
use session::ClientStatements;
use settings::Config;
use shapes::Shapes;
use telemetry::Waits;
use telemetry::queries::{Queries, QueryFingerprint, QueryStats};

pub(crate) use tracker::QueryTracker;

/// Whether queries are tracked: for their statistics, or because slow ones are logged.
pub(crate) fn tracks(config: &Config) -> bool {
    config.global.track_queries || !config.global.log_slow_queries.is_zero()
}

/// What is known of queries while they are tracked.
#[derive(Default)]
pub(crate) struct QueryTracking {
    shapes: Shapes,
    queries: Queries,
}

impl QueryTracking {
    /// The client said this, which begins where a message begins if nothing was owed to it.
    pub(crate) fn heard(
        &mut self,
        tracker: &mut Option<Box<QueryTracker>>,
        statements: Option<&ClientStatements>,
        registry: &session::StatementRegistry,
        bytes: &[u8],
        begins: bool,
    ) {
        if begins && tracker.is_none() {
            *tracker = Some(Box::default());
        }
        let Some(query_tracker) = tracker else { return };
        let prepared =
            |name: &[u8]| statements.and_then(|names| names.expected(name)).and_then(|id| registry.rest(id));
        query_tracker.hear(bytes, &mut self.shapes, &prepared);
    }

    /// Requests have been answered, which took `took_us` together. `is_all`: nothing more is owed. Those that took `slow_us` or more are to be logged.
    pub(crate) fn answered(
        &mut self,
        query_tracker: &mut QueryTracker,
        database: &Arc<str>,
        count: u32,
        took_us: u64,
        is_all: bool,
        slow_us: Option<u64>,
        now_us: u64,
    ) -> Vec<String> {
        let mut slow = Vec::new();
        let Some(share_us) = took_us.checked_div(u64::from(count)) else { return slow };
        for _ in 0..count {
            let Some(request) = query_tracker.answered() else { break };
            let statement_us = share_us / (request.shapes.len() as u64).max(1);
            for (index, shape) in request.shapes.iter().enumerate() {
                let failed = index == 0 && request.failed;
                let waits = if index == 0 { request.waits } else { Waits::default() };
                self.queries.count(database, shape, statement_us, failed, &waits, now_us);
            }
            slow.extend(slow_us.and_then(|least_us| slow::line(&request, share_us, least_us)));
        }
        if is_all {
            query_tracker.rest();
        }
        slow
    }

    /// Counting begins anew but for databases whose figures are kept.
    pub(crate) fn keep_databases(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.queries.keep_databases(is_kept);
    }

    /// One row for each kind of query.
    pub(crate) fn rows(&self) -> Vec<QueryRow> {
        let row = |(database, shape, figures): (&Arc<str>, &Arc<QueryFingerprint>, &QueryStats)| QueryRow {
            database: database.to_string(),
            shape: Arc::clone(shape),
            figures: figures.clone(),
        };
        self.queries.iter().map(row).collect()
    }
}
