//! Among which processes this one forwards cancel requests.
//!
//! Owns which group counts: that of `peer_id` and `[peers]`, where the files have one, else the fleet's.

use crate::{Config, Peer};

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::value::Codec;
    use crate::{FleetPeer, FleetPeers, FleetStore};

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
