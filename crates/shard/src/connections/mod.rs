//! All connections of a shard, by id.
//!
//! Owns the ids: which are free, and what kind of connection each stands for. Two kinds of lookup: of a connection that must be there (a
//! missing one is a bug: an assertion in tests, a counted internal error in production), and of one that may have been closed since
//! its id was noted (`find_…`).

pub(crate) mod kinds;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;

use messages::ShardId;
use slab::Slab;

use crate::ConnId;
use crate::client::Client;
use crate::connections::kinds::{CancelConn, InternalClient, PeerCancelConn, ReplyTo};
use crate::server::Server;

/// A connection of any kind.
pub(crate) enum Conn {
    /// An id that was allocated and whose first event has not come.
    Reserved,
    Client(Box<Client>),
    Server(Box<Server>),
    Cancel(Box<CancelConn>),
    /// It carries a cancel request to a peer.
    PeerCancel(Box<PeerCancelConn>),
    /// Waits in a pool's queue with a query of Weir's own, without a socket.
    InternalClient(Box<InternalClient>),
}

/// The connections of one shard.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Slab<Conn>,
    /// Internal clients, by the shard and the `id` of the client that waits for each.
    awaited: BTreeMap<(ShardId, u64), ConnId>,
    missing: Missing,
}

/// A place in the code.
type Place = &'static Location<'static>;

/// Where a connection was missing that had to be there.
#[derive(Default)]
struct Missing {
    /// The place in the code, until it is reported.
    place: Cell<Option<Place>>,
    count: Cell<u64>,
}

macro_rules! must_be_there {
    ($($kind:ident, $type:ty, $get:ident, $get_mut:ident);+ $(;)?) => {
        impl Connections {
            $(
                /// This connection, which must be there.
                #[inline]
                #[track_caller]
                pub(crate) fn $get(&self, conn: ConnId) -> Option<&$type> {
                    match self.slots.get(index(conn)) {
                        Some(Conn::$kind(found)) => Some(found),
                        _ => self.missing.note(),
                    }
                }

                /// The same, to be changed.
                #[inline]
                #[track_caller]
                pub(crate) fn $get_mut(&mut self, conn: ConnId) -> Option<&mut $type> {
                    match self.slots.get_mut(index(conn)) {
                        Some(Conn::$kind(found)) => Some(found),
                        _ => self.missing.note(),
                    }
                }
            )+
        }
    };
}

must_be_there! {
    Client, Client, client, client_mut;
    Server, Server, server, server_mut;
    Cancel, CancelConn, cancel_conn, cancel_conn_mut;
    PeerCancel, PeerCancelConn, peer_cancel_conn, peer_cancel_conn_mut;
    InternalClient, InternalClient, internal_client, internal_client_mut;
}

impl Connections {
    /// This client, unless it is gone or the id stands for another connection by now.
    #[inline]
    pub(crate) fn find_client(&self, conn: ConnId) -> Option<&Client> {
        match self.get(conn) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn find_client_mut(&mut self, conn: ConnId) -> Option<&mut Client> {
        match self.get_mut(conn) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    /// This server, likewise.
    #[inline]
    pub(crate) fn find_server(&self, conn: ConnId) -> Option<&Server> {
        match self.get(conn) {
            Some(Conn::Server(server)) => Some(server),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn find_server_mut(&mut self, conn: ConnId) -> Option<&mut Server> {
        match self.get_mut(conn) {
            Some(Conn::Server(server)) => Some(server),
            _ => None,
        }
    }

    /// This internal client, likewise.
    pub(crate) fn find_internal_client(&self, conn: ConnId) -> Option<&InternalClient> {
        match self.get(conn) {
            Some(Conn::InternalClient(internal_client)) => Some(internal_client),
            _ => None,
        }
    }

    /// What an id stands for, if it is in use.
    #[inline]
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Conn> {
        self.slots.get(index(conn))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(index(conn))
    }

    /// A client and the server it is linked to.
    #[inline]
    #[track_caller]
    pub(crate) fn linked(&mut self, client: ConnId, server: ConnId) -> Option<(&mut Client, &mut Server)> {
        match self.slots.get2_mut(index(client), index(server)) {
            Some((Conn::Client(client), Conn::Server(server))) => Some((client, server)),
            _ => self.missing.note(),
        }
    }

    /// An internal client and the server that runs its query.
    pub(crate) fn serving(
        &mut self,
        internal_client: ConnId,
        server: ConnId,
    ) -> Option<(&mut InternalClient, &mut Server)> {
        match self.slots.get2_mut(index(internal_client), index(server)) {
            Some((Conn::InternalClient(internal_client), Conn::Server(server))) => {
                Some((internal_client, server))
            }
            _ => self.missing.note(),
        }
    }

    /// Allocates an id.
    pub(crate) fn reserve(&mut self) -> ConnId {
        id(self.slots.insert(Conn::Reserved))
    }

    /// Says what an allocated id stands for.
    #[track_caller]
    pub(crate) fn place(&mut self, conn: ConnId, what: Conn) {
        match self.slots.get_mut(index(conn)) {
            Some(slot) => *slot = what,
            None => {
                self.missing.note::<()>();
            }
        }
    }

    /// Frees an id.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Conn> {
        self.slots.try_remove(index(conn))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        self.slots.iter().map(|(index, conn)| (id(index), conn))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().map(|(_, conn)| conn)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.slots.iter_mut().map(|(_, conn)| conn)
    }

    /// The ids of the connections that match.
    pub(crate) fn ids(&self, matches: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        self.iter().filter(|(_, conn)| matches(conn)).map(|(conn, _)| conn).collect()
    }

    /// A client waits for the result of this internal client.
    pub(crate) fn await_result(&mut self, reply_to: ReplyTo, internal_client: ConnId) {
        self.awaited.insert((reply_to.shard, reply_to.id), internal_client);
    }

    /// It does so no more. The answer is what it waited for.
    pub(crate) fn await_no_more(&mut self, shard: ShardId, id: u64) -> Option<ConnId> {
        self.awaited.remove(&(shard, id))
    }

    /// How many clients wait for a result.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Ids that are free without more memory.
    pub(crate) fn free(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }

    /// Where in the code a connection was missing last that had to be there, and how often one was, if that has not been reported.
    pub(crate) fn take_missing(&mut self) -> Option<(Place, u64)> {
        Some((self.missing.place.take()?, self.missing.count.get()))
    }
}

impl Missing {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn note<T>(&self) -> Option<T> {
        self.place.set(Some(Location::caller()));
        self.count.set(self.count.get() + 1);
        debug_assert!(false, "a connection is missing that must be there: {}", Location::caller());
        None
    }
}

#[inline]
fn index(conn: ConnId) -> usize {
    conn.0 as usize
}

#[inline]
fn id(index: usize) -> ConnId {
    ConnId(u32::try_from(index).unwrap_or(u32::MAX))
}
