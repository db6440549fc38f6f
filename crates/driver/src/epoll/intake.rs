//! Accepting by readiness: which listening sockets are watched, and when they rest.
//!
//! One accept per socket wakes one thread (EPOLLEXCLUSIVE). Out of descriptors, accepting rests for a while instead of
//! spinning, and the reserve lets an administrator in.

use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use shard::event::Peer;
use std::os::fd::OwnedFd;
use telemetry::Level;

use crate::door::{self, REST_US};
use crate::epoll::net::{Net, watch_other};
use crate::listen::{Kind, Listener};

/// Accepted per wake, so that one thread does not take all and connections are not forgotten over newcomers.
const TURN_ACCEPTS: usize = 8;
/// Running out of descriptors is told at most once in this time.
const TELL_US: u64 = 60_000_000;

/// The listening sockets as one thread sees them.
#[derive(Default)]
pub(crate) struct Gate {
    doors: Vec<Watched>,
    /// Some rest until then.
    resting_until_us: Option<u64>,
    told_until_us: u64,
}

struct Watched {
    listener: Arc<Listener>,
    resting: bool,
}

/// What came of an attempt to accept.
pub(crate) enum Arrival {
    /// Somebody came.
    Client(OwnedFd, Peer),
    /// Nobody is there (any more).
    Nobody,
    /// Somebody left before he could be welcomed.
    Gone,
}

impl Gate {
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
}

impl Net {
    /// Begins to listen.
    pub(crate) fn open_gate(&mut self) -> Result<(), Errno> {
        for (number, listener) in self.outside.listeners.drain(..).enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            watch_other(&self.epoll, &listener.socket, number, EventFlags::IN | EventFlags::EXCLUSIVE)?;
            self.gate.doors.push(Watched { listener, resting: false });
        }
        Ok(())
    }

    /// Stops listening: TCP, or `all`.
    pub(crate) fn close_gate(&mut self, all: bool) {
        for number in 0..self.gate.doors.len() {
            if all || self.gate.doors[number].listener.kind == Kind::Tcp {
                self.rest(number);
            }
        }
        // Positions are the numbers that the system knows, so sockets that stay keep theirs; closed ones never wake.
        if all {
            self.gate.doors.clear();
            self.gate.resting_until_us = None;
        }
    }

    /// How many to accept at most from a listening socket that is ready.
    pub(crate) fn turn(&self) -> usize {
        TURN_ACCEPTS
    }

    /// Accepts one.
    pub(crate) fn accept(&mut self, number: u32) -> (Arrival, bool) {
        let number = number as usize;
        let Some(listener) = self.gate.doors.get(number).map(|door| Arc::clone(&door.listener)) else {
            return (Arrival::Nobody, false);
        };
        let is_unix = listener.kind != Kind::Tcp;
        let arrival = match acceptfrom_with(&listener.socket, SocketFlags::CLOEXEC) {
            Ok((socket, remote)) => {
                let remote = remote.and_then(|any| any.try_into().ok());
                match door::peer_of(&socket, &listener, remote) {
                    Some(peer) => Arrival::Client(socket, peer),
                    None => Arrival::Gone,
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED) => Arrival::Gone,
            Err(fault) if door::is_exhaustion(fault) => self.exhausted(number, fault),
            Err(Errno::AGAIN) => Arrival::Nobody,
            Err(_) => {
                // The socket was shut down: it will never be ready for anybody.
                self.rest(number);
                Arrival::Nobody
            }
        };
        (arrival, is_unix)
    }

    fn exhausted(&mut self, number: usize, fault: Errno) -> Arrival {
        if self.now.mono_us >= self.gate.told_until_us {
            self.gate.told_until_us = self.now.mono_us + TELL_US;
            self.outside.log(Level::Warning, format!("accept() failed: {}", crate::connect::text(fault)));
        }
        self.gate.resting_until_us = Some(self.now.mono_us + REST_US);
        if self.gate.doors[number].listener.kind != Kind::Tcp && self.outside.door.give_up() {
            return Arrival::Gone;
        }
        self.gate.doors[number].resting = true;
        self.rest(number);
        Arrival::Nobody
    }

    fn rest(&mut self, number: usize) {
        let _ = epoll::delete(&self.epoll, &self.gate.doors[number].listener.socket);
    }

    /// Looks whether rest is over.
    pub(crate) fn wake_gate(&mut self) {
        if self.gate.resting_until_us.is_none_or(|until| until > self.now.mono_us) {
            return;
        }
        self.gate.resting_until_us = None;
        self.outside.door.refill();
        for (number, door) in self.gate.doors.iter_mut().enumerate().filter(|(_, door)| door.resting) {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            door.resting = watch_other(&self.epoll, &door.listener.socket, number, flags).is_err();
        }
    }
}
