//! Errors that clients got, by database and SQLSTATE: those of servers and of Weir itself.
//!
//! Off the path of a successful query. Never counts an error that no client got (of a request that was replayed, or of an
//! internal query).

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::ErrorRow;
use telemetry::SqlstateCounts;

use crate::ConnId;
use crate::client::{Client, Phase};
use crate::log_format::CONSOLE;
use crate::state::{Conn, ShardState};

/// Databases that are counted by themselves; further ones (they come from `*`) together, without a name.
const DATABASES: usize = 1_000;

/// Errors by database; those of clients that named no configured one have no name.
#[derive(Default)]
pub(crate) struct ErrorCounts(BTreeMap<Arc<str>, SqlstateCounts>);

impl ErrorCounts {
    fn count(&mut self, database: &str, code: &[u8]) {
        if let Some(errors) = self.0.get_mut(database) {
            return errors.count(code);
        }
        let name = if self.0.len() < DATABASES { database } else { "" };
        self.0.entry(name.into()).or_default().count(code);
    }

    /// The database is gone: its errors count with those that have no name.
    pub(crate) fn forget(&mut self, database: &str) {
        if let Some(errors) = self.0.remove(database) {
            self.0.entry(Arc::default()).or_default().merge(&errors);
        }
    }

    pub(crate) fn rows(&self) -> Vec<ErrorRow> {
        let row = |(database, errors): (&Arc<str>, &SqlstateCounts)| ErrorRow {
            database: database.to_string(),
            errors: errors.clone(),
        };
        self.0.iter().map(row).collect()
    }
}

impl ShardState {
    /// A server's errors went to its client.
    #[cold]
    pub(crate) fn count_server_errors(&mut self, server_conn: ConnId) {
        let Some(Conn::Server(server)) = self.conns.get(server_conn.0 as usize) else { return };
        let local_pool = self.local_pools.get(server.pool);
        let database = local_pool.map(|local_pool| Arc::clone(&local_pool.database_name)).unwrap_or_default();
        let errors_seen = std::mem::take(&mut self.errors_seen);
        errors_seen.iter().for_each(|seen| self.errors.count(&database, &seen.code));
        self.track_failed(server_conn, &errors_seen);
    }

    /// Counts an error that Weir sends to a client.
    pub(crate) fn count_error(&mut self, conn: ConnId, code: &str) {
        let Some(Conn::Client(client)) = self.conns.get(conn.0 as usize) else { return };
        let database = self.database_of(client);
        self.errors.count(&database, code.as_bytes());
    }

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
                .get(client.pool)
                .map(|local_pool| Arc::clone(&local_pool.database_name))
                .unwrap_or_default(),
        }
    }
}
