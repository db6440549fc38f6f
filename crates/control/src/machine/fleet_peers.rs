//! The numbers of a fleet's nodes, which are put into each configuration: by them shards make cancel keys and forward cancel requests. Who has which is not this
//! crate's to decide.

use std::fmt::Write as _;
use std::sync::Arc;

use settings::{Config, FleetPeer, FleetPeers};

use crate::Control;

/// Begins the lines of the note for a process that takes over: the own number, and each node's.
const OWN: &str = "fleet_own_peer\t";
const NODE: &str = "fleet_peer\t";

impl Control {
    /// Other nodes, or other addresses of theirs. While this node has no number, it goes by the one that it had last: the keys of its clients have that.
    pub(crate) fn fleet_peers_known(&mut self, mut peers: FleetPeers) {
        if peers.own == 0 {
            peers.own = self.fleet_peers.own;
        }
        if *self.fleet_peers != peers {
            self.fleet_peers = Arc::new(peers);
            self.put_in_force(Config::clone(&self.config));
        }
    }

    /// What a process that takes over has to know, a line for each node.
    pub(crate) fn fleet_peers_note(&self) -> String {
        let FleetPeers { own, nodes } = &*self.fleet_peers;
        let mut note = if *own > 0 { format!("{OWN}{own}\n") } else { String::new() };
        for (number, FleetPeer { node, peer }) in nodes {
            // Writing to a string does not fail.
            let _ = match peer.as_ref().and_then(|peer| Some((peer.host.as_deref()?, peer.port))) {
                Some((host, port)) if host.contains(':') => {
                    writeln!(note, "{NODE}{number}\t{node}\t[{host}]:{port}")
                }
                Some((host, port)) => writeln!(note, "{NODE}{number}\t{node}\t{host}:{port}"),
                None => writeln!(note, "{NODE}{number}\t{node}\t"),
            };
        }
        note
    }

    /// The inverse; whether anything is known. Other lines are ignored.
    pub(crate) fn import_fleet_peers(&mut self, note: &str) -> bool {
        let number = |text: &str| text.parse::<u32>().ok();
        let own = note.lines().find_map(|line| number(line.strip_prefix(OWN)?)).unwrap_or_default();
        let node = |line: &str| {
            let mut fields = line.strip_prefix(NODE)?.split('\t');
            let (peer_id, node, address) = (number(fields.next()?)?, fields.next()?, fields.next()?);
            Some((peer_id, FleetPeer::new(node.into(), Some(address))))
        };
        self.fleet_peers = Arc::new(FleetPeers { own, nodes: note.lines().filter_map(node).collect() });
        *self.fleet_peers != FleetPeers::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::harness::{Harness, config};

    const ENTRIES: &str = "[databases]\napp =\n[pgbouncer]\nfleet = etcd://h/p\n";

    fn peers(own: u32) -> FleetPeers {
        let peer = |node: &str, address| FleetPeer::new(node.into(), address);
        let nodes = [(1, peer("a", Some("h:1"))), (2, peer("b", None)), (9, peer("c", Some("[::1]:2")))];
        FleetPeers { own, nodes: nodes.into() }
    }

    #[test]
    fn they_stay_in_every_configuration_and_in_the_process_that_takes_over() {
        let mut harness = Harness::with(2, ENTRIES);
        for _ in 0..2 {
            harness.input(Input::FleetPeers(peers(9)));
        }
        assert_eq!(harness.told.len(), 2, "each shard once");
        harness.ask("RELOAD");
        harness.input(Input::Loaded(config(ENTRIES)));
        assert_eq!(*harness.control.config().fleet_peers, peers(9));
        harness.input(Input::FleetPeers(peers(0)));
        assert_eq!(harness.control.config().fleet_peers.own, 9, "the number that it had stays");
        harness.ask("TAKEOVER line");
        let note = harness.handed_over.clone().map(|(_, note)| note).unwrap_or_default();
        let mut next = Harness::with(1, ENTRIES);
        next.control.import("paused\tx\nfleet_peer\tx\n");
        assert!(next.control.poll().is_none_or(|output| !matches!(output, crate::Output::Configured(_))));
        next.control.import(&note);
        assert_eq!(*next.control.config().fleet_peers, peers(9));
    }

    #[test]
    fn show_peers_shows_those_that_are_there() {
        let mut harness = Harness::with(1, ENTRIES);
        harness.input(Input::FleetPeers(peers(9)));
        harness.ask("SHOW PEERS");
        let shown = format!("{:?}", harness.parts());
        assert!(shown.contains("\"h\"") && shown.contains("\"::1\"") && !shown.contains("Null"), "{shown}");
    }
}
