//! Connecting to servers by readiness.
//!
//! Never decides when to try again: every address of a name is tried once, then the shard hears why it failed.

use settings::Config;
use shard::{ConnId, ConnectFault, Event, Target};

use crate::connect::{self, Addresses, Attempt, Begun};
use crate::epoll::conn::{Conn, State};
use crate::epoll::net::Net;
use crate::mailbox::Ticket;

impl Net {
    /// Begins to open a server connection.
    pub(crate) fn dial(&mut self, conn: ConnId, target: &Target, config: &Config) {
        let slot = self.slot(conn);
        debug_assert_eq!(slot.state, State::Free, "the id is taken");
        *slot = Conn { state: State::Resolving, ticket: slot.ticket.wrapping_add(1), ..Conn::default() };
        match target {
            Target::Unix { path } => match connect::unix(path) {
                Ok(socket) => {
                    self.seat(conn, socket, true, State::Open);
                    self.pending.push_back(Event::Connected { conn, remote: None, local: None });
                }
                Err(fault) => self.give_up(conn, fault),
            },
            Target::Inet { host, port } => match Attempt::literal(host, *port) {
                Some(attempt) => self.try_next(conn, attempt, config),
                None => self.ask_name(conn, host, *port, config),
            },
        }
    }

    fn ask_name(&mut self, conn: ConnId, host: &str, port: u16, config: &Config) {
        match self.outside.helpers.remembered(host) {
            Some(Ok(addresses)) => self.try_next(conn, Attempt::new(addresses, port), config),
            Some(Err(why)) => self.give_up(conn, ConnectFault::Lookup(why)),
            None => {
                let unknown = Addresses { list: [].into(), turn: 0 };
                self.slot(conn).attempt = Some(Box::new(Attempt::new(unknown, port)));
                let asker = self.asker(conn);
                self.outside.helpers.resolve(asker, host);
            }
        }
    }

    /// A helper has looked up a name.
    pub(crate) fn resolved(
        &mut self,
        conn: ConnId,
        ticket: Ticket,
        addresses: Result<Addresses, String>,
        config: &Config,
    ) {
        if !self.is_current(conn, ticket) {
            return;
        }
        let Some(attempt) = self.slot(conn).attempt.take() else { return };
        match addresses {
            Ok(addresses) => self.try_next(conn, attempt.with(addresses), config),
            Err(why) => self.give_up(conn, ConnectFault::Lookup(why)),
        }
    }

    fn try_next(&mut self, conn: ConnId, mut attempt: Attempt, config: &Config) {
        match attempt.next(&config.global) {
            Ok(Begun::Connected(socket)) => {
                self.seat(conn, socket, false, State::Open);
                self.connected(conn);
            }
            Ok(Begun::Underway(socket)) => {
                self.seat(conn, socket, false, State::Connecting);
                self.slot(conn).attempt = Some(Box::new(attempt));
            }
            Err(fault) => self.give_up(conn, fault),
        }
    }

    /// The outcome of a socket that was on its way is known.
    pub(crate) fn arrived(&mut self, conn: ConnId, config: &Config) {
        let slot = self.slot(conn);
        let Some(socket) = &slot.socket else { return };
        match connect::outcome(socket) {
            Ok(()) => {
                slot.state = State::Open;
                slot.attempt = None;
                self.connected(conn);
            }
            Err(fault) => {
                slot.socket = None;
                if let Some(mut attempt) = slot.attempt.take() {
                    attempt.failed(fault);
                    self.try_next(conn, *attempt, config);
                }
            }
        }
    }

    fn connected(&mut self, conn: ConnId) {
        let Some(socket) = &self.slot(conn).socket else { return };
        let (remote, local) = connect::ends(socket);
        self.pending.push_back(Event::Connected { conn, remote, local });
    }

    fn give_up(&mut self, conn: ConnId, fault: ConnectFault) {
        self.slot(conn).state = State::Closing;
        self.pending.push_back(Event::ConnectFailed { conn, fault });
        self.pending.push_back(Event::Closed { conn });
    }
}
