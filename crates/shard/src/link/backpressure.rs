//! Back-pressure: reading is paused on the source of a connection whose send buffer is full.
//!
//! Owns the one `paused` mark of each side, so that all reasons for a pause are checked in one place. Never drops a byte.

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::{checkout, client_end, notify, server_end, waits};
use crate::{Action, ConnId, client};

/// Too much is queued for a connection: pause its source, and for a client also its own requests.
pub(crate) fn send_buffer_full(core: &mut Core, conn: ConnId) {
    match core.conns.get_mut(conn) {
        Some(Conn::Client(client)) if client.half_closed => client_end::client_disconnected(core, conn),
        Some(Conn::Client(client)) => {
            client.send_buffer_full = true;
            let (server, streams) = (client.server(), client.dedicated_request.is_some());
            // A replicating client reports its position even while it cannot keep up, or the server would end it.
            if !streams {
                pause_client(core, conn);
            }
            if let Some(server) = server {
                pause_server(core, server);
                waits::reader_is_slow(core, server);
            }
        }
        Some(Conn::Server(server)) => {
            server.send_buffer_full = true;
            server.unsent = true;
            if let Some(client) = server.client() {
                pause_client(core, client);
            }
        }
        _ => {}
    }
}

/// All of a connection's output is gone.
pub(crate) fn send_buffer_empty(core: &mut Core, conn: ConnId) {
    match core.conns.get_mut(conn) {
        Some(Conn::Client(client)) => {
            client.send_buffer_full = false;
            let (server, asks_console) = (client.server(), matches!(client.phase, client::Phase::Console(_)));
            let listens = client.listening.is_some();
            resume_client(core, conn);
            if listens {
                notify::flush(core, conn);
            }
            if let Some(server) = server {
                resume_server(core, server);
            } else if asks_console {
                core.effects.push(Effect::ConsoleContinues(conn));
            }
        }
        Some(Conn::Server(server)) => {
            server.send_buffer_full = false;
            server.unsent = false;
            let client = server.client();
            if let Some(client) = client {
                resume_client(core, client);
            }
            checkout::release(core, conn);
        }
        _ => {}
    }
}

/// A socket takes no output any more. A client counts as disconnected, whatever it has still sent; a server's last
/// messages are read before its end.
pub(crate) fn write_failed(core: &mut Core, conn: ConnId) {
    match core.conns.get_mut(conn) {
        Some(Conn::Server(server)) => {
            if !server.close_when_free.is_set() {
                server.close_when_free.set(CloseReason::Crashed);
            }
            send_buffer_empty(core, conn);
        }
        _ => hung_up(core, conn),
    }
}

/// The peer closed while it was not read. One that waits in a queue leaves it, and so does one that does not take
/// its output: nothing else would show its end. What else was paused is read to its end first.
pub(crate) fn half_closed(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.find_client_mut(conn) else { return };
    client.half_closed = true;
    if client.send_buffer_full || matches!(client.phase, client::Phase::Waiting(_)) {
        client_end::client_disconnected(core, conn);
    }
}

/// Reads a client again, unless there is another reason for the pause.
pub(crate) fn resume_client(core: &mut Core, conn: ConnId) {
    let suspended = core.administration.is_suspended();
    let Some(client) = core.client(conn) else { return };
    let waits = matches!(client.phase, client::Phase::Waiting(_) | client::Phase::Preparing(_));
    let send_buffer_full = client.send_buffer_full && client.dedicated_request.is_none();
    if !client.paused || send_buffer_full || waits || suspended {
        return;
    }
    if let Some(server) = client.server()
        && core
            .server(server)
            .is_some_and(|server| server.send_buffer_full || server.protocol.blocks_requests())
    {
        return;
    }
    if let Some(client) = core.client(conn) {
        client.paused = false;
        core.act(Action::Resume { conn });
    }
}

pub(crate) fn resume_server(core: &mut Core, conn: ConnId) {
    let suspended = core.administration.is_suspended();
    if let Some(server) = core.server(conn)
        && server.paused
        && !suspended
    {
        server.paused = false;
        core.act(Action::Resume { conn });
        waits::reader_goes_on(core, conn);
    }
}

pub(crate) fn pause_client(core: &mut Core, conn: ConnId) {
    if let Some(client) = core.client(conn)
        && !client.paused
    {
        client.paused = true;
        core.act(Action::Pause { conn });
    }
}

pub(crate) fn pause_server(core: &mut Core, conn: ConnId) {
    if let Some(server) = core.server(conn)
        && !server.paused
    {
        server.paused = true;
        core.act(Action::Pause { conn });
    }
}

pub(crate) fn hung_up(core: &mut Core, conn: ConnId) {
    match core.conns.get(conn) {
        Some(Conn::Client(_)) => client_end::client_disconnected(core, conn),
        Some(Conn::Server(_)) => server_end::server_hung_up(core, conn),
        Some(Conn::Cancel(_) | Conn::PeerCancel(_) | Conn::InternalClient(_) | Conn::Reserved) | None => {}
    }
}
