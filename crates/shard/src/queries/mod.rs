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
use sql::TraceParent;
use telemetry::Waits;
use telemetry::queries::{Queries, QueryFingerprint, QueryStats};
use telemetry::spans::{Span, Spans};
use tracker::Request;

pub(crate) use tracker::QueryTracker;

/// Whether queries are tracked: for their statistics, or because slow ones are logged, or those of traces exported.
pub(crate) fn tracks(config: &Config) -> bool {
    let global = &config.global;
    global.track_queries || global.otlp_traces || !global.log_slow_queries.is_zero()
}

/// What is known of queries while they are tracked.
#[derive(Default)]
pub(crate) struct QueryTracking {
    shapes: Shapes,
    queries: Queries,
    spans: Spans,
}

/// ReadyForQuery was sent to a client.
pub(crate) struct TrackedAnswer<'a> {
    /// Of its pool.
    pub(crate) database: &'a Arc<str>,
    /// Whom it has logged in as.
    pub(crate) user: &'a Arc<str>,
    /// How many requests it answers.
    pub(crate) count: u32,
    /// How long the server took for all of them.
    pub(crate) took_us: u64,
    /// Nothing more is owed.
    pub(crate) is_all: bool,
    /// Requests that took so long or longer are logged.
    pub(crate) slow_us: Option<u64>,
    /// Requests of traces are kept (`otlp_traces`).
    pub(crate) keeps_spans: bool,
    /// Microseconds since 1970.
    pub(crate) now_us: u64,
}

/// A request of a trace, which the server had for so long.
fn span(request: &Request, trace: &TraceParent, server_us: u64, answer: &TrackedAnswer<'_>) -> Span {
    Span {
        trace_id: trace.trace_id,
        parent_id: trace.span_id,
        database: Arc::clone(answer.database),
        user: Arc::clone(answer.user),
        end_us: answer.now_us,
        took_us: request.took_us(server_us),
        waits: request.waits,
        failed: request.failed,
        shape: request.shapes.first().map(Arc::clone),
    }
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

    /// Requests have been answered. Lines for the log about those that were slow.
    pub(crate) fn answered(
        &mut self,
        query_tracker: &mut QueryTracker,
        answer: &TrackedAnswer<'_>,
    ) -> Vec<String> {
        let mut slow = Vec::new();
        let Some(share_us) = answer.took_us.checked_div(u64::from(answer.count)) else { return slow };
        for _ in 0..answer.count {
            let Some(request) = query_tracker.answered() else { break };
            let statement_us = share_us / (request.shapes.len() as u64).max(1);
            for (index, shape) in request.shapes.iter().enumerate() {
                let failed = index == 0 && request.failed;
                let waits = if index == 0 { request.waits } else { Waits::default() };
                self.queries.count(answer.database, shape, statement_us, failed, &waits, answer.now_us);
            }
            if let (Some(waits), Some(shape)) = (&request.server_waits, request.shapes.first()) {
                self.queries.note_server_waits(answer.database, shape, waits);
            }
            slow.extend(answer.slow_us.and_then(|least_us| slow::line(&request, share_us, least_us)));
            if let Some(trace) = request.trace.filter(|_| answer.keeps_spans) {
                self.spans.push(span(&request, &trace, share_us, answer));
            }
        }
        if answer.is_all {
            query_tracker.rest();
        }
        slow
    }

    /// The requests of traces that were answered last, each with its number.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (u64, &Span)> {
        self.spans.iter()
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
