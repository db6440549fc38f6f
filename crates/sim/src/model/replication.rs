//! A primary and its standbys: what each has of the history that they share.
//!
//! Owns timelines, the positions of commits, what a standby has replayed by now, promotions, and hosts that stand still, are cut off or down. Knows no
//! connection: sessions are told what their host is ([`Replica`]). A standby that has replayed what the next timeline lacks cannot follow that.

use std::collections::{BTreeMap, VecDeque};

use crate::prng::Prng;
use crate::sql::Tag;
use crate::swarm::Hosts;

/// What all servers of the cluster call it.
pub(crate) const SYSTEM: u64 = 7_000_000_001;
/// WAL pages and segments: a primary whose last record ends with one says that the next begins behind a header.
pub(crate) const PAGE_BYTES: u64 = 8192;
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_HEADER_BYTES: u64 = 40;
/// The longest record.
const RECORD_BYTES: u64 = 3_000;
/// How often something beside clients has written before a primary is asked, and how often a record ends with its page, in a million.
const OTHERS_WRITE: u32 = 300_000;
const ENDS_PAGE: u32 = 60_000;
/// The longest until a standby turns to a new timeline, and until a restart point tells of it.
const TURNS_US: u64 = 400_000;
const RESTART_POINT_US: u64 = 3_000_000;
/// How long a server takes to come back as a standby.
const REJOINS_US: u64 = 300_000;

/// A place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Counted from 1.
    pub(crate) timeline: u32,
    /// The end of a record, in bytes.
    pub(crate) lsn: u64,
}

/// What a host is to the sessions on it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    /// It is in recovery.
    pub(crate) is_standby: bool,
    /// The end of what it has written or replayed.
    pub(crate) at: Position,
    /// What roles may see of the timeline that it receives, if they may.
    pub(crate) receives: Option<u32>,
    /// The timeline of its last restart point.
    pub(crate) restart_point: u32,
}

impl Replica {
    /// Where the next record begins.
    pub(crate) fn insert_lsn(self) -> u64 {
        let lsn = self.at.lsn;
        if lsn.is_multiple_of(SEGMENT_BYTES) {
            lsn + SEGMENT_HEADER_BYTES
        } else if lsn.is_multiple_of(PAGE_BYTES) {
            lsn + PAGE_HEADER_BYTES
        } else {
            lsn
        }
    }
}

/// A timeline: where it has left the one before, and its end.
#[derive(Clone, Copy, Debug)]
struct Timeline {
    from: Option<Position>,
    end: u64,
}

#[derive(Clone, Debug)]
struct Host {
    is_primary: bool,
    /// What it writes or follows.
    timeline: u32,
    replayed: u64,
    /// What comes to a standby, and when.
    arriving: VecDeque<(u64, u64)>,
    still_until_us: u64,
    turns_at_us: Option<u64>,
    restart_point: (u32, Option<u64>),
    frozen_until_us: u64,
    /// The network leads nowhere until then.
    cut_off_until_us: u64,
    /// It is silent beyond the end of the faults.
    outlasts_faults: bool,
    silent_since_us: u64,
    down_until_us: u64,
}

/// How a host falls silent, while connections to it stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilenceKind {
    /// Its machine stands still.
    Stopped,
    /// It goes on, and the network does not lead there.
    CutOff,
}

impl Host {
    fn silent_until_us(&self) -> u64 {
        self.frozen_until_us.max(self.cut_off_until_us)
    }
}

/// What happened to the hosts of a run, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostEvents {
    /// Promotions.
    pub promotions: u64,
    /// Those beside which the primary before went on: a split brain.
    pub split_brains: u64,
    /// Hosts that said nothing for a while: partitions.
    pub partitions: u64,
    /// Standbys that replayed nothing for a while.
    pub stalls: u64,
    /// Hosts that were started again.
    pub restarts: u64,
    /// Promotions beside a primary that had fallen silent.
    pub silent_primaries: u64,
    /// Connections to such a primary that the pooler has ended while they owed an answer.
    pub silent_ended: u64,
    /// Standbys that crashed while connections to them seemed to live.
    pub half_open: u64,
}

/// The hosts.
#[derive(Debug)]
pub(crate) struct Replication {
    /// What happened to them.
    pub(crate) events: HostEvents,
    hosts: Vec<Host>,
    timelines: Vec<Timeline>,
    /// Where the history begins that standbys can be restored to.
    begin: u64,
    commits: BTreeMap<Tag, Position>,
    lag_us: u64,
    monitors: bool,
    prng: Prng,
}

impl Replication {
    pub(crate) fn new(how: &Hosts, mut prng: Prng) -> Replication {
        let end = PAGE_BYTES * prng.between(3, 300) + 8;
        let primary = prng.index(usize::from(how.count));
        let host = |place| Host {
            is_primary: place == primary,
            timeline: 1,
            replayed: end,
            arriving: VecDeque::new(),
            still_until_us: 0,
            turns_at_us: None,
            restart_point: (1, None),
            frozen_until_us: 0,
            cut_off_until_us: 0,
            outlasts_faults: false,
            silent_since_us: 0,
            down_until_us: 0,
        };
        Replication {
            events: HostEvents::default(),
            hosts: (0..usize::from(how.count)).map(host).collect(),
            timelines: vec![Timeline { from: None, end }],
            begin: end,
            commits: BTreeMap::new(),
            lag_us: how.lag_us,
            monitors: how.monitors,
            prng,
        }
    }

    /// What a host is now.
    pub(crate) fn replica(&mut self, place: usize, now_us: u64) -> Replica {
        self.advance(place, now_us);
        let Host { is_primary, timeline, replayed, restart_point, turns_at_us, .. } = self.hosts[place];
        let at = Position { timeline, lsn: if is_primary { self.timeline(timeline).end } else { replayed } };
        let receives = (self.monitors && turns_at_us.is_none()).then_some(timeline);
        Replica { is_standby: !is_primary, at, receives, restart_point: restart_point.0 }
    }

    /// Something else is written, now and then.
    pub(crate) fn others_write(&mut self, place: usize, now_us: u64) {
        if self.hosts[place].is_primary && self.prng.chance(OTHERS_WRITE) {
            self.write(place, now_us);
        }
    }

    /// A transaction with these rows has been committed there.
    pub(crate) fn commit(&mut self, place: usize, rows: &[Tag], now_us: u64) {
        if rows.is_empty() {
            return;
        }
        self.write(place, now_us);
        let timeline = self.hosts[place].timeline;
        let position = Position { timeline, lsn: self.timeline(timeline).end };
        self.commits.extend(rows.iter().map(|row| (*row, position)));
    }

    /// Where a row was committed.
    pub(crate) fn position(&self, row: Tag) -> Option<Position> {
        self.commits.get(&row).copied()
    }

    /// Whether what was written there is part of the history up to here.
    pub(crate) fn has(&self, mut at: Position, written: Position) -> bool {
        while at.timeline != written.timeline {
            let Some(from) = self.timeline(at.timeline).from else { return false };
            at = Position { timeline: from.timeline, lsn: from.lsn.min(at.lsn) };
        }
        written.lsn <= at.lsn
    }

    /// A promotion has lost what was written there.
    pub(crate) fn is_lost(&self, written: Position) -> bool {
        !self.has(Position { timeline: self.newest(), lsn: u64::MAX }, written)
    }

    /// The timeline that a primary there writes; None of a standby.
    pub(crate) fn writes_timeline(&self, place: usize) -> Option<u32> {
        self.hosts.get(place).filter(|host| host.is_primary).map(|host| host.timeline)
    }

    /// A standby that can be promoted, if there is one.
    pub(crate) fn candidate(&mut self, now_us: u64) -> Option<usize> {
        let newest = self.newest();
        let may = |(place, host): (usize, &Host)| {
            let is_one = !host.is_primary && host.timeline == newest && host.down_until_us <= now_us;
            (is_one && host.silent_until_us() <= now_us).then_some(place)
        };
        let found: Vec<usize> = self.hosts.iter().enumerate().filter_map(may).collect();
        found.get(self.prng.index(found.len())).copied()
    }

    /// A host of either kind, at random.
    pub(crate) fn any(&mut self) -> usize {
        self.prng.index(self.hosts.len())
    }

    /// The primary of the newest timeline.
    pub(crate) fn primary(&self) -> Option<usize> {
        let newest = self.newest();
        self.hosts.iter().position(|host| host.is_primary && host.timeline == newest)
    }

    /// Primaries of older timelines.
    pub(crate) fn old_primaries(&self) -> Vec<usize> {
        let newest = self.newest();
        let is_old =
            |(place, host): (usize, &Host)| (host.is_primary && host.timeline != newest).then_some(place);
        self.hosts.iter().enumerate().filter_map(is_old).collect()
    }

    /// Standbys that cannot follow the newest timeline.
    pub(crate) fn left_behind(&self) -> Vec<usize> {
        let newest = self.newest();
        let is_one =
            |(place, host): (usize, &Host)| (!host.is_primary && host.timeline != newest).then_some(place);
        self.hosts.iter().enumerate().filter_map(is_one).collect()
    }

    /// A standby becomes a primary, on a timeline of its own. The others turn to that sooner or later, if they can.
    pub(crate) fn promote(&mut self, place: usize, now_us: u64) {
        self.advance(place, now_us);
        let from = Position { timeline: self.hosts[place].timeline, lsn: self.hosts[place].replayed };
        self.timelines.push(Timeline { from: Some(from), end: from.lsn });
        let newest = self.newest();
        let host = &mut self.hosts[place];
        (host.is_primary, host.timeline, host.turns_at_us) = (true, newest, None);
        host.arriving.clear();
        self.write(place, now_us);
        for other in self.hosts.iter_mut().filter(|host| !host.is_primary) {
            other.turns_at_us = Some(now_us + self.prng.log_between(1_000, TURNS_US));
        }
    }

    /// A server is made a standby of the newest primary: it has what that began with.
    pub(crate) fn rejoin(&mut self, place: usize, now_us: u64) {
        let newest = self.newest();
        let begin = self.timeline(newest).from.map_or(0, |from| from.lsn);
        let down_until_us = now_us + self.prng.log_between(1_000, REJOINS_US);
        let host = &mut self.hosts[place];
        (host.is_primary, host.timeline, host.replayed, host.turns_at_us) = (false, newest, begin, None);
        (host.down_until_us, host.frozen_until_us, host.restart_point) = (down_until_us, 0, (newest, None));
        (host.cut_off_until_us, host.outlasts_faults) = (0, false);
        host.arriving.clear();
        self.catch_up(place, down_until_us);
    }

    /// A standby replays nothing until then.
    pub(crate) fn stand_still(&mut self, place: usize, until_us: u64) {
        self.events.stalls += u64::from(!self.hosts[place].is_primary);
        self.hosts[place].still_until_us = until_us;
    }

    /// A host says nothing until then.
    pub(crate) fn freeze(&mut self, place: usize, until_us: u64) {
        self.events.partitions += 1;
        let host = &mut self.hosts[place];
        if !host.outlasts_faults {
            host.frozen_until_us = until_us;
        }
    }

    /// A host falls silent until then, also if the faults are over before.
    pub(crate) fn silence(&mut self, place: usize, silence: SilenceKind, now_us: u64, until_us: u64) {
        let host = &mut self.hosts[place];
        (host.outlasts_faults, host.silent_since_us) = (true, now_us);
        match silence {
            SilenceKind::Stopped => host.frozen_until_us = until_us,
            SilenceKind::CutOff => host.cut_off_until_us = until_us,
        }
    }

    /// Since when a host is silent that has fallen so beyond the end of the faults.
    pub(crate) fn silent_since_us(&self, place: usize, now_us: u64) -> Option<u64> {
        let host = self.hosts.get(place)?;
        (host.outlasts_faults && now_us < host.silent_until_us()).then_some(host.silent_since_us)
    }

    /// A standby crashes: it is back then with less than it had replayed, and replays what it lacks later still.
    pub(crate) fn crash(&mut self, place: usize, up_us: u64, replays_us: u64, now_us: u64) {
        self.advance(place, now_us);
        let Host { timeline, replayed, .. } = self.hosts[place];
        let least = self.timeline(timeline).from.map_or(self.begin, |from| from.lsn).min(replayed);
        let kept = self.prng.between(least, replayed);
        let host = &mut self.hosts[place];
        (host.replayed, host.down_until_us) = (kept, up_us);
        host.still_until_us = host.still_until_us.max(replays_us);
        host.arriving.clear();
        self.catch_up(place, up_us);
    }

    /// A standby that is up, at random.
    pub(crate) fn standby(&mut self, now_us: u64) -> Option<usize> {
        let may = |(place, host): (usize, &Host)| {
            let is_up = host.down_until_us <= now_us && host.silent_until_us() <= now_us;
            (!host.is_primary && is_up).then_some(place)
        };
        let found: Vec<usize> = self.hosts.iter().enumerate().filter_map(may).collect();
        found.get(self.prng.index(found.len())).copied()
    }

    /// Nobody listens there until then.
    pub(crate) fn go_down(&mut self, place: usize, until_us: u64) {
        self.hosts[place].down_until_us = until_us;
    }

    pub(crate) fn frozen_until_us(&self, place: usize) -> u64 {
        self.hosts[place].frozen_until_us
    }

    pub(crate) fn cut_off_until_us(&self, place: usize) -> u64 {
        self.hosts[place].cut_off_until_us
    }

    /// Until then it takes no connection, and answers on none.
    pub(crate) fn silent_until_us(&self, place: usize) -> u64 {
        self.hosts[place].silent_until_us()
    }

    pub(crate) fn is_down(&self, place: usize, now_us: u64) -> bool {
        now_us < self.hosts[place].down_until_us
    }

    /// The faults are over; what is silent beyond that goes on `if_silent`.
    pub(crate) fn heal(&mut self, if_silent: bool) {
        for host in &mut self.hosts {
            (host.still_until_us, host.down_until_us) = (0, 0);
            if if_silent || !host.outlasts_faults {
                (host.frozen_until_us, host.cut_off_until_us, host.outlasts_faults) = (0, 0, false);
            }
        }
        self.lag_us = self.lag_us.min(1_000);
    }

    fn newest(&self) -> u32 {
        u32::try_from(self.timelines.len()).unwrap_or(u32::MAX)
    }

    fn timeline(&self, number: u32) -> &Timeline {
        &self.timelines[number as usize - 1]
    }

    /// A primary writes a record, which goes to those that follow it.
    fn write(&mut self, place: usize, now_us: u64) {
        let number = self.hosts[place].timeline;
        let timeline = &mut self.timelines[number as usize - 1];
        let begin = Replica {
            is_standby: false,
            at: Position { timeline: number, lsn: timeline.end },
            receives: None,
            restart_point: 0,
        };
        let end = begin.insert_lsn() + 8 * self.prng.between(3, RECORD_BYTES / 8);
        let ends_page = self.prng.chance(ENDS_PAGE);
        timeline.end = if ends_page { end.next_multiple_of(PAGE_BYTES) } else { end };
        let is_cut_off = now_us < self.hosts[place].cut_off_until_us;
        let followers = |(other, host): (usize, &Host)| {
            let follows = !host.is_primary && host.timeline == number && other != place;
            (follows && !is_cut_off).then_some(other)
        };
        let followers: Vec<usize> = self.hosts.iter().enumerate().filter_map(followers).collect();
        for other in followers {
            self.catch_up(other, now_us);
        }
    }

    /// What its timeline has by now comes to a standby.
    fn catch_up(&mut self, place: usize, now_us: u64) {
        let lsn = self.timeline(self.hosts[place].timeline).end;
        let host = &mut self.hosts[place];
        let before_us = host.arriving.back().map_or(0, |(at_us, _)| *at_us);
        let at_us = (now_us + self.prng.log_between(1, self.lag_us)).max(before_us);
        host.arriving.push_back((at_us, lsn));
    }

    /// What has arrived at a standby by now is replayed.
    fn advance(&mut self, place: usize, now_us: u64) {
        if let Some(at_us) = self.hosts[place].turns_at_us.filter(|at_us| *at_us <= now_us) {
            self.replay(place, at_us);
            self.turn(place, at_us);
        }
        self.replay(place, now_us);
    }

    fn replay(&mut self, place: usize, now_us: u64) {
        let host = &mut self.hosts[place];
        if host.is_primary || now_us < host.still_until_us {
            return;
        }
        while let Some((_, lsn)) = host.arriving.pop_front_if(|(at_us, _)| *at_us <= now_us) {
            host.replayed = host.replayed.max(lsn);
        }
        if let (_, Some(due_us)) = host.restart_point
            && due_us <= now_us
        {
            host.restart_point = (host.timeline, None);
        }
    }

    /// A standby looks for a newer timeline, and follows it if it has replayed nothing that this lacks.
    fn turn(&mut self, place: usize, now_us: u64) {
        self.hosts[place].turns_at_us = None;
        let newest = self.newest();
        let Host { timeline, replayed, is_primary, .. } = self.hosts[place];
        let goal = Position { timeline: newest, lsn: u64::MAX };
        if is_primary || timeline == newest || !self.has(goal, Position { timeline, lsn: replayed }) {
            return;
        }
        let due_us = now_us + self.prng.log_between(1_000, RESTART_POINT_US);
        let host = &mut self.hosts[place];
        host.timeline = newest;
        host.restart_point.1 = Some(due_us);
        host.arriving.clear();
        self.catch_up(place, now_us);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tag(request: u32) -> Tag {
        Tag { client: 1, request }
    }

    fn cluster() -> (Replication, usize, Vec<usize>) {
        let how = Hosts { count: 3, lag_us: 1_000, monitors: true, ..Hosts::default() };
        let replication = Replication::new(&how, Prng::new(7));
        let primary = replication.primary().unwrap();
        let standbys = (0..3).filter(|place| *place != primary).collect();
        (replication, primary, standbys)
    }

    #[test]
    fn a_standby_has_what_it_has_replayed() {
        let (mut hosts, primary, standbys) = cluster();
        hosts.stand_still(standbys[0], 5_000_000);
        hosts.commit(primary, &[tag(1)], 10);
        let written = hosts.position(tag(1)).unwrap();
        let mut has = |place, now_us| {
            let at = hosts.replica(place, now_us).at;
            hosts.has(at, written)
        };
        assert!(has(primary, 10) && !has(standbys[1], 10) && has(standbys[1], 10_000));
        assert!(!has(standbys[0], 4_000_000) && has(standbys[0], 5_000_000));
    }

    #[test]
    fn a_promotion_loses_what_the_standby_has_not_replayed() {
        let (mut hosts, primary, standbys) = cluster();
        hosts.commit(primary, &[tag(1)], 10);
        hosts.replica(standbys[0], 10_000);
        hosts.stand_still(standbys[0], u64::MAX);
        hosts.commit(primary, &[tag(2)], 20_000);
        hosts.promote(standbys[0], 30_000);
        let [kept, lost] = [1, 2].map(|request| hosts.position(tag(request)).unwrap());
        assert!(!hosts.is_lost(kept) && hosts.is_lost(lost));
        assert_eq!((hosts.primary(), hosts.old_primaries()), (Some(standbys[0]), vec![primary]));
        // The other one has replayed it, and cannot follow.
        hosts.replica(standbys[1], 10_000_000);
        assert_eq!(hosts.left_behind(), [standbys[1]]);
        hosts.rejoin(standbys[1], 10_000_000);
        hosts.rejoin(primary, 10_000_000);
        assert!(hosts.left_behind().is_empty() && hosts.old_primaries().is_empty());
        let at = hosts.replica(primary, 20_000_000).at;
        assert!(hosts.has(at, kept) && !hosts.has(at, lost));
    }
}
