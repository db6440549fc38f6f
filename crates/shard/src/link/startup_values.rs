//! RESET and DISCARD ALL of a client: PostgreSQL goes back to what its startup packet said, a server that clients share
//! to its own defaults, so that the client's values have to be set again.
//!
//! Owns which values those are. It goes by command tags and by what the server reports, never by the text of a query; so
//! a RESET of a value that the client had SET to the server's default by itself is not seen, for nothing changes there.

use session::{Parameters, Tracked};
use wire::backend::Status;
use wire::encode;

use crate::ConnId;
use crate::client;
use crate::state::{Conn, State, linked};

/// What a client said in its startup packet, and what of it may have been reset on its server.
#[derive(Debug)]
pub(crate) struct StartupValues {
    said: Parameters,
    /// RESET or DISCARD ALL has been run and not been dealt with.
    reset: bool,
    /// Which reported values have become the server's default since then or shortly before, as bits by position.
    returned: u64,
    /// Of which of them the client knows already that it has its own.
    told: u64,
}

impl StartupValues {
    pub(crate) fn new(said: Parameters) -> StartupValues {
        StartupValues { said, reset: false, returned: 0, told: 0 }
    }

    pub(crate) fn said(&self) -> &Parameters {
        &self.said
    }

    /// The server has reported other values.
    pub(crate) fn note_changes(&mut self, old: &Parameters, new: &Parameters, fresh: &Parameters) {
        for position in 0..u64::BITS as usize {
            if self.said.value(position).is_none() || old.value(position) == new.value(position) {
                continue;
            }
            let bit = 1 << position;
            let is_default = new.value(position) == fresh.value(position);
            self.returned = if is_default { self.returned | bit } else { self.returned & !bit };
        }
    }

    /// A RESET has been run, or DISCARD ALL, which resets everything.
    #[cold]
    pub(crate) fn note_reset(&mut self, all: bool, told: u64) {
        self.reset = true;
        self.told |= told;
        if all {
            self.returned = u64::MAX;
        }
    }

    /// The positions of reported values to be set again on a server that has these.
    fn lost(&self, now: &Parameters, fresh: &Parameters, tracked: &Tracked) -> Vec<usize> {
        let is_lost = |position: &usize| {
            self.said.value(*position).is_some_and(|said| now.value(*position) != Some(said))
                && self.returned & (1 << *position) != 0
                && fresh.value(*position).is_some()
                && now.value(*position) == fresh.value(*position)
                && !tracked.is_fact(*position)
        };
        (0..tracked.count().min(u64::BITS as usize)).filter(is_lost).collect()
    }
}

impl State {
    /// The server has said ReadyForQuery: what a RESET took back of the client's own is the client's again. What is not
    /// known yet (more is asked, the transaction has failed) waits for the next one.
    #[inline]
    pub(crate) fn after_reset(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let Some((client, server)) = self.link(client_conn, server_conn) else { return };
        if !client.startup.reset {
            client.startup.returned = 0;
        } else if !server.talk.is_busy() && server.talk.status() != Some(Status::Failed) {
            self.take_back_startup_values(server_conn, client_conn);
        }
    }

    #[cold]
    fn take_back_startup_values(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let Some((client, server)) = linked(&mut self.conns, client_conn, server_conn) else { return };
        let Some(part) = self.parts.get(server.pool) else { return };
        if server.dedicated.is_none() {
            let mut own = server.talk.parameters.clone();
            for position in client.startup.lost(&own, &part.fresh, &self.tracked) {
                let Some(value) = client.startup.said.value(position) else { continue };
                own.set(position, value);
                if client.startup.told & (1 << position) != 0 {
                    continue;
                }
                let name = self.tracked.name(position);
                self.outbox.write(client_conn, |out| {
                    encode::parameter_status(out, name.as_bytes(), value.as_bytes());
                });
            }
            own.note_unreported(&part.fresh, &client.startup.said);
            client.parameters = own;
        }
        (client.startup.reset, client.startup.returned, client.startup.told) = (false, 0, 0);
    }

    /// A server that its client keeps (in a transaction, or for its session) is made like it before the next request.
    pub(crate) fn prepare_again(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let Some(Conn::Client(client)) = self.conns.get(client_conn.0 as usize) else { return };
        let Some(Conn::Server(server)) = self.conns.get(server_conn.0 as usize) else { return };
        let is_linked = matches!(client.phase, client::Phase::Linked(linked) if linked == server_conn);
        if !is_linked || client.parameters.shared_with(&server.talk.parameters) || server.talk.is_busy() {
            return;
        }
        if server.talk.boundary().is_none() || server.talk.status() == Some(Status::Failed) {
            return;
        }
        if let Some(sets) = client.parameters.sets_from(&server.talk.parameters, &self.tracked) {
            self.prepare(client_conn, server_conn, &sets);
        }
    }
}
