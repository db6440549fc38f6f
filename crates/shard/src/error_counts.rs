//! Errors that clients got, by database and SQLSTATE: those of servers and of Weir itself.
//!
//! Off the path of a successful query. Never counts an error that no client got (of a request that was replayed, or of an
//! internal query).

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::ErrorRow;
use session::ErrorSeen;
use telemetry::SqlstateCounts;

use crate::ConnId;
use crate::client::{Client, Phase};
use crate::core::Core;
use crate::log_format::CONSOLE;
use crate::state::ShardState;

/// Databases that are counted by themselves; further ones (they come from `*`) together, without a name.
const DATABASES: usize = 1_000;

/// Errors by database; those of clients that named no configured one have no name.
#[derive(Default)]
pub(crate) struct ErrorCounts {
    databases: BTreeMap<Arc<str>, SqlstateCounts>,
    /// Errors of the reply that is being passed on; empty between events.
    seen: Vec<ErrorSeen>,
}

impl ErrorCounts {
    fn count(&mut self, database: &str, code: &[u8]) {
        if let Some(errors) = self.databases.get_mut(database) {
            return errors.count(code);
        }
        let name = if self.databases.len() < DATABASES { database } else { "" };
        self.databases.entry(name.into()).or_default().count(code);
    }

    /// Where the errors of the reply that is being passed on are noted.
    #[inline]
    pub(crate) fn seen(&mut self) -> &mut Vec<ErrorSeen> {
        &mut self.seen
    }

    /// The reply that is being passed on has an error.
    #[inline]
    pub(crate) fn has_seen(&self) -> bool {
        !self.seen.is_empty()
    }

    /// The database is gone: its errors count with those that have no name.
    pub(crate) fn forget(&mut self, database: &str) {
        if let Some(errors) = self.databases.remove(database) {
            self.databases.entry(Arc::default()).or_default().merge(&errors);
        }
    }

    pub(crate) fn rows(&self) -> Vec<ErrorRow> {
        let row = |(database, errors): (&Arc<str>, &SqlstateCounts)| ErrorRow {
            database: database.to_string(),
            errors: errors.clone(),
        };
        self.databases.iter().map(row).collect()
    }
}

impl ShardState {
    /// A server's errors went to its client.
    #[cold]
    pub(crate) fn count_server_errors(&mut self, server_conn: ConnId) {
        let Some(server) = self.core.conns.server(server_conn) else { return };
        let local_pool = self.core.local_pools.get(server.pool);
        let database = local_pool.map(|local_pool| Arc::clone(&local_pool.database_name)).unwrap_or_default();
        let errors_seen = std::mem::take(&mut self.errors.seen);
        errors_seen.iter().for_each(|seen| self.errors.count(&database, &seen.code));
        self.core.track_failed(server_conn, &errors_seen);
    }

    /// Counts an error that Weir sends to a client.
    pub(crate) fn count_error(&mut self, conn: ConnId, code: &str) {
        let Some(client) = self.core.conns.client(conn) else { return };
        let database = self.core.database_of(client);
        self.errors.count(&database, code.as_bytes());
    }
}

impl Core {
    /// The name of the client's database, if it is configured or in use; a client that has not authenticated must not
    /// fill the memory with names.
    fn database_of(&self, client: &Client) -> Arc<str> {
        match &client.phase {
            Phase::Console(_) => CONSOLE.into(),
            Phase::Login(login) => {
                let name = login.startup_request.database.as_str();
                let known = name == CONSOLE || self.config.databases.contains_key(name);
                if known { name.into() } else { Arc::default() }
            }
            _ => self
                .local_pools
                .of(client.pool)
                .map(|local_pool| Arc::clone(&local_pool.database_name))
                .unwrap_or_default(),
        }
    }
}
