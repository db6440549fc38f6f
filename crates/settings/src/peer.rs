//! A peer process, and the table of the keys of an entry in `[peers]`. Cancel requests whose key names a peer are forwarded
//! to it.

use crate::codec::{Inherited, Number, Port, Text};
use crate::table::{Row, live_row};

/// An entry of `[peers]`: where a process with this `peer_id` can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// A host name, an address, or the directory of a unix socket (`/...`, `@...`).
    pub host: Option<String>,
    /// TCP port, or the number in the name of the unix socket.
    pub port: u16,
    /// Connections to it at a time; `None` follows `default_pool_size`.
    pub pool_size: Option<u32>,
}

impl Default for Peer {
    fn default() -> Self {
        Self { host: None, port: 6432, pool_size: None }
    }
}

/// Rows of one table, each a `live_row`.
macro_rules! rows {
    ($($name:ident: $codec:ty, $default:tt, $doc:literal;)*) => {
        /// Every key of an entry of `[peers]`.
        pub static PEER: &[Row<Peer>] = &[$(live_row!(Peer, Peer, $name, $codec, $default, Reload, $doc, []),)*];
    };
}

rows! {
    host: Text, unset, "Host name, address or directory of the unix socket of the peer.";
    port: Port, "6432", "Port of the peer.";
    pool_size: Inherited<Number>, unset, "Connections to the peer at a time; unless given, default_pool_size.";
}

/// The row of a key of `[peers]`.
pub(crate) fn row(name: &str) -> Option<&'static Row<Peer>> {
    PEER.iter().find(|row| row.info.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_writes_its_own_field_and_no_other() {
        for row in PEER {
            let mut peer = Peer::default();
            assert!((row.assign)(&mut peer, "7").is_ok());
            let differing: Vec<&str> = PEER
                .iter()
                .filter(|other| !other.same(&peer, &Peer::default()))
                .map(|row| row.info.name)
                .collect();
            assert_eq!(differing, [row.info.name]);
        }
    }
}
