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

/// Leases have changed: pools with more servers than that close idle ones, others open some for clients that wait.
pub(crate) fn slots_changed(core: &mut Core) {
    for pool_id in core.local_pools.ids() {
        close_surplus(core, pool_id);
        opening::serve_or_open(core, pool_id);
    }
}

/// Closes the servers that have been idle longest, as many as are too many. Those in use are closed when their clients release them.
fn close_surplus(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    while let Some(local_pool) = core.local_pools.get(pool_id)
        && local_pool.pool.is_over_lease(now_us)
        && let Some(idle) = local_pool.pool.idle().first().map(|idle| ConnId(idle.server))
    {
        server_end::close_server(core, idle, CloseReason::SlotGivenBack);
    }
}

/// Reports the process ids of all backends that this shard has connections to. One that is being logged in to has none yet.
pub(crate) fn list_backends(core: &mut Core, audit: u64) {
    let backend = |conn: &Conn| match conn {
        Conn::Server(server) => {
            Some(BackendRow { server: label(&server.target), pid: server.key.as_ref()?.0 })
        }
        _ => None,
    };
    let backends = core.conns.iter().filter_map(|(_, conn)| backend(conn)).collect();
    core.report(Report::Backends { audit, shard: core.id, backends });
}

/// The server as its entry names it: `host:port`, or the path of its socket.
fn label(target: &Target) -> Arc<str> {
    match target {
        Target::Inet { host, port } | Target::Near { host, port, .. } => format!("{host}:{port}").into(),
        Target::Unix { path } => Arc::clone(path),
    }
}
