//! Cancel requests as rows of SHOW CLIENTS, and the connections that carry them as rows of SHOW SERVERS.
//!
//! Never decides anything about them.

use mail::SocketRow;

use crate::ConnId;
use crate::canceller::{AskedBy, Canceller};
use crate::client::{Client, Phase};
use crate::state::{Conn, State};

impl State {
    /// A client that has asked for a cancel and waits for its end; None for any other.
    pub(crate) fn asker_row(&self, conn: ConnId, client: &Client) -> Option<SocketRow> {
        if !matches!(client.phase, Phase::Canceller) {
            return None;
        }
        let canceller = self.conns.iter().find_map(|(_, other)| match other {
            Conn::Canceller(canceller) if canceller.asked_by.is(conn) => Some(canceller),
            _ => None,
        });
        let part = canceller.and_then(|canceller| self.parts.get(canceller.part));
        let waits = canceller.is_some_and(|canceller| !canceller.sent);
        let name = |name: Option<&str>| name.unwrap_or_default().to_owned();
        Some(SocketRow {
            user: name(part.map(|part| &*part.user)),
            database: name(part.map(|part| &*part.database_name)),
            state: if waits { "waiting_cancel_req" } else { "active_cancel_req" },
            link: canceller.map_or(0, |canceller| canceller.id),
            ..self.client_row(client)
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
        let (address, port) = crate::words::address(remote);
        let link = match canceller.asked_by {
            AskedBy::Here(asker) => self.id_of(asker).unwrap_or(0),
            AskedBy::Neighbour(_, _, id) => id,
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
