//! Hosts that fall silent, and connections that only seem to live: a primary whose machine stops or whose network is cut while a standby is promoted, and a
//! standby that crashes behind connections which do not end.
//!
//! Owns what must come of the first (I8): once the pooler knows of the new primary, a request that the silent one owes ends, and clients that wait get to the new one.

use super::{ConnRef, What, World};
use crate::clock::SECOND_US;
use crate::model::cluster::Attempt;
use crate::model::replication::{Replication, SilenceKind};
use crate::network::Ending;
use crate::pooler::Pooler;
use crate::setup;
use crate::tap::Purpose;

/// The least and the longest time that a primary is silent: the pooler's patience (`server_connect_timeout`) is within.
const SILENT_US: (u64, u64) = (500_000, 40_000_000);
/// Until a primary that is silent no more is made a standby.
const REJOINS_US: (u64, u64) = (10_000, 4_000_000);
/// How often a silent primary's machine stands still, in a million; else its network is cut.
const STOPPED: u32 = 500_000;

/// How long a standby that has crashed is down, and then replays nothing.
const DOWN_US: (u64, u64) = (1_000, 1_000_000);
const STILL_US: (u64, u64) = (50_000, 4_000_000);
/// How often a standby crashes while it executes a read, in a million.
const AT_READ: u32 = 600_000;
/// How often what such a standby has sent arrives late, in a million, and the longest that it takes.
const LATE: u32 = 300_000;
const LATE_US: u64 = 2_000_000;
/// The least for the answer of one that crashes while it reads.
const READ_LATE_US: u64 = 100_000;
/// The longest until a machine that is back answers what its former connections send.
const RESENT_US: u64 = 1_000_000;

/// How long a server that was left behind may owe an answer: `server_connect_timeout`, and some looks.
const OWED_US: u64 = 4 * SECOND_US;
/// How long a client may wait for the new primary: as long, and then a connection to each of the other hosts may be tried in vain.
const WAITS_US: u64 = 20 * SECOND_US;

/// What the checks remember from one second to the next.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Since then no command keeps the pooler from finding out that a server is silent.
    watched_since_us: u64,
    /// The newest primary, and since when it can be connected to.
    primary: Option<usize>,
    reached_since_us: u64,
    /// The next standby that executes a read of a client crashes.
    crashes_at_read: bool,
}

impl Silence {
    /// Nothing crashes any more.
    pub(super) fn end_faults(&mut self) {
        self.crashes_at_read = false;
    }
}

impl<P: Pooler> World<P> {
    /// The primary falls silent, and a standby is promoted.
    pub(super) fn silence_primary(&mut self) {
        let now_us = self.clock.now_us();
        let until_us = now_us + self.prng.log_between(SILENT_US.0, SILENT_US.1);
        let rejoins_us = until_us + self.prng.log_between(REJOINS_US.0, REJOINS_US.1);
        let silence = if self.prng.chance(STOPPED) { SilenceKind::Stopped } else { SilenceKind::CutOff };
        let Some(hosts) = &mut self.cluster.replication else { return };
        let Some(before) = hosts.primary().filter(|place| hosts.silent_until_us(*place) <= now_us) else {
            return;
        };
        let Some(next) = hosts.candidate(now_us) else { return };
        hosts.events.promotions += 1;
        hosts.events.silent_primaries += 1;
        hosts.silence(before, silence, now_us, until_us);
        hosts.promote(next, now_us);
        self.say(format_args!("pg{before} is silent until {until_us}: {silence:?}; pg{next} is promoted"));
        if silence == SilenceKind::CutOff {
            self.hold_connections(before, until_us);
        }
        self.clock.at(rejoins_us, What::Rejoin(before));
    }

    fn hold_connections(&mut self, place: usize, until_us: u64) {
        let is_there = |backend: &crate::model::backend::Backend| backend.place == place;
        let ends: Vec<_> = self
            .cluster
            .backends()
            .filter(|(_, backend)| is_there(backend))
            .map(|(_, backend)| backend.end)
            .collect();
        for end in ends {
            self.network.hold(end, until_us);
            self.network.hold(end.peer(), until_us);
        }
    }

    /// A standby crashes: now, or as soon as one executes a read of a client, which then gets no answer for long.
    pub(super) fn crash_standby(&mut self) {
        let now_us = self.clock.now_us();
        let half_open = self.swarm.hosts.as_ref().map_or(0, |hosts| hosts.half_open_per_million);
        if half_open > 0 && self.prng.chance(AT_READ) {
            self.silence.crashes_at_read = true;
        } else if let Some(place) = self.cluster.replication.as_mut().and_then(|hosts| hosts.standby(now_us))
        {
            self.crash(place, None);
        }
    }

    /// A client's read was executed by this server process.
    pub(super) fn note_read(&mut self, number: u32) {
        let place = self.cluster.backend(number).place;
        let is_standby = |hosts: &Replication| hosts.writes_timeline(place).is_none();
        if self.silence.crashes_at_read && self.cluster.replication.as_ref().is_some_and(is_standby) {
            self.silence.crashes_at_read = false;
            self.crash(place, Some(number));
        }
    }

    /// A standby crashes. Of some connections to it nothing is heard any more, and of the one that is `reading`.
    fn crash(&mut self, place: usize, reading: Option<u32>) {
        let now_us = self.clock.now_us();
        let up_us = now_us + self.prng.log_between(DOWN_US.0, DOWN_US.1);
        let replays_us = up_us + self.prng.log_between(STILL_US.0, STILL_US.1);
        let half_open = self.swarm.hosts.as_ref().map_or(0, |hosts| hosts.half_open_per_million);
        let Some(hosts) = &mut self.cluster.replication else { return };
        hosts.crash(place, up_us, replays_us, now_us);
        self.say(format_args!("pg{place} crashes, and is up at {up_us}"));
        let mut lost = 0;
        for number in self.cluster.end_sessions(place, true) {
            let end = self.cluster.backend(number).end;
            let is_reading = reading == Some(number);
            if is_reading || self.prng.chance(LATE) {
                let late_us = self.prng.log_between(if is_reading { READ_LATE_US } else { 1 }, LATE_US);
                self.network.hold(end.peer(), now_us + late_us);
            }
            if is_reading || self.prng.chance(half_open) {
                lost += 1;
                let resent_us = self.prng.log_between(1, RESENT_US);
                self.lose_backend(number, up_us + resent_us);
            } else {
                self.end_backend(number, Ending::Reset);
            }
        }
        if let Some(hosts) = self.cluster.replication.as_mut().filter(|_| lost > 0) {
            hosts.events.half_open += 1;
        }
    }

    /// A silent host is not silent any more, whatever it was to be: no client is left.
    pub(super) fn end_silence(&mut self) {
        self.cluster.replication.iter_mut().for_each(|hosts| hosts.heal(true));
        self.network.release_all(&mut self.clock);
        self.heal_hosts();
    }

    /// A server that is silent, as the pooler has to find out by itself: since when. `timeline` and `shown_us` are what its process was shown of a newer primary.
    fn silent_since_us(&self, place: usize, shown: (u32, u64)) -> Option<u64> {
        let (timeline, shown_us) = shown;
        let hosts = self.cluster.replication.as_ref()?;
        let is_left_behind = hosts.writes_timeline(place).is_some_and(|own| own < timeline);
        let silent_us = hosts.silent_since_us(place, self.clock.now_us()).filter(|_| is_left_behind)?;
        Some(silent_us.max(shown_us))
    }

    /// The pooler closes a connection on which a server owed an answer: those to a silent primary are counted.
    pub(super) fn note_closed_owing(&mut self, place: usize) {
        let now_us = self.clock.now_us();
        let Some(hosts) = &mut self.cluster.replication else { return };
        if hosts.silent_since_us(place, now_us).is_some() {
            hosts.events.silent_ended += 1;
        }
    }

    /// Every second, beside a primary that is silent: no client waits for that, or for long for another one.
    pub(super) fn expect_silent_primary_left(&mut self, shard: usize) {
        let now_us = self.clock.now_us();
        if self.cluster.replication.is_none() || self.current != Some(self.shards[shard].process) {
            return;
        }
        let is_hindered = self.operator.suspended || self.operator.ending.is_some();
        if is_hindered || now_us < self.excused_until_us {
            self.silence.watched_since_us = now_us;
        }
        let primary = self.cluster.replication.as_ref().and_then(Replication::primary);
        let is_reached =
            primary.is_some_and(|place| self.cluster.attempt(place, now_us) == Attempt::Accepted);
        if self.silence.primary != primary || !is_reached {
            (self.silence.primary, self.silence.reached_since_us) = (primary, now_us);
        }
        if let Some(spot) = self.waits_for_silent_server(shard) {
            let text = format!("{spot:?} was left behind and is silent, and a client still waits for it");
            self.checker.object("I8", text);
        }
        if let Some(pool) = self.waits_for_new_primary(shard) {
            let text =
                format!("a client of {pool} waits, and the primary that replaced a silent one is not tried");
            self.checker.object("I8", text);
        }
    }

    /// A connection on which a server that is left behind and silent owes a client an answer for too long.
    fn waits_for_silent_server(&self, shard: usize) -> Option<ConnRef> {
        let now_us = self.clock.now_us();
        let sockets = self.shards[shard].sockets.iter().flatten();
        let found = sockets.filter(|socket| !socket.closing && !socket.paused).find(|socket| {
            let Some(tap) = socket.tap.as_deref().filter(|tap| tap.owes_client()) else { return false };
            let Purpose::Session { database, own: false, .. } = &tap.purpose else { return false };
            let shown = self.shown_to(self.shards[shard].process, database);
            // One that was a standby at its login is none to be left, as far as the pooler knows.
            if tap.primary_timeline.is_none_or(|timeline| timeline >= shown.0) {
                return false;
            }
            let place = socket.address.map(setup::place_of);
            let since_us = place.and_then(|place| self.silent_since_us(place, shown));
            since_us.is_some_and(|us| {
                let begun_us = us.max(tap.active_us).max(self.silence.watched_since_us);
                now_us.saturating_sub(begun_us) > OWED_US
            })
        });
        found.map(|socket| socket.spot)
    }

    /// A pool without a connection to a primary, of which a client waits for too long.
    fn waits_for_new_primary(&self, shard: usize) -> Option<String> {
        let (now_us, process) = (self.clock.now_us(), self.shards[shard].process);
        let hosts = self.cluster.replication.as_ref()?;
        let newest = hosts.primary().and_then(|place| hosts.writes_timeline(place));
        let Silence { reached_since_us, watched_since_us, .. } = self.silence;
        let pools = self.shards[shard].pooler.pools();
        let found = pools.iter().filter(|state| state.host.is_none() && !state.pool.paused).find(|state| {
            let Some(waiter) = state.pool.queue.front_shared() else { return false };
            let shown = self.shown_to(process, state.database);
            let silent_us = hosts
                .old_primaries()
                .into_iter()
                .filter_map(|place| self.silent_since_us(place, shown))
                .min();
            let Some(silent_us) = silent_us.filter(|_| newest == Some(shown.0)) else { return false };
            let begun_us = silent_us.max(waiter.since_us).max(reached_since_us).max(watched_since_us);
            now_us.saturating_sub(begun_us) > WAITS_US && !self.has_primary(shard, state)
        });
        found.map(|state| format!("{} on {}", state.user, state.database))
    }

    /// A pool has a connection to a primary, of whatever timeline.
    fn has_primary(&self, shard: usize, state: &shard::PoolState<'_>) -> bool {
        let hosts = self.cluster.replication.as_ref();
        self.shards[shard].sockets.iter().flatten().filter(|socket| !socket.closing).any(|socket| {
            let purpose = socket.tap.as_deref().map(|tap| &tap.purpose);
            let is_of_pool = matches!(purpose, Some(Purpose::Session { database, user, .. })
                if database == state.database && user == state.user);
            let place = socket.address.map(setup::place_of);
            let timeline = place.and_then(|place| hosts.and_then(|hosts| hosts.writes_timeline(place)));
            is_of_pool && timeline.is_some()
        })
    }
}
