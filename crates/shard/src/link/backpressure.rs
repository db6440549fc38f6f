//! Back-pressure: reading is paused on the source of a connection whose send buffer is full.
//!
//! Owns the one `paused` mark of each side, so that all reasons for a pause are checked in one place. Never drops a byte.

use crate::client;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::state::ShardState;
use crate::{Action, ConnId};

impl ShardState {
    /// Too much is queued for a connection: pause its source, and for a client also its own requests.
    pub(crate) fn send_buffer_full(&mut self, conn: ConnId) {
        match self.core.conns.get_mut(conn) {
            Some(Conn::Client(client)) if client.half_closed => self.client_disconnected(conn),
            Some(Conn::Client(client)) => {
                client.send_buffer_full = true;
                let (server, streams) = (client.server(), client.dedicated_request.is_some());
                // A replicating client reports its position even while it cannot keep up, or the server would end it.
                if !streams {
                    self.core.pause_client(conn);
                }
                if let Some(server) = server {
                    self.core.pause_server(server);
                }
            }
            Some(Conn::Server(server)) => {
                server.send_buffer_full = true;
                server.unsent = true;
                if let Some(client) = server.client() {
                    self.core.pause_client(client);
                }
            }
            _ => {}
        }
    }

    /// All of a connection's output is gone.
    pub(crate) fn send_buffer_empty(&mut self, conn: ConnId) {
        match self.core.conns.get_mut(conn) {
            Some(Conn::Client(client)) => {
                client.send_buffer_full = false;
                let (server, asks_console) =
                    (client.server(), matches!(client.phase, client::Phase::Console(_)));
                self.resume_client(conn);
                if let Some(server) = server {
                    self.resume_server(server);
                } else if asks_console {
                    self.console_goes_on(conn);
                }
            }
            Some(Conn::Server(server)) => {
                server.send_buffer_full = false;
                server.unsent = false;
                let client = server.client();
                if let Some(client) = client {
                    self.resume_client(client);
                }
                self.release(conn);
            }
            _ => {}
        }
    }

    /// A socket takes no output any more. A client counts as disconnected, whatever it has still sent; a server's last
    /// messages are read before its end.
    pub(crate) fn write_failed(&mut self, conn: ConnId) {
        match self.core.conns.get_mut(conn) {
            Some(Conn::Server(server)) => {
                server.close_when_free.get_or_insert(CloseReason::Crashed);
                self.send_buffer_empty(conn);
            }
            _ => self.hung_up(conn),
        }
    }

    /// The peer closed while it was not read. One that waits in a queue leaves it, and so does one that does not take
    /// its output: nothing else would show its end. What else was paused is read to its end first.
    pub(crate) fn half_closed(&mut self, conn: ConnId) {
        let Some(client) = self.core.conns.find_client_mut(conn) else { return };
        client.half_closed = true;
        if client.send_buffer_full || matches!(client.phase, client::Phase::Waiting(_)) {
            self.client_disconnected(conn);
        }
    }

    /// Reads a client again, unless there is another reason for the pause.
    pub(crate) fn resume_client(&mut self, conn: ConnId) {
        let suspended = self.administration.is_suspended();
        let Some(client) = self.core.client(conn) else { return };
        let waits = matches!(client.phase, client::Phase::Waiting(_) | client::Phase::Preparing(_));
        let send_buffer_full = client.send_buffer_full && client.dedicated_request.is_none();
        if !client.paused || send_buffer_full || waits || suspended {
            return;
        }
        if let Some(server) = client.server()
            && self
                .core
                .server(server)
                .is_some_and(|server| server.send_buffer_full || server.protocol.blocks_requests())
        {
            return;
        }
        if let Some(client) = self.core.client(conn) {
            client.paused = false;
            self.core.act(Action::Resume { conn });
        }
    }

    pub(crate) fn resume_server(&mut self, conn: ConnId) {
        let suspended = self.administration.is_suspended();
        if let Some(server) = self.core.server(conn)
            && server.paused
            && !suspended
        {
            server.paused = false;
            self.core.act(Action::Resume { conn });
        }
    }
}

impl Core {
    pub(crate) fn pause_client(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !client.paused
        {
            client.paused = true;
            self.act(Action::Pause { conn });
        }
    }

    pub(crate) fn pause_server(&mut self, conn: ConnId) {
        if let Some(server) = self.server(conn)
            && !server.paused
        {
            server.paused = true;
            self.act(Action::Pause { conn });
        }
    }
}
