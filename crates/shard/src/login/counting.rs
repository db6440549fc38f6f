//! Which limits a client is counted in, from its startup packet to its end.
//!
//! Owns `max_client_conn`, `max_db_client_connections` and `max_user_client_connections`: exact over all shards, and
//! released however a client disconnects; what other nodes of a fleet have is known from about a second ago. Never looks at servers; those are counted by their pools.

use std::sync::Arc;

use messages::Role;
use pool::ConnectionCounts;
use settings::Database;
use wire::sqlstate;

use crate::ConnId;
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::link::client_end;
use crate::local_pools::table::PoolId;
use crate::login::Logins;

/// Whether `max_client_conn` admits one more now, so that a client that cannot be admitted need not authenticate. False:
/// the client got the error.
pub(crate) fn has_room_in_process(core: &mut Core, conn: ConnId, is_console: bool) -> bool {
    let limit = core.config.global.max_client_conn;
    let clients = &core.process.clients;
    let has_room = is_console || clients.taken().saturating_add(clients.external()) < limit;
    if !has_room {
        let is_external = clients.taken() < limit;
        refuse_count(core, conn, "max_client_conn", is_external);
    }
    has_room
}

impl Logins {
    /// `max_client_conn`. The console is never full, but its clients count. False: the client got the error.
    pub(crate) fn count_in_process(&mut self, core: &mut Core, conn: ConnId, is_console: bool) -> bool {
        let limit = core.config.global.max_client_conn;
        // Unlike the other limits, 0 admits no client, as in PgBouncer.
        let is_shut = limit == 0 && !is_console;
        if is_shut || !core.process.clients.take(if is_console { 0 } else { limit }) {
            let is_external = core.process.clients.taken() < limit;
            refuse_count(core, conn, "max_client_conn", is_external);
            return false;
        }
        if let Some(client) = core.client(conn) {
            client.counted.process = true;
        }
        self.uncount_unauthenticated(core, conn);
        true
    }
}

/// The limits of the database and the user, for a client of a pool. False: the client got the error.
pub(crate) fn count_in_pool(core: &mut Core, conn: ConnId, pool_id: PoolId) -> bool {
    let Some(local_pool) = core.local_pools.get(pool_id) else { return false };
    let (counts, database) = (Arc::clone(local_pool.pool.database()), Arc::clone(&local_pool.database));
    if let Some(client) = core.client(conn) {
        client.pool = Some(pool_id);
    }
    if !count(core, conn, counts, Some(&database)) {
        return false;
    }
    if let (Some(Conn::Client(client)), Some(local_pool)) =
        (core.conns.get_mut(conn), core.local_pools.get_mut(pool_id))
    {
        client.counted.local_pool = true;
        local_pool.add_client();
    }
    true
}

/// The same for a client of the console, without a limit for admins. False: the client got the error.
pub(crate) fn count_in_console(core: &mut Core, conn: ConnId, role: Role) -> bool {
    let counts = core.pool_registry.database(CONSOLE);
    role == Role::Admin || count(core, conn, counts, None)
}

fn count(
    core: &mut Core,
    conn: ConnId,
    in_database: Arc<ConnectionCounts>,
    database: Option<&Database>,
) -> bool {
    let Some(client) = core.conns.client_mut(conn) else { return false };
    let global = &core.config.global;
    let limit = database
        .map_or(global.max_db_client_connections, |database| core.config.max_db_client_connections(database));
    if !in_database.clients.take(limit) {
        let is_external = in_database.clients.taken() < limit;
        refuse_count(core, conn, "max_db_client_connections", is_external);
        return false;
    }
    client.counted.database = Some(in_database);
    let user = core.config.user(&client.login_user).map(|user| &**user);
    let limit = core.config.max_user_client_connections(user);
    let in_user = core.pool_registry.user(&client.login_user);
    if !in_user.clients.take(limit) {
        let is_external = in_user.clients.taken() < limit;
        refuse_count(core, conn, "max_user_client_connections", is_external);
        return false;
    }
    client.counted.user = Some(in_user);
    true
}

/// `is_external`: this process alone has not reached the limit.
fn refuse_count(core: &mut Core, conn: ConnId, limit: &str, is_external: bool) {
    let by = if is_external { " in all nodes of the fleet" } else { "" };
    let text = format!("no more connections allowed ({limit}){by}");
    client_end::fail_client(core, conn, sqlstate::TOO_MANY_CONNECTIONS, &text);
}
