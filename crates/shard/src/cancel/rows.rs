//! Cancel requests as rows of SHOW CLIENTS, and the connections that carry them as rows of SHOW SERVERS.
//!
//! Never decides anything about them.

use messages::SocketRow;

use crate::cancel::cancel_conn::{AskedBy, Canceller};
use crate::state::{Conn, State};

impl State {
    /// Who has asked for a cancel and waits for its end; the address of one on another shard is not known here.
    pub(crate) fn asker_row(&self, canceller: &Canceller) -> Option<SocketRow> {
        let part = self.parts.get(canceller.part)?;
        let row = match canceller.asked_by {
            AskedBy::Here(conn, id) => match self.conns.get(conn.0 as usize)? {
                Conn::Client(client) if client.id == id => self.client_row(client),
                _ => return None,
            },
            AskedBy::ShardMessage(_, _, id) => SocketRow {
                id,
                connect_time_us: self.wall(canceller.since_us),
                request_time_us: self.wall(canceller.since_us),
                ..SocketRow::default()
            },
        };
        Some(SocketRow {
            user: part.user.to_string(),
            database: part.database_name.to_string(),
            state: if canceller.sent { "active_cancel_req" } else { "waiting_cancel_req" },
            link: if canceller.sent { canceller.id } else { 0 },
            ..row
        })
    }

    /// A connection that carries a cancel request to a server.
    pub(crate) fn canceller_row(&self, canceller: &Canceller) -> Option<SocketRow> {
        let part = self.parts.get(canceller.part).filter(|_| canceller.sent)?;
        let (conn, id) = canceller.server;
        let remote = match self.conns.get(conn.0 as usize) {
            Some(Conn::Server(server)) if server.id == id => server.remote,
            _ => None,
        };
        let (address, port) = crate::log_format::address(remote);
        let link = match canceller.asked_by {
            AskedBy::Here(_, id) | AskedBy::ShardMessage(_, _, id) => id,
        };
        Some(SocketRow {
            id: canceller.id,
            shard: self.id.0,
            is_server: true,
            user: part.user.to_string(),
            database: part.database_name.to_string(),
            state: "active_cancel",
            address,
            port: if remote.is_none() { part.database.port } else { port },
            connect_time_us: self.wall(canceller.since_us),
            request_time_us: self.wall(canceller.since_us),
            link,
            ..SocketRow::default()
        })
    }
}
