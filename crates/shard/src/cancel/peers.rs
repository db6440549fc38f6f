//! Cancel requests that belong to another process of the group: forwarded to the peer that their key names.
//!
//! Owns the connections to peers and their limit. The peer finds the query to cancel.

use std::collections::VecDeque;
use std::sync::Arc;

use messages::{PeerPoolRow, Report};
use pool::ConnectionCounts;
use settings::{FleetPeer, PeerGroup, SslMode};
use telemetry::Level;
use wire::encode;

use crate::cancel::Cancels;
use crate::cancel_key::Key;
use crate::connections::Conn;
use crate::connections::kinds::{CancelRequester, PeerCancelConn, PeerTls};
use crate::core::Core;
use crate::effects::TlsRequest;
use crate::link::client_end;
use crate::time::micros;
use crate::{ConnId, Target, cancel};

/// What waits for its turn at one peer, and how many connections to it all shards have.
pub(crate) struct PeerPool {
    taken: Arc<ConnectionCounts>,
    waiting: VecDeque<ConnId>,
}

impl Cancels {
    /// Forwards a cancel request whose key another process of the group has made.
    pub(crate) fn forward_cancel(
        &mut self,
        core: &mut Core,
        (requester, requester_id): (ConnId, u64),
        peer_id: u32,
        key: &Key,
    ) {
        let Some(key) = key.forwarded() else {
            let text = "failed to forward cancel request because its TTL was exhausted";
            return client_end::disconnect_client(core, requester, text);
        };
        if core.config.group_peer(peer_id).is_none() {
            let text = unreachable(core, peer_id);
            return client_end::disconnect_client(core, requester, &text);
        }
        self.send_in_turn(core, (requester, requester_id), peer_id, key);
        self.open_peer_cancel_conns(core, peer_id);
    }

    /// Forwards a cancel request to all other processes of the group, of which at most one has the client.
    pub(crate) fn forward_to_all_peers(&mut self, core: &mut Core, requester: (ConnId, u64), key: &Key) {
        // The process being taken over may still have the client.
        core.report(Report::StrayCancel { key: key.bytes().into() });
        let Some(forwarded) = key.forwarded() else { return };
        let own = core.config.peer_group().own().unwrap_or_default();
        let peers = core.config.group_peers().map(|(peer_id, _)| peer_id);
        let peers: Vec<u32> = peers.filter(|peer_id| *peer_id != own).collect();
        if peers.is_empty() {
            return cancel::cancel_over(core, CancelRequester::Local(requester.0, requester.1));
        }
        self.to_all_peers.insert(requester, peers.len());
        for peer_id in &peers {
            self.send_in_turn(core, requester, *peer_id, forwarded.clone());
        }
        for peer_id in peers {
            self.open_peer_cancel_conns(core, peer_id);
        }
    }

    /// A connection to this peer will carry the request when it is its turn.
    fn send_in_turn(
        &mut self,
        core: &mut Core,
        (requester, requester_id): (ConnId, u64),
        peer_id: u32,
        key: Key,
    ) {
        core.log_client(
            requester,
            Level::Debug,
            &format!("forwarding cancellation request to peer {peer_id}"),
        );
        let conn = core.conns.reserve();
        let since_us = core.now.mono_us;
        let peer_cancel_conn = PeerCancelConn {
            peer_id,
            key,
            requester: (requester, requester_id),
            since_us,
            closes: false,
            turn: None,
            is_one_of_many: self.to_all_peers.contains_key(&(requester, requester_id)),
            tls: match core.tls.settings.peers.mode {
                SslMode::Disable => PeerTls::None,
                _ if matches!(core.config.peer_group(), PeerGroup::Fleet(_)) => PeerTls::Wanted,
                _ => PeerTls::None,
            },
        };
        core.conns.place(conn, Conn::PeerCancel(Box::new(peer_cancel_conn)));
        cancel::carry_cancel(core, requester, conn);
        let pool_registry = &core.pool_registry;
        // No database has such a name: the protocol's strings end at a NUL.
        let counts = || pool_registry.database(&format!("\0peer {peer_id}"));
        let new = || PeerPool { taken: counts(), waiting: VecDeque::new() };
        self.peer_pools.entry(peer_id).or_insert_with(new).waiting.push_back(conn);
    }

    /// Opens as many connections to a peer as there may be: as PgBouncer's, twice the size of its pool.
    fn open_peer_cancel_conns(&mut self, core: &mut Core, peer_id: u32) {
        loop {
            let Some(peer) = core.config.group_peer(peer_id) else {
                return self.give_up_waiting(core, peer_id);
            };
            let most = core.config.peer_pool_size(peer).saturating_mul(2);
            let target = target_of(peer.host.as_deref().unwrap_or_default(), peer.port);
            let Some(pool) = self.peer_pools.get_mut(&peer_id) else { return };
            let Some(conn) = pool.waiting.front().copied() else { return };
            let Some(peer_cancel_conn) = core.conns.peer_cancel_conn_mut(conn) else {
                pool.waiting.pop_front();
                continue;
            };
            if pool.taken.servers.take(most, core.now.mono_us).is_err() {
                return; // Another shard may have them all: it is tried again with every tick.
            }
            pool.waiting.pop_front();
            peer_cancel_conn.turn = Some(false);
            core.connect(conn, target);
        }
    }

    /// The process cannot be reached any more: requests that have not had their turn are dropped.
    fn give_up_waiting(&mut self, core: &mut Core, peer_id: u32) {
        let waiting = self.peer_pools.get_mut(&peer_id).map(|pool| std::mem::take(&mut pool.waiting));
        for conn in waiting.into_iter().flatten() {
            let Some(Conn::PeerCancel(peer_cancel_conn)) = core.conns.remove(conn) else { continue };
            let text = unreachable(core, peer_id);
            core.log_client(peer_cancel_conn.requester.0, Level::Debug, &text);
            self.requester_served(core, peer_cancel_conn.requester);
        }
    }

    /// Its socket is closed: the canceling client is closed, and the next request is sent.
    pub(crate) fn peer_cancel_conn_closed(&mut self, core: &mut Core, peer_cancel_conn: &PeerCancelConn) {
        if let Some(pool) = self.peer_pools.get_mut(&peer_cancel_conn.peer_id)
            && peer_cancel_conn.turn.is_some()
        {
            pool.taken.servers.release();
        }
        if peer_cancel_conn.tls == PeerTls::Failed {
            self.send_without_tls(core, peer_cancel_conn);
        } else {
            self.requester_served(core, peer_cancel_conn.requester);
        }
        self.open_peer_cancel_conns(core, peer_cancel_conn.peer_id);
    }

    /// TLS has failed and need not be: another connection carries the request, before all that wait.
    fn send_without_tls(&mut self, core: &mut Core, failed: &PeerCancelConn) {
        let (conn, key) = (core.conns.reserve(), failed.key.clone());
        let again = PeerCancelConn { key, closes: false, turn: None, tls: PeerTls::None, ..*failed };
        core.conns.place(conn, Conn::PeerCancel(Box::new(again)));
        cancel::carry_cancel(core, failed.requester.0, conn);
        if let Some(pool) = self.peer_pools.get_mut(&failed.peer_id) {
            pool.waiting.push_front(conn);
        }
    }

    /// One of the connections is gone that carry a request: without another, the canceling client is closed.
    fn requester_served(&mut self, core: &mut Core, requester: (ConnId, u64)) {
        if !self.is_carried_further(core, requester) {
            cancel::cancel_over(core, CancelRequester::Local(requester.0, requester.1));
        }
    }

    /// One of the connections is gone that carry a request: whether others are left.
    fn is_carried_further(&mut self, core: &mut Core, requester: (ConnId, u64)) -> bool {
        let Some(left) = self.to_all_peers.get_mut(&requester) else { return false };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.to_all_peers.remove(&requester);
            return false;
        }
        if core.conns.find_client(requester.0).is_some_and(|client| client.id == requester.1)
            && let Some(other) = carriers(core, requester).first()
        {
            cancel::carry_cancel(core, requester.0, *other);
        }
        true
    }

    /// The client of a cancel request is gone: what has not had its turn does not get one.
    pub(crate) fn drop_all_waiting(&mut self, core: &mut Core, requester: (ConnId, u64)) {
        for conn in carriers(core, requester) {
            if core.conns.peer_cancel_conn(conn).is_some_and(|carrier| carrier.turn.is_none()) {
                self.drop_waiting_peer_cancel_conn(core, conn);
            }
        }
    }

    /// `cancel_wait_timeout`: a request that has waited so long is given up.
    pub(crate) fn check_peer_cancel_conn_deadline(&mut self, core: &mut Core, conn: ConnId) {
        let limit_us = micros(core.config.global.cancel_wait_timeout);
        let Some(peer_cancel_conn) = core.conns.peer_cancel_conn(conn) else { return };
        if peer_cancel_conn.turn.is_none() {
            let peer_id = peer_cancel_conn.peer_id;
            self.open_peer_cancel_conns(core, peer_id);
        }
        let now_us = core.now.mono_us;
        // It may have been given up.
        let Some(Conn::PeerCancel(peer_cancel_conn)) = core.conns.get_mut(conn) else { return };
        if limit_us == 0
            || now_us.saturating_sub(peer_cancel_conn.since_us) < limit_us
            || peer_cancel_conn.closes
        {
            return;
        }
        let (requester, has_turn) = (peer_cancel_conn.requester, peer_cancel_conn.turn.is_some());
        cancel::log_cancel_timeout(core, CancelRequester::Local(requester.0, requester.1));
        if has_turn {
            return cancel::close(core, conn);
        }
        self.drop_waiting_peer_cancel_conn(core, conn);
    }

    /// A request that never got its turn is over.
    pub(crate) fn drop_waiting_peer_cancel_conn(&mut self, core: &mut Core, conn: ConnId) {
        if let Some(Conn::PeerCancel(peer_cancel_conn)) = core.conns.remove(conn) {
            if let Some(pool) = self.peer_pools.get_mut(&peer_cancel_conn.peer_id) {
                pool.waiting.retain(|waiting| *waiting != conn);
            }
            self.peer_cancel_conn_closed(core, &peer_cancel_conn);
        }
    }
}

pub(crate) fn peer_cancel_conn_connected(core: &mut Core, conn: ConnId) {
    let Some(peer_cancel_conn) = core.conns.peer_cancel_conn_mut(conn) else {
        return;
    };
    peer_cancel_conn.turn = Some(true);
    match peer_cancel_conn.tls {
        PeerTls::Wanted => core.outbox.write(conn, encode::ssl_request),
        PeerTls::None | PeerTls::Begun | PeerTls::Failed => send_peer_cancel(core, conn),
    }
}

/// The request itself; the peer answers with its end of file.
pub(crate) fn send_peer_cancel(core: &mut Core, conn: ConnId) {
    let Some(peer_cancel_conn) = core.conns.peer_cancel_conn(conn) else { return };
    let key = &peer_cancel_conn.key;
    core.outbox.write(conn, |out| encode::cancel_request(out, key.process_id(), key.secret()));
}

/// The answer to SSLRequest.
pub(crate) fn peer_cancel_conn_received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let may_be_plain = core.tls.settings.peers.mode < SslMode::Require;
    let Some(peer_cancel_conn) = core.conns.peer_cancel_conn_mut(conn) else { return };
    if peer_cancel_conn.tls != PeerTls::Wanted {
        return;
    }
    let peer_id = peer_cancel_conn.peer_id;
    peer_cancel_conn.tls = if bytes == b"S" { PeerTls::Begun } else { PeerTls::None };
    let host = core.config.group_peer(peer_id).and_then(|peer| peer.host.clone());
    match (bytes, host) {
        ([b'S'], Some(host)) => core.tls.requests.push(TlsRequest::Connect { conn, host, is_node: true }),
        ([b'N'], _) if may_be_plain => send_peer_cancel(core, conn),
        ([b'N'], _) => {
            let text = format!(
                "cancel request: peer {peer_id} does not support SSL, which fleet_peer_tls_ca_file requires"
            );
            core.log(Level::Warning, text);
            cancel::close(core, conn);
        }
        _ => {
            let text = format!("cancel request: peer {peer_id} answers SSLRequest with neither S nor N");
            core.log(Level::Warning, text);
            cancel::close(core, conn);
        }
    }
}

/// A handshake has failed, or a record could not be read: without roots to check by, as where a node wants a certificate and there is none, it goes without TLS.
pub(crate) fn peer_cancel_conn_unsecured(core: &mut Core, conn: ConnId, text: &str) {
    let may_be_plain = core.tls.settings.peers.mode < SslMode::Require;
    let Some(peer_cancel_conn) = core.conns.peer_cancel_conn_mut(conn) else { return };
    let (peer_id, follows) =
        (peer_cancel_conn.peer_id, if may_be_plain { "; it is sent in plain text" } else { "" });
    if may_be_plain {
        peer_cancel_conn.tls = PeerTls::Failed;
    }
    core.log(Level::Warning, format!("cancel request to peer {peer_id}: {text}{follows}"));
    cancel::close(core, conn);
}

/// The connections that carry a client's cancel request to peers. Looks at every connection.
fn carriers(core: &Core, requester: (ConnId, u64)) -> Vec<ConnId> {
    core.conns.ids(|conn| matches!(conn, Conn::PeerCancel(carrier) if carrier.requester == requester))
}

/// A row for every configured peer.
pub(crate) fn peer_pool_rows(core: &Core) -> Vec<PeerPoolRow> {
    let mut rows: std::collections::BTreeMap<u32, PeerPoolRow> = core
        .config
        .group_peers()
        .map(|(peer_id, _)| (peer_id, PeerPoolRow { peer_id, ..PeerPoolRow::default() }))
        .collect();
    for conn in core.conns.values() {
        let Conn::PeerCancel(peer_cancel_conn) = conn else { continue };
        let Some(row) = rows.get_mut(&peer_cancel_conn.peer_id) else { continue };
        row.client_waiting_cancel += u64::from(peer_cancel_conn.turn.is_none());
        row.client_active_cancel += u64::from(peer_cancel_conn.turn.is_some());
        row.server_login += u64::from(peer_cancel_conn.turn == Some(false));
        row.server_active_cancel += u64::from(peer_cancel_conn.turn == Some(true));
    }
    rows.into_values().collect()
}

/// Why a request cannot be forwarded to the process with this number.
fn unreachable(core: &Core, peer_id: u32) -> String {
    match (core.config.peer_group(), core.config.fleet_peers.nodes.get(&peer_id)) {
        (PeerGroup::Fleet(_), Some(FleetPeer { node, .. })) => {
            format!("cancel request for a client of node {node}, which is gone from the fleet")
        }
        (PeerGroup::Fleet(_), None) => {
            format!("cancel request for a client of node {peer_id}, a number that no node of the fleet has")
        }
        (PeerGroup::None | PeerGroup::Configured(_), _) => {
            "could not find peer to forward request to".to_owned()
        }
    }
}

/// Where a peer listens.
fn target_of(host: &str, port: u16) -> Target {
    if host.starts_with(['/', '@']) {
        Target::Unix { path: format!("{host}/.s.PGSQL.{port}").into() }
    } else {
        Target::Inet { host: host.into(), port }
    }
}
