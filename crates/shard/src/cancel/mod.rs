//! Cancel requests: from the client's key to the backend that runs its query, and no other.
//!
//! Owns the keys that clients get, the forwarding connection, and the rule that a server is not lent again while a
//! cancel may still reach it. A cancel for a client that runs nothing is dropped. A request counts among the connections
//! that have not logged in until it is done, and one that waits for its turn waits no longer than its connection.

pub(crate) mod cancel_conn;
pub(crate) mod key;
pub(crate) mod peers;
pub(crate) mod rows;

use std::sync::Arc;

use messages::{Report, ShardId, ShardMessage};
use telemetry::Level;
use wire::encode;
use wire::startup::Version;

use crate::cancel::cancel_conn::{AskedBy, CancelTls, Canceller};
use crate::cancel::key::{Key, LONG, secret_length};
use crate::client;
use crate::server::Server;
use crate::state::{Conn, State};
use crate::time::micros;
use crate::{Action, ConnId, Target};

impl State {
    /// Gives a client that is about to be greeted its cancel key; since protocol 3.2 it may be long.
    pub(crate) fn give_cancel_key(&mut self, conn: ConnId, minor: u16) {
        let peer_id = self.config.global.peer_id;
        let mut secret = [0; LONG];
        let secret = &mut secret[..secret_length(peer_id, minor >= Version::V3_2.minor)];
        self.entropy.fill(secret);
        let key = self.cancel_keys.make(peer_id, secret, || self.process.next_cancel_number());
        self.keep_cancel_key(conn, key);
    }

    /// From now on the client is found by this key.
    pub(crate) fn keep_cancel_key(&mut self, conn: ConnId, key: Key) {
        let prefix = key.prefix(self.config.global.peer_id);
        let Some(client) = self.client(conn) else { return };
        client.cancel_key = key;
        client.cancel_key_prefix = Some(prefix);
        self.pool_registry.keep_cancel_key(prefix, self.id.0, conn.0);
    }

    /// A cancel request came in on this connection; the connection stays until it is done, as PostgreSQL's does.
    pub(crate) fn cancel_request(&mut self, conn: ConnId, process_id: u32, secret: &[u8]) {
        let key = Key::new(process_id, secret);
        let now_us = self.now.mono_us;
        let Some(client) = self.client(conn) else { return };
        client.phase = client::Phase::Canceller(None);
        client.request_us = now_us;
        let id = client.id;
        self.note_cancel(conn);
        let peer_id = self.config.global.peer_id;
        if peer_id > 0
            && let Some(other) = key.peer().filter(|other| *other != peer_id)
        {
            return self.forward_cancel((conn, id), other, &key);
        }
        match self.shard_of_key(&key) {
            Some(shard) if shard != self.id => {
                let letter =
                    ShardMessage::Cancel { from: self.id, conn: conn.0, id, key: key.bytes().into() };
                self.tell(shard, letter);
            }
            _ => self.cancel(AskedBy::Here(conn, id), &key),
        }
    }

    /// Where the client with this key is.
    fn shard_of_key(&self, key: &Key) -> Option<ShardId> {
        let prefix = key.prefix(self.config.global.peer_id);
        self.pool_registry.find_cancel_key(prefix).map(|(shard, _)| ShardId(shard))
    }

    /// A cancel request reached the successor process, and the client is still in this one.
    pub(crate) fn cancel_for_successor(&mut self, key: &[u8]) {
        let Some(key) = Key::of(key) else { return };
        // Nobody here waits for the end of it: a number that no connection has.
        let (from, conn, id) = (self.id, u32::MAX, 0);
        match self.shard_of_key(&key) {
            Some(shard) if shard != self.id => {
                let letter = ShardMessage::Cancel { from, conn, id, key: key.bytes().into() };
                self.tell(shard, letter);
            }
            _ => self.cancel(AskedBy::ShardMessage(from, conn, id), &key),
        }
    }

    /// Another shard was asked to cancel for a client of this one.
    pub(crate) fn cancel_for_neighbour(&mut self, asked_by: AskedBy, key: &[u8]) {
        match Key::of(key) {
            Some(key) => self.cancel(asked_by, &key),
            None => self.cancel_over(asked_by),
        }
    }

    /// Who has this key.
    fn client_of_key(&self, key: &Key) -> Option<(usize, &client::Client)> {
        let peer_id = self.config.global.peer_id;
        let found = self.pool_registry.find_cancel_key(key.prefix(peer_id));
        let (_, place) = found.filter(|(shard, _)| *shard == self.id.0)?;
        match self.conns.get(place as usize)? {
            Conn::Client(client) if client.cancel_key.is(key, peer_id) => Some((place as usize, client)),
            _ => None,
        }
    }

    /// The client with this key is here, if it is anywhere.
    fn cancel(&mut self, asked_by: AskedBy, key: &Key) {
        let server_conn =
            match self.client_of_key(key).map(|(place, client)| (place, client.id, &client.phase)) {
                Some((.., &client::Phase::Linked(server))) => server,
                Some((place, client_id, client::Phase::Console(_))) => {
                    let client = u32::try_from(place).unwrap_or(u32::MAX);
                    self.report(Report::ConsoleCancelled { shard: self.id, client, client_id });
                    return self.cancel_over(asked_by);
                }
                Some((place, ..)) if planted::bug!("cancel_of_a_former_query") => {
                    let client = u32::try_from(place).ok().and_then(|place| self.client(ConnId(place)));
                    let Some(server) = client.and_then(|client| client.server_used_last) else {
                        return self.cancel_over(asked_by);
                    };
                    ConnId(server)
                }
                Some(_) => return self.cancel_over(asked_by),
                None => {
                    // A predecessor process may still have the client.
                    self.report(Report::StrayCancel { key: key.bytes().into() });
                    return self.cancel_over(asked_by);
                }
            };
        let now_us = self.now.mono_us;
        let Some(server) = self.server(server_conn) else { return self.cancel_over(asked_by) };
        let (Some(key), part, true) = (server.key.clone(), server.pool, server.protocol.is_busy()) else {
            return self.cancel_over(asked_by);
        };
        let tls = match (&server.tls, server.host()) {
            (Some(_), Some(host)) => CancelTls::Wanted(Arc::clone(host)),
            _ => CancelTls::None,
        };
        server.cancels += 1;
        let server = (server_conn, server.id);
        let canceller = Canceller {
            id: self.process.next_id(),
            part,
            server,
            key,
            asked_by,
            since_us: now_us,
            sent: false,
            timed_out: false,
            tls,
        };
        let conn = self.reserve();
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Canceller(Box::new(canceller));
        }
        if let AskedBy::Here(asker, _) = asked_by {
            self.carry_cancel(asker, conn);
        }
        if let Some(part) = self.parts.get_mut(part) {
            part.cancels_waiting.push_back(conn);
        }
        self.send_cancels(part);
    }

    /// A client's cancel request goes by this connection.
    pub(crate) fn carry_cancel(&mut self, asker: ConnId, by: ConnId) {
        if let Some(client::Phase::Canceller(carrier)) = self.client(asker).map(|client| &mut client.phase) {
            *carrier = Some(by);
        }
    }

    /// Whether the cancel request that this connection carries has not had its turn.
    fn waits_for_turn(&self, carrier: ConnId) -> bool {
        match self.conns.get(carrier.0 as usize) {
            Some(Conn::Canceller(canceller)) => !canceller.sent,
            Some(Conn::Forwarder(forwarder)) => forwarder.turn.is_none(),
            _ => false,
        }
    }

    /// Whoever asked for a cancel has closed its side and need not wait, but its request counts while it does. False: it
    /// does not.
    pub(crate) fn outlives_its_client(&self, conn: ConnId) -> bool {
        match self.conns.get(conn.0 as usize) {
            Some(Conn::Client(client)) => {
                matches!(client.phase, client::Phase::Canceller(Some(carrier)) if self.waits_for_turn(carrier))
            }
            _ => false,
        }
    }

    /// The connection with a cancel request is closed: if it has not had its turn, it does not get one.
    pub(crate) fn withdraw_cancel(&mut self, carrier: ConnId) {
        if !self.waits_for_turn(carrier) {
            return;
        }
        match self.conns.get(carrier.0 as usize) {
            Some(Conn::Forwarder(_)) => self.drop_waiting_forwarder(carrier),
            _ => self.drop_waiting(carrier),
        }
    }

    /// Opens as many cancel connections as there may be: with the servers, twice the size of the pool.
    fn send_cancels(&mut self, part_index: usize) {
        loop {
            let Some(part) = self.parts.get_mut(part_index) else { return };
            let most = part.pool.limits.pool_size.saturating_mul(2);
            if most > 0 && part.cancels_active + part.pool.open() >= most {
                return;
            }
            let Some(conn) = part.cancels_waiting.pop_front() else { return };
            let Some(Conn::Canceller(canceller)) = self.conns.get(conn.0 as usize) else { continue };
            let Some(target) = self.target_of(canceller.server) else {
                self.drop_waiting(conn);
                continue;
            };
            if let Some(Conn::Canceller(canceller)) = self.conns.get_mut(conn.0 as usize) {
                canceller.sent = true;
            }
            if let Some(part) = self.parts.get_mut(part_index) {
                part.cancels_active += 1;
            }
            self.connect(conn, target);
        }
    }

    /// A cancel that never got its turn is over.
    fn drop_waiting(&mut self, conn: ConnId) {
        let Some(Conn::Canceller(canceller)) = self.conns.try_remove(conn.0 as usize) else { return };
        if let Some(part) = self.parts.get_mut(canceller.part) {
            part.cancels_waiting.retain(|waiting| *waiting != conn);
        }
        self.settle_cancel(&canceller);
    }

    /// The server a cancel is for, unless it has gone and its place is another's.
    fn server_to_cancel(&mut self, (conn, id): (ConnId, u64)) -> Option<&mut Server> {
        self.server(conn).filter(|server| server.id == id)
    }

    /// The same server that the query runs on, by address.
    fn target_of(&self, (conn, id): (ConnId, u64)) -> Option<Target> {
        let Some(Conn::Server(server)) = self.conns.get(conn.0 as usize) else { return None };
        if server.id != id {
            return None;
        }
        let Some(remote) = server.remote else {
            return Some(server.target.clone());
        };
        Some(Target::Inet { host: remote.ip().to_string().into(), port: remote.port() })
    }

    /// The connection is there.
    pub(crate) fn canceller_connected(&mut self, conn: ConnId) {
        if !self.secure_cancel(conn) {
            self.send_cancel(conn);
        }
    }

    /// If the query still runs, cancel it.
    pub(crate) fn send_cancel(&mut self, conn: ConnId) {
        let Some(Conn::Canceller(canceller)) = self.conns.get(conn.0 as usize) else { return };
        let (server, key) = (canceller.server, canceller.key.clone());
        let runs = self
            .server_to_cancel(server)
            .is_some_and(|server| server.client().is_some() && server.protocol.is_busy());
        if runs {
            self.outbox.write(conn, |out| encode::cancel_request(out, key.0, &key.1));
        } else {
            self.act(Action::Close { conn });
        }
    }

    /// A cancel connection's socket is gone: the next may have its turn.
    pub(crate) fn canceller_closed(&mut self, canceller: &Canceller) {
        if let Some(part) = self.parts.get_mut(canceller.part)
            && canceller.sent
        {
            part.cancels_active = part.cancels_active.saturating_sub(1);
        }
        self.settle_cancel(canceller);
        self.send_cancels(canceller.part);
    }

    /// Nothing of this cancel can arrive any more: the server may be lent again, and who asked may go.
    fn settle_cancel(&mut self, canceller: &Canceller) {
        if let Some(server) = self.server_to_cancel(canceller.server) {
            server.cancels = server.cancels.saturating_sub(1);
            let waits = server.client().filter(|_| server.cancels == 0 && server.protocol.holds_requests());
            match waits {
                Some(client) => self.restore_late(canceller.server.0, client),
                None => self.give_back(canceller.server.0),
            }
        }
        self.cancel_over(canceller.asked_by);
    }

    /// Lets go who asked.
    pub(crate) fn cancel_over(&mut self, asked_by: AskedBy) {
        match asked_by {
            AskedBy::Here(conn, id) => {
                let is_asker = |client: &mut client::Client| {
                    client.id == id && matches!(client.phase, client::Phase::Canceller(_))
                };
                if self.client(conn).is_some_and(is_asker) {
                    self.log_client(conn, Level::Debug, "cancel request done");
                    self.forget_client(conn);
                    self.act(Action::Close { conn });
                }
            }
            AskedBy::ShardMessage(to, conn, id) => {
                self.tell(to, ShardMessage::Cancelled { conn, id });
            }
        }
    }

    /// `cancel_wait_timeout`: a cancel that is not done by then is given up.
    pub(crate) fn check_canceller_deadline(&mut self, conn: ConnId) {
        let (now_us, limit_us) = (self.now.mono_us, micros(self.config.global.cancel_wait_timeout));
        let Some(Conn::Canceller(canceller)) = self.conns.get_mut(conn.0 as usize) else { return };
        if limit_us == 0 || now_us.saturating_sub(canceller.since_us) < limit_us || canceller.timed_out {
            return;
        }
        canceller.timed_out = true;
        let (asked_by, sent) = (canceller.asked_by, canceller.sent);
        self.log_cancel_timeout(asked_by);
        if sent {
            return self.act(Action::Close { conn });
        }
        self.drop_waiting(conn);
    }

    /// Writes the line where the client is that asked.
    pub(crate) fn log_cancel_timeout(&mut self, asked_by: AskedBy) {
        match asked_by {
            AskedBy::Here(conn, id) if self.client(conn).is_some_and(|client| client.id == id) => {
                self.log_client_leaves(conn, "cancel_wait_timeout");
            }
            AskedBy::Here(..) => {}
            AskedBy::ShardMessage(to, conn, id) => self.tell(to, ShardMessage::CancelTimedOut { conn, id }),
        }
    }
}
