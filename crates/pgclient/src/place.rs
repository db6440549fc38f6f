//! Where an entry's servers are: hosts, ports and the paths of unix sockets.
//!
//! Owns the order in which hosts are tried. Never connects.

use std::net::IpAddr;

use settings::{Config, Database, SslMode};

/// Where PostgreSQL's sockets are unless an entry says otherwise.
const DEFAULT_SOCKET_DIRECTORY: &str = "/tmp";

/// A server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The path of a unix socket; `@` begins one of the abstract name space.
    Unix(String),
    /// A host and a port; first the unix socket of this machine, where there is one.
    Inet {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// The path of that socket.
        near: Option<String>,
    },
}

impl Place {
    /// Its name in the log.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Place::Unix(path) => path.clone(),
            Place::Inet { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Inet { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

/// The hosts, the one that leads first.
#[must_use]
pub fn places(config: &Config, entry: &Database) -> Vec<Place> {
    let near = config.global.server_socket_dir.as_deref();
    let near = near.filter(|_| config.global.server_tls_sslmode < SslMode::Require);
    let place = |at: usize, host: &str| {
        let port = entry.port.of(at);
        let socket = |directory: &str| format!("{directory}/.s.PGSQL.{port}");
        if host.starts_with(['/', '@']) {
            return Place::Unix(socket(host));
        }
        let near = near.filter(|_| is_this_machine(host)).map(socket);
        Place::Inet { host: host.to_owned(), port, near }
    };
    let mut places: Vec<Place> = entry.host.iter().enumerate().map(|(at, host)| place(at, host)).collect();
    if places.is_empty() {
        places.push(place(0, DEFAULT_SOCKET_DIRECTORY));
    }
    if let Some(leader) = entry.leader.filter(|leader| *leader < places.len()) {
        places.swap(0, leader);
    }
    places
}

fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
