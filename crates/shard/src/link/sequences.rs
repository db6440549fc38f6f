//! `currval` and `lastval` (`session_state = virtual`): a client finds the values of its own session, or PostgreSQL's error, never another client's.
//!
//! Owns which server a client gets whose request asks for such values, and what the pool learns from that: from then on clients that may have called
//! `nextval` keep their servers, until others have waited too long for one. Whose values a server has is `session`'s to know.

use session::{DISCARD_SEQUENCES, Pin};

use crate::connections::Conn;
use crate::core::Core;
use crate::link::{backpressure, checkout, notify, pins, relay};
use crate::local_pools::local_pool::LONG_WAIT_US;
use crate::local_pools::table::PoolId;
use crate::server::{InternalQuery, Phase, Server};
use crate::time::passed;
use crate::{ConnId, client};

const DISCARD_IN_FRONT: &str = "DISCARD SEQUENCES;";

/// Who still waits asks again by then.
const REQUEST_LASTS_US: u64 = 1_000_000;

/// A request of the client waits because it asks for values that may not be its own. False if none does.
#[cold]
#[inline(never)]
pub(crate) fn settle(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    if server.protocol.holds_for_sequences() && server.protocol.has_half_message() {
        // It goes on once that is whole: `settle_late`.
        backpressure::pause_client(core, client_conn);
        return true;
    }
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return false };
    let Some(asks_for_earlier) = server.protocol.take_held_for_sequences() else { return false };
    local_pool.keeps_sequences |= asks_for_earlier;
    let is_kept = local_pool.keeps_sequences;
    if exchange(core, client_conn, server_conn) {
        return true;
    }
    let Some(server) = core.conns.server_mut(server_conn) else { return true };
    let is_foreign = server.protocol.has_foreign_sequences();
    if is_foreign && server.cancels > 0 {
        // A cancel request under way is for the client's query, and must not meet Weir's own: the request is looked at again when that is over.
        server.protocol.hold_requests();
        backpressure::pause_client(core, client_conn);
        return true;
    }
    server.protocol.sequences_settled(is_kept);
    if is_foreign {
        let discard = InternalQuery::Sequences(client_conn);
        checkout::prepare(core, client_conn, server_conn, discard, DISCARD_SEQUENCES);
    } else {
        backpressure::resume_client(core, client_conn);
        relay::send_held(core, client_conn, server_conn);
    }
    true
}

/// A message of the server's own is whole. True if a request of the client has waited for that.
#[inline]
pub(crate) fn settle_late(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let Some(server) = core.conns.find_server(server_conn) else { return false };
    let is_due = server.protocol.holds_for_sequences() && !server.protocol.has_half_message();
    is_due && settle(core, client_conn, server_conn)
}

/// An idle server has the client's values, and no others: which one, the client's request shows.
pub(crate) fn has_idle_server(core: &Core, client_conn: ConnId) -> bool {
    let client = core.conns.find_client(client_conn).filter(|client| client.sequences_at != 0);
    let found =
        client.and_then(|client| idle_server_of(core, client.pool?, (client.id, client.sequences_at)));
    found.is_some()
}

fn idle_server_of(core: &Core, pool_id: PoolId, (client_id, server_id): (u64, u64)) -> Option<ConnId> {
    let local_pool = core.local_pools.get(pool_id).filter(|local_pool| !local_pool.pool.paused)?;
    let is_own = |conn: &ConnId| {
        let server = core.conns.find_server(*conn);
        server.is_some_and(|server| server.id == server_id && server.protocol.has_sequences_of(client_id))
    };
    local_pool.pool.idle().iter().map(|idle| ConnId(idle.server)).find(is_own)
}

/// The client gets the idle server that has its values, and no others, in place of one that has been sent nothing yet.
fn exchange(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    let (client_id, server_id, pool_id) = (client.id, client.sequences_at, server.pool);
    if !server.protocol.is_quiet() || server.unsent || server.protocol.keeps_client() {
        return false;
    }
    let Some(own) = idle_server_of(core, pool_id, (client_id, server_id)) else { return false };
    if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
        local_pool.pool.remove_idle(own.0);
    }
    checkout::unlink(core, server_conn);
    checkout::release_or_close(core, server_conn);
    if let Some(client) = core.client(client_conn) {
        client.phase = client::Phase::Idle;
    }
    if checkout::link_own(core, client_conn, own) {
        backpressure::resume_client(core, client_conn);
        relay::send_held(core, client_conn, own);
    }
    true
}

/// The client leaves a quiet server on which it may have called `nextval`.
#[inline(never)]
pub(crate) fn note_call(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.sequences_at = server.id;
    server.protocol.sequences_call_noted();
    checkout::release(core, server_conn);
}

/// The client of a quiet server keeps it, perhaps for values: no answer of the server shows that, and so it is counted here. False if the client does not
/// keep it, because no further one may (`max_pinned`).
pub(crate) fn count_kept(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return true };
    let pins = server.protocol.session_pins();
    if !pins.has(Pin::Sequences) {
        return true;
    }
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return true };
    let is_requested =
        local_pool.place_requested_us.is_some_and(|at_us| !passed(now_us, at_us, REQUEST_LASTS_US));
    let others_wait = is_requested || local_pool.late_waiters(now_us) > 0;
    if server.protocol.yields_sequences(others_wait) && pins.is_only(Pin::Sequences) {
        local_pool.place_requested_us = None;
        server.protocol.unpin_sequences();
    }
    if !pins::settle(core, client_conn, server_conn) {
        notify::flush_ready(core, client_conn);
        return false;
    }
    let is_kept = core.conns.find_server(server_conn).is_some_and(|server| server.protocol.keeps_client());
    if !is_kept {
        checkout::release(core, server_conn);
    }
    is_kept
}

/// Clients have waited long, and others that do nothing meanwhile keep servers for their values: as many as wait lose them.
pub(crate) fn yield_to_waiters(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get(pool_id).filter(|local_pool| local_pool.keeps_sequences)
    else {
        return;
    };
    for _ in 0..local_pool.late_waiters(core.now.mono_us) {
        if !yield_longest_kept(core, pool_id) {
            return;
        }
    }
}

/// A client of another shard or pool waits for the place of a server of the pool, and none is idle here: it gets that of one that is kept for values.
pub(crate) fn yield_place(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    if !yield_longest_kept(core, pool_id)
        && let Some(local_pool) = core.local_pools.get_mut(pool_id)
    {
        local_pool.place_requested_us = Some(now_us);
    }
}

/// The client that has asked for nothing for the longest time, and keeps its server for values alone, does so no longer. False if there is none.
fn yield_longest_kept(core: &mut Core, pool_id: PoolId) -> bool {
    let is_kept = |server: &Server| {
        server.pool == pool_id
            && server.protocol.is_quiet()
            && server.protocol.session_pins().is_only(Pin::Sequences)
    };
    let servers = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if is_kept(server)));
    let linked = servers.into_iter().filter_map(|server_conn| {
        let Phase::Linked(client_conn) = core.conns.find_server(server_conn)?.phase else { return None };
        let client = core.conns.find_client(client_conn)?;
        passed(core.now.mono_us, client.request_us, LONG_WAIT_US).then_some((
            client.request_us,
            client_conn,
            server_conn,
        ))
    });
    let Some((_, client_conn, server_conn)) = linked.min_by_key(|(request_us, ..)| *request_us) else {
        return false;
    };
    if let Some(server) = core.server(server_conn) {
        server.protocol.unpin_sequences();
    }
    pins::release(core, client_conn);
    checkout::release(core, server_conn);
    true
}

/// What ends the values of others on a server that a client gets, in a pool whose clients ask for such values.
pub(crate) fn discard_foreign(core: &mut Core, server_conn: ConnId) -> Option<&'static str> {
    let server = core.conns.server_mut(server_conn)?;
    let is_kept = core.local_pools.get(server.pool)?.keeps_sequences;
    if !is_kept || !server.protocol.has_foreign_sequences() {
        return None;
    }
    server.protocol.sequences_discarded();
    Some(DISCARD_IN_FRONT)
}

/// [`DISCARD_SEQUENCES`] was executed, in front of what the client asks for.
pub(crate) fn discarded(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    if let Some(server) = core.server(server_conn) {
        server.protocol.sequences_discarded();
    }
    checkout::prepared(core, server_conn, client_conn);
}
