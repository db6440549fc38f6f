//! Accepting: how many connections at a time, and when a listening socket is not watched.
//!
//! Out of descriptors, accepting rests until one is free instead of spinning: the shard closes a connection that has kept it
//! waiting, if it has one, and the reserve lets an administrator in.
//! Never waits: the event loop calls it when connections may be pending.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use shard::Now;
use shard::Peer;
use telemetry::{Level, Record};

use crate::connect::text;
use crate::core::Log;
use crate::fd_reserve::{self, FdReserve, REST_US};
use crate::ids::{ListenerId, TableId};
use crate::listen::{Kind, Listener};

/// Connections accepted per turn of a loop, so that new connections do not starve the others.
const TURN_ACCEPTS: u8 = 8;
/// Running out of descriptors is logged at most once in this time.
const LOG_INTERVAL_US: u64 = 60_000_000;

/// The listening sockets as one thread sees them.
pub(crate) struct Acceptor {
    watched: Vec<Watched>,
    fd_reserve: Arc<FdReserve>,
    log: Log,
    /// Some rest until then.
    resting_until_us: Option<u64>,
    logged_until_us: u64,
    /// Another process watches the same sockets: this one accepts nothing.
    is_paused: bool,
    /// Another thread accepts for all while it has the time.
    is_off_duty: bool,
    /// Counts the loop's turns.
    turn: u64,
}

struct Watched {
    /// None after it was closed.
    listener: Option<Arc<Listener>>,
    resting: bool,
    /// When a connection was last accepted, and how many in that batch.
    turn: u64,
    at_once: u8,
}

/// What came of an attempt to accept.
pub(crate) enum Arrival {
    /// A connection was accepted; true on a unix socket.
    Client(OwnedFd, Peer, bool),
    /// A connection was closed before it could be accepted, or the descriptor reserve was used.
    Retry,
    /// No connection is pending.
    NonePending,
    /// Stop watching: until [`Acceptor::end_turn`] names it again, or for good.
    Stop,
    /// The same for want of a descriptor: the shard may have a connection that it can do without.
    Exhausted,
}

impl Acceptor {
    /// An acceptor for these listening sockets; nothing is watched yet.
    pub(crate) fn new(
        listeners: Vec<Arc<Listener>>,
        fd_reserve: Arc<FdReserve>,
        log: Log,
        is_off_duty: bool,
    ) -> Acceptor {
        let watched = listeners.into_iter().map(|listener| Watched {
            listener: Some(listener),
            resting: false,
            turn: 0,
            at_once: 1,
        });
        Acceptor {
            watched: watched.collect(),
            fd_reserve,
            log,
            resting_until_us: None,
            logged_until_us: 0,
            is_paused: false,
            is_off_duty,
            turn: 2,
        }
    }

    /// How many connections to accept now that some are pending; more are reported in the next turn. An attempt that finds
    /// none is expensive (the kernel makes a socket before it looks), so it is one at first, then twice as many as in the
    /// turn before while connections keep coming. A thread that no longer accepts empties the queue.
    pub(crate) fn batch_size(&mut self, listener: ListenerId) -> usize {
        let is_watched = self.is_watched();
        let Some(one) = self.watched.get_mut(listener.index()).filter(|_| is_watched) else {
            return usize::MAX;
        };
        let is_crowd = one.turn + 1 == self.turn;
        one.turn = self.turn;
        one.at_once = if is_crowd { one.at_once.saturating_mul(2).min(TURN_ACCEPTS) } else { 1 };
        usize::from(one.at_once)
    }

    /// Whether listening sockets are to be watched.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_paused && !self.is_off_duty
    }

    /// The listening sockets to watch at first.
    pub(crate) fn to_watch(&self) -> Vec<ListenerId> {
        if self.is_watched() { self.open() } else { Vec::new() }
    }

    fn open(&self) -> Vec<ListenerId> {
        (0..)
            .map(ListenerId)
            .zip(&self.watched)
            .filter_map(|(listener, one)| one.listener.as_ref().map(|_| listener))
            .collect()
    }

    /// A listening socket, if it is not closed.
    pub(crate) fn socket(&self, listener: ListenerId) -> Option<&OwnedFd> {
        Some(&self.watched.get(listener.index())?.listener.as_ref()?.socket)
    }

    /// Closes the TCP sockets, or `all`; returns them, to be watched no longer.
    pub(crate) fn close(&mut self, all: bool) -> Vec<(ListenerId, Arc<Listener>)> {
        let wanted = |listener: &mut Arc<Listener>| all || listener.kind == Kind::Tcp;
        let gone = (0..).map(ListenerId).zip(&mut self.watched);
        gone.filter_map(|(listener, one)| Some((listener, one.listener.take_if(wanted)?))).collect()
    }

    /// Leaves accepting to another process; returns the sockets to watch no longer.
    pub(crate) fn pause(&mut self) -> Vec<ListenerId> {
        self.is_paused = true;
        self.end_rest()
    }

    /// Ends that; returns the sockets to watch.
    pub(crate) fn resume(&mut self) -> Vec<ListenerId> {
        self.is_paused = false;
        let listeners = self.end_rest();
        if self.is_off_duty { Vec::new() } else { listeners }
    }

    /// Accepts beside the thread that usually does, or (`false`) leaves it to that; returns the sockets to watch, or to
    /// watch no longer.
    pub(crate) fn share(&mut self, is_shared: bool) -> Vec<ListenerId> {
        self.is_off_duty = !is_shared;
        let listeners = self.end_rest();
        if self.is_paused { Vec::new() } else { listeners }
    }

    /// No listening socket rests any more; all that are not closed.
    fn end_rest(&mut self) -> Vec<ListenerId> {
        self.resting_until_us = None;
        self.watched.iter_mut().for_each(|one| one.resting = false);
        self.open()
    }

    /// A descriptor was closed: listening sockets that rest for want of one may try again.
    pub(crate) fn descriptor_freed(&mut self) {
        if self.resting_until_us.is_some() {
            self.resting_until_us = Some(0);
        }
    }

    /// When to look again, if something rests.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.resting_until_us
    }

    /// Accepts one.
    pub(crate) fn accept(&mut self, id: ListenerId, now: Now) -> Arrival {
        if self.is_paused {
            return Arrival::Stop;
        }
        let Some(one) = self.watched.get_mut(id.index()) else { return Arrival::Stop };
        let Some(listener) = one.listener.clone() else { return Arrival::Stop };
        match listener.accept() {
            Ok(Some((socket, peer))) => Arrival::Client(socket, peer, listener.kind != Kind::Tcp),
            Ok(None) => Arrival::Retry,
            Err(Errno::AGAIN) => Arrival::NonePending,
            Err(fault) if fd_reserve::is_exhaustion(fault) => self.exhausted(id, &listener, fault, now),
            // It was shut down.
            Err(_) => Arrival::Stop,
        }
    }

    fn exhausted(&mut self, id: ListenerId, listener: &Listener, fault: Errno, now: Now) -> Arrival {
        if now.mono_us >= self.logged_until_us {
            self.logged_until_us = now.mono_us + LOG_INTERVAL_US;
            (self.log)(Record::new(Level::Warning, format!("accept() failed: {}", text(fault))));
        }
        // A thread off duty only empties the queue that it was woken for: the rest is for the threads that watch.
        if self.is_off_duty {
            return Arrival::Stop;
        }
        self.resting_until_us = Some(now.mono_us + REST_US);
        if listener.kind != Kind::Tcp && self.fd_reserve.give_up() {
            return Arrival::Retry;
        }
        self.watched[id.index()].resting = true;
        Arrival::Exhausted
    }

    /// A turn of the loop is over; returns the sockets to watch again, if they have rested long enough.
    pub(crate) fn end_turn(&mut self, now: Now) -> Vec<ListenerId> {
        self.turn += 1;
        if !self.is_watched() || self.resting_until_us.is_none_or(|until| until > now.mono_us) {
            return Vec::new();
        }
        // The next to need the reserve may be an administrator: it is tried for until it is there.
        self.resting_until_us = (!self.fd_reserve.refill()).then_some(now.mono_us + REST_US);
        let rested = |(listener, one): (ListenerId, &mut Watched)| {
            std::mem::take(&mut one.resting).then_some(listener)
        };
        (0..).map(ListenerId).zip(&mut self.watched).filter_map(rested).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::listen::Listeners;
    use settings::Global;
    use std::net::{SocketAddr, TcpStream};

    const FIRST: ListenerId = ListenerId(0);

    fn acceptor() -> (Acceptor, SocketAddr) {
        let mut global = Global::default();
        (global.listen_addr, global.listen_port) = (vec!["127.0.0.1".to_owned()], 0);
        (global.unix_socket_dir, global.tcp_defer_accept) = (None, false);
        let listeners = Listeners::open(&global, Vec::new()).unwrap();
        let address = listeners.tcp_address().unwrap();
        (Acceptor::new(listeners.all, Arc::new(FdReserve::new()), Arc::new(|_| {}), false), address)
    }

    #[test]
    fn clients_come_with_both_addresses() {
        let (mut acceptor, address) = acceptor();
        assert!(matches!(acceptor.accept(FIRST, Now::default()), Arrival::NonePending));
        let client = TcpStream::connect(address).unwrap();
        let Arrival::Client(_, Peer::Inet { remote, local }, false) = acceptor.accept(FIRST, Now::default())
        else {
            panic!("no connection");
        };
        assert_eq!((remote, local), (client.local_addr().unwrap(), address));
    }

    #[test]
    fn a_tcp_listener_without_descriptors_rests_until_one_is_free() {
        let (mut acceptor, _) = acceptor();
        let listener = acceptor.watched[0].listener.clone().unwrap();
        let now = Now { mono_us: 5, wall_us: 0 };
        assert!(matches!(acceptor.exhausted(FIRST, &listener, Errno::MFILE, now), Arrival::Exhausted));
        assert_eq!(acceptor.deadline_us(), Some(5 + REST_US));
        assert!(acceptor.end_turn(now).is_empty());
        acceptor.descriptor_freed();
        assert_eq!(acceptor.end_turn(now), [FIRST]);
        assert!(acceptor.end_turn(now).is_empty());
    }

    #[test]
    fn a_thread_off_duty_watches_while_accepting_is_shared() {
        let (mut acceptor, _) = acceptor();
        acceptor.is_off_duty = true;
        assert!(acceptor.to_watch().is_empty());
        assert_eq!(acceptor.share(true), [FIRST]);
        assert!(acceptor.is_watched());
        assert_eq!(acceptor.pause(), [FIRST], "another process takes over");
        assert!(acceptor.share(false).is_empty() && acceptor.share(true).is_empty());
        assert_eq!(acceptor.resume(), [FIRST]);
        assert_eq!(acceptor.share(false), [FIRST]);
        assert!(acceptor.pause() == [FIRST] && acceptor.resume().is_empty());
    }

    #[test]
    fn each_turn_accepts_more_at_once_while_connections_keep_coming() {
        let (mut acceptor, _) = acceptor();
        let next = |acceptor: &mut Acceptor| {
            let count = acceptor.batch_size(FIRST);
            assert!(acceptor.end_turn(Now::default()).is_empty());
            count
        };
        assert_eq!([1, 2, 4, 8, 8].map(|_| next(&mut acceptor)), [1, 2, 4, 8, 8]);
        acceptor.end_turn(Now::default());
        assert_eq!(next(&mut acceptor), 1, "no connection for a turn");
        acceptor.is_off_duty = true;
        assert_eq!(next(&mut acceptor), usize::MAX);
    }

    #[test]
    fn what_was_closed_is_watched_no_more() {
        let (mut acceptor, _) = acceptor();
        assert_eq!(acceptor.close(false).len(), 1);
        assert!(acceptor.close(true).is_empty());
        assert!(matches!(acceptor.accept(FIRST, Now::default()), Arrival::Stop));
    }
}
