//! Connecting to servers by readiness: the steps of [`crate::connect`], taken.

use settings::Config;
use shard::{ConnId, Event, Target};

use crate::connect::{self, Addresses, Step};
use crate::epoll::conn::{Conn, State};
use crate::epoll::net::Net;
use crate::mailbox::Generation;

impl Net {
    /// Begins to open a server connection.
    pub(crate) fn dial(&mut self, conn: ConnId, target: &Target, config: &Config) {
        let slot = self.slot(conn);
        debug_assert_eq!(slot.state, State::Free, "the id is taken");
        let (queued, generation) = (slot.queued, slot.generation.wrapping_add(1));
        *slot = Conn { state: State::Resolving, queued, generation, ..Conn::default() };
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
        let Some(socket) = &slot.socket else { return };
        let attempt = slot.attempt.take();
        match (connect::outcome(socket), attempt) {
            (Ok(()), _) => {
                slot.state = State::Open;
                self.connected(conn);
            }
            (Err(fault), Some(attempt)) => {
                slot.socket = None;
                self.take_step(conn, attempt.failed(fault, &config.global));
            }
            (Err(_), None) => {}
        }
    }

    fn take_step(&mut self, conn: ConnId, step: Step) {
        match step {
            Step::Connected(socket, is_unix) => {
                self.seat(conn, socket, is_unix, State::Open);
                self.connected(conn);
            }
            Step::Underway(socket, attempt) => {
                self.seat(conn, socket, false, State::Connecting);
                self.slot(conn).attempt = Some(attempt);
            }
            Step::Ask(attempt) => self.slot(conn).attempt = Some(attempt),
            Step::Failed(fault) => {
                self.slot(conn).state = State::Closing;
                self.pending.push_back(Event::ConnectFailed { conn, fault });
                self.pending.push_back(Event::Closed { conn });
            }
        }
    }

    fn connected(&mut self, conn: ConnId) {
        let Some(socket) = &self.slot(conn).socket else { return };
        let (remote, local) = connect::ends(socket);
        self.pending.push_back(Event::Connected { conn, remote, local });
    }
}
