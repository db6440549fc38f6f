//! Commands that are answered when they are complete: whether they are.
//!
//! Owns these conditions. What is in force is `administration`'s, carrying commands out is `commands`'.

use messages::{Report, RequestId, ShutdownMode};

use crate::administration::PendingKind;
use crate::connections::Conn;
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::{ConnId, client, server};

/// Answers commands that wait for servers to close, as far as they are complete.
pub(crate) fn paused_progress(core: &mut Core) {
    if core.administration.pending().is_empty() {
        return;
    }
    let pending = core.administration.take_pending();
    for waiting in pending {
        let over = match &waiting.what {
            PendingKind::Paused(database) => {
                pools_of(core, database.as_deref()).into_iter().all(|local_pool| {
                    core.local_pools.get(local_pool).is_none_or(|local_pool| {
                        has_no_servers(local_pool) && local_pool.pool.external() == 0
                    })
                })
            }
            PendingKind::Killed(database) => pools_of(core, database.as_deref())
                .into_iter()
                .all(|local_pool| core.local_pools.get(local_pool).is_none_or(has_no_servers)),
            PendingKind::Suspended => is_still(core),
            PendingKind::ObsoleteClosed(database) => has_no_obsolete(core, database.as_deref()),
            PendingKind::Shutdown(ShutdownMode::WaitForServers) => {
                core.local_pools.values().all(has_no_servers)
            }
            PendingKind::Shutdown(ShutdownMode::WaitForClients) => !has_ordinary_clients(core),
        };
        if over {
            done(core, waiting.request, 0);
        } else {
            core.administration.answer_when(waiting.request, waiting.what);
        }
    }
}

/// Neither one that serves clients nor one that listens for them.
fn has_no_servers(local_pool: &LocalPool) -> bool {
    local_pool.pool.open() + local_pool.pool.listeners() == 0
}

pub(crate) fn done(core: &mut Core, request: RequestId, count: u64) {
    let shard = core.id;
    core.report(Report::Done { request, shard, count });
}

pub(crate) fn pools_of(core: &Core, database: Option<&str>) -> Vec<PoolId> {
    core.local_pools
        .ids_of(|local_pool| database.is_none_or(|database| database == &*local_pool.database_name))
}

fn has_ordinary_clients(core: &Core) -> bool {
    core.conns.iter().any(|(_, conn)| {
        matches!(conn, Conn::Client(client)
            if !matches!(client.phase, client::Phase::Console { .. } | client::Phase::Closing | client::Phase::CancelRequest(_)))
    })
}

/// SUSPEND is done when no connection has output left to send; `suspend_timeout` closes slower connections.
fn is_still(core: &Core) -> bool {
    unsent_conns(core).is_empty()
}

pub(crate) fn unsent_conns(core: &Core) -> Vec<ConnId> {
    core.conns.ids(|conn| match conn {
        Conn::Client(client) => client.send_buffer_full && !matches!(client.phase, client::Phase::Closing),
        Conn::Server(server) => server.unsent && server.is_live(),
        _ => false,
    })
}

/// No server of this database (all) is to be closed as soon as it is free, or is being closed.
fn has_no_obsolete(core: &Core, database: Option<&str>) -> bool {
    let going = |server: &server::Server| {
        server.close_when_free.is_set()
            || matches!(server.phase, server::Phase::Leaving { .. } | server::Phase::Closing)
    };
    !core.conns.iter().any(|(_, conn)| match conn {
        Conn::Server(server) if going(server) => core
            .local_pools
            .get(server.pool)
            .is_some_and(|local_pool| database.is_none_or(|name| name == &*local_pool.database_name)),
        _ => false,
    })
}
