//! The form of connections in the log and in SHOW: PgBouncer's.

use std::fmt::Write as _;
use std::net::SocketAddr;

use settings::Database;
use telemetry::{Level, Record};

use crate::client::Phase;
use crate::core::{CONSOLE, Core};
use crate::server::Server;
use crate::{Action, ConnId, Peer, Target};

/// `127.0.0.1:5`, `[::1]:5` or `unix(123):6432`.
pub(crate) fn peer(peer: Peer) -> String {
    match peer {
        Peer::Inet { remote, .. } => remote.to_string(),
        Peer::Unix { process_id, port, .. } => format!("unix({process_id}):{port}"),
    }
}

/// A socket row's address and port.
pub(crate) fn address(address: Option<SocketAddr>) -> (String, u16) {
    address.map_or_else(|| ("unix".to_owned(), 0), |address| (address.ip().to_string(), address.port()))
}

/// A server's address and port; as configured until it is connected.
pub(crate) fn server_address(server: &Server, database: &Database) -> (String, u16) {
    match (server.remote, &server.target) {
        (Some(remote), _) => (remote.ip().to_string(), remote.port()),
        (None, Target::Inet { host, port }) => (host.to_string(), *port),
        (None, Target::Near { .. } | Target::Unix { .. }) => ("unix".to_owned(), database.port.first()),
    }
}

/// A server's address, in the log's form.
fn place(server: &Server, database: &Database) -> String {
    match server_address(server, database) {
        (address, port) if address.contains(':') => format!("[{address}]:{port}"),
        (address, port) => format!("{address}:{port}"),
    }
}

/// A server's error text, cut so that it may be sent to many clients: a hostile or broken server can make it long.
pub(crate) fn excerpt(mut text: String) -> String {
    const BYTES: usize = 1024;
    if text.len() > BYTES {
        text.truncate(text.floor_char_boundary(BYTES));
        text.push('…');
    }
    text
}

/// As much of a text as a line of the log may have: values of parameters and statements can be long.
fn loggable(text: &str) -> &str {
    const BYTES: usize = 4096;
    &text[..text.floor_char_boundary(BYTES)]
}

impl Core {
    /// Logs a line about a client.
    pub(crate) fn log_client(&mut self, conn: ConnId, level: Level, text: &str) {
        let text = loggable(text);
        let Some(client) = self.conns.client(conn) else { return };
        let mut line = format!("C-0x{:x}: ", client.id);
        let database = match (self.local_pools.of(client.pool), &client.phase) {
            (Some(local_pool), _) => &*local_pool.database_name,
            (None, Phase::Console { .. }) => CONSOLE,
            (None, Phase::Login(login)) => &login.startup_request.database,
            (None, _) => "(nodb)",
        };
        let _ = write!(line, "{database}/{}@{} {text}", client.login_user, peer(client.peer));
        self.act(Action::Log(Record::new(level, line)));
    }

    /// Logs a line about a server.
    pub(crate) fn log_server(&mut self, conn: ConnId, level: Level, text: &str) {
        let text = loggable(text);
        let Some(server) = self.conns.server(conn) else { return };
        let Some(local_pool) = self.local_pools.get(server.pool) else { return };
        let place = place(server, &local_pool.database);
        let line =
            format!("S-0x{:x}: {}/{}@{place} {text}", server.id, local_pool.database_name, local_pool.user);
        self.act(Action::Log(Record::new(level, line)));
    }

    /// Whole seconds since then.
    pub(crate) fn age_s(&self, since_us: u64) -> u64 {
        self.now.mono_us.saturating_sub(since_us) / 1_000_000
    }
}
