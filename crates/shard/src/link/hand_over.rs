//! A client that listens on its own server hands its channels over to the connection that the pool's clients share, and leaves the server.
//!
//! Owns that each notification reaches the client once. LISTEN runs on the client's server, with PostgreSQL's answer. Behind the
//! transaction the shared connection listens on the same channels; then the client's server sends a marker, a notification that both get
//! in its place in the one order of commits. What the server delivers before it goes to the client from there; what the shared connection
//! delivers behind it, from there.
//!
//! While a client with channels has a server, that server listens on them too, so that UNLISTEN, DISCARD ALL and pg_listening_channels()
//! are PostgreSQL's. What the server delivers of them is dropped by `session`.

use session::listening;
use session::{Channels, Listening};

use crate::client::Client;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::{
    backpressure, checkout, fair, first_message, internal_query, listener, notify, pins, relay, server_end,
    session_state,
};
use crate::local_pools::listener::{Direction, FromServer, HandOver, MARKERS, Step};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{InternalQuery, Server};
use crate::{ConnId, client, server};

/// What the session of a client's server listens on is known: channels that are not among it the client has left.
pub(crate) fn note_channels(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let Some(listening) = client.listening.as_deref_mut() else { return };
    let channels = server.protocol.channels().names();
    let is_left = |channel: &&str| !channels.iter().any(|known| known == channel);
    let left: Vec<String> = listening.channels().filter(is_left).map(str::to_owned).collect();
    left.iter().for_each(|channel| listening.remove(channel));
    if let Some(listener) = core.local_pools.listener_mut(server.pool) {
        left.iter().for_each(|channel| listener.unsubscribe(client_conn, channel));
    }
    if listening.is_empty() && !listening.is_ready_withheld() {
        client.listening = None;
    }
}

/// The client of a quiet server leaves it, if nothing but channels keeps it and another connection can listen on them. False if it
/// stays, and may go on at once.
pub(crate) fn leave(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let is_exporting = core.exporting.is_some();
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return false };
    let shared = local_pool.listener.as_deref().and_then(|listener| listener.conn());
    let is_ended = server.close_when_free.reason() == Some(CloseReason::SentFatal);
    if is_ended || !server.protocol.is_quiet() || server.unsent || server.cancels > 0 {
        return false;
    }
    if shared.is_some() && client.listening.as_deref().is_some_and(Listening::awaits_own) {
        // Its ReadyForQuery waits until the shared connection has delivered what the client has notified itself of.
        begin(core, client_conn, server_conn, HandOverKind::OwnNotifications);
        return true;
    }
    let channels = server.protocol.channels();
    let is_new = |channel: &&String| {
        client.listening.as_deref().is_none_or(|listening| !listening.is_on(channel.as_bytes()))
    };
    let new: Vec<String> = channels.names().iter().filter(is_new).cloned().collect();
    let has_others = !new.is_empty() || channels.movable().is_none();
    let is_kept_by_channels = server.protocol.is_kept_by_channels();
    if is_kept_by_channels && !has_others {
        release(core, client_conn, server_conn);
        return true;
    }
    if is_exporting || server.close_when_free.is_set() {
        return false;
    }
    if !is_kept_by_channels || !can_share(local_pool, client, server) {
        return has_others && take_back(core, client_conn, server_conn, shared);
    }
    match shared {
        Some(_) => {
            begin(core, client_conn, server_conn, HandOverKind::ToShared(new));
            true
        }
        None => listener::adopt(core, client_conn, server_conn, &new),
    }
}

/// The client stays on a server that listens on more than the shared connection does for it: from here on it hears all from there. False if it
/// does so already.
fn take_back(core: &mut Core, client_conn: ConnId, server_conn: ConnId, shared: Option<ConnId>) -> bool {
    let Some((client, _)) = core.conns.linked(client_conn, server_conn) else { return false };
    if client.listening.as_deref().is_none_or(Listening::is_empty) {
        return false;
    }
    if shared.is_some() {
        begin(core, client_conn, server_conn, HandOverKind::ToServer);
        return true;
    }
    session_state::deliver_notifications(core, server_conn, client_conn);
    end_listening(core, client_conn);
    false
}

/// The client hears nothing by way of the shared connection any more.
fn end_listening(core: &mut Core, client_conn: ConnId) {
    let Some(client) = core.conns.find_client_mut(client_conn) else { return };
    let Some(listening) = client.listening.as_deref_mut() else { return };
    let Some(listener) = core.local_pools.of_mut(client.pool).and_then(|pool| pool.listener.as_deref_mut())
    else {
        return;
    };
    listening.channels().for_each(|channel| listener.unsubscribe(client_conn, channel));
    notify::flush_ready(core, client_conn);
    if let Some(client) = core.conns.find_client_mut(client_conn) {
        client.listening = None;
    }
}

/// The shared connection has delivered something to a client whose ReadyForQuery may wait for that.
pub(crate) fn own_came(core: &mut Core, pool_id: PoolId, client_conn: ConnId) {
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    let Some(hand_over) = listener.hand_over_of(client_conn) else { return };
    let server_conn = hand_over.server;
    let is_over = matches!(hand_over.step, Step::AwaitsOwn)
        && core.conns.find_client(client_conn).is_some_and(|client| {
            client.listening.as_deref().is_none_or(|listening| !listening.awaits_own())
        });
    if is_over {
        go_on(core, client_conn, server_conn);
    }
}

/// Nothing is awaited any more: what keeps the client decides.
fn go_on(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    let pool_id = server.pool;
    if let Some(listener) = core.local_pools.listener_mut(pool_id) {
        listener.end(client_conn);
    }
    if !leave(core, client_conn, server_conn) {
        stay(core, client_conn, server_conn);
    }
}

/// Another connection may listen on the channels of this session: notifications of one server are not those of another, and text in two
/// encodings needs two connections.
pub(crate) fn can_share(local_pool: &LocalPool, client: &Client, server: &Server) -> bool {
    let has_room = |channels: &[String]| {
        local_pool.listener.as_deref().is_none_or(|listener| listener.has_room(channels.len()))
    };
    server.protocol.channels().movable().is_some_and(has_room)
        && local_pool.pool.may_listen()
        && local_pool.database.host.len() <= 1
        && client.parameters.has_encoding_of(&local_pool.default_params)
}

/// What is awaited, and why.
enum HandOverKind {
    /// These channels go over to the shared connection.
    ToShared(Vec<String>),
    /// All go back to the client's server.
    ToServer,
    /// No channel does.
    OwnNotifications,
}

fn begin(core: &mut Core, client_conn: ConnId, server_conn: ConnId, kind: HandOverKind) {
    let now_us = core.now.mono_us;
    let mut random = [0; 16];
    core.entropy.fill(&mut random);
    let marker = format!("{:032x}", u128::from_be_bytes(random));
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let pool_id = server.pool;
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    client.phase = client::Phase::Preparing(server_conn);
    server.phase = server::Phase::InternalQuery(InternalQuery::HandOver(client_conn));
    server.query_us = now_us;
    server.protocol.collect_notifications(true);
    let (direction, channels, step) = match kind {
        HandOverKind::ToShared(channels) => (Direction::ToShared, channels, Step::Begun),
        HandOverKind::ToServer => (Direction::ToServer, Vec::new(), Step::Begun),
        HandOverKind::OwnNotifications => (Direction::ToShared, Vec::new(), Step::AwaitsOwn),
    };
    let hand_over = HandOver {
        client: client_conn,
        server: server_conn,
        direction,
        channels,
        marker,
        since_us: now_us,
        step,
    };
    local_pool.listener.get_or_insert_default().begin(hand_over);
    backpressure::pause_client(core, client_conn);
    listener::listen_as_wanted(core, pool_id);
    mark_ready(core, pool_id);
}

/// The shared connection listens on more channels: the servers of clients that wait for these are sent their markers.
pub(crate) fn mark_ready(core: &mut Core, pool_id: PoolId) {
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    for (server_conn, marker) in listener.mark_ready() {
        send(core, server_conn, &format!("LISTEN {MARKERS};NOTIFY {MARKERS},'{marker}'"));
    }
}

fn send(core: &mut Core, server_conn: ConnId, sql: &str) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    server.query_us = now_us;
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, sql));
    }
}

/// The client's server has answered: the marker is behind what it has delivered.
pub(crate) fn answered(core: &mut Core, server_conn: ConnId, client_conn: ConnId, has_failed: bool) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(listener) = core.local_pools.listener_mut(server.pool) else {
        return;
    };
    let Some(hand_over) = listener.hand_over_of(client_conn) else { return };
    let Step::Marked { server: own, .. } = &mut hand_over.step else {
        return stay(core, client_conn, server_conn);
    };
    if has_failed {
        return stay(core, client_conn, server_conn);
    }
    let frames = server.protocol.take_notifications();
    let Some(parts) = parts(&frames, hand_over.marker.as_bytes()) else {
        return server_end::server_fault(core, server_conn, "server has not delivered its own notification");
    };
    *own = Some(parts);
    complete(core, client_conn, server_conn);
}

/// What stands before the marker and behind it. None if it is not there.
fn parts(frames: &[u8], marker: &[u8]) -> Option<FromServer> {
    let (mut parts, mut has_marker) = (FromServer { before: Vec::new(), behind: Vec::new() }, false);
    for one in listening::notifications(frames) {
        let is_of_weir = one.channel == MARKERS.as_bytes();
        has_marker |= is_of_weir && one.payload == marker;
        match has_marker {
            _ if is_of_weir => {}
            false => parts.before.extend_from_slice(one.frame),
            true => parts.behind.extend_from_slice(one.frame),
        }
    }
    has_marker.then_some(parts)
}

/// The shared connection has delivered a marker: from here on it delivers the client's channels.
pub(crate) fn marker_came(core: &mut Core, pool_id: PoolId, marker: &[u8]) {
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    // Others use the channel too: other shards, and other processes.
    let Some(hand_over) = listener.hand_over_by(marker) else { return };
    let (client_conn, server_conn) = (hand_over.client, hand_over.server);
    let Step::Marked { shared: shared @ None, .. } = &mut hand_over.step else { return };
    let Some(client) = core.conns.find_client_mut(client_conn) else { return };
    let listening = client.listening.get_or_insert_default();
    *shared = Some(listening.take_queued());
    let (direction, channels) = (hand_over.direction, hand_over.channels.clone());
    if direction == Direction::ToServer {
        listening.channels().for_each(|channel| listener.unsubscribe(client_conn, channel));
    }
    for channel in &channels {
        listening.add(channel);
        listener.subscribe(client_conn, channel);
    }
    complete(core, client_conn, server_conn);
}

/// Both markers have come: the client gets what was before them, and leaves its server or hears the rest from there.
fn complete(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let pool_id = server.pool;
    let ids = (server.key.as_ref().map_or(0, |key| key.0), client.cancel_key.process_id());
    let listening = client.listening.as_deref();
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    let Some(HandOver {
        channels,
        direction,
        step: Step::Marked { server: Some(own), shared: Some(shared) },
        ..
    }) = listener.hand_over_of(client_conn)
    else {
        return;
    };
    let direction = *direction;
    let is_shared = |channel: &[u8]| {
        let is_new = channels.iter().any(|new| new.as_bytes() == channel);
        !is_new && listening.is_some_and(|listening| listening.is_on(channel))
    };
    listening::replace_process_id(&mut own.before, ids.0, ids.1);
    listening::replace_process_id(&mut own.behind, ids.0, ids.1);
    let mut frames = listening::merged(shared, &own.before, is_shared);
    if direction == Direction::ToServer {
        frames.extend_from_slice(&own.behind);
    }
    if direction == Direction::ToShared {
        listener.end(client_conn);
    } else if let Some(hand_over) = listener.hand_over_of(client_conn) {
        hand_over.step = Step::Over;
    }
    if !frames.is_empty() {
        core.outbox.write(client_conn, |out| out.extend_from_slice(&frames));
    }
    match direction {
        Direction::ToShared => release(core, client_conn, server_conn),
        Direction::ToServer => {
            end_listening(core, client_conn);
            send(core, server_conn, &format!("UNLISTEN {MARKERS}"));
        }
    }
}

/// The markers have not come in time, or there is no shared connection any more: the client keeps its server.
pub(crate) fn abandon(core: &mut Core, pool_id: PoolId, client_conn: ConnId) {
    let Some(listener) = core.local_pools.listener_mut(pool_id) else {
        return;
    };
    let Some(hand_over) = listener.hand_over_of(client_conn) else { return };
    let server_conn = hand_over.server;
    // Its answer is awaited as that to any query of Weir's own.
    if matches!(hand_over.step, Step::Marked { server: None, .. }) {
        return;
    }
    match std::mem::replace(&mut hand_over.step, Step::Over) {
        Step::Begun => stay(core, client_conn, server_conn),
        Step::AwaitsOwn => {
            // They were lost with the shared connection, or it is slow.
            if let Some(listening) =
                core.client(client_conn).and_then(|client| client.listening.as_deref_mut())
            {
                listening.forget_own();
            }
            go_on(core, client_conn, server_conn);
        }
        // The client hears what the server has delivered; the marker is no notification of the client's.
        Step::Marked { server: Some(own), shared: None } => {
            notify::deliver_own(core, client_conn, &own.before);
            notify::deliver_own(core, client_conn, &own.behind);
            send(core, server_conn, &format!("UNLISTEN {MARKERS}"));
        }
        Step::Marked { .. } | Step::Over => {}
    }
}

/// The client goes on with the server that listens for it, once that has what was reset of the client's startup values.
fn stay(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    server.protocol.collect_notifications(false);
    if let Some(listener) = core.local_pools.listener_mut(server.pool) {
        listener.end(client_conn);
    }
    session_state::deliver_notifications(core, server_conn, client_conn);
    notify::flush_ready(core, client_conn);
    if !pins::settle(core, client_conn, server_conn) {
        return;
    }
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    if let Some(sets) = client.parameters.sets_from(&server.protocol.parameters, &core.tracked) {
        if !server.protocol.is_quiet() {
            return server.protocol.hold_requests();
        }
        server.protocol.take_lost();
        return checkout::prepare(core, client_conn, server_conn, InternalQuery::Apply(client_conn), &sets);
    }
    backpressure::resume_client(core, client_conn);
    relay::send_held(core, client_conn, server_conn);
}

/// The client leaves a server that listens on nothing but what the shared connection delivers.
pub(crate) fn release(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    fair::end(server, &mut core.local_pools, now_us);
    server.unlink();
    server.protocol.collect_notifications(false);
    if server.paused {
        backpressure::resume_server(core, server_conn);
    }
    internal_query::run_internal_query(core, server_conn, InternalQuery::Unlisten);
    become_idle(core, client_conn);
}

/// The client has no server any more.
pub(crate) fn become_idle(core: &mut Core, client_conn: ConnId) {
    pins::release(core, client_conn);
    let Some(client) = core.client(client_conn) else { return };
    client.phase = client::Phase::Idle;
    let (paused, holds) = (client.paused, !client.request.held.is_empty());
    notify::flush_ready(core, client_conn);
    if paused {
        backpressure::resume_client(core, client_conn);
    }
    if holds {
        first_message::idle_client_received_held(core, client_conn);
    }
}

/// A server that a client with channels has left listens on nothing any more.
pub(crate) fn unlistened(core: &mut Core, server_conn: ConnId, has_failed: bool) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    server.protocol.take_notifications();
    if has_failed {
        return server_end::close_server(core, server_conn, CloseReason::StateUnknown);
    }
    server.protocol.set_channels(Channels::default());
    // Half a notice may have come behind the answer.
    if !server.await_cancels(now_us) {
        core.effects.push(Effect::LeftWithCancels(server_conn));
    } else if server.protocol.is_quiet() && !server.unsent {
        core.effects.server(server_conn);
    }
}

/// The statements that have a server listen on what its next client listens on; they are sent with those that set its parameters.
pub(crate) fn give_channels(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> Option<String> {
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    let listening = client.listening.as_deref_mut()?;
    if !server.protocol.follows_session() {
        return None;
    }
    let own = server.key.as_ref().map_or(0, |key| key.0);
    listening.use_server(client.cancel_key.process_id(), own);
    server.protocol.set_channels(Channels::of(listening.channels()));
    Some(listening::listen(listening.channels()))
}
