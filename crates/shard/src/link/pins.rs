//! The budget of pinned clients (`max_pinned`): clients that keep a server because of what their sessions hold.
//!
//! Owns who counts in it, who waits for it and who is refused. A client counts once, whatever it holds, from the request that is known to
//! pin, or else from the answer that shows it, until its session holds nothing more. Only a client without a server waits, so that none that
//! waits keeps another from ending its pin.

use messages::{ShardId, ShardMessage};
use pool::PinUnit;
use session::{Pin, Pins};
use wire::sqlstate;
use wire::tag::frontend as tag;

use crate::ConnId;
use crate::client::held_pin::HeldPin;
use crate::client::{Client, Phase};
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{backpressure, checkout, client_end, hand_over, relay, server_end};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::Server;

/// The client asks for a server by a request that is known to pin, and may not have one yet. `request` is empty if it is held.
#[cold]
#[inline(never)]
pub(crate) fn waits(core: &mut Core, conn: ConnId, request: &[u8]) -> bool {
    let Some(client) = core.conns.client_mut(conn) else { return false };
    let request = if request.is_empty() { &client.request.held } else { request };
    let names = client.request.statements.as_deref();
    if client.pin.is_some() || !session::request_pins(request, names, &core.registry) {
        return false;
    }
    let Some(local_pool) = core.local_pools.of_mut(client.pool) else { return false };
    if local_pool.pool.queue.pins_len() == 0
        && let Some(unit) = local_pool.pool.take_pin()
    {
        client.pin = Some(Box::new(HeldPin::reserved(unit)));
        return false;
    }
    if !client_end::client_must_disconnect(core, conn) {
        enqueue(core, conn);
    }
    true
}

/// The client waits for a pin: it is not read any further.
fn enqueue(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.pool) else { return };
    local_pool.pins.waited += 1;
    local_pool.pool.shared().request_pin(core.id.0);
    client.phase = Phase::Waiting(local_pool.pool.queue.join_for_pin(conn.0, now_us));
    client.wait_noted = false;
    client.request_us = now_us;
    backpressure::pause_client(core, conn);
}

/// Clients that wait for a pin get one, as long as there are any; they ask for a server then.
pub(crate) fn serve(core: &mut Core, pool_id: PoolId) {
    while let Some(local_pool) = core.local_pools.get_mut(pool_id)
        && !local_pool.pool.paused
        && let Some(waiter) = local_pool.pool.queue.front_pin()
    {
        let pin = match local_pool.pool.limits.waits_for_pin {
            true => match local_pool.pool.take_pin() {
                Some(unit) => Some(Box::new(HeldPin::reserved(unit))),
                None => return local_pool.pool.shared().request_pin(core.id.0),
            },
            false => None,
        };
        local_pool.pool.queue.serve_pin();
        let conn = ConnId(waiter.client);
        let Some(client) = core.client(conn).filter(|client| matches!(client.phase, Phase::Waiting(_)))
        else {
            continue;
        };
        client.pin = pin;
        client.phase = Phase::Idle;
        ask_for_server(core, conn, waiter.since_us);
    }
}

/// The client has waited since then, and goes on waiting if no server is free.
fn ask_for_server(core: &mut Core, conn: ConnId, since_us: u64) {
    if let Some(server) = checkout::checkout_since(core, conn, since_us, None) {
        backpressure::resume_client(core, conn);
        relay::send_held(core, conn, server);
    }
}

/// A client comes from another process with its server, and has been pinned since then. It counts whatever the limit is.
pub(crate) fn import(core: &mut Core, conn: ConnId, since_us: u64) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of(client.pool) else { return };
    if !local_pool.pool.limits.follows_sessions {
        return;
    }
    let unit = PinUnit::imported(local_pool.pool.shared());
    client.pin = Some(Box::new(HeldPin::since(unit, since_us)));
}

/// What keeps the client on its server for as long as its session holds it. Channels that all clients of the pool hear by one connection
/// do not.
pub(crate) fn lasting(local_pool: Option<&LocalPool>, client: &Client, server: &Server) -> Pins {
    all(local_pool, client, server).lasting()
}

/// The same, and what keeps it until its next message.
pub(crate) fn all(local_pool: Option<&LocalPool>, client: &Client, server: &Server) -> Pins {
    let pins = server.protocol.session_pins();
    match local_pool.is_some_and(|local_pool| hand_over::can_share(local_pool, client, server)) {
        true => pins.without(Pin::Channels),
        false => pins,
    }
}

/// It is known what the session of a client's server holds. False if that is one pin too many: the server is closed, and the client with its next request.
pub(crate) fn settle(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return true };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return true };
    let pins = lasting(Some(local_pool), client, server);
    if pins.is_empty() {
        release(core, client_conn);
        return true;
    }
    let is_new = match &mut client.pin {
        Some(pin) => pin.begin(now_us),
        None => match local_pool.pool.take_pin() {
            Some(unit) => {
                client.pin = Some(Box::new(HeldPin::since(unit, now_us)));
                true
            }
            // It is not worth the end of the client: PostgreSQL says that there is no value.
            None if pins.is_only(Pin::Sequences) => {
                server.protocol.unpin_sequences();
                return true;
            }
            None => {
                refuse(core, client_conn, server_conn, pins);
                return false;
            }
        },
    };
    local_pool.pins.begun += u64::from(is_new);
    true
}

/// What the client's session holds cannot be kept. Its server is closed; it gets the error as the answer to its next request, because
/// drivers lose what comes between two requests when they find the connection closed.
fn refuse(core: &mut Core, client_conn: ConnId, server_conn: ConnId, pins: Pins) {
    let Some(server) = core.conns.server(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    local_pool.pins.refused += 1;
    let limit = local_pool.pool.limits.max_pinned;
    let reasons = names(pins);
    let text =
        format!("max_pinned ({limit}) reached: the session cannot keep its server connection ({reasons})");
    server_end::close_server(core, server_conn, CloseReason::PinRefused);
    let Some(client) = core.client(client_conn) else { return };
    client.phase = Phase::PinRefused(text.into());
    if !client.request.held.is_empty() {
        return end_refused(core, client_conn);
    }
    backpressure::resume_client(core, client_conn);
    if core.exporting.is_some() {
        core.try_export(client_conn);
    }
}

/// A client whose session could not be kept asks for something, or says that it ends.
pub(crate) fn refused_client_received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    match bytes.first() {
        Some(&tag::TERMINATE) => client_end::disconnect_client(core, conn, "client close request"),
        _ => end_refused(core, conn),
    }
}

/// The client gets the error, and is closed.
pub(crate) fn end_refused(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.find_client(conn) else { return };
    if let Phase::PinRefused(text) = &client.phase {
        let text = text.clone();
        client_end::fail_client(core, conn, sqlstate::CONFIGURATION_LIMIT, &text);
    }
}

/// The client counts no longer, if it did: its session holds nothing, or it is gone. One that waits gets its place.
pub(crate) fn release(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let (Some(pin), Some(pool_id)) = (client.pin.take(), client.pool) else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    local_pool.pins.ended_us += pin.since_us().map_or(0, |since_us| now_us.saturating_sub(since_us));
    drop(pin);
    if local_pool.pool.queue.pins_len() > 0 {
        core.effects.pool(pool_id);
    }
    let others = local_pool.pool.shared().take_pin_requests() & !(1 << core.id.0);
    if others != 0 {
        let (database, user) = (local_pool.database_name.to_string(), local_pool.user.to_string());
        for shard in (0..core.pool_registry.shards()).filter(|shard| others & (1 << shard) != 0) {
            let message =
                ShardMessage::PermitFreed { database: database.clone(), user: user.clone(), host: None };
            core.send_to_shard(ShardId(shard), message);
        }
    }
}

/// The sessions of a pool's clients are not followed any more.
pub(crate) fn release_all(core: &mut Core, pool_id: PoolId) {
    let is_of_pool = |client: &Client| client.pool == Some(pool_id) && client.pin.is_some();
    let clients = core.conns.ids(|conn| matches!(conn, Conn::Client(client) if is_of_pool(client)));
    clients.into_iter().for_each(|conn| release(core, conn));
}

/// In the order in which they are shown.
pub(crate) fn names(pins: Pins) -> String {
    pins.iter().map(Pin::name).collect::<Vec<_>>().join(",")
}
