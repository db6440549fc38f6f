//! Connecting to servers by completion: the steps of [`crate::connect`], taken.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use settings::Config;
use shard::{ConnId, Event, Target};

use crate::connect::{self, Addresses, Step};
use crate::mailbox::Generation;
use crate::uring::conn::State;
use crate::uring::net::Net;
use crate::uring::ring::{Op, Tag};

impl Net {
    /// Begins to open a server connection.
    pub(crate) fn dial(&mut self, conn: ConnId, target: &Target, config: &Config) {
        self.renew(conn, State::Resolving);
        let step = connect::dial(target, &self.outside.helpers, &config.global);
        if let (Step::Ask(_), Some(host)) = (&step, target.host()) {
            let requester = self.outside.requester(conn, &self.conns);
            self.outside.helpers.resolve(requester, host);
        }
        self.take_step(conn, step);
    }

    /// A helper has looked up a name.
    pub(crate) fn resolved(
        &mut self,
        conn: ConnId,
        generation: Generation,
        answer: Result<Addresses, String>,
        config: &Config,
    ) {
        if self.is_current(conn, generation)
            && let Some(attempt) = self.slot(conn).attempt.take()
        {
            self.take_step(conn, attempt.resolved(answer, &config.global));
        }
    }

    /// The outcome of a socket that was on its way is known.
    pub(crate) fn arrived(&mut self, conn: ConnId, config: &Config) {
        let slot = self.slot(conn);
        let attempt = slot.attempt.take();
        let Some(socket) = slot.socket.take() else { return };
        match (connect::outcome(&socket), attempt) {
            (Ok(()), _) => self.connected(conn, socket),
            (Err(fault), Some(attempt)) => self.take_step(conn, attempt.failed(fault, &config.global)),
            (Err(_), None) => {}
        }
    }

    fn take_step(&mut self, conn: ConnId, step: Step) {
        match step {
            Step::Connected(socket, _) => self.connected(conn, socket),
            Step::Underway(socket, attempt) => {
                let slot = &mut self.conns[conn.0 as usize];
                let tag = Tag { op: Op::Watch, generation: slot.generation, number: conn.0 };
                self.ring.watch(tag, socket.as_fd(), i32::from(libc::POLLOUT), false);
                slot.requests += 1;
                (slot.state, slot.watched) = (State::Connecting, true);
                (slot.socket, slot.attempt) = (Some(socket), Some(attempt));
            }
            Step::Ask(attempt) => self.slot(conn).attempt = Some(attempt),
            Step::Failed(fault) => {
                self.slot(conn).state = State::Closed;
                self.pending.push_back(Event::ConnectFailed { conn, fault });
                self.pending.push_back(Event::Closed { conn });
            }
        }
    }

    /// Servers stay where they are: they are received from at once. Only connecting must not wait.
    fn connected(&mut self, conn: ConnId, socket: OwnedFd) {
        let _ = ioctl_fionbio(&socket, false);
        let (remote, local) = connect::ends(&socket);
        self.seat(conn, socket, true);
        self.pending.push_back(Event::Connected { conn, remote, local });
    }
}
