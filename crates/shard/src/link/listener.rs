//! The connection that listens for all clients of a pool.
//!
//! Owns how it is opened, what it is sent, and what its loss means. It is the server of the first client that listens, which goes on without it;
//! after a loss it is any server of the pool, for which it waits in the queue. It is no server of the pool then: `pool_size` does not
//! count it. Who listens on what is [`Listener`](crate::local_pools::listener::Listener)'s.

use std::fmt;

use messages::ServerQuery;
use session::listening;
use session::{Channels, Listening};
use telemetry::Level;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::kinds::InternalClient;
use crate::core::Core;
use crate::link::{checkout, fair, hand_over, internal_query, notify, opening, server_end, session_state};
use crate::local_pools::listener::MARKERS;
use crate::local_pools::table::PoolId;
use crate::server::{Phase, UsedBy};

/// How long it is kept after the last client that listened.
const LINGER_US: u64 = 60_000_000;
/// How long it may take to answer, and a marker to come.
const PATIENCE_US: u64 = 5_000_000;

/// How long another one is not sought, if one could not listen.
const RETRY_US: u64 = 1_000_000;

/// What makes a client's server like one after login, but for the channels.
const AS_FRESH: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;";

/// The server of this client, which listens on all of its channels, becomes the shared connection. False if limits leave no room for one.
pub(crate) fn adopt(core: &mut Core, client_conn: ConnId, server_conn: ConnId, new: &[String]) -> bool {
    let Some((_, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    let pool_id = server.pool;
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return false };
    let pool = &local_pool.pool;
    if !local_pool.listener.get_or_insert_default().count(|| pool.take_listener()) {
        return false;
    }
    let on: Vec<String> = server.protocol.channels().movable().unwrap_or_default().to_vec();
    session_state::deliver_notifications(core, server_conn, client_conn);
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    fair::end(server, &mut core.local_pools, now_us);
    server.unlink();
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return false };
    let listener = local_pool.listener.get_or_insert_default();
    let requested = listener.requested();
    let listening = client.listening.get_or_insert_default();
    for channel in new {
        listening.add(channel);
        listener.subscribe(client_conn, channel);
    }
    if let Some(requested) = requested {
        internal_query::withdraw_listener(core, requested);
    }
    begin(core, pool_id, server_conn, &on, AS_FRESH);
    hand_over::become_idle(core, client_conn);
    opening::serve_or_open(core, pool_id);
    true
}

/// A server of the pool that nothing was left on is there for the request.
pub(crate) fn attach(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.server(server_conn) else { return };
    server.phase = Phase::AwaitingCancel;
    let pool_id = server.pool;
    let listener = core.local_pools.get(pool_id).and_then(|pool| pool.listener.as_deref());
    if listener.is_none_or(|listener| listener.conn().is_some() || !listener.is_used()) {
        return checkout::release_or_close(core, server_conn);
    }
    begin(core, pool_id, server_conn, &[], "");
    opening::serve_or_open(core, pool_id);
}

fn begin(core: &mut Core, pool_id: PoolId, server_conn: ConnId, on: &[String], first: &str) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    server.phase = Phase::Listening;
    server.listens = true;
    server.used_by = UsedBy::Client;
    server.request_us = now_us;
    server.protocol.collect_notifications(true);
    server.protocol.set_channels(Channels::default());
    local_pool.pool.begin_listening();
    let listener = local_pool.listener.get_or_insert_default();
    listener.open(server_conn, on.iter().map(String::as_str));
    let sql = listener.next_command().unwrap_or_default();
    core.report_server(pool_id, false);
    core.log_server(server_conn, Level::Log, "listening for the clients of the pool");
    send(core, server_conn, &format!("{first}{sql}"));
}

/// Has the connection listen on what its clients do.
pub(crate) fn listen_as_wanted(core: &mut Core, pool_id: PoolId) {
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    if let (Some(conn), Some(sql)) = (listener.conn(), listener.next_command()) {
        send(core, conn, &sql);
    }
}

fn send(core: &mut Core, conn: ConnId, sql: &str) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(conn) else { return };
    server.query_us = now_us;
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(conn, |out| protocol.send_internal_query(at, out, sql));
    }
}

/// Bytes from the connection: notifications, and answers to LISTEN.
pub(crate) fn received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let outcome = internal_query::step_internal_query(core, conn, bytes);
    let Some(server) = core.server(conn) else { return };
    let (pool_id, frames) = (server.pool, server.protocol.take_notifications());
    let failed = server.internal_error.take();
    if let Some(fault) = outcome.fault {
        return server_end::server_fault(core, conn, &fault.message());
    }
    let mut some_wait = false;
    for one in listening::notifications(&frames) {
        if one.channel == MARKERS.as_bytes() {
            hand_over::marker_came(core, pool_id, one.payload);
            continue;
        }
        let listener = core.local_pools.get(pool_id).and_then(|pool| pool.listener.as_deref());
        let clients = listener.map(|listener| listener.subscribers_of(one.channel)).unwrap_or_default();
        for client_conn in clients {
            some_wait |= notify::deliver(core, client_conn, conn, &one);
            hand_over::own_came(core, pool_id, client_conn);
        }
    }
    if some_wait && let Some(listener) = core.local_pools.listener_mut(pool_id) {
        listener.note_waiting();
    }
    if let Some(error) = failed {
        internal_query::log_query_error(core, conn, "LISTEN", &error);
        server_end::close_server(core, conn, CloseReason::StateUnknown);
    } else if outcome.internal_done.is_some() {
        if let Some(listener) = core.local_pools.listener_mut(pool_id) {
            listener.command_done();
        }
        listen_as_wanted(core, pool_id);
        hand_over::mark_ready(core, pool_id);
    }
}

/// The connection is being closed. What is sent until there is another one, its clients do not hear.
pub(crate) fn closes(core: &mut Core, conn: ConnId, reason: impl fmt::Display) {
    let now_us = core.now.mono_us;
    let Some(pool_id) = core.server(conn).map(|server| server.pool) else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let Some(listener) = local_pool.listener.as_deref_mut().filter(|listener| listener.conn() == Some(conn))
    else {
        return;
    };
    // One that cannot listen (a standby) is not sought again at once.
    let has_listened = listener.listens_on(MARKERS);
    listener.close(if has_listened { 0 } else { now_us + RETRY_US });
    let clients = listener.clients().len();
    if clients > 0 {
        core.statistics.listener_losses += 1;
        let text = format!(
            "listening connection lost ({reason}): {clients} clients miss notifications until another one listens"
        );
        core.log_server(conn, Level::Warning, &text);
    }
}

/// A client is gone.
pub(crate) fn client_left(core: &mut Core, client_conn: ConnId) {
    let Some(client) = core.conns.client_mut(client_conn) else { return };
    if let Some(listener) = core.local_pools.of_mut(client.pool).and_then(|pool| pool.listener.as_deref_mut())
    {
        let listening = client.listening.take().unwrap_or_default();
        listener.forget(client_conn, listening.channels());
    }
}

/// A client comes from another process, where it listened on these channels.
pub(crate) fn client_came(core: &mut Core, client_conn: ConnId) {
    let Some(client) = core.conns.client(client_conn) else { return };
    let Some(pool_id) = client.pool else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let Some(listening) = client.listening.as_deref() else { return };
    let pool = &local_pool.pool;
    let listener = local_pool.listener.get_or_insert_default();
    listener.count(|| Some(pool.import_listener()));
    let is_first = !listener.is_used();
    listening.channels().for_each(|channel| listener.subscribe(client_conn, channel));
    if is_first && listener.conn().is_none() {
        core.statistics.listener_losses += 1;
        let name = format!("{}/{}", local_pool.database_name, local_pool.user);
        let text = format!(
            "{name}: listening connection is opened anew after a takeover: clients miss notifications until it listens"
        );
        core.log(Level::Warning, text);
    }
    request(core, pool_id);
    listen_as_wanted(core, pool_id);
}

/// Waits for a server of the pool, if none listens and a client would.
fn request(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let Some(listener) = local_pool.listener.as_deref_mut() else { return };
    let is_waiting = listener.requested().is_some_and(|conn| {
        matches!(core.conns.get(conn), Some(Conn::InternalClient(found)) if found.listens && found.local_pool == pool_id)
    });
    let is_due = listener.has_clients() && listener.may_request(now_us);
    if is_waiting || listener.conn().is_some() || !is_due || local_pool.pool.paused {
        return;
    }
    let query = ServerQuery {
        database: local_pool.database_name.to_string(),
        user: local_pool.user.to_string(),
        sql: String::new(),
        values: Vec::new(),
        simple: true,
    };
    let conn = core.conns.reserve();
    listener.request(conn);
    let waiting = InternalClient {
        local_pool: pool_id,
        query,
        reply_to: Vec::new(),
        position: None,
        since_us: now_us,
        listens: true,
    };
    core.conns.place(conn, Conn::InternalClient(Box::new(waiting)));
    internal_query::internal_client_waits(core, conn);
    opening::serve_or_open(core, pool_id);
}

/// What is due at every tick.
pub(crate) fn check(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    let is_exporting = core.exporting.is_some();
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let (paused, has_clients) = (local_pool.pool.paused, local_pool.clients > 0);
    let Some(listener) = local_pool.listener.as_deref_mut() else { return };
    let linger_us = if has_clients && !is_exporting { LINGER_US } else { 0 };
    let unused =
        listener.unused_since_us(now_us).is_some_and(|since_us| now_us.saturating_sub(since_us) >= linger_us);
    let (conn, requested) = (listener.conn(), listener.requested());
    let late = match conn {
        Some(_) => listener.begun_before(now_us.saturating_sub(PATIENCE_US)),
        None => listener.begun_before(u64::MAX),
    };
    for client_conn in late {
        hand_over::abandon(core, pool_id, client_conn);
    }
    match conn {
        Some(conn) => check_connection(core, conn, unused, paused),
        None if unused => {
            if let Some(requested) = requested {
                internal_query::withdraw_listener(core, requested);
            }
            if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
                local_pool.listener = None;
            }
        }
        None => request(core, pool_id),
    }
    listen_as_wanted(core, pool_id);
    flush_all(core, pool_id);
    retry_pinned(core, pool_id);
}

fn check_connection(core: &mut Core, conn: ConnId, unused: bool, paused: bool) {
    let now_us = core.now.mono_us;
    let Some(server) = core.server(conn) else { return };
    let is_late = server.protocol.is_busy() && now_us.saturating_sub(server.query_us) >= PATIENCE_US;
    let close_when_free = server.close_when_free.reason();
    if is_late {
        server_end::server_fault(core, conn, "listening connection does not answer");
    } else if let Some(reason) = close_when_free.or(paused.then_some(CloseReason::Paused)) {
        server_end::close_server(core, conn, reason);
    } else if unused {
        server_end::close_server(core, conn, CloseReason::IdleTimeout);
    }
}

/// What could not be delivered at once.
fn flush_all(core: &mut Core, pool_id: PoolId) {
    let listener = core.local_pools.listener_mut(pool_id);
    let Some(clients) = listener.and_then(|listener| listener.take_waiting().then(|| listener.clients()))
    else {
        return;
    };
    let mut some_wait = false;
    for client_conn in clients {
        notify::flush(core, client_conn);
        let listening = core.conns.find_client(client_conn).and_then(|client| client.listening.as_deref());
        some_wait |= listening.is_some_and(Listening::has_queued);
    }
    if let Some(listener) = core.local_pools.listener_mut(pool_id)
        && some_wait
    {
        listener.note_waiting();
    }
}

/// Clients that had to keep their servers because there was no shared connection when their transactions ended.
fn retry_pinned(core: &mut Core, pool_id: PoolId) {
    for server_conn in core.servers_of(pool_id) {
        let Some(server) = core.server(server_conn) else { continue };
        if let Phase::Linked(client_conn) = server.phase
            && server.protocol.is_kept_by_channels()
            && server.protocol.is_quiet()
            && !server.unsent
        {
            session_state::keep(core, client_conn, server_conn);
        }
    }
}
