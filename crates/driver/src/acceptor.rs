//! Accepting, for both loops: who is let in, and when accepting rests.
//!
//! Out of descriptors, accepting rests until one is free instead of spinning: the shard closes a connection that has kept it
//! waiting, if it has one, and the reserve lets an administrator in.
//! Never waits: the loops say when somebody may be there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use shard::Now;
use shard::event::Peer;
use telemetry::{Level, Record};

use crate::connect::text;
use crate::engine::Log;
use crate::fd_reserve::{self, FdReserve, REST_US};
use crate::listen::{Kind, Listener};

/// Connections accepted per turn of a loop, so that new connections do not starve the others.
const TURN_ACCEPTS: u8 = 8;
/// Running out of descriptors is logged at most once in this time.
const TELL_US: u64 = 60_000_000;

/// The listening sockets as one thread sees them.
pub(crate) struct Acceptor {
    watched: Vec<Watched>,
    fd_reserve: Arc<FdReserve>,
    log: Log,
    /// Some rest until then.
    resting_until_us: Option<u64>,
    told_until_us: u64,
    /// Another process watches the same sockets: nobody is accepted here.
    is_left: bool,
    /// This thread watches only while it is called: another one has the time to welcome everybody.
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
    Again,
    /// No connection is pending.
    Nobody,
    /// Stop watching: until [`Acceptor::wake`] names it again, or for good.
    Rest,
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
            told_until_us: 0,
            is_left: false,
            is_off_duty,
            turn: 2,
        }
    }

    /// How many to let in now that somebody is at this acceptor; more may be there, and the next turn will tell. An attempt
    /// that finds nobody is dear (the kernel makes a socket before it looks), so it begins with one, and with twice as
    /// many as in the turn before while the crowd lasts. Whoever is sent away empties the queue.
    pub(crate) fn how_many(&mut self, number: u32) -> usize {
        let is_watched = self.is_watched();
        let Some(one) = self.watched.get_mut(number as usize).filter(|_| is_watched) else {
            return usize::MAX;
        };
        let is_crowd = one.turn + 1 == self.turn;
        one.turn = self.turn;
        one.at_once = if is_crowd { one.at_once.saturating_mul(2).min(TURN_ACCEPTS) } else { 1 };
        usize::from(one.at_once)
    }

    /// New connections are to be watched for.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_left && !self.is_off_duty
    }

    /// The numbers to be watched to begin with.
    pub(crate) fn to_watch(&self) -> Vec<u32> {
        if self.is_watched() { self.open() } else { Vec::new() }
    }

    fn open(&self) -> Vec<u32> {
        (0..).zip(&self.watched).filter_map(|(number, one)| one.listener.as_ref().map(|_| number)).collect()
    }

    /// The socket of a number, if it is not closed.
    pub(crate) fn socket(&self, number: u32) -> Option<&OwnedFd> {
        Some(&self.watched.get(number as usize)?.listener.as_ref()?.socket)
    }

    /// Closes TCP, or `all`; the numbers that are to be watched no more, with the sockets that go.
    pub(crate) fn close(&mut self, all: bool) -> Vec<(u32, Arc<Listener>)> {
        let wanted = |listener: &mut Arc<Listener>| all || listener.kind == Kind::Tcp;
        let gone = (0..).zip(&mut self.watched);
        gone.filter_map(|(number, one)| Some((number, one.listener.take_if(wanted)?))).collect()
    }

    /// Pauses or (`false`) resumes accepting; returns the sockets to stop or start watching.
    pub(crate) fn leave(&mut self, is_left: bool) -> Vec<u32> {
        self.is_left = is_left;
        let numbers = self.end_rest();
        if is_left || !self.is_off_duty { numbers } else { Vec::new() }
    }

    /// Called to watch too, or (`false`) sent away; the numbers to be watched from now on, or no more.
    pub(crate) fn call(&mut self, is_called: bool) -> Vec<u32> {
        self.is_off_duty = !is_called;
        let numbers = self.end_rest();
        if self.is_left { Vec::new() } else { numbers }
    }

    /// Forgets who rests; all numbers that are not closed.
    fn end_rest(&mut self) -> Vec<u32> {
        self.resting_until_us = None;
        self.watched.iter_mut().for_each(|one| one.resting = false);
        self.open()
    }

    /// A descriptor was closed: whoever rests may try again.
    pub(crate) fn a_file_is_free(&mut self) {
        if self.resting_until_us.is_some() {
            self.resting_until_us = Some(0);
        }
    }

    /// When to look again, if something rests.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.resting_until_us
    }

    /// Accepts one.
    pub(crate) fn accept(&mut self, number: u32, now: Now) -> Arrival {
        if self.is_left {
            return Arrival::Rest;
        }
        let Some(one) = self.watched.get_mut(number as usize) else { return Arrival::Rest };
        let Some(listener) = one.listener.clone() else { return Arrival::Rest };
        match acceptfrom_with(&listener.socket, SocketFlags::CLOEXEC) {
            Ok((socket, remote)) => {
                let remote = remote.and_then(|any| any.try_into().ok());
                match fd_reserve::peer_of(&socket, &listener, remote) {
                    Some(peer) => Arrival::Client(socket, peer, listener.kind != Kind::Tcp),
                    None => Arrival::Again,
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED) => Arrival::Again,
            Err(Errno::AGAIN) => Arrival::Nobody,
            Err(fault) if fd_reserve::is_exhaustion(fault) => {
                self.exhausted(number as usize, &listener, fault, now)
            }
            // It was shut down: nobody will come.
            Err(_) => Arrival::Rest,
        }
    }

    fn exhausted(&mut self, index: usize, listener: &Listener, fault: Errno, now: Now) -> Arrival {
        if now.mono_us >= self.told_until_us {
            self.told_until_us = now.mono_us + TELL_US;
            (self.log)(Record::new(Level::Warning, format!("accept() failed: {}", text(fault))));
        }
        // Who is off duty only empties the queue that he was woken for: the rest is for who watches.
        if self.is_off_duty {
            return Arrival::Rest;
        }
        self.resting_until_us = Some(now.mono_us + REST_US);
        if listener.kind != Kind::Tcp && self.fd_reserve.give_up() {
            return Arrival::Again;
        }
        self.watched[index].resting = true;
        Arrival::Exhausted
    }

    /// A turn of the loop is over. The numbers to be watched again, if rest is over.
    pub(crate) fn wake(&mut self, now: Now) -> Vec<u32> {
        self.turn += 1;
        if !self.is_watched() || self.resting_until_us.is_none_or(|until| until > now.mono_us) {
            return Vec::new();
        }
        // The next who needs the reserve may be an administrator: it is tried for until it is there.
        self.resting_until_us = (!self.fd_reserve.refill()).then_some(now.mono_us + REST_US);
        let rested = |(number, one): (u32, &mut Watched)| std::mem::take(&mut one.resting).then_some(number);
        (0..).zip(&mut self.watched).filter_map(rested).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::listen::Listeners;
    use settings::Global;
    use std::net::TcpStream;

    fn acceptor() -> (Acceptor, std::net::SocketAddr) {
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
        assert!(matches!(acceptor.accept(0, Now::default()), Arrival::Nobody));
        let client = TcpStream::connect(address).unwrap();
        let Arrival::Client(_, Peer::Inet { remote, local }, false) = acceptor.accept(0, Now::default())
        else {
            panic!("nobody came");
        };
        assert_eq!((remote, local), (client.local_addr().unwrap(), address));
    }

    #[test]
    fn a_tcp_listener_without_descriptors_rests_until_one_is_free() {
        let (mut acceptor, _) = acceptor();
        let listener = acceptor.watched[0].listener.clone().unwrap();
        let now = Now { mono_us: 5, wall_us: 0 };
        assert!(matches!(acceptor.exhausted(0, &listener, Errno::MFILE, now), Arrival::Exhausted));
        assert_eq!(acceptor.deadline_us(), Some(5 + REST_US));
        assert!(acceptor.wake(now).is_empty());
        acceptor.a_file_is_free();
        assert_eq!(acceptor.wake(now), [0]);
        assert!(acceptor.wake(now).is_empty());
    }

    #[test]
    fn a_thread_off_duty_watches_while_it_is_called() {
        let (mut acceptor, _) = acceptor();
        acceptor.is_off_duty = true;
        assert!(acceptor.to_watch().is_empty());
        assert_eq!(acceptor.call(true), [0]);
        assert!(acceptor.is_watched());
        assert_eq!(acceptor.leave(true), [0], "another process takes over");
        assert!(acceptor.call(false).is_empty() && acceptor.call(true).is_empty());
        assert_eq!(acceptor.leave(false), [0]);
        assert_eq!(acceptor.call(false), [0]);
        assert!(acceptor.leave(true) == [0] && acceptor.leave(false).is_empty());
    }

    #[test]
    fn a_crowd_is_let_in_by_more_at_once_from_turn_to_turn() {
        let (mut acceptor, _) = acceptor();
        let next = |acceptor: &mut Acceptor| {
            let count = acceptor.how_many(0);
            assert!(acceptor.wake(Now::default()).is_empty());
            count
        };
        assert_eq!([1, 2, 4, 8, 8].map(|_| next(&mut acceptor)), [1, 2, 4, 8, 8]);
        acceptor.wake(Now::default());
        assert_eq!(next(&mut acceptor), 1, "nobody came for a turn");
        acceptor.is_off_duty = true;
        assert_eq!(next(&mut acceptor), usize::MAX);
    }

    #[test]
    fn what_was_closed_is_watched_no_more() {
        let (mut acceptor, _) = acceptor();
        assert_eq!(acceptor.close(false).len(), 1);
        assert!(acceptor.close(true).is_empty());
        assert!(matches!(acceptor.accept(0, Now::default()), Arrival::Rest));
    }
}
