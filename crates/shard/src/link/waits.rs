//! What clients have waited for: sums of each pool, and of each client and kind of query while queries are tracked.
//!
//! Owns how a wait for a server is divided between those that others have and one that was opened. Every function is off the path of a client that waits
//! for nothing.

use telemetry::Wait;

use crate::ConnId;
use crate::core::Core;
use crate::link::slow_login;
use crate::local_pools::table::PoolId;
use crate::server::UsedBy;

/// A client gets a server for which it has waited.
#[cold]
pub(crate) fn for_server(core: &mut Core, client_conn: ConnId, server_conn: ConnId, since_us: u64) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server(server_conn) else { return };
    let pool_id = server.pool;
    // No client has had it, and its login has ended since: it is the one that was waited for.
    let is_new = server.used_by != UsedBy::Client && server.request_us >= since_us;
    let queued_until_us = if is_new { server.since_us.clamp(since_us, now_us) } else { now_us };
    let (queue_us, connect_us) = (queued_until_us - since_us.min(queued_until_us), now_us - queued_until_us);
    if queue_us > 0 {
        add(core, pool_id, Some(client_conn), Wait::Queue, queue_us);
    }
    if connect_us > 0 {
        add(core, pool_id, Some(client_conn), Wait::Connect, connect_us);
    }
}

/// A client's server has its settings and statements, which it has been given since then.
pub(crate) fn for_settings(core: &mut Core, client_conn: ConnId, server_conn: ConnId, since_us: u64) {
    let waited_us = core.now.mono_us.saturating_sub(since_us);
    let Some(server) = core.conns.server(server_conn) else { return };
    if waited_us > 0 {
        add(core, server.pool, Some(client_conn), Wait::Settings, waited_us);
    }
}

/// A client has its greeting: its login is over.
pub(crate) fn for_login(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let waited_us = now_us.saturating_sub(client.since_us);
    client.login_us = u32::try_from(waited_us).unwrap_or(u32::MAX);
    if let Some(pool_id) = client.pool {
        add(core, pool_id, None, Wait::Login, waited_us);
    }
    slow_login::succeeded(core, conn);
}

/// A server is not read until its client reads.
pub(crate) fn reader_is_slow(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    if let Some(server) = core.conns.server_mut(server_conn)
        && server.reader_since_us.is_none()
    {
        server.reader_since_us = Some(now_us);
    }
}

/// The server is read again.
pub(crate) fn reader_goes_on(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(since_us) = server.reader_since_us.take() else { return };
    let (pool_id, client) = (server.pool, server.client());
    add(core, pool_id, client, Wait::Reader, now_us.saturating_sub(since_us));
}

/// The client counts it for itself as well, if its queries are tracked.
fn add(core: &mut Core, pool_id: PoolId, client: Option<ConnId>, wait: Wait, us: u64) {
    if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
        local_pool.histograms.get_or_insert_default().waits.add(wait, us);
    }
    if core.statistics.tracking.is_some()
        && let Some(client) = client.and_then(|conn| core.conns.client_mut(conn))
    {
        client.query_tracker.get_or_insert_default().waited(wait, us);
    }
}
