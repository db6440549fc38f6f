//! How far the servers of a cluster are (`read_write_split`): which connection asks, and when.
//!
//! Owns that the primary and the standbys are asked between two transactions of their clients, as often as clients need it and at least once a second, and that
//! a primary is asked which names decide what reads. What the answers mean is `local_pools::cluster`'s.

use session::{ServerPosition, routing_catalog, server_position};
use telemetry::Level;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::standbys;
use crate::local_pools::cluster::{HostState, Needs};
use crate::local_pools::serves::Serves;
use crate::local_pools::table::PoolId;
use crate::server::{InternalQuery, Phase};

/// A read goes to the primary because no standby is known to have replayed this. The server that serves it is asked behind it, unless another one has no client.
pub(crate) fn request_sample(core: &mut Core, primary: PoolId, needs: Needs) {
    let now_us = core.now.mono_us;
    if let Some((_, cluster)) = core.local_pools.with_cluster(primary) {
        cluster.await_sample(needs, now_us);
    }
    ask_idle(core, primary, 1);
}

/// Asks the servers of a primary's pool and of its standbys' that have no client, as far as it is time; of the primary's `spared` ones are left alone.
pub(crate) fn ask_idle(core: &mut Core, primary: PoolId, spared: usize) {
    if core.local_pools.get(primary).is_some_and(|local_pool| local_pool.pool.idle().len() > spared) {
        ask_idle_of(core, primary);
    }
    let standby_at = |core: &Core, place: usize| {
        let split = core.local_pools.get(primary).and_then(|local_pool| local_pool.serves.split());
        split.and_then(|split| split.standbys.get(place).copied())
    };
    let mut place = 0;
    while let Some(standby) = standby_at(core, place) {
        ask_idle_of(core, standby);
        place += 1;
    }
}

fn ask_idle_of(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    if !is_due(core, pool_id) {
        return;
    }
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let Some(idle) = local_pool.pool.checkout(None, now_us) else { return };
    if !ask(core, ConnId(idle.server))
        && let Some(local_pool) = core.local_pools.get_mut(pool_id)
    {
        local_pool.pool.return_idle(idle.server, idle.since_us);
    }
}

/// It is time to ask this server of the pool, which has no client.
#[inline]
pub(crate) fn is_due_for(core: &mut Core, pool_id: PoolId, server_conn: ConnId) -> bool {
    core.conns.find_server(server_conn).is_some_and(|server| server.position_unknown) || is_due(core, pool_id)
}

/// It is time to ask a server of this pool.
#[inline]
pub(crate) fn is_due(core: &mut Core, pool_id: PoolId) -> bool {
    let now_us = core.now.mono_us;
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return false };
    let changes = local_pool.pool.database().cluster.schema_changes();
    match &mut local_pool.serves {
        Serves::All => false,
        Serves::Primary(split) => {
            split.names.expire_if_changed(changes);
            split.names.is_due(now_us) || cluster.is_sample_due(now_us)
        }
        Serves::Standby(standby) => cluster.is_position_due(standby.place, now_us),
    }
}

/// Asks this server, which no client has, once [`is_due`] says so. False if it cannot be asked.
#[cold]
#[inline(never)]
pub(crate) fn ask(core: &mut Core, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    let pool_id = server.pool;
    let Some(at) = server.protocol.boundary() else { return false };
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return false };
    let known = &local_pool.pool.database().cluster;
    let mut query = server_position::QUERY;
    let question = match &mut local_pool.serves {
        Serves::All => return false,
        Serves::Primary(split) if split.names.is_due(now_us) => {
            split.names.asked(known.schema_changes(), now_us);
            InternalQuery::RoutingNames
        }
        Serves::Primary(_) => {
            query = server_position::QUERY_OF_PRIMARY;
            InternalQuery::Position(cluster.sample_begins(known.writes(), now_us))
        }
        Serves::Standby(standby) => {
            if cluster.is_to_name_timeline(standby.place) {
                query = server_position::QUERY_OF_STANDBY;
            }
            InternalQuery::Position(cluster.position_asked(standby.place, now_us))
        }
    };
    // A client that waits gets this server when it has answered: no other is opened meanwhile.
    local_pool.pool.begin_check(server_conn.0, now_us);
    (server.was_asked, server.position_unknown) = (true, false);
    server.phase = Phase::InternalQuery(question);
    server.query_us = now_us;
    let protocol = &mut server.protocol;
    core.outbox.write(server_conn, |out| match question {
        InternalQuery::RoutingNames => {
            let (before, query) = (routing_catalog::BEFORE_QUERY, routing_catalog::query());
            protocol.send_internal_simple_query(at, out, before, &query);
        }
        _ => protocol.send_internal_simple_query(at, out, "", query),
    });
    true
}

/// The server has said how far it is, or refused to: the answer to the question of this number, which is that of a sample if it is a primary's.
pub(crate) fn position_answered(core: &mut Core, server_conn: ConnId, number: u64, error: Option<&[u8]>) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let (pool_id, timeline) = (server.pool, server.timeline());
    let rows = server.protocol.take_internal_result().into_rows();
    let position = ServerPosition::read(&rows).filter(|_| error.is_none());
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return };
    let place = local_pool.serves.standby().map(|standby| standby.place);
    let is_other = position.is_some_and(|position| position.is_standby != place.is_some());
    let position = position.filter(|_| !is_other);
    let lsn = position.and_then(|position| position.lsn);
    let is_first_refusal = cluster.note_refusal(place, error.is_some());
    match place {
        None => cluster.sampled(number, lsn, timeline.unwrap_or_default(), now_us),
        Some(place) => {
            let follows = position.and_then(|position| position.timeline);
            let has_less = cluster.replayed(place, number, lsn.map(|lsn| (lsn, follows)), now_us);
            if is_other {
                cluster.note_state(place, HostState::Primary, now_us);
            } else if has_less {
                standbys::move_waiters_of_host(core, pool_id, place);
            }
        }
    }
    if let Some(error) = error.filter(|_| is_first_refusal) {
        log_refusal(
            core,
            server_conn,
            "how far it is",
            "reads of clients that have written go to the primary",
            error,
        );
    }
    match place {
        Some(_) if is_other => standbys::close_servers(core, pool_id, CloseReason::Promoted),
        Some(_) => {}
        None => ask_idle(core, pool_id, 0),
    }
}

/// The server has said which names decide what reads, or refused to.
pub(crate) fn names_answered(core: &mut Core, server_conn: ConnId, error: Option<&[u8]>) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let pool_id = server.pool;
    let rows = server.protocol.take_internal_result().into_rows();
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let Some(split) = local_pool.serves.split_mut() else { return };
    let is_first_refusal = match error {
        None => {
            split.names.answered(routing_catalog::read(&rows), now_us);
            false
        }
        Some(_) => split.names.unanswered(now_us),
    };
    if let Some(error) = error.filter(|_| is_first_refusal) {
        log_refusal(
            core,
            server_conn,
            "which functions and views only read",
            "all statements go to the primary",
            error,
        );
    }
}

fn log_refusal(core: &mut Core, server_conn: ConnId, what: &str, result: &str, error: &[u8]) {
    let fields = wire::error::parse(error);
    let message = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
    core.log_server(
        server_conn,
        Level::Warning,
        &format!("the server does not say {what} ({message}); {result}"),
    );
}
