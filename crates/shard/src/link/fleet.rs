//! What a fleet leaves to this process of limits that its nodes share (`fleet`).
//!
//! Owns that idle servers go as soon as their slots are wanted elsewhere, and that clients which wait get servers as soon as there are slots. How many there are is
//! the fleet thread's to say; it sets the leases of the counters that permits are taken from ([`pool::SlotCounter`]).

use std::sync::Arc;

use messages::{BackendRow, Report};

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::endpoint::Target;
use crate::link::{opening, server_end};
use crate::local_pools::table::PoolId;

/// Leases have changed: pools with more servers than that close some, others open some for clients that wait.
pub(crate) fn slots_changed(core: &mut Core) {
    for pool_id in core.local_pools.ids() {
        close_surplus(core, pool_id);
        opening::serve_or_open(core, pool_id);
    }
}

/// Closes what is too much: logins, then the servers that have been idle longest. Those in use are closed when their clients release them.
pub(crate) fn close_surplus(core: &mut Core, pool_id: PoolId) {
    while is_over(core, pool_id)
        && let Some(server) = core.conns.ids(|conn| is_login_of(conn, pool_id)).into_iter().next()
    {
        withdraw_login(core, server);
    }
    while is_over(core, pool_id)
        && let Some(idle) =
            core.local_pools.get(pool_id).and_then(|local_pool| local_pool.pool.idle().first())
    {
        server_end::close_server(core, ConnId(idle.server), CloseReason::SlotGivenBack);
    }
}

fn is_over(core: &Core, pool_id: PoolId) -> bool {
    core.local_pools.get(pool_id).is_some_and(|local_pool| local_pool.pool.is_over_lease(core.now.mono_us))
}

fn is_login_of(conn: &Conn, pool_id: PoolId) -> bool {
    matches!(conn, Conn::Server(server) if server.pool == pool_id && server.is_logging_in())
}

/// A login is not let to its end: what it was admitted by is gone, and it may last.
fn withdraw_login(core: &mut Core, conn: ConnId) {
    if let Some(server) = core.conns.server_mut(conn) {
        server.close_when_free.set(CloseReason::SlotGivenBack);
    }
    server_end::close_server(core, conn, CloseReason::SlotGivenBack);
}

/// Reports the process ids of all backends that this shard has connections to. One that is being logged in to has none yet.
pub(crate) fn list_backends(core: &mut Core, audit: u64) {
    let backends = core.conns.iter().filter_map(|(_, conn)| backend(core, conn)).collect();
    core.report(Report::Backends { audit, shard: core.id, backends });
}

fn backend(core: &Core, conn: &Conn) -> Option<BackendRow> {
    let Conn::Server(server) = conn else { return None };
    let local_pool = core.local_pools.get(server.pool)?;
    Some(BackendRow {
        server: label(&server.target),
        pid: server.key.as_ref()?.0,
        database: Arc::clone(&local_pool.database_name),
        user: Arc::clone(&local_pool.user),
        host: local_pool.host().map(Into::into),
    })
}

/// The server as its entry names it: `host:port`, an IPv6 address in brackets, or the path of its socket.
fn label(target: &Target) -> Arc<str> {
    match target {
        Target::Inet { host, port } | Target::Near { host, port, .. } if host.contains(':') => {
            format!("[{host}]:{port}").into()
        }
        Target::Inet { host, port } | Target::Near { host, port, .. } => format!("{host}:{port}").into(),
        Target::Unix { path } => Arc::clone(path),
    }
}
