//! What events and actions name: connections, and where their ends are.
//!
//! Plain types, below everything else.

use std::net::SocketAddr;
use std::sync::Arc;

/// A connection on one shard. The driver takes the next free one from [`crate::Shard::allocate_id`] for sockets it brings;
/// the shard takes it for those it asks for. It is free again only after [`Event::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// The other end of an accepted socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP.
    Inet {
        /// The client's address.
        remote: SocketAddr,
        /// The address it came to.
        local: SocketAddr,
    },
    /// A unix socket, with SO_PEERCRED.
    Unix {
        /// The client's process.
        process_id: u32,
        /// Its effective user.
        user_id: u32,
        /// The port in the socket's name.
        port: u16,
    },
}

/// Why a connection attempt failed; the text is the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// No address for the name.
    Lookup(String),
    /// The system refused.
    Refused(String),
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host name or address.
    Inet {
        /// As configured.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// A server of this machine: through its unix socket where that takes the connection, or else by its address.
    Near {
        /// The whole path of the socket, with `.s.PGSQL.port`.
        path: Arc<str>,
        /// As configured.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// The path of a unix socket (a first byte `@` means the abstract name space).
    Unix {
        /// The whole path, with `.s.PGSQL.port`.
        path: Arc<str>,
    },
}

impl Target {
    /// Its name or address as configured; None where there is nothing but a unix socket.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<str>> {
        match self {
            Target::Inet { host, .. } | Target::Near { host, .. } => Some(host),
            Target::Unix { .. } => None,
        }
    }
}
