//! Which limits a client is counted in, from its startup packet to its end.
//!
//! Owns `max_client_conn`, `max_db_client_connections` and `max_user_client_connections`: exact over all shards, and
//! released however a client disconnects. Never looks at servers; those are counted by their pools.

use std::sync::Arc;

use messages::Role;
use pool::ConnectionCounts;
use settings::Database;
use wire::sqlstate;

use crate::ConnId;
use crate::client::counted::Counted;
use crate::connections::Conn;
use crate::core::Core;
use crate::local_pools::table::PoolId;
use crate::log_format::CONSOLE;
use crate::state::ShardState;

impl ShardState {
    /// Whether `max_client_conn` admits one more now, so that a client that cannot be admitted need not authenticate. False:
    /// the client got the error.
    pub(crate) fn has_room_in_process(&mut self, conn: ConnId, is_console: bool) -> bool {
        let limit = self.core.config.global.max_client_conn;
        let has_room = is_console || self.core.process.clients.taken() < limit;
        if !has_room {
            self.refuse_count(conn, "max_client_conn");
        }
        has_room
    }

    /// `max_client_conn`. The console is never full, but its clients count. False: the client got the error.
    pub(crate) fn count_in_process(&mut self, conn: ConnId, is_console: bool) -> bool {
        let limit = self.core.config.global.max_client_conn;
        // Unlike the other limits, 0 admits no client, as in PgBouncer.
        let is_shut = limit == 0 && !is_console;
        if is_shut || !self.core.process.clients.take(if is_console { 0 } else { limit }) {
            self.refuse_count(conn, "max_client_conn");
            return false;
        }
        if let Some(client) = self.core.client(conn) {
            client.counted.process = true;
        }
        self.uncount_unauthenticated(conn);
        true
    }

    /// The limits of the database and the user, for a client of a pool. False: the client got the error.
    pub(crate) fn count_in_pool(&mut self, conn: ConnId, pool_id: PoolId) -> bool {
        let Some(local_pool) = self.core.local_pools.get(pool_id) else { return false };
        let (counts, database) = (Arc::clone(local_pool.pool.database()), Arc::clone(&local_pool.database));
        if let Some(client) = self.core.client(conn) {
            client.pool = Some(pool_id);
        }
        if !self.count(conn, counts, Some(&database)) {
            return false;
        }
        if let (Some(Conn::Client(client)), Some(local_pool)) =
            (self.core.conns.get_mut(conn), self.core.local_pools.get_mut(pool_id))
        {
            client.counted.local_pool = true;
            local_pool.clients += 1;
        }
        true
    }

    /// The same for a client of the console, without a limit for admins. False: the client got the error.
    pub(crate) fn count_in_console(&mut self, conn: ConnId, role: Role) -> bool {
        let counts = self.core.pool_registry.database(CONSOLE);
        role == Role::Admin || self.count(conn, counts, None)
    }

    fn count(
        &mut self,
        conn: ConnId,
        in_database: Arc<ConnectionCounts>,
        database: Option<&Database>,
    ) -> bool {
        let Some(client) = self.core.conns.client_mut(conn) else { return false };
        let global = &self.core.config.global;
        let limit = database.map_or(global.max_db_client_connections, |database| {
            self.core.config.max_db_client_connections(database)
        });
        if !in_database.clients.take(limit) {
            self.refuse_count(conn, "max_db_client_connections");
            return false;
        }
        client.counted.database = Some(in_database);
        let user = self.core.config.user(&client.login_user).map(|user| &**user);
        let limit = self.core.config.max_user_client_connections(user);
        let in_user = self.core.pool_registry.user(&client.login_user);
        if !in_user.clients.take(limit) {
            self.refuse_count(conn, "max_user_client_connections");
            return false;
        }
        client.counted.user = Some(in_user);
        true
    }

    fn refuse_count(&mut self, conn: ConnId, limit: &str) {
        let text = format!("no more connections allowed ({limit})");
        self.fail_client(conn, sqlstate::TOO_MANY_CONNECTIONS, &text);
    }

    /// A client disconnects: its place in every limit is released.
    pub(crate) fn uncount(&mut self, conn: ConnId) {
        self.uncount_unauthenticated(conn);
        let Some(client) = self.core.conns.client_mut(conn) else { return };
        let counted = std::mem::take(&mut client.counted);
        if counted.process {
            self.core.process.clients.release();
        }
        for counts in [counted.database, counted.user].into_iter().flatten() {
            counts.clients.release();
        }
        if let (true, Some(local_pool)) = (counted.local_pool, self.core.local_pools.of_mut(client.pool)) {
            local_pool.clients = local_pool.clients.saturating_sub(1);
            local_pool.last_used_us = self.core.now.mono_us;
        }
    }
}

impl Core {
    /// A client that another process admitted: it is counted whatever the limits are.
    pub(crate) fn count_imported(&mut self, conn: ConnId, pool_id: PoolId) {
        let now_us = self.now.mono_us;
        let (Some(Conn::Client(client)), Some(local_pool)) =
            (self.conns.get_mut(conn), self.local_pools.get_mut(pool_id))
        else {
            return;
        };
        let counts = [Arc::clone(local_pool.pool.database()), self.pool_registry.user(&client.login_user)];
        self.process.clients.take(0);
        for connection_counts in &counts {
            connection_counts.clients.take(0);
        }
        let [database, user] = counts.map(Some);
        client.counted = Counted { unauthenticated: false, process: true, database, user, local_pool: true };
        client.pool = Some(pool_id);
        local_pool.clients += 1;
        local_pool.last_used_us = now_us;
    }
}
