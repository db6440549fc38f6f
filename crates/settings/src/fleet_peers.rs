//! The nodes of a fleet that cancel requests are forwarded to, and in which group of processes this one is.
//!
//! Owns which group counts: that of `peer_id` and `[peers]`, where the files have one, else the fleet's. Who has which number is the fleet's to decide.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::value::{BadValue, Codec, ValueKind};
use crate::{Config, Peer};

/// The numbers of a fleet's nodes, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPeers {
    /// This node's; 0 while it has none.
    pub own: u32,
    /// All that have one, by number; this node is among them.
    pub nodes: BTreeMap<u32, FleetPeer>,
}

/// A node of the fleet that has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPeer {
    /// Its id.
    pub node: Arc<str>,
    /// Where it is reached; None while it is not there, or says nothing that can be an address.
    pub peer: Option<Peer>,
}

impl FleetPeer {
    /// A node that is reached at `address`, as `fleet_address` has it; None if it is gone.
    #[must_use]
    pub fn new(node: Arc<str>, address: Option<&str>) -> FleetPeer {
        let address = address.and_then(host_and_port);
        let peer = address.map(|(host, port)| Peer { host: Some(host), port, pool_size: None });
        FleetPeer { node, peer }
    }
}

/// The processes among which this one forwards cancel requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerGroup {
    /// There are no others.
    None,
    /// `[peers]`, with this `peer_id`; they may be PgBouncers.
    Configured(u32),
    /// The nodes of the fleet; the number of this one is 0 while it has none.
    Fleet(u32),
}

impl PeerGroup {
    /// The number of this process; None if it is in no group.
    #[must_use]
    pub fn own(self) -> Option<u32> {
        match self {
            PeerGroup::None => None,
            PeerGroup::Configured(own) | PeerGroup::Fleet(own) => Some(own),
        }
    }
}

impl Config {
    /// Among which processes this one is.
    #[must_use]
    pub fn peer_group(&self) -> PeerGroup {
        match self.global.peer_id {
            0 if self.global.fleet.is_some() => PeerGroup::Fleet(self.fleet_peers.own),
            0 => PeerGroup::None,
            own => PeerGroup::Configured(own),
        }
    }

    /// The processes of the group that can be reached, by number; this one is among them.
    pub fn group_peers(&self) -> impl Iterator<Item = (u32, &Peer)> {
        let is_fleet = matches!(self.peer_group(), PeerGroup::Fleet(_));
        let configured = self.peers.iter().filter(move |_| !is_fleet).map(|(number, peer)| (*number, peer));
        let fleet = self.fleet_peers.nodes.iter().filter(move |_| is_fleet);
        configured.chain(fleet.filter_map(|(number, node)| Some((*number, node.peer.as_ref()?))))
    }

    /// The process of the group with this number, if it can be reached.
    #[must_use]
    pub fn group_peer(&self, number: u32) -> Option<&Peer> {
        match self.peer_group() {
            PeerGroup::Fleet(_) => self.fleet_peers.nodes.get(&number)?.peer.as_ref(),
            PeerGroup::None | PeerGroup::Configured(_) => self.peers.get(&number),
        }
    }
}

/// Where other nodes reach this one (`fleet_address`): `host:port`, or `[address]:port` for one of IPv6.
pub(crate) struct FleetAddress;

impl Codec for FleetAddress {
    type Value = Option<String>;
    const KIND: ValueKind = ValueKind::Text;

    fn read(text: &str) -> Result<Option<String>, BadValue> {
        match text.trim() {
            "" => Ok(None),
            text if host_and_port(text).is_some() => Ok(Some(text.to_owned())),
            _ => Err(BadValue::NotAnAddress),
        }
    }

    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_string(),
        None => host.to_owned(),
    };
    let is_name = host.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
    let is_address = is_name || host.parse::<Ipv6Addr>().is_ok() && text.starts_with('[');
    (!host.is_empty() && is_address && port > 0).then_some((host, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::FleetStore;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("weir-0.weir:6432", "weir-0.weir", 6432),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("[::1]:65535", "::1", 65535),
        ] {
            assert_eq!(host_and_port(text), Some((host.to_owned(), port)), "{text}");
            assert_eq!(FleetAddress::read(text), Ok(Some(text.to_owned())));
        }
        for text in ["h", ":1", "h:", "h:0", "h:65536", "h:+1", "a b:1", "::1:5", "[h]:1", "[::1]", "/run:1"]
        {
            assert_eq!(FleetAddress::read(text), Err(BadValue::NotAnAddress), "{text}");
        }
        assert_eq!(FleetAddress::read(" "), Ok(None));
    }

    fn numbers(config: &Config) -> Vec<u32> {
        config.group_peers().map(|(number, _)| number).collect()
    }

    #[test]
    fn the_files_group_counts_before_the_fleets() {
        let mut config = Config::default();
        config.peers.insert(7, Peer::default());
        assert_eq!(
            (config.peer_group(), config.peer_group().own(), numbers(&config)),
            (PeerGroup::None, None, vec![7])
        );
        config.global.fleet = FleetStore::read("etcd://h/p").unwrap();
        assert_ne!(config.global.fleet, FleetStore::None);
        assert_eq!((config.peer_group(), numbers(&config)), (PeerGroup::Fleet(0), vec![]));
        let peer = |address| FleetPeer::new("n".into(), address);
        let nodes = [(1, peer(Some("h:1"))), (2, peer(None)), (3, peer(Some("")))];
        config.fleet_peers = Arc::new(FleetPeers { own: 1, nodes: nodes.into() });
        assert_eq!((config.peer_group(), numbers(&config)), (PeerGroup::Fleet(1), vec![1]));
        let host = |number| config.group_peer(number).and_then(|peer| peer.host.as_deref());
        assert_eq!((host(1), host(2), host(7)), (Some("h"), None, None));
        config.global.peer_id = 7;
        assert_eq!((config.peer_group(), numbers(&config)), (PeerGroup::Configured(7), vec![7]));
        assert!(config.group_peer(1).is_none() && config.group_peer(7).is_some());
    }
}
