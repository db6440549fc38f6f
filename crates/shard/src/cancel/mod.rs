//! Cancel requests: from the client's key to the backend that runs its query, and no other.
//!
//! Owns the forwarding connection, and the rule that a server is not checked out again while a
//! cancel may still reach it. A cancel for a client that runs nothing is dropped. A request counts among the connections
//! that have not logged in until it is done, and one that waits for its turn waits no longer than its connection.

pub(crate) mod peers;

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::{Report, ShardId, ShardMessage};
use settings::{PeerGroup, SslMode};
use telemetry::Level;
use wire::encode;

use crate::cancel::peers::PeerPool;
use crate::cancel_key::Key;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::kinds::{CancelConn, CancelRequester, CancelStage, CancelTls};
use crate::core::Core;
use crate::effects::TlsRequest;
use crate::link::{checkout, client_end, startup_values};
use crate::local_pools::table::PoolId;
use crate::server::Server;
use crate::time::{micros, passed};
use crate::{Action, ConnId, Target, client};

/// The cancel requests that a shard forwards to other processes of the group.
#[derive(Default)]
pub(crate) struct Cancels {
    peer_pools: BTreeMap<u32, PeerPool>,
    /// How many connections still carry a request that goes to all peers, by the connection that made it and its client's number.
    to_all_peers: BTreeMap<(ConnId, u64), usize>,
}

/// Where the client of a cancel request is.
enum Route {
    /// In this process, if it is anywhere.
    Here,
    /// In this process of the group.
    Peer(u32),
    /// In any other process of the group: the process id is that of a server process.
    AllPeers,
}

impl Route {
    fn of(core: &Core, key: &Key) -> Route {
        let group = core.config.peer_group();
        let Some(own) = group.own() else { return Route::Here };
        // In a fleet each node knows where the others are: the one that a request was forwarded to has the client, or none has.
        let is_there = matches!(group, PeerGroup::Fleet(_)) && !key.is_unforwarded();
        // Clients keep their keys: those of server processes when that setting is turned off, and those of a process that was in no group, or in another place of it.
        if is_there || shard_of_key(core, key).is_some() {
            return Route::Here;
        }
        if key.may_be_of_server() {
            // None of the processes that are asked asks further ones.
            if key.is_unforwarded() && core.config.may_assign_at_login() {
                return Route::AllPeers;
            }
        }
        match key.peer(group) {
            // 0 is in the keys of a node that had no number.
            Some(other) if other != own && (other > 0 || matches!(group, PeerGroup::Configured(_))) => {
                Route::Peer(other)
            }
            _ => Route::Here,
        }
    }
}

impl Cancels {
    /// A cancel request came in on this connection; the connection stays until it is done, as PostgreSQL's does.
    pub(crate) fn cancel_request(&mut self, core: &mut Core, conn: ConnId, key: &Key) {
        let now_us = core.now.mono_us;
        let Some(client) = core.client(conn) else { return };
        client.phase = client::Phase::CancelRequest(None);
        client.request_us = now_us;
        let id = client.id;
        match Route::of(core, key) {
            Route::Peer(other) => return self.forward_cancel(core, (conn, id), other, key),
            Route::AllPeers => return self.forward_to_all_peers(core, (conn, id), key),
            Route::Here => {}
        }
        match shard_of_key(core, key) {
            Some(shard) if shard != core.id => {
                let message =
                    ShardMessage::Cancel { from: core.id, conn: conn.0, id, key: key.bytes().into() };
                core.send_to_shard(shard, message);
            }
            _ => cancel(core, CancelRequester::Local(conn, id), key),
        }
    }
}

/// A cancel request reached the process that takes over, and the client is still in this one.
pub(crate) fn cancel_for_takeover(core: &mut Core, key: &[u8]) {
    let Some(key) = Key::of(key) else { return };
    // No client here waits for the end of it: a number that no connection has.
    let (from, conn, id) = (core.id, u32::MAX, 0);
    match shard_of_key(core, &key) {
        Some(shard) if shard != core.id => {
            let message = ShardMessage::Cancel { from, conn, id, key: key.bytes().into() };
            core.send_to_shard(shard, message);
        }
        _ => cancel(core, CancelRequester::Remote(from, conn, id), &key),
    }
}

/// Another shard received a cancel request for a client of this one.
pub(crate) fn cancel_for_shard(core: &mut Core, requester: CancelRequester, key: &[u8]) {
    match Key::of(key) {
        Some(key) => cancel(core, requester, &key),
        None => cancel_over(core, requester),
    }
}

/// The client with this key is here, if it is anywhere.
fn cancel(core: &mut Core, requester: CancelRequester, key: &Key) {
    let server_conn = match client_of_key(core, key).map(|(place, client)| (place, client.id, &client.phase))
    {
        Some((.., &client::Phase::Linked(server))) => server,
        Some((place, client_id, client::Phase::Console(_))) => {
            core.report(Report::ConsoleCancelled { shard: core.id, client: place.0, client_id });
            return cancel_over(core, requester);
        }
        Some(_) => return cancel_over(core, requester),
        None => {
            // The process being taken over may still have the client.
            core.report(Report::StrayCancel { key: key.bytes().into() });
            return cancel_over(core, requester);
        }
    };
    if !cancel_on(core, requester, server_conn) {
        cancel_over(core, requester);
    }
}

/// Begins to cancel what runs on this server. False: nothing does.
pub(crate) fn cancel_on(core: &mut Core, requester: CancelRequester, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.server(server_conn) else { return false };
    let (Some(key), local_pool, true) = (server.key.clone(), server.pool, server.protocol.is_busy()) else {
        return false;
    };
    let tls = match (&server.tls, server.host()) {
        (Some(_), Some(host)) => CancelTls::Wanted(Arc::clone(host)),
        _ => CancelTls::None,
    };
    server.cancels += 1;
    server.attempt.cancel();
    let (server, asked) = ((server_conn, server.id), server.protocol.newest_reply());
    let newest_reply = if holds_more(core, server_conn) { u64::MAX } else { asked };
    let cancel_conn = CancelConn {
        id: core.process.next_id(),
        local_pool,
        server,
        newest_reply,
        key,
        requester,
        since_us: now_us,
        stage: CancelStage::Waits,
        closes: false,
        tls,
    };
    let conn = core.conns.reserve();
    core.conns.place(conn, Conn::Cancel(Box::new(cancel_conn)));
    if let CancelRequester::Local(requester, _) = requester {
        carry_cancel(core, requester, conn);
    }
    if let Some(local_pool) = core.local_pools.get_mut(local_pool) {
        local_pool.cancels_waiting.push_back(conn);
    }
    send_cancels(core, local_pool);
    true
}

/// The client of this server has sent more than the server has got: what is to be cancelled may be behind what runs.
fn holds_more(core: &Core, server_conn: ConnId) -> bool {
    let client = core.conns.find_server(server_conn).and_then(Server::client);
    let client = client.and_then(|client| core.conns.find_client(client));
    client.is_some_and(|client| !client.request.held.is_empty())
}

impl Cancels {
    /// The connection with a cancel request is closed: if it has not had its turn, it does not get one.
    pub(crate) fn withdraw_cancel(&mut self, core: &mut Core, carrier: ConnId) {
        if !client_end::waits_for_turn(core, carrier) {
            return;
        }
        match core.conns.get(carrier) {
            Some(Conn::PeerCancel(peer_cancel_conn)) => {
                let requester = peer_cancel_conn.requester;
                match self.to_all_peers.contains_key(&requester) {
                    true => self.drop_all_waiting(core, requester),
                    false => self.drop_waiting_peer_cancel_conn(core, carrier),
                }
            }
            _ => drop_waiting(core, carrier),
        }
    }
}

/// Settings, or a deferred BEGIN, in front of a request are executed within this time. PostgreSQL keeps their answers until the request ends or
/// its buffer of 8 kB is full (55.2.4), so that nothing says it.
const LED_US: u64 = 500_000;

/// Opens as many cancel connections as there may be: as many as servers, of which there may be more than the size of the pool. One that could
/// meet what was sent in front of its client's request waits.
fn send_cancels(core: &mut Core, pool_id: PoolId) {
    loop {
        let waits = |conn: &&ConnId| !is_due(core, **conn);
        let Some(local_pool) = core.local_pools.get(pool_id) else { return };
        let led = local_pool.cancels_waiting.iter().take_while(waits).count();
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
        let size = local_pool.pool.size();
        if size > 0 && local_pool.cancels_active >= size.max(local_pool.pool.open()) {
            return;
        }
        let Some(conn) = local_pool.cancels_waiting.remove(led) else { return };
        let Some(cancel_conn) = core.conns.cancel_conn(conn) else { continue };
        let is_running = is_running(core, cancel_conn);
        let Some(target) = target_of(core, cancel_conn.server).filter(|_| is_running) else {
            drop_waiting(core, conn);
            continue;
        };
        if let Some(cancel_conn) = core.conns.cancel_conn_mut(conn) {
            cancel_conn.stage = CancelStage::Connects;
        }
        if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
            local_pool.cancels_active += 1;
        }
        core.connect(conn, target);
    }
}

fn is_due(core: &Core, conn: ConnId) -> bool {
    let Some(Conn::Cancel(cancel_conn)) = core.conns.get(conn) else { return true };
    let Some(server) = core.conns.find_server(cancel_conn.server.0) else { return true };
    !server.protocol.is_led() || passed(core.now.mono_us, server.query_us, LED_US)
}

/// The client has its answer and leaves this server: requests to cancel that are not sent have nothing left to cancel. Looks at every connection.
#[cold]
pub(crate) fn drop_unsent(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.find_server(server_conn) else { return };
    let server = (server_conn, server.id);
    let is_unsent =
        |cancel_conn: &CancelConn| cancel_conn.server == server && cancel_conn.stage != CancelStage::Sent;
    for conn in core.conns.ids(|conn| matches!(conn, Conn::Cancel(cancel_conn) if is_unsent(cancel_conn))) {
        match core.conns.cancel_conn(conn).is_some_and(CancelConn::has_turn) {
            true => close(core, conn),
            false => drop_waiting(core, conn),
        }
    }
}

/// A cancel that never got its turn is over.
fn drop_waiting(core: &mut Core, conn: ConnId) {
    let Some(Conn::Cancel(cancel_conn)) = core.conns.remove(conn) else { return };
    if let Some(local_pool) = core.local_pools.get_mut(cancel_conn.local_pool) {
        local_pool.cancels_waiting.retain(|waiting| *waiting != conn);
    }
    finish_cancel(core, &cancel_conn);
}

/// The connection is there.
pub(crate) fn cancel_conn_connected(core: &mut Core, conn: ConnId) {
    if !secure_cancel(core, conn) {
        send_cancel(core, conn);
    }
}

/// A cancel connection's socket is gone: the next may have its turn.
pub(crate) fn cancel_conn_closed(core: &mut Core, cancel_conn: &CancelConn) {
    if let Some(local_pool) = core.local_pools.get_mut(cancel_conn.local_pool)
        && cancel_conn.has_turn()
    {
        local_pool.cancels_active = local_pool.cancels_active.saturating_sub(1);
    }
    finish_cancel(core, cancel_conn);
    send_cancels(core, cancel_conn.local_pool);
}

/// Nothing of this cancel can arrive any more: the server may be checked out again, and the canceling client is closed.
fn finish_cancel(core: &mut Core, cancel_conn: &CancelConn) {
    if let Some(server) = server_to_cancel(core, cancel_conn.server) {
        server.cancels = server.cancels.saturating_sub(1);
        let waits = server.client().filter(|_| server.cancels == 0 && server.protocol.holds_requests());
        match waits {
            Some(client) => startup_values::restore_late(core, cancel_conn.server.0, client),
            None => checkout::release(core, cancel_conn.server.0),
        }
    }
    cancel_over(core, cancel_conn.requester);
}

/// Closes the canceling client.
pub(crate) fn cancel_over(core: &mut Core, requester: CancelRequester) {
    match requester {
        CancelRequester::Local(conn, id) => {
            let is_asker = |client: &client::Client| {
                client.id == id && matches!(client.phase, client::Phase::CancelRequest(_))
            };
            if core.conns.find_client(conn).is_some_and(is_asker) {
                core.log_client(conn, Level::Debug, "cancel request done");
                client_end::forget_client(core, conn);
                core.act(Action::Close { conn });
            }
        }
        CancelRequester::Remote(to, conn, id) => {
            core.send_to_shard(to, ShardMessage::Cancelled { conn, id });
        }
        CancelRequester::Operator => {}
    }
}

/// `cancel_wait_timeout`: a cancel that is not done by then is given up.
pub(crate) fn check_cancel_conn_deadline(core: &mut Core, conn: ConnId) {
    let (now_us, limit_us) = (core.now.mono_us, micros(core.config.global.cancel_wait_timeout));
    let Some(cancel_conn) = core.conns.cancel_conn(conn) else { return };
    if !cancel_conn.has_turn() {
        send_cancels(core, cancel_conn.local_pool);
    }
    let Some(Conn::Cancel(cancel_conn)) = core.conns.get_mut(conn) else { return };
    if limit_us == 0 || now_us.saturating_sub(cancel_conn.since_us) < limit_us || cancel_conn.closes {
        return;
    }
    let (requester, stage, server) = (cancel_conn.requester, cancel_conn.stage, cancel_conn.server);
    log_cancel_timeout(core, requester);
    // What is sent is not taken back by the end of its connection.
    if stage == CancelStage::Sent
        && let Some(server) = server_to_cancel(core, server)
    {
        server.close_when_free.set(CloseReason::CancelUnanswered);
    }
    match stage {
        CancelStage::Waits => drop_waiting(core, conn),
        CancelStage::Connects | CancelStage::Sent => close(core, conn),
    }
}

/// Closes the connection that carries a cancel request, unless it is being closed.
pub(crate) fn close(core: &mut Core, conn: ConnId) {
    let closes = match core.conns.get_mut(conn) {
        Some(Conn::Cancel(carrier)) => &mut carrier.closes,
        Some(Conn::PeerCancel(carrier)) => &mut carrier.closes,
        _ => return,
    };
    if !std::mem::replace(closes, true) {
        core.act(Action::Close { conn });
    }
}

/// Where the client with this key is.
fn shard_of_key(core: &Core, key: &Key) -> Option<ShardId> {
    place_of_key(core, key).map(|(shard, _)| ShardId(shard))
}

fn place_of_key(core: &Core, key: &Key) -> Option<(u16, u32)> {
    key.prefixes().into_iter().find_map(|prefix| core.pool_registry.find_cancel_key(prefix))
}

/// The client with this key.
fn client_of_key<'a>(core: &'a Core, key: &Key) -> Option<(ConnId, &'a client::Client)> {
    let group = core.config.peer_group();
    let (_, place) = place_of_key(core, key).filter(|(shard, _)| *shard == core.id.0)?;
    let client = core.conns.find_client(ConnId(place)).filter(|client| client.cancel_key.is(key, group));
    Some((ConnId(place), client?))
}

/// This connection carries a client's cancel request.
pub(crate) fn carry_cancel(core: &mut Core, requester: ConnId, by: ConnId) {
    if let Some(client::Phase::CancelRequest(carrier)) =
        core.client(requester).map(|client| &mut client.phase)
    {
        *carrier = Some(by);
    }
}

/// The server a cancel is for, unless it has gone and its place is another's.
fn server_to_cancel(core: &mut Core, (conn, id): (ConnId, u64)) -> Option<&mut Server> {
    core.conns.find_server_mut(conn).filter(|server| server.id == id)
}

/// The same server that the query runs on, by address.
fn target_of(core: &Core, (conn, id): (ConnId, u64)) -> Option<Target> {
    let server = core.conns.find_server(conn).filter(|server| server.id == id)?;
    let Some(remote) = server.remote else {
        return Some(server.target.clone());
    };
    Some(Target::Inet { host: remote.ip().to_string().into(), port: remote.port() })
}

/// The server still runs for its client what it ran when the request came.
fn is_running(core: &Core, cancel_conn: &CancelConn) -> bool {
    let (conn, id) = cancel_conn.server;
    core.conns.find_server(conn).filter(|server| server.id == id).is_some_and(|server| {
        let protocol = &server.protocol;
        server.client().is_some() && protocol.is_busy() && protocol.owes_reply(cancel_conn.newest_reply)
    })
}

/// If the query still runs, cancel it.
pub(crate) fn send_cancel(core: &mut Core, conn: ConnId) {
    let Some(cancel_conn) = core.conns.cancel_conn(conn) else { return };
    if !is_running(core, cancel_conn) {
        return close(core, conn);
    }
    let Some(cancel_conn) = core.conns.cancel_conn_mut(conn) else { return };
    cancel_conn.stage = CancelStage::Sent;
    let key = &cancel_conn.key;
    core.outbox.write(conn, |out| encode::cancel_request(out, key.0, &key.1));
}

/// Logs on the shard of the canceling client.
pub(crate) fn log_cancel_timeout(core: &mut Core, requester: CancelRequester) {
    match requester {
        CancelRequester::Local(conn, id)
            if core.conns.find_client(conn).is_some_and(|client| client.id == id) =>
        {
            client_end::log_client_disconnect(core, conn, "cancel_wait_timeout");
        }
        CancelRequester::Local(..) | CancelRequester::Operator => {}
        CancelRequester::Remote(to, conn, id) => {
            core.send_to_shard(to, ShardMessage::CancelTimedOut { conn, id })
        }
    }
}

/// A cancel connection's socket is there: it gets TLS if the server that runs the query has it.
fn secure_cancel(core: &mut Core, conn: ConnId) -> bool {
    let Some(cancel_conn) = core.conns.cancel_conn_mut(conn) else { return false };
    if !matches!(cancel_conn.tls, CancelTls::Wanted(_)) || core.tls.settings.servers.mode == SslMode::Disable
    {
        return false;
    }
    core.outbox.write(conn, encode::ssl_request);
    true
}

/// The answer to a cancel connection's SSLRequest. PostgreSQL answers the cancel request itself with nothing but
/// its end of file.
pub(crate) fn cancel_conn_received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let Some(cancel_conn) = core.conns.cancel_conn_mut(conn) else { return };
    let CancelTls::Wanted(host) = &cancel_conn.tls else { return };
    let host = Arc::clone(host);
    cancel_conn.tls = CancelTls::Begun;
    match bytes {
        [b'S'] => {
            core.tls.requests.push(TlsRequest::Connect { conn, host: host.to_string(), is_node: false })
        }
        // A cancel key is not sent in clear over a connection that had to use TLS.
        _ => close(core, conn),
    }
}
