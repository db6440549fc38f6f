//! The connections of one event loop, by id: what both backends know of each, and the generations of the ids.
//!
//! `K` is what one backend knows besides. Never talks to the shard or to the kernel.

use std::os::fd::{AsRawFd, OwnedFd};

use shard::ConnId;

use crate::connect::Attempt;
use crate::ids::{Generation, TableId};

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The id is unused.
    #[default]
    Free,
    /// A helper thread is looking up the host name.
    Resolving,
    /// The socket is connecting.
    Connecting,
    /// Bytes flow.
    Open,
    /// To be closed when the kernel has answered every request for it (io_uring only).
    Closing,
    /// The socket is closed; the shard has not been notified yet.
    Closed,
}

/// Whether the shard wants the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As they come.
    #[default]
    Wanted,
    /// Not now.
    Paused,
    /// Not now; the shard was notified of the peer's end of file in this pause.
    PausedAtEnd,
}

/// One connection. An idle one owns no memory besides this struct.
#[derive(Debug, Default)]
pub(crate) struct Conn<K> {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) generation: Generation,
    pub(crate) state: State,
    /// The id is in the backend's list of connections to look at. This stays true when the id is used again.
    pub(crate) is_listed: bool,
    /// Everything that had arrived was read, and nothing was sent since.
    pub(crate) emptied: bool,
    /// The end of the input was read.
    pub(crate) ended: bool,
    /// The socket refused output: pending and further output is dropped.
    pub(crate) write_failed: bool,
    /// Whether the shard wants bytes now.
    pub(crate) reading: Reading,
    /// The shard was notified that the send buffer is full.
    pub(crate) is_send_full: bool,
    /// The shard waits for [`shard::Event::SendBufferEmpty`].
    pub(crate) owes_send_empty: bool,
    /// Further addresses to try.
    pub(crate) attempt: Option<Box<Attempt>>,
    /// What the backend knows besides.
    pub(crate) io: K,
}

impl<K> Conn<K> {
    /// The shard wants no bytes now.
    pub(crate) fn is_paused(&self) -> bool {
        self.reading != Reading::Wanted
    }

    /// The shard wants no bytes until it says so.
    pub(crate) fn pause(&mut self) {
        if self.reading == Reading::Wanted {
            self.reading = Reading::Paused;
        }
    }
}

/// All connections of one event loop.
#[derive(Default)]
pub(crate) struct ConnTable<K> {
    conns: Vec<Conn<K>>,
}

impl<K: Default> ConnTable<K> {
    /// The connection of an id, in any state.
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Conn<K>> {
        self.conns.get(conn.index())
    }

    /// The entry of an id, made if there is none yet.
    pub(crate) fn slot(&mut self, conn: ConnId) -> &mut Conn<K> {
        let index = conn.index();
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, Conn::default);
        }
        &mut self.conns[index]
    }

    /// The open connection of an id.
    pub(crate) fn open(&mut self, conn: ConnId) -> Option<&mut Conn<K>> {
        self.conns.get_mut(conn.index()).filter(|slot| slot.state == State::Open)
    }

    /// Begins a new connection under a free id.
    pub(crate) fn renew(&mut self, conn: ConnId, state: State) -> &mut Conn<K> {
        let slot = self.slot(conn);
        debug_assert_eq!(slot.state, State::Free, "the id is taken");
        let (is_listed, generation) = (slot.is_listed, slot.generation.next());
        *slot = Conn { state, is_listed, generation, ..Conn::default() };
        slot
    }

    /// Takes a connection out of the table. Its id is free, and events of its generation no longer mean anything.
    pub(crate) fn vacate(&mut self, conn: ConnId) -> Conn<K> {
        let slot = self.slot(conn);
        let (is_listed, generation) = (slot.is_listed, slot.generation.next());
        std::mem::replace(slot, Conn { is_listed, generation, ..Conn::default() })
    }

    /// The connection that an event of the kernel is about, if the id still has that generation.
    pub(crate) fn lookup(&mut self, conn: ConnId, generation: Generation) -> Option<&mut Conn<K>> {
        self.conns.get_mut(conn.index()).filter(|slot| slot.generation == generation)
    }

    /// Whether the connection of that generation is neither closed nor about to be.
    pub(crate) fn is_current(&self, conn: ConnId, generation: Generation) -> bool {
        let is_alive = |state| !matches!(state, State::Free | State::Closing | State::Closed);
        self.get(conn).is_some_and(|slot| slot.generation == generation && is_alive(slot.state))
    }

    /// The descriptor of a connection's socket, or -1.
    pub(crate) fn descriptor(&self, conn: ConnId) -> i32 {
        self.get(conn).and_then(|slot| slot.socket.as_ref()).map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Every entry, free ones too.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn<K>> {
        self.conns.iter()
    }

    /// Every entry with its id, free ones too.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Conn<K>)> {
        (0..).map(ConnId).zip(&mut self.conns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_used_again_has_another_generation() {
        let mut table = ConnTable::<()>::default();
        let conn = ConnId(3);
        table.renew(conn, State::Open).is_listed = true;
        let first = table.slot(conn).generation;
        assert!(table.is_current(conn, first) && table.lookup(conn, first).is_some());
        assert_eq!(table.vacate(conn).generation, first);
        let free = table.slot(conn).generation;
        assert!(!table.is_current(conn, free), "the id is free");
        assert!(table.lookup(conn, first).is_none() && table.open(conn).is_none());
        let second = table.renew(conn, State::Resolving);
        assert!(second.generation != first && second.is_listed);
        assert!(table.open(conn).is_none(), "not open yet");
    }
}
