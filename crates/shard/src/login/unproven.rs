//! Connections that have not logged in: how many there may be, and which one goes when there are more.
//!
//! Owns `max_login_conn` and `max_login_conn_per_address`. They count in no limit of clients, so that whoever can connect
//! but not log in keeps no client out: of too many, the one goes that has kept Weir waiting longest. One for which Weir
//! itself is at work (a server or a helper is being asked) never goes, nor one that has just been answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use telemetry::Level;
use wire::{encode, sqlstate};

use crate::client::{Client, Phase};
use crate::state::{Conn, State};
use crate::{Action, ConnId, Peer};

/// How long a client may think about its next message before its place can go to another.
const PATIENCE_US: u64 = 1_000_000;

/// So many times the limit are accepted while nobody has waited that long: a crowd after a restart is no attack.
const CROWD: u32 = 4;

/// Every connection that has not logged in may need a descriptor of this many.
const FILES_FOR_ONE: u64 = 2 * CROWD as u64;

const REFUSED: &str = "too many connections that have not logged in";

/// Where a client comes from, as far as one sender can choose: an IPv4 address, or a /64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network(IpAddr);

impl Network {
    /// None on a unix socket.
    pub(crate) fn of(peer: Peer) -> Option<Network> {
        let Peer::Inet { remote, .. } = peer else { return None };
        Some(Network(match remote.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            v4 => v4,
        }))
    }
}

/// The connections of a shard that have not logged in, by the numbers of their clients: the oldest comes first.
#[derive(Default)]
pub(crate) struct Unproven {
    all: BTreeMap<u64, ConnId>,
    by_network: BTreeMap<Network, BTreeMap<u64, ConnId>>,
    /// When the log was last told that there are too many, in seconds.
    told_s: Option<u64>,
}

impl State {
    /// A connection was accepted: it counts until its client has logged in or left. False: it is closed.
    pub(crate) fn count_unproven(&mut self, conn: ConnId) -> bool {
        let Some(client) = self.client(conn) else { return false };
        let (id, network) = (client.id, Network::of(client.peer));
        if !self.has_room_for(network) {
            self.end_unproven(conn);
            return false;
        }
        self.process.logins.take(0);
        self.unproven.all.insert(id, conn);
        if let Some(network) = network {
            self.unproven.by_network.entry(network).or_default().insert(id, conn);
        }
        if let Some(client) = self.client(conn) {
            client.counted.unproven = true;
        }
        true
    }

    /// It has logged in, or is no login any more.
    pub(crate) fn uncount_unproven(&mut self, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        if !std::mem::take(&mut client.counted.unproven) {
            return;
        }
        let (id, network) = (client.id, Network::of(client.peer));
        self.process.logins.give();
        self.unproven.all.remove(&id);
        if let Some(network) = network
            && let Some(others) = self.unproven.by_network.get_mut(&network)
        {
            others.remove(&id);
            if others.is_empty() {
                self.unproven.by_network.remove(&network);
            }
        }
    }

    /// Whether one more may come; one that has waited too long goes for it. An administrator on the machine is never
    /// refused.
    fn has_room_for(&mut self, network: Option<Network>) -> bool {
        let global = &self.config.global;
        let (limit, own_limit) =
            (self.unproven_max(global.max_login_conn), global.max_login_conn_per_address);
        let own = network.and_then(|network| self.unproven.by_network.get(&network));
        let own_count = own.map_or(0, |own| u32::try_from(own.len()).unwrap_or(u32::MAX));
        if own_limit > 0 && own_count >= own_limit {
            let stalled = own.and_then(|own| self.longest_stalled(own));
            return self.make_way(stalled) || own_count < own_limit.saturating_mul(CROWD);
        }
        let count = self.process.logins.taken();
        if limit == 0 || count < limit {
            return true;
        }
        let stalled = self.longest_stalled(&self.unproven.all);
        self.make_way(stalled) || count < limit.saturating_mul(CROWD) || network.is_none()
    }

    /// `max_login_conn` as far as there are descriptors.
    fn unproven_max(&self, limit: u32) -> u32 {
        let by_files = u32::try_from(self.files_max / FILES_FOR_ONE).unwrap_or(u32::MAX).max(1);
        if limit == 0 { limit } else { limit.min(by_files) }
    }

    fn longest_stalled(&self, logins: &BTreeMap<u64, ConnId>) -> Option<ConnId> {
        let now_us = self.now.mono_us;
        let stalled = |conn: &ConnId| matches!(self.conns.get(conn.0 as usize), Some(Conn::Client(client)) if client.is_stalled(now_us));
        logins.values().copied().find(stalled)
    }

    fn make_way(&mut self, stalled: Option<ConnId>) -> bool {
        stalled.map(|conn| self.end_unproven(conn)).is_some()
    }

    /// Closes a connection without a line for each: an attack would fill the log.
    fn end_unproven(&mut self, conn: ConnId) {
        let second = self.now.mono_us / 1_000_000;
        if self.unproven.told_s.replace(second) != Some(second) {
            self.log_client(conn, Level::Warning, &format!("closing because: {REFUSED} (max_login_conn)"));
        }
        self.count_error(conn, sqlstate::TOO_MANY_CONNECTIONS);
        self.outbox.write(conn, |out| encode::error(out, "FATAL", sqlstate::TOO_MANY_CONNECTIONS, REFUSED));
        self.forget_client(conn);
        self.act(Action::Close { conn });
    }
}

impl Client {
    /// It has let Weir wait for its next message for some time. What it sends meanwhile does not count, only what Weir has
    /// answered: a message that comes byte by byte has not come.
    fn is_stalled(&self, now_us: u64) -> bool {
        let waits = match &self.phase {
            Phase::Startup { .. } | Phase::Handshake { .. } => true,
            Phase::Login(login) => login.waits_for_client(),
            _ => false,
        };
        waits && now_us.saturating_sub(self.request_us) >= PATIENCE_US
    }
}
