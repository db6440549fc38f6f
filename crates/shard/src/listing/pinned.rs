//! Why a client keeps its server outside of a request, in one word, for operators who run out of servers.
//!
//! Reads the conditions of `link/checkout.rs` and never decides anything. Session state on a server (LISTEN, temporary
//! tables) pins with `session_state = virtual`; otherwise it stays behind in transaction mode, as with PgBouncer.

use session::Pins;
use settings::PoolMode;

use crate::client::Client;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::pins;
use crate::server::Server;

/// Why this client keeps its server; empty if it has none, or releases it with the end of the running request.
pub(crate) fn pinned_client(core: &Core, client: &Client) -> &'static str {
    match client.server().and_then(|conn| core.conns.get(conn)) {
        Some(Conn::Server(server)) => pinned(core, client, server),
        _ => "",
    }
}

/// Why this server is kept by its client; empty likewise.
pub(crate) fn pinned_server(core: &Core, server: &Server) -> &'static str {
    client_of(core, server).map_or("", |client| pinned(core, client, server))
}

/// The client that has this server.
pub(crate) fn client_of<'a>(core: &'a Core, server: &Server) -> Option<&'a Client> {
    match core.conns.get(server.client()?) {
        Some(Conn::Client(client)) => Some(client),
        _ => None,
    }
}

/// What the client's session holds that cannot move and keeps its server.
pub(crate) fn session_pins(core: &Core, client: &Client) -> Pins {
    let server = client.server().and_then(|conn| core.conns.find_server(conn));
    match server.filter(|server| server.mode(&core.local_pools) != Some(PoolMode::Session)) {
        Some(server) => pins::lasting(core.local_pools.of(client.pool), client, server),
        None => Pins::default(),
    }
}

/// The process id of the backend that it keeps; 0 if it has no server.
pub(crate) fn server_pid(core: &Core, client: &Client) -> u32 {
    let server = client.server().and_then(|conn| core.conns.find_server(conn));
    server.and_then(|server| server.key.as_ref()).map_or(0, |(process_id, _)| *process_id)
}

fn pinned(core: &Core, client: &Client, server: &Server) -> &'static str {
    if server.dedicated.is_some() {
        "replication"
    } else if server.mode(&core.local_pools) == Some(PoolMode::Session) {
        "session"
    } else if let Some(hold) = server.protocol.pin_reason() {
        hold
    } else if server.protocol.boundary().is_none() {
        "half_request"
    } else if let Some(pin) = pins::all(core.local_pools.of(client.pool), client, server).first() {
        pin.name()
    } else if server.protocol.session_is_to_be_asked() {
        "session_state"
    } else if client.send_buffer_full {
        "slow_reader"
    } else {
        ""
    }
}
