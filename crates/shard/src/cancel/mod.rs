//! Cancel requests: from the client's key to the backend that runs its query, and no other.
//!
//! Owns the keys that clients get, the forwarding connection, and the rule that a server is not checked out again while a
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

use crate::cancel::cancel_conn::{CancelConn, CancelRequester, CancelTls};
use crate::cancel::key::{Key, LONG, secret_length};
use crate::client;
use crate::server::Server;
use crate::state::{Conn, ShardState};
use crate::time::micros;
use crate::{Action, ConnId, Target};

impl ShardState {
    /// Creates the cancel key of a client before its greeting; since protocol 3.2 it may be long.
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
        client.phase = client::Phase::CancelRequest(None);
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
                let message =
                    ShardMessage::Cancel { from: self.id, conn: conn.0, id, key: key.bytes().into() };
                self.send_to_shard(shard, message);
            }
            _ => self.cancel(CancelRequester::Local(conn, id), &key),
        }
    }

    /// Where the client with this key is.
    fn shard_of_key(&self, key: &Key) -> Option<ShardId> {
        let prefix = key.prefix(self.config.global.peer_id);
        self.pool_registry.find_cancel_key(prefix).map(|(shard, _)| ShardId(shard))
    }

    /// A cancel request reached the process that takes over, and the client is still in this one.
    pub(crate) fn cancel_for_takeover(&mut self, key: &[u8]) {
        let Some(key) = Key::of(key) else { return };
        // No client here waits for the end of it: a number that no connection has.
        let (from, conn, id) = (self.id, u32::MAX, 0);
        match self.shard_of_key(&key) {
            Some(shard) if shard != self.id => {
                let message = ShardMessage::Cancel { from, conn, id, key: key.bytes().into() };
                self.send_to_shard(shard, message);
            }
            _ => self.cancel(CancelRequester::Remote(from, conn, id), &key),
        }
    }

    /// Another shard received a cancel request for a client of this one.
    pub(crate) fn cancel_for_shard(&mut self, requester: CancelRequester, key: &[u8]) {
        match Key::of(key) {
            Some(key) => self.cancel(requester, &key),
            None => self.cancel_over(requester),
        }
    }

    /// The client with this key.
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
    fn cancel(&mut self, requester: CancelRequester, key: &Key) {
        let server_conn =
            match self.client_of_key(key).map(|(place, client)| (place, client.id, &client.phase)) {
                Some((.., &client::Phase::Linked(server))) => server,
                Some((place, client_id, client::Phase::Console(_))) => {
                    let client = u32::try_from(place).unwrap_or(u32::MAX);
                    self.report(Report::ConsoleCancelled { shard: self.id, client, client_id });
                    return self.cancel_over(requester);
                }
                Some((place, ..)) if planted::bug!("cancel_of_a_former_query") => {
                    let client = u32::try_from(place).ok().and_then(|place| self.client(ConnId(place)));
                    let Some(server) = client.and_then(|client| client.server_used_last) else {
                        return self.cancel_over(requester);
                    };
                    ConnId(server)
                }
                Some(_) => return self.cancel_over(requester),
                None => {
                    // The process being taken over may still have the client.
                    self.report(Report::StrayCancel { key: key.bytes().into() });
                    return self.cancel_over(requester);
                }
            };
        if !self.cancel_on(requester, server_conn) {
            self.cancel_over(requester);
        }
    }

    /// Begins to cancel what runs on this server. False: nothing does.
    pub(crate) fn cancel_on(&mut self, requester: CancelRequester, server_conn: ConnId) -> bool {
        let now_us = self.now.mono_us;
        let Some(server) = self.server(server_conn) else { return false };
        let (Some(key), local_pool, true) = (server.key.clone(), server.pool, server.protocol.is_busy())
        else {
            return false;
        };
        let tls = match (&server.tls, server.host()) {
            (Some(_), Some(host)) => CancelTls::Wanted(Arc::clone(host)),
            _ => CancelTls::None,
        };
        server.cancels += 1;
        let server = (server_conn, server.id);
        let cancel_conn = CancelConn {
            id: self.process.next_id(),
            local_pool,
            server,
            key,
            requester,
            since_us: now_us,
            sent: false,
            timed_out: false,
            tls,
        };
        let conn = self.reserve();
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Cancel(Box::new(cancel_conn));
        }
        if let CancelRequester::Local(requester, _) = requester {
            self.carry_cancel(requester, conn);
        }
        if let Some(local_pool) = self.local_pools.get_mut(local_pool) {
            local_pool.cancels_waiting.push_back(conn);
        }
        self.send_cancels(local_pool);
        true
    }

    /// This connection carries a client's cancel request.
    pub(crate) fn carry_cancel(&mut self, requester: ConnId, by: ConnId) {
        if let Some(client::Phase::CancelRequest(carrier)) =
            self.client(requester).map(|client| &mut client.phase)
        {
            *carrier = Some(by);
        }
    }

    /// Whether the cancel request that this connection carries has not had its turn.
    fn waits_for_turn(&self, carrier: ConnId) -> bool {
        match self.conns.get(carrier.0 as usize) {
            Some(Conn::Cancel(cancel_conn)) => !cancel_conn.sent,
            Some(Conn::PeerCancel(peer_cancel_conn)) => peer_cancel_conn.turn.is_none(),
            _ => false,
        }
    }

    /// The canceling client has closed its side and need not wait, but its request counts until it is done. False: it
    /// does not count.
    pub(crate) fn outlives_its_client(&self, conn: ConnId) -> bool {
        match self.conns.get(conn.0 as usize) {
            Some(Conn::Client(client)) => {
                matches!(client.phase, client::Phase::CancelRequest(Some(carrier)) if self.waits_for_turn(carrier))
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
            Some(Conn::PeerCancel(_)) => self.drop_waiting_peer_cancel_conn(carrier),
            _ => self.drop_waiting(carrier),
        }
    }

    /// Opens as many cancel connections as there may be: with the servers, twice the size of the pool.
    fn send_cancels(&mut self, pool_id: usize) {
        loop {
            let Some(local_pool) = self.local_pools.get_mut(pool_id) else { return };
            let most = local_pool.pool.limits.pool_size.saturating_mul(2);
            if most > 0 && local_pool.cancels_active + local_pool.pool.open() >= most {
                return;
            }
            let Some(conn) = local_pool.cancels_waiting.pop_front() else { return };
            let Some(Conn::Cancel(cancel_conn)) = self.conns.get(conn.0 as usize) else { continue };
            let Some(target) = self.target_of(cancel_conn.server) else {
                self.drop_waiting(conn);
                continue;
            };
            if let Some(Conn::Cancel(cancel_conn)) = self.conns.get_mut(conn.0 as usize) {
                cancel_conn.sent = true;
            }
            if let Some(local_pool) = self.local_pools.get_mut(pool_id) {
                local_pool.cancels_active += 1;
            }
            self.connect(conn, target);
        }
    }

    /// A cancel that never got its turn is over.
    fn drop_waiting(&mut self, conn: ConnId) {
        let Some(Conn::Cancel(cancel_conn)) = self.conns.try_remove(conn.0 as usize) else { return };
        if let Some(local_pool) = self.local_pools.get_mut(cancel_conn.local_pool) {
            local_pool.cancels_waiting.retain(|waiting| *waiting != conn);
        }
        self.finish_cancel(&cancel_conn);
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
    pub(crate) fn cancel_conn_connected(&mut self, conn: ConnId) {
        if !self.secure_cancel(conn) {
            self.send_cancel(conn);
        }
    }

    /// If the query still runs, cancel it.
    pub(crate) fn send_cancel(&mut self, conn: ConnId) {
        let Some(Conn::Cancel(cancel_conn)) = self.conns.get(conn.0 as usize) else { return };
        let (server, key) = (cancel_conn.server, cancel_conn.key.clone());
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
    pub(crate) fn cancel_conn_closed(&mut self, cancel_conn: &CancelConn) {
        if let Some(local_pool) = self.local_pools.get_mut(cancel_conn.local_pool)
            && cancel_conn.sent
        {
            local_pool.cancels_active = local_pool.cancels_active.saturating_sub(1);
        }
        self.finish_cancel(cancel_conn);
        self.send_cancels(cancel_conn.local_pool);
    }

    /// Nothing of this cancel can arrive any more: the server may be checked out again, and the canceling client is closed.
    fn finish_cancel(&mut self, cancel_conn: &CancelConn) {
        if let Some(server) = self.server_to_cancel(cancel_conn.server) {
            server.cancels = server.cancels.saturating_sub(1);
            let waits = server.client().filter(|_| server.cancels == 0 && server.protocol.holds_requests());
            match waits {
                Some(client) => self.restore_late(cancel_conn.server.0, client),
                None => self.release(cancel_conn.server.0),
            }
        }
        self.cancel_over(cancel_conn.requester);
    }

    /// Closes the canceling client.
    pub(crate) fn cancel_over(&mut self, requester: CancelRequester) {
        match requester {
            CancelRequester::Local(conn, id) => {
                let is_asker = |client: &mut client::Client| {
                    client.id == id && matches!(client.phase, client::Phase::CancelRequest(_))
                };
                if self.client(conn).is_some_and(is_asker) {
                    self.log_client(conn, Level::Debug, "cancel request done");
                    self.forget_client(conn);
                    self.act(Action::Close { conn });
                }
            }
            CancelRequester::Remote(to, conn, id) => {
                self.send_to_shard(to, ShardMessage::Cancelled { conn, id });
            }
            CancelRequester::Operator => {}
        }
    }

    /// `cancel_wait_timeout`: a cancel that is not done by then is given up.
    pub(crate) fn check_cancel_conn_deadline(&mut self, conn: ConnId) {
        let (now_us, limit_us) = (self.now.mono_us, micros(self.config.global.cancel_wait_timeout));
        let Some(Conn::Cancel(cancel_conn)) = self.conns.get_mut(conn.0 as usize) else { return };
        if limit_us == 0 || now_us.saturating_sub(cancel_conn.since_us) < limit_us || cancel_conn.timed_out {
            return;
        }
        cancel_conn.timed_out = true;
        let (requester, sent) = (cancel_conn.requester, cancel_conn.sent);
        self.log_cancel_timeout(requester);
        if sent {
            return self.act(Action::Close { conn });
        }
        self.drop_waiting(conn);
    }

    /// Logs on the shard of the canceling client.
    pub(crate) fn log_cancel_timeout(&mut self, requester: CancelRequester) {
        match requester {
            CancelRequester::Local(conn, id) if self.client(conn).is_some_and(|client| client.id == id) => {
                self.log_client_disconnect(conn, "cancel_wait_timeout");
            }
            CancelRequester::Local(..) | CancelRequester::Operator => {}
            CancelRequester::Remote(to, conn, id) => {
                self.send_to_shard(to, ShardMessage::CancelTimedOut { conn, id })
            }
        }
    }
}
