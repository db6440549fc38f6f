//! Cancel requests: from the client's key to the backend that runs its query, and no other.
//!
//! Owns the keys that clients get, the forwarding connection, and the rule that a server is not lent again while a
//! cancel may still reach it. A cancel for a client that runs nothing is dropped.

use mail::{Neighbour, ShardId};
use subtle::ConstantTimeEq;
use telemetry::Level;
use wire::encode;

use crate::canceller::{AskedBy, Canceller};
use crate::client;
use crate::server::Server;
use crate::state::{Conn, State};
use crate::time::micros;
use crate::{Action, ConnId, Target};

/// A cancel key's process id holds the shard in its upper bits, and the client's place below.
const SHARD_SHIFT: u32 = 24;
const PLACE_MASK: u32 = (1 << SHARD_SHIFT) - 1;

impl State {
    /// The public half of a client's cancel key.
    pub(crate) fn cancel_process_id(&self, conn: ConnId) -> u32 {
        (u32::from(self.id.0) << SHARD_SHIFT) | (conn.0.wrapping_add(1) & PLACE_MASK)
    }

    /// A cancel request came in on this connection; the connection stays until it is done, as PostgreSQL's does.
    pub(crate) fn cancel_request(&mut self, conn: ConnId, process_id: u32, secret: &[u8]) {
        let Ok(secret) = <[u8; 4]>::try_from(secret) else {
            return self.client_leaves(conn, "cancel request");
        };
        let secret = u32::from_be_bytes(secret);
        let shard = ShardId(u16::try_from(process_id >> SHARD_SHIFT).unwrap_or(u16::MAX));
        if let Some(client) = self.client(conn) {
            client.phase = client::Phase::Canceller;
        }
        let id = self.client(conn).map_or(0, |client| client.id);
        if shard != self.id {
            if shard.0 >= self.directory.shards() {
                return self.client_leaves(conn, "cancel request with a wrong key");
            }
            let letter = Neighbour::Cancel { from: self.id, conn: conn.0, id, process_id, secret };
            return self.act(Action::Tell { to: shard, letter });
        }
        self.cancel(AskedBy::Here(conn), process_id, secret);
    }

    /// The key says that the client is here.
    pub(crate) fn cancel(&mut self, asked_by: AskedBy, process_id: u32, secret: u32) {
        let conn = ConnId((process_id & PLACE_MASK).wrapping_sub(1));
        let Some(client) = self.client(conn) else { return self.cancel_over(asked_by) };
        let fits = client.secret.to_be_bytes().ct_eq(&secret.to_be_bytes());
        let client::Phase::Linked(server_conn) = client.phase else { return self.cancel_over(asked_by) };
        if !bool::from(fits) {
            return self.cancel_over(asked_by);
        }
        let now_us = self.now.mono_us;
        let Some(server) = self.server(server_conn) else { return self.cancel_over(asked_by) };
        let (Some(key), part, true) = (server.key.clone(), server.pool, server.talk.is_busy()) else {
            return self.cancel_over(asked_by);
        };
        server.cancels += 1;
        let server = (server_conn, server.id);
        let canceller = Canceller { part, server, key, asked_by, since_us: now_us, sent: false };
        let conn = self.reserve();
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Canceller(Box::new(canceller));
        }
        if let Some(part) = self.parts.get_mut(part) {
            part.cancels_waiting.push_back(conn);
        }
        self.send_cancels(part);
    }

    /// Opens as many cancel connections as the pool may have beside its servers.
    fn send_cancels(&mut self, part_index: usize) {
        loop {
            let Some(part) = self.parts.get_mut(part_index) else { return };
            let size = part.pool.limits.pool_size;
            if size > 0 && part.cancels_active >= size {
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
            self.act(Action::Connect { conn, target });
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
            return self.parts.get(server.pool).map(crate::servers::unix_target);
        };
        Some(Target::Inet { host: remote.ip().to_string().into(), port: remote.port() })
    }

    /// The connection is there: if the query still runs, cancel it.
    pub(crate) fn canceller_connected(&mut self, conn: ConnId) {
        let Some(Conn::Canceller(canceller)) = self.conns.get(conn.0 as usize) else { return };
        let (server, key) = (canceller.server, canceller.key.clone());
        let runs = self
            .server_to_cancel(server)
            .is_some_and(|server| server.client().is_some() && server.talk.is_busy());
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
            self.give_back(canceller.server.0);
        }
        self.cancel_over(canceller.asked_by);
    }

    /// Lets go who asked.
    pub(crate) fn cancel_over(&mut self, asked_by: AskedBy) {
        match asked_by {
            AskedBy::Here(conn) => {
                if self.client(conn).is_some_and(|client| matches!(client.phase, client::Phase::Canceller)) {
                    self.log_client(conn, Level::Debug, "cancel request done");
                    self.forget_client(conn);
                    self.act(Action::Close { conn });
                }
            }
            AskedBy::Neighbour(to, conn, id) => {
                self.act(Action::Tell { to, letter: Neighbour::Cancelled { conn, id } });
            }
        }
    }

    /// `cancel_wait_timeout`: a cancel that has not been sent by then is given up.
    pub(crate) fn check_canceller_deadline(&mut self, conn: ConnId) {
        let (now_us, limit_us) = (self.now.mono_us, micros(self.config.global.cancel_wait_timeout));
        let Some(Conn::Canceller(canceller)) = self.conns.get(conn.0 as usize) else { return };
        if limit_us == 0 || now_us.saturating_sub(canceller.since_us) < limit_us {
            return;
        }
        if canceller.sent {
            return self.act(Action::Close { conn });
        }
        let asked_by = canceller.asked_by;
        if let AskedBy::Here(asker) = asked_by {
            self.log_client(asker, Level::Log, "closing because: cancel_wait_timeout");
        }
        self.drop_waiting(conn);
    }
}
