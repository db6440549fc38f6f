//! Cancel requests: from the client's key to the backend that runs its query, and no other.
//!
//! Owns the keys that clients get, the forwarding connection, and the rule that a server is not checked out again while a
//! cancel may still reach it. A cancel for a client that runs nothing is dropped. A request counts among the connections
//! that have not logged in until it is done, and one that waits for its turn waits no longer than its connection.

pub(crate) mod peers;
pub(crate) mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::MockKey;
use messages::{Report, ShardId, ShardMessage};
use telemetry::Level;
use wire::encode;
use wire::startup::Version;

use crate::cancel::peers::PeerPool;
use crate::cancel_key::{Key, KeyMaker, LONG, secret_length};
use crate::client;
use crate::connections::Conn;
use crate::connections::cancel_conn::{CancelConn, CancelRequester, CancelTls};
use crate::core::Core;
use crate::local_pools::table::PoolId;
use crate::server::Server;
use crate::state::ShardState;
use crate::time::micros;
use crate::{Action, ConnId, Target};

/// The keys that a shard gives out, and the cancel requests that it forwards to other processes of the group.
pub(crate) struct Cancels {
    keys: KeyMaker,
    peer_pools: BTreeMap<u32, PeerPool>,
}

impl Cancels {
    pub(crate) fn new(mock: &MockKey) -> Cancels {
        Cancels { keys: KeyMaker::new(mock), peer_pools: BTreeMap::new() }
    }
}

impl ShardState {
    /// Creates the cancel key of a client before its greeting; since protocol 3.2 it may be long.
    pub(crate) fn give_cancel_key(&mut self, conn: ConnId, minor: u16) {
        let peer_id = self.core.config.global.peer_id;
        let mut secret = [0; LONG];
        let secret = &mut secret[..secret_length(peer_id, minor >= Version::V3_2.minor)];
        self.core.entropy.fill(secret);
        let key = self.cancels.keys.make(peer_id, secret, || self.core.process.next_cancel_number());
        self.core.keep_cancel_key(conn, key);
    }

    /// A cancel request came in on this connection; the connection stays until it is done, as PostgreSQL's does.
    pub(crate) fn cancel_request(&mut self, conn: ConnId, process_id: u32, secret: &[u8]) {
        let key = Key::new(process_id, secret);
        let now_us = self.core.now.mono_us;
        let Some(client) = self.core.client(conn) else { return };
        client.phase = client::Phase::CancelRequest(None);
        client.request_us = now_us;
        let id = client.id;
        self.note_cancel(conn);
        let peer_id = self.core.config.global.peer_id;
        if peer_id > 0
            && let Some(other) = key.peer().filter(|other| *other != peer_id)
        {
            return self.forward_cancel((conn, id), other, &key);
        }
        match self.core.shard_of_key(&key) {
            Some(shard) if shard != self.core.id => {
                let message =
                    ShardMessage::Cancel { from: self.core.id, conn: conn.0, id, key: key.bytes().into() };
                self.core.send_to_shard(shard, message);
            }
            _ => self.cancel(CancelRequester::Local(conn, id), &key),
        }
    }

    /// A cancel request reached the process that takes over, and the client is still in this one.
    pub(crate) fn cancel_for_takeover(&mut self, key: &[u8]) {
        let Some(key) = Key::of(key) else { return };
        // No client here waits for the end of it: a number that no connection has.
        let (from, conn, id) = (self.core.id, u32::MAX, 0);
        match self.core.shard_of_key(&key) {
            Some(shard) if shard != self.core.id => {
                let message = ShardMessage::Cancel { from, conn, id, key: key.bytes().into() };
                self.core.send_to_shard(shard, message);
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

    /// The client with this key is here, if it is anywhere.
    fn cancel(&mut self, requester: CancelRequester, key: &Key) {
        let server_conn =
            match self.core.client_of_key(key).map(|(place, client)| (place, client.id, &client.phase)) {
                Some((.., &client::Phase::Linked(server))) => server,
                Some((place, client_id, client::Phase::Console(_))) => {
                    self.core.report(Report::ConsoleCancelled {
                        shard: self.core.id,
                        client: place.0,
                        client_id,
                    });
                    return self.cancel_over(requester);
                }
                Some(_) => return self.cancel_over(requester),
                None => {
                    // The process being taken over may still have the client.
                    self.core.report(Report::StrayCancel { key: key.bytes().into() });
                    return self.cancel_over(requester);
                }
            };
        if !self.cancel_on(requester, server_conn) {
            self.cancel_over(requester);
        }
    }

    /// Begins to cancel what runs on this server. False: nothing does.
    pub(crate) fn cancel_on(&mut self, requester: CancelRequester, server_conn: ConnId) -> bool {
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.server(server_conn) else { return false };
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
            id: self.core.process.next_id(),
            local_pool,
            server,
            key,
            requester,
            since_us: now_us,
            sent: false,
            timed_out: false,
            tls,
        };
        let conn = self.core.conns.reserve();
        self.core.conns.place(conn, Conn::Cancel(Box::new(cancel_conn)));
        if let CancelRequester::Local(requester, _) = requester {
            self.core.carry_cancel(requester, conn);
        }
        if let Some(local_pool) = self.core.local_pools.get_mut(local_pool) {
            local_pool.cancels_waiting.push_back(conn);
        }
        self.send_cancels(local_pool);
        true
    }

    /// The connection with a cancel request is closed: if it has not had its turn, it does not get one.
    pub(crate) fn withdraw_cancel(&mut self, carrier: ConnId) {
        if !self.core.waits_for_turn(carrier) {
            return;
        }
        match self.core.conns.get(carrier) {
            Some(Conn::PeerCancel(_)) => self.drop_waiting_peer_cancel_conn(carrier),
            _ => self.drop_waiting(carrier),
        }
    }

    /// Opens as many cancel connections as there may be: with the servers, twice the size of the pool.
    fn send_cancels(&mut self, pool_id: PoolId) {
        loop {
            let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
            let most = local_pool.pool.limits.pool_size.saturating_mul(2);
            if most > 0 && local_pool.cancels_active + local_pool.pool.open() >= most {
                return;
            }
            let Some(conn) = local_pool.cancels_waiting.pop_front() else { return };
            let Some(cancel_conn) = self.core.conns.cancel_conn(conn) else { continue };
            let Some(target) = self.core.target_of(cancel_conn.server) else {
                self.drop_waiting(conn);
                continue;
            };
            if let Some(cancel_conn) = self.core.conns.cancel_conn_mut(conn) {
                cancel_conn.sent = true;
            }
            if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
                local_pool.cancels_active += 1;
            }
            self.core.connect(conn, target);
        }
    }

    /// A cancel that never got its turn is over.
    fn drop_waiting(&mut self, conn: ConnId) {
        let Some(Conn::Cancel(cancel_conn)) = self.core.conns.remove(conn) else { return };
        if let Some(local_pool) = self.core.local_pools.get_mut(cancel_conn.local_pool) {
            local_pool.cancels_waiting.retain(|waiting| *waiting != conn);
        }
        self.finish_cancel(&cancel_conn);
    }

    /// The connection is there.
    pub(crate) fn cancel_conn_connected(&mut self, conn: ConnId) {
        if !self.secure_cancel(conn) {
            self.core.send_cancel(conn);
        }
    }

    /// A cancel connection's socket is gone: the next may have its turn.
    pub(crate) fn cancel_conn_closed(&mut self, cancel_conn: &CancelConn) {
        if let Some(local_pool) = self.core.local_pools.get_mut(cancel_conn.local_pool)
            && cancel_conn.sent
        {
            local_pool.cancels_active = local_pool.cancels_active.saturating_sub(1);
        }
        self.finish_cancel(cancel_conn);
        self.send_cancels(cancel_conn.local_pool);
    }

    /// Nothing of this cancel can arrive any more: the server may be checked out again, and the canceling client is closed.
    fn finish_cancel(&mut self, cancel_conn: &CancelConn) {
        if let Some(server) = self.core.server_to_cancel(cancel_conn.server) {
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
                let is_asker = |client: &client::Client| {
                    client.id == id && matches!(client.phase, client::Phase::CancelRequest(_))
                };
                if self.core.conns.find_client(conn).is_some_and(is_asker) {
                    self.core.log_client(conn, Level::Debug, "cancel request done");
                    self.forget_client(conn);
                    self.core.act(Action::Close { conn });
                }
            }
            CancelRequester::Remote(to, conn, id) => {
                self.core.send_to_shard(to, ShardMessage::Cancelled { conn, id });
            }
            CancelRequester::Operator => {}
        }
    }

    /// `cancel_wait_timeout`: a cancel that is not done by then is given up.
    pub(crate) fn check_cancel_conn_deadline(&mut self, conn: ConnId) {
        let (now_us, limit_us) = (self.core.now.mono_us, micros(self.core.config.global.cancel_wait_timeout));
        let Some(cancel_conn) = self.core.conns.cancel_conn_mut(conn) else { return };
        if limit_us == 0 || now_us.saturating_sub(cancel_conn.since_us) < limit_us || cancel_conn.timed_out {
            return;
        }
        cancel_conn.timed_out = true;
        let (requester, sent) = (cancel_conn.requester, cancel_conn.sent);
        self.core.log_cancel_timeout(requester);
        if sent {
            return self.core.act(Action::Close { conn });
        }
        self.drop_waiting(conn);
    }
}

impl Core {
    /// From now on the client is found by this key.
    pub(crate) fn keep_cancel_key(&mut self, conn: ConnId, key: Key) {
        let prefix = key.prefix(self.config.global.peer_id);
        let Some(client) = self.client(conn) else { return };
        client.cancel_key = key;
        client.cancel_key_prefix = Some(prefix);
        self.pool_registry.keep_cancel_key(prefix, self.id.0, conn.0);
    }

    /// Where the client with this key is.
    fn shard_of_key(&self, key: &Key) -> Option<ShardId> {
        let prefix = key.prefix(self.config.global.peer_id);
        self.pool_registry.find_cancel_key(prefix).map(|(shard, _)| ShardId(shard))
    }

    /// The client with this key.
    fn client_of_key(&self, key: &Key) -> Option<(ConnId, &client::Client)> {
        let peer_id = self.config.global.peer_id;
        let found = self.pool_registry.find_cancel_key(key.prefix(peer_id));
        let (_, place) = found.filter(|(shard, _)| *shard == self.id.0)?;
        let client =
            self.conns.find_client(ConnId(place)).filter(|client| client.cancel_key.is(key, peer_id));
        Some((ConnId(place), client?))
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
        match self.conns.get(carrier) {
            Some(Conn::Cancel(cancel_conn)) => !cancel_conn.sent,
            Some(Conn::PeerCancel(peer_cancel_conn)) => peer_cancel_conn.turn.is_none(),
            _ => false,
        }
    }

    /// The canceling client has closed its side and need not wait, but its request counts until it is done. False: it
    /// does not count.
    pub(crate) fn outlives_its_client(&self, conn: ConnId) -> bool {
        match self.conns.get(conn) {
            Some(Conn::Client(client)) => {
                matches!(client.phase, client::Phase::CancelRequest(Some(carrier)) if self.waits_for_turn(carrier))
            }
            _ => false,
        }
    }

    /// The server a cancel is for, unless it has gone and its place is another's.
    fn server_to_cancel(&mut self, (conn, id): (ConnId, u64)) -> Option<&mut Server> {
        self.conns.find_server_mut(conn).filter(|server| server.id == id)
    }

    /// The same server that the query runs on, by address.
    fn target_of(&self, (conn, id): (ConnId, u64)) -> Option<Target> {
        let server = self.conns.find_server(conn).filter(|server| server.id == id)?;
        let Some(remote) = server.remote else {
            return Some(server.target.clone());
        };
        Some(Target::Inet { host: remote.ip().to_string().into(), port: remote.port() })
    }

    /// If the query still runs, cancel it.
    pub(crate) fn send_cancel(&mut self, conn: ConnId) {
        let Some(cancel_conn) = self.conns.cancel_conn(conn) else { return };
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

    /// Logs on the shard of the canceling client.
    pub(crate) fn log_cancel_timeout(&mut self, requester: CancelRequester) {
        match requester {
            CancelRequester::Local(conn, id)
                if self.conns.find_client(conn).is_some_and(|client| client.id == id) =>
            {
                self.log_client_disconnect(conn, "cancel_wait_timeout");
            }
            CancelRequester::Local(..) | CancelRequester::Operator => {}
            CancelRequester::Remote(to, conn, id) => {
                self.send_to_shard(to, ShardMessage::CancelTimedOut { conn, id })
            }
        }
    }
}
