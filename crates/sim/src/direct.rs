//! A pooler that pools nothing: each client gets a server connection of its own, and bytes pass as they are.
//!
//! With it in the shard's place, what the models say of each other can be trusted: every objection is theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use shard::{Action, ConnId, Event, Now, Source, Target};

use crate::pooler::Pooler;

/// One side of a pair.
#[derive(Debug, Default)]
struct Side {
    peer: Option<ConnId>,
    /// Bytes for this side that wait until it is connected.
    waiting: Vec<u8>,
    connected: bool,
    closing: bool,
}

/// The relay.
#[derive(Debug)]
pub(crate) struct Direct {
    sides: BTreeMap<ConnId, Side>,
    actions: VecDeque<Action>,
    written: Vec<u8>,
    target: Target,
}

impl Direct {
    /// A relay to this server.
    pub(crate) fn new(host: &str, port: u16) -> Direct {
        let target = Target::Inet { host: Arc::from(host), port };
        Direct { sides: BTreeMap::new(), actions: VecDeque::new(), written: Vec::new(), target }
    }

    fn free(&self) -> ConnId {
        let taken = |id: &u32| self.sides.contains_key(&ConnId(*id));
        ConnId((0..).find(|id| !taken(id)).unwrap_or(u32::MAX))
    }

    fn peer(&self, conn: ConnId) -> Option<ConnId> {
        self.sides.get(&conn).and_then(|side| side.peer)
    }

    fn send(&mut self, to: ConnId, bytes: &[u8]) {
        let Some(side) = self.sides.get_mut(&to) else { return };
        if !side.connected {
            side.waiting.extend_from_slice(bytes);
            return;
        }
        let start = u32::try_from(self.written.len()).unwrap_or(0);
        self.written.extend_from_slice(bytes);
        let end = u32::try_from(self.written.len()).unwrap_or(0);
        self.actions.push_back(Action::Send { to, source: Source::Written, start, end });
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(side) = self.sides.get_mut(&conn).filter(|side| !side.closing) {
            side.closing = true;
            self.actions.push_back(Action::Close { conn });
        }
    }
}

impl Pooler for Direct {
    fn allocate_id(&mut self) -> ConnId {
        self.free()
    }

    fn handle(&mut self, event: Event<'_>, _: Now) {
        self.written.clear();
        match event {
            Event::Accepted { conn, .. } => {
                self.sides.insert(conn, Side { connected: true, ..Side::default() });
                let server = self.free();
                self.sides.insert(server, Side { peer: Some(conn), ..Side::default() });
                if let Some(side) = self.sides.get_mut(&conn) {
                    side.peer = Some(server);
                }
                self.actions
                    .push_back(Action::Connect { conn: server, target: Box::new(self.target.clone()) });
            }
            Event::Connected { conn, .. } => {
                let Some(side) = self.sides.get_mut(&conn) else { return };
                side.connected = true;
                let waiting = std::mem::take(&mut side.waiting);
                self.send(conn, &waiting);
            }
            Event::Received { conn, bytes, .. } => {
                if let Some(peer) = self.peer(conn) {
                    self.send(peer, bytes);
                }
            }
            Event::SendBufferFull { conn } => {
                if let Some(conn) = self.peer(conn) {
                    self.actions.push_back(Action::Pause { conn });
                }
            }
            Event::SendBufferEmpty { conn } => {
                if let Some(conn) = self.peer(conn) {
                    self.actions.push_back(Action::Resume { conn });
                }
            }
            Event::HungUp { conn }
            | Event::HalfClosed { conn }
            | Event::WriteFailed { conn }
            | Event::ConnectFailed { conn, .. } => {
                let peer = self.peer(conn);
                self.close(conn);
                if let Some(peer) = peer {
                    self.close(peer);
                }
            }
            Event::Closed { conn } => {
                self.sides.remove(&conn);
                for side in self.sides.values_mut() {
                    side.peer = side.peer.filter(|peer| *peer != conn);
                }
            }
            _ => (),
        }
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn written(&self) -> &[u8] {
        &self.written
    }

    fn deadline(&self) -> Option<u64> {
        None
    }
}
