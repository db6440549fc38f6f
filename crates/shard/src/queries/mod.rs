//! Statistics of queries by fingerprint (`track_queries`), beside the path that queries take.
//!
//! Owns which clients are tracked and when their requests have been answered. Nothing of it exists while the setting is
//! off; a client is tracked from the first request on that begins while it is on. Never changes what is passed on.

mod shapes;
mod tracker;

use std::sync::Arc;

use messages::QueryRow;
use session::{ErrorSeen, ReplyOutcome};
use telemetry::queries::{Queries, QueryFingerprint, QueryStats};

use crate::ConnId;
use crate::client::Client;
use crate::connections::Conn;
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;
use crate::state::ShardState;

use shapes::Shapes;
pub(crate) use tracker::QueryTracker;

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
        client: &mut Client,
        registry: &session::StatementRegistry,
        bytes: &[u8],
        default_params: bool,
    ) {
        if default_params && client.query_tracker.is_none() {
            client.query_tracker = Some(Box::default());
        }
        let Some(query_tracker) = &mut client.query_tracker else { return };
        let known = client.request.statements.as_deref();
        let prepared =
            |name: &[u8]| known.and_then(|names| names.expected(name)).and_then(|id| registry.rest(id));
        query_tracker.hear(bytes, &mut self.shapes, &prepared);
    }

    /// Requests have been answered, which took `took_us` together. `is_all`: nothing more is owed.
    fn answered(
        &mut self,
        query_tracker: &mut QueryTracker,
        local_pool: &LocalPool,
        count: u32,
        took_us: u64,
        is_all: bool,
        now_us: u64,
    ) {
        let Some(share_us) = took_us.checked_div(u64::from(count)) else { return };
        for _ in 0..count {
            let Some(request) = query_tracker.answered() else { break };
            let statement_us = share_us / (request.shapes.len() as u64).max(1);
            for (index, shape) in request.shapes.iter().enumerate() {
                let failed = index == 0 && request.failed;
                self.queries.count(&local_pool.database_name, shape, statement_us, failed, now_us);
            }
        }
        if is_all {
            query_tracker.rest();
        }
    }

    /// One row for each kind of query.
    fn rows(&self) -> Vec<QueryRow> {
        let row = |(database, shape, figures): (&Arc<str>, &Arc<QueryFingerprint>, &QueryStats)| QueryRow {
            database: database.to_string(),
            shape: Arc::clone(shape),
            figures: figures.clone(),
        };
        self.queries.iter().map(row).collect()
    }
}

impl ShardState {
    /// The setting may have changed: what was counted is kept as long as it is on.
    pub(crate) fn track_as_configured(&mut self) {
        match (self.core.config.global.track_queries, &self.tracking) {
            (true, None) => self.tracking = Some(Box::default()),
            (false, Some(_)) => {
                self.tracking = None;
                for conn in self.core.conns.values_mut() {
                    if let Conn::Client(client) = conn {
                        client.query_tracker = None;
                    }
                }
            }
            _ => {}
        }
        // The figures of a deleted database would be taken for those of a new one of the same name.
        if let Some(tracking) = &mut self.tracking {
            tracking.queries.keep_databases(|name| self.core.config.database(name).is_some());
        }
    }

    /// Counting begins anew, of one database or of all.
    pub(crate) fn reset_queries(&mut self, database: Option<&str>) {
        if let Some(tracking) = &mut self.tracking {
            tracking.queries.keep_databases(|name| database.is_some_and(|reset| reset != name));
        }
    }

    /// ReadyForQuery went to a client.
    #[cold]
    pub(crate) fn track_answered(
        &mut self,
        server: ConnId,
        client: ConnId,
        outcome: ReplyOutcome,
        took_us: u64,
    ) {
        let now_us = self.core.now.wall_us;
        let Some(tracking) = &mut self.tracking else { return };
        let Some((client, server)) = self.core.conns.linked(client, server) else { return };
        if let (Some(query_tracker), Some(local_pool)) =
            (&mut client.query_tracker, self.core.local_pools.get(server.pool))
        {
            let is_all = !server.protocol.is_busy();
            tracking.answered(query_tracker, local_pool, outcome.ready, took_us, is_all, now_us);
        }
    }

    pub(crate) fn query_rows(&self) -> Vec<QueryRow> {
        self.tracking.as_ref().map(|tracking| tracking.rows()).unwrap_or_default()
    }
}

impl Core {
    /// Errors went to the client of a server.
    pub(crate) fn track_failed(&mut self, server: ConnId, errors_seen: &[ErrorSeen]) {
        let Some(server) = self.conns.server(server) else { return };
        let Some(client) = server.client() else { return };
        if let Some(query_tracker) = self.client(client).and_then(|client| client.query_tracker.as_mut()) {
            errors_seen.iter().for_each(|seen| query_tracker.failed(seen.behind as usize));
        }
    }
}
