//! Connections that have not logged in: how many there may be, and which one is closed when there are more.
//!
//! Owns `max_login_conn` and `max_login_conn_per_address`. They count in no limit of clients, so that clients that can
//! connect but not log in keep no other client out. Cancel requests are unauthenticated too and count until they are
//! done. Of too many, those whose login has failed are closed first, then those that have kept Weir waiting longest, of
//! the origin with the most. Only at the end of the limit a connection is closed that has not waited for long, or that
//! waits for Weir: of the origin with the most its oldest cancel request, or its oldest login for one that has fewer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use telemetry::Level;
use wire::{encode, sqlstate};

use crate::client::{Client, Phase};
use crate::core::Core;
use crate::link::client_end;
use crate::login::Logins;
use crate::time::passed;
use crate::{Action, ConnId, Peer};

/// How long a client may think about its next message before its place can go to another.
const PATIENCE_US: u64 = 1_000_000;

/// This multiple of the limit is accepted while none has waited that long: many clients after a restart are no attack.
const CROWD: u32 = 4;

/// Every connection that has not logged in may need a descriptor of this many.
const FILES_FOR_ONE: u64 = 2 * CROWD as u64;

const REFUSED: &str = "too many connections that have not logged in";

/// The superuser of the system.
const ROOT: u32 = 0;

/// Where a client comes from, as far as one sender can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// An IPv4 address, or a /64 of IPv6.
    Network(IpAddr),
    /// The system user at the other end of a unix socket.
    UnixUser(u32),
}

impl Origin {
    pub(crate) fn of(peer: Peer) -> Origin {
        match peer {
            Peer::Unix { user_id, .. } => Origin::UnixUser(user_id),
            Peer::Inet { remote, .. } => Origin::Network(match remote.ip().to_canonical() {
                IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
                v4 => v4,
            }),
        }
    }

    /// The user that Weir runs as (`own_id`), or the superuser, on a unix socket.
    fn is_administrators(self, own_id: Option<u32>) -> bool {
        matches!(self, Origin::UnixUser(user_id) if user_id == ROOT || Some(user_id) == own_id)
    }
}

/// Connections by the numbers of their clients: the oldest comes first.
#[derive(Default)]
struct ByArrival {
    /// In order of arrival.
    conns: VecDeque<(u64, ConnId)>,
    /// Those of them whose login has failed, but for the answer.
    decided: BTreeMap<u64, ConnId>,
    /// Those of them that are cancel requests.
    cancels: BTreeMap<u64, ConnId>,
    /// Until then none has kept Weir waiting for too long, as of the last scan.
    none_stalled_until_us: u64,
}

impl ByArrival {
    fn oldest(&self) -> Option<ConnId> {
        self.conns.front().map(|(_, conn)| *conn)
    }

    fn insert(&mut self, id: u64, conn: ConnId) {
        if self.conns.back().is_none_or(|(newest, _)| *newest < id) {
            return self.conns.push_back((id, conn));
        }
        match self.conns.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(place) => self.conns[place] = (id, conn),
            Err(place) => self.conns.insert(place, (id, conn)),
        }
    }

    fn oldest_cancel(&self) -> Option<ConnId> {
        self.cancels.first_key_value().map(|(_, conn)| *conn)
    }

    fn remove(&mut self, id: u64) {
        if let Ok(place) = self.conns.binary_search_by_key(&id, |(id, _)| *id) {
            self.conns.remove(place);
        }
        self.decided.remove(&id);
        self.cancels.remove(&id);
    }
}

/// The connections of a shard that have not logged in.
#[derive(Default)]
pub(crate) struct Unauthenticated {
    all: ByArrival,
    by_origin: BTreeMap<Origin, Box<ByArrival>>,
    /// The origins by how many connections each has, if it is more than one.
    by_count: BTreeSet<(usize, Origin)>,
    /// When it was last logged that there are too many, in seconds.
    told_s: Option<u64>,
}

impl Unauthenticated {
    fn count_of(&self, origin: Origin) -> usize {
        self.by_origin.get(&origin).map_or(0, |own| own.conns.len())
    }

    /// The origin with the most connections, and how many these are.
    fn most(&self) -> Option<(usize, Origin)> {
        let single = || self.by_origin.last_key_value().map(|(origin, _)| (1, *origin));
        self.by_count.last().copied().or_else(single)
    }

    /// The count of an origin changes from `before` to `now`.
    fn recount(&mut self, origin: Origin, before: usize, now: usize) {
        if before > 1 {
            self.by_count.remove(&(before, origin));
        }
        if now > 1 {
            self.by_count.insert((now, origin));
        }
    }

    fn insert(&mut self, id: u64, conn: ConnId, origin: Origin) {
        self.all.insert(id, conn);
        let own = self.by_origin.entry(origin).or_default();
        let before = own.conns.len();
        own.insert(id, conn);
        self.recount(origin, before, before + 1);
    }

    fn remove(&mut self, id: u64, origin: Origin) {
        self.all.remove(id);
        let Some(own) = self.by_origin.get_mut(&origin) else { return };
        let before = own.conns.len();
        own.remove(id);
        let now = own.conns.len();
        if now == 0 {
            self.by_origin.remove(&origin);
        }
        self.recount(origin, before, now);
    }

    /// All connections, and those of this origin.
    fn both(&mut self, origin: Origin) -> impl Iterator<Item = &mut ByArrival> {
        [Some(&mut self.all), self.by_origin.get_mut(&origin).map(|own| &mut **own)].into_iter().flatten()
    }
}

impl Logins {
    /// A connection was accepted: it counts until its client has logged in or disconnected. False: it is closed.
    pub(crate) fn count_unauthenticated(&mut self, core: &mut Core, conn: ConnId) -> bool {
        let Some(client) = core.client(conn) else { return false };
        let (id, origin) = (client.id, Origin::of(client.peer));
        if !self.has_room_for(core, origin) {
            self.end_unauthenticated(core, conn);
            return false;
        }
        core.process.logins.take(0);
        self.unauthenticated.insert(id, conn, origin);
        if let Some(client) = core.client(conn) {
            client.counted.unauthenticated = true;
        }
        true
    }

    /// It has logged in, or has disconnected.
    pub(crate) fn uncount_unauthenticated(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
        if !std::mem::take(&mut client.counted.unauthenticated) {
            return;
        }
        let (id, origin) = (client.id, Origin::of(client.peer));
        core.process.logins.release();
        self.unauthenticated.remove(id, origin);
    }

    /// It is gone, and its place in what the process counts is free.
    pub(crate) fn login_over_of(&mut self, id: u64, peer: Peer, was_unauthenticated: bool, login_bytes: u32) {
        if was_unauthenticated {
            self.unauthenticated.remove(id, Origin::of(peer));
        }
        self.forget_login_bytes(login_bytes);
    }

    /// Its login has failed and only the answer is held back: it is the first to go.
    pub(crate) fn decide_unauthenticated(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
        let (id, origin, is_counted) = (client.id, Origin::of(client.peer), client.counted.unauthenticated);
        for logins in self.unauthenticated.both(origin).filter(|_| is_counted) {
            logins.decided.insert(id, conn);
        }
    }

    /// It has sent a cancel request: it still counts, but it is no login.
    pub(crate) fn note_cancel(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
        let (id, origin, is_counted) = (client.id, Origin::of(client.peer), client.counted.unauthenticated);
        for logins in self.unauthenticated.both(origin).filter(|_| is_counted) {
            logins.cancels.insert(id, conn);
        }
    }

    /// Makes room for one more, if there is any to be made.
    fn has_room_for(&mut self, core: &mut Core, origin: Origin) -> bool {
        self.has_room_of_origin(core, origin) && self.has_room_of_all(core, origin)
    }

    /// `max_login_conn_per_address`.
    fn has_room_of_origin(&mut self, core: &mut Core, origin: Origin) -> bool {
        let limit = core.config.global.max_login_conn_per_address;
        let count = u32::try_from(self.unauthenticated.count_of(origin)).unwrap_or(u32::MAX);
        if limit == 0 || count < limit {
            return true;
        }
        let expendable = self.expendable(core, Some(origin));
        self.make_room_for_login(core, expendable)
            || count < limit.saturating_mul(CROWD)
            || self.close_oldest_cancel(core, origin)
            || origin.is_administrators(self.unix_user_id) && self.close_oldest(core, origin)
    }

    /// `max_login_conn`. An administrator on the machine is never refused.
    fn has_room_of_all(&mut self, core: &mut Core, origin: Origin) -> bool {
        let limit = self.unauthenticated_max(core);
        let count = core.process.logins.taken();
        if limit == 0 || count < limit {
            return true;
        }
        let expendable = self.expendable_of_all(core);
        if self.make_room_for_login(core, expendable) || count < limit.saturating_mul(CROWD) {
            return true;
        }
        let own_count = self.unauthenticated.count_of(origin);
        let is_administrators = origin.is_administrators(self.unix_user_id);
        match self.unauthenticated.most() {
            Some((_, other)) if self.close_oldest_cancel(core, other) => true,
            Some((most, other)) if most > own_count + 1 || is_administrators => {
                self.close_oldest(core, other)
            }
            _ => is_administrators,
        }
    }

    /// The process has no file descriptor to accept a connection: one that has waited long enough is closed.
    pub(crate) fn files_ran_out(&mut self, core: &mut Core) {
        let expendable = self.expendable_of_all(core);
        if self.make_room_for_login(core, expendable) {
            return;
        }
        let now_us = core.now.mono_us;
        let of_most =
            self.unauthenticated.most().and_then(|(_, origin)| self.unauthenticated.by_origin.get(&origin));
        let oldest = [of_most.and_then(|own| own.oldest()), self.unauthenticated.all.oldest()];
        let is_old = |conn: &ConnId| {
            core.conns.find_client(*conn).is_some_and(|client| passed(now_us, client.since_us, PATIENCE_US))
        };
        let oldest = oldest.into_iter().flatten().find(is_old);
        self.make_room_for_login(core, oldest);
    }

    /// Closes connections beyond the limit as soon as allowed: another shard may have no room for its clients because of them.
    pub(crate) fn trim_unauthenticated(&mut self, core: &mut Core) {
        let limit = self.unauthenticated_max(core);
        while limit > 0 && core.process.logins.taken() > limit {
            let expendable = self.expendable_of_all(core);
            if !self.make_room_for_login(core, expendable) {
                return;
            }
        }
    }

    /// `max_login_conn` as far as there are descriptors.
    fn unauthenticated_max(&self, core: &Core) -> u32 {
        let limit = core.config.global.max_login_conn;
        let by_files = u32::try_from(self.files_max / FILES_FOR_ONE).unwrap_or(u32::MAX).max(1);
        if limit == 0 { limit } else { limit.min(by_files) }
    }

    /// A connection that may be closed: its login has failed, or it has kept Weir waiting; of the origin with the most, if it
    /// has one.
    fn expendable_of_all(&mut self, core: &mut Core) -> Option<ConnId> {
        let decided = self.unauthenticated.all.decided.first_key_value().map(|(_, conn)| *conn);
        let most = self.unauthenticated.most().map(|(_, origin)| origin);
        decided.or_else(|| self.expendable(core, most)).or_else(|| self.expendable(core, None))
    }

    /// The same of one origin, or of all.
    fn expendable(&mut self, core: &mut Core, origin: Option<Origin>) -> Option<ConnId> {
        let now_us = core.now.mono_us;
        let logins = match origin {
            Some(origin) => &mut **self.unauthenticated.by_origin.get_mut(&origin)?,
            None => &mut self.unauthenticated.all,
        };
        if let Some((_, conn)) = logins.decided.first_key_value() {
            return Some(*conn);
        }
        if now_us < logins.none_stalled_until_us {
            return None;
        }
        let (unix_user_id, is_of_all) = (self.unix_user_id, origin.is_none());
        // A connection that does not wait now begins to wait later than now.
        let mut since_us = now_us;
        for (_, conn) in &logins.conns {
            let Some(client) = core.conns.client(*conn) else { continue };
            // A local administrator may take its time to type a password, however many others connect.
            if is_of_all && Origin::of(client.peer).is_administrators(unix_user_id) {
                continue;
            }
            let Some(waits_since_us) = client.keeps_waiting_since_us() else { continue };
            if passed(now_us, waits_since_us, PATIENCE_US) {
                return Some(*conn);
            }
            since_us = since_us.min(waits_since_us);
        }
        logins.none_stalled_until_us = since_us.saturating_add(PATIENCE_US);
        None
    }

    fn close_oldest_cancel(&mut self, core: &mut Core, origin: Origin) -> bool {
        let oldest = self.unauthenticated.by_origin.get(&origin).and_then(|own| own.oldest_cancel());
        self.make_room_for_login(core, oldest)
    }

    fn close_oldest(&mut self, core: &mut Core, origin: Origin) -> bool {
        let oldest = self.unauthenticated.by_origin.get(&origin).and_then(|own| own.oldest());
        self.make_room_for_login(core, oldest)
    }

    /// Closes it, with the answer that it waits for if there is one. False: there is none to be closed.
    fn make_room_for_login(&mut self, core: &mut Core, conn: Option<ConnId>) -> bool {
        let Some(conn) = conn else { return false };
        if !self.answer_at_once(core, conn) {
            self.end_unauthenticated(core, conn);
        }
        true
    }

    /// Closes a connection without a line for each: an attack would fill the log.
    fn end_unauthenticated(&mut self, core: &mut Core, conn: ConnId) {
        let second = core.now.mono_us / 1_000_000;
        if self.unauthenticated.told_s.replace(second) != Some(second) {
            core.log_client(conn, Level::Warning, &format!("closing because: {REFUSED} (max_login_conn)"));
        }
        core.count_error(conn, sqlstate::TOO_MANY_CONNECTIONS);
        // A cancel request is never answered.
        if !matches!(core.client(conn).map(|client| &client.phase), Some(Phase::CancelRequest(_))) {
            core.outbox
                .write(conn, |out| encode::error(out, "FATAL", sqlstate::TOO_MANY_CONNECTIONS, REFUSED));
        }
        self.uncount_unauthenticated(core, conn); // At once: there may be room to be made for more.
        client_end::forget_client(core, conn);
        core.act(Action::Close { conn });
    }
}

impl Client {
    /// Since when it has let Weir wait for its next message, or its cancel request has waited. What it sends meanwhile does
    /// not count, only what Weir has answered: a message that comes byte by byte has not come.
    fn keeps_waiting_since_us(&self) -> Option<u64> {
        let waits = match &self.phase {
            Phase::Startup { .. } | Phase::Handshake { .. } | Phase::CancelRequest(_) => true,
            Phase::Login(login) => login.waits_for_client(),
            _ => false,
        };
        waits.then_some(self.request_us)
    }
}
