//! What a shard knows of the servers of an entry that sends reads to standbys: the role of each, and how far it is.
//!
//! Owns the answer to two questions: whether a standby may serve reads, and whether it has replayed what a client has written. For the second, positions
//! of the primary are sampled and numbered. A client that has written notes how many samples have begun; each later one is at or behind
//! its commit record, so that a standby that has replayed a later one has the write. Asks no server itself.

mod choice;

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;

use settings::{Database, ReplicaLag};

use crate::time::micros;

/// Samples that are kept; of more, every second one of the older half is dropped.
const MAX_SAMPLES: usize = 64;

/// While a client waits for a newer sample, one begins this long after the last.
const SAMPLE_AGAIN_US: u64 = 1_000;

/// A question that is not answered for so long is not waited for.
const PATIENCE_US: u64 = 3_000_000;

/// Without a client that waits for one, a sample begins this long after the last.
const SAMPLE_IDLE_US: u64 = 1_000_000;

/// So long after a read had to go to the primary, because no standby was known to have its client's writes, each write is followed by a sample.
const READS_FOLLOW_US: u64 = 1_000_000;

/// A server that refuses to say how far it is is asked again after this time.
const REFUSED_US: u64 = 5_000_000;

/// A standby that has not answered for so long serves no reads: its host may have gone without a word.
const SILENT_US: u64 = 1_000_000;

/// A host that was found to be another primary is connected to again after this time.
const PRIMARY_AGAIN_US: u64 = 15_000_000;

/// What a server is, as far as this shard has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostState {
    /// It has not been connected to.
    #[default]
    Unknown,
    Primary,
    Standby,
    /// No connection to it, or no login, and why.
    Down(String),
}

/// A position of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    number: u64,
    lsn: u64,
    begun_us: u64,
    /// How often clients of the entry had written when it began, over all shards.
    writes: u64,
}

/// A question for a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Question {
    #[default]
    None,
    /// Asked then.
    Asked(u64),
}

impl Question {
    fn is_open(self, now_us: u64) -> bool {
        matches!(self, Question::Asked(at_us) if now_us.saturating_sub(at_us) < PATIENCE_US)
    }
}

/// One server of the entry.
#[derive(Debug)]
pub(crate) struct Host {
    /// Host and port.
    pub(crate) label: Arc<str>,
    state: HostState,
    since_us: u64,
    /// DETACH, and since when.
    detached_us: Option<u64>,
    /// What it has replayed, and when it said so.
    replayed: Option<(u64, u64)>,
    /// The timeline that it is known to follow; 0 is none.
    follows: u32,
    /// The newest sample that it has replayed; 0 is none.
    fresh: u64,
    /// How often clients had written when that began.
    fresh_writes: u64,
    question: Question,
    asked_us: u64,
    /// The number of the last question, and of the last one whose answer counts: those that were asked before say nothing any more.
    asked: u64,
    answered: u64,
    /// It has not said that it is a standby since a primary on a newer timeline was seen: it may have been promoted before that one.
    is_unconfirmed: bool,
    /// It has refused to say how far it is.
    is_refused: bool,
    /// Since when it owes an answer.
    silent_since_us: Option<u64>,
    /// When it has last said what it is, or could not be asked; 0 is never.
    seen_us: u64,
    /// Requests that were sent there because they read.
    pub(crate) reads: u64,
    /// How far it is behind its share of them, in weights.
    owed: i64,
}

impl Host {
    fn new(label: Arc<str>) -> Host {
        Host {
            label,
            state: HostState::Unknown,
            since_us: 0,
            detached_us: None,
            replayed: None,
            follows: 0,
            fresh: 0,
            fresh_writes: 0,
            question: Question::None,
            asked_us: 0,
            asked: 0,
            answered: 0,
            is_unconfirmed: false,
            is_refused: false,
            silent_since_us: None,
            seen_us: 0,
            reads: 0,
            owed: 0,
        }
    }

    pub(crate) fn state(&self) -> &HostState {
        &self.state
    }

    pub(crate) fn since_us(&self) -> u64 {
        self.since_us
    }

    /// When its state was last seen; 0 is never.
    pub(crate) fn seen_us(&self) -> u64 {
        self.seen_us
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detached_us.is_some()
    }

    /// DETACH is in force since then.
    pub(crate) fn detached_us(&self) -> Option<u64> {
        self.detached_us
    }

    /// The timeline that it is known to follow as a standby; 0 is none.
    pub(crate) fn follows(&self) -> u32 {
        self.follows
    }

    /// It owes an answer for long.
    fn is_silent(&self, now_us: u64) -> bool {
        self.silent_since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) >= SILENT_US)
    }

    /// The position that it has replayed.
    pub(crate) fn replayed_lsn(&self) -> Option<u64> {
        self.replayed.map(|(lsn, _)| lsn)
    }
}

/// What has to be replayed before a standby may serve a client's read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing.
    Nothing,
    /// This sample.
    Sample(u64),
    /// This sample, and one that began when clients had written so often.
    Writes { sample: u64, writes: u64 },
}

/// How far a standby is behind the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) bytes: u64,
    pub(crate) time_us: u64,
}

/// The servers of an entry.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) database: Arc<str>,
    hosts: Vec<Host>,
    samples: VecDeque<Sample>,
    /// How many samples have begun.
    begun: u64,
    begun_us: u64,
    /// The sample that the primary was asked for, its timeline, and how often clients had written.
    sampling: Question,
    sampling_writes: u64,
    /// The newest timeline of a primary.
    timeline: u32,
    /// Where writes go.
    primary: Option<usize>,
    /// The newest sample that a client needs for its next read.
    awaited: u64,
    /// Until then reads are expected behind writes.
    reads_follow_until_us: u64,
    /// The primary has refused to say how far it is.
    is_refused: bool,
}

impl Cluster {
    pub(crate) fn new(database: Arc<str>, entry: &Database) -> Cluster {
        let label = |(place, host): (usize, &String)| label(host, entry, place);
        Cluster {
            database,
            hosts: entry.host.iter().enumerate().map(label).map(Host::new).collect(),
            samples: VecDeque::new(),
            begun: 0,
            begun_us: 0,
            sampling: Question::None,
            sampling_writes: 0,
            timeline: 0,
            primary: None,
            awaited: 0,
            reads_follow_until_us: 0,
            is_refused: false,
        }
    }

    /// It has these hosts.
    pub(crate) fn is_of(&self, entry: &Database) -> bool {
        let is_same = |(place, host): (usize, &Host)| {
            entry.host.get(place).is_some_and(|name| *host.label == *label(name, entry, place))
        };
        self.hosts.len() == entry.host.len() && self.hosts.iter().enumerate().all(is_same)
    }

    pub(crate) fn is_primary(&self, place: usize) -> bool {
        self.primary == Some(place)
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(crate) fn host(&self, place: usize) -> Option<&Host> {
        self.hosts.get(place)
    }

    pub(crate) fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Connections to this host are worth having: it is not known to be a primary, and not detached.
    pub(crate) fn may_be_standby(&self, place: usize, now_us: u64) -> bool {
        let is_primary = |host: &Host| {
            host.state == HostState::Primary && now_us.saturating_sub(host.seen_us) < PRIMARY_AGAIN_US
        };
        self.primary != Some(place)
            && self.hosts.get(place).is_some_and(|host| !host.is_detached() && !is_primary(host))
    }

    /// No reads go there, or they may again.
    pub(crate) fn set_detached(&mut self, place: usize, is_detached: bool, now_us: u64) {
        let Some(host) = self.hosts.get_mut(place) else { return };
        let was_detached = host.is_detached();
        host.detached_us = is_detached.then(|| host.detached_us.unwrap_or(now_us));
        // What it is now, after its time away, is to be seen.
        if was_detached && !is_detached && host.state != HostState::Primary {
            self.note_state(place, HostState::Unknown, now_us);
        }
    }

    /// The places of the hosts that are called so.
    pub(crate) fn places_of(&self, label: &str) -> Vec<usize> {
        let is_it = |(place, host): (usize, &Host)| (*host.label == *label).then_some(place);
        self.hosts.iter().enumerate().filter_map(is_it).collect()
    }

    /// The newest position of the primary that is known.
    pub(crate) fn sampled_lsn(&self) -> Option<u64> {
        self.samples.back().map(|sample| sample.lsn)
    }

    /// Writes go to this host.
    pub(crate) fn note_primary(&mut self, place: usize, now_us: u64) {
        let before = self.primary.replace(place);
        if let Some(before) = before.filter(|before| *before != place) {
            self.note_state(before, HostState::Unknown, now_us); // What it is now is to be seen.
        }
        self.note_state(place, HostState::Primary, now_us);
    }

    /// A server has said what it is, or a connection to it has failed.
    pub(crate) fn note_state(&mut self, place: usize, state: HostState, now_us: u64) {
        if self.primary == Some(place) && state != HostState::Primary {
            self.primary = None;
        }
        let Some(host) = self.hosts.get_mut(place) else { return };
        if discriminant(&host.state) != discriminant(&state) {
            host.since_us = now_us;
        }
        host.state = state;
        host.seen_us = now_us;
        if host.state != HostState::Standby {
            self.forget_position(place);
        }
    }

    /// A server may be another one than before, or have been started again: what it has replayed is not known any more.
    pub(crate) fn forget_position(&mut self, place: usize) {
        let Some(host) = self.hosts.get_mut(place) else { return };
        (host.replayed, host.fresh, host.fresh_writes, host.follows) = (None, 0, 0, 0);
        (host.question, host.asked_us, host.silent_since_us) = (Question::None, 0, None);
        host.answered = host.asked;
    }

    /// A standby may have crashed, and have less than it had. Whether it is silent, or follows an older timeline, is as it was.
    pub(crate) fn note_crash(&mut self, place: usize) {
        let Some(host) = self.hosts.get_mut(place) else { return };
        (host.replayed, host.fresh, host.fresh_writes) = (None, 0, 0);
        (host.question, host.asked_us) = (Question::None, 0);
        host.answered = host.asked;
        if host.follows == self.timeline {
            host.follows = 0;
        }
    }

    /// The servers may be those of another cluster from here on.
    pub(crate) fn forget(&mut self) {
        (self.timeline, self.sampling) = (0, Question::None);
        self.samples.clear();
        (0..self.hosts.len()).for_each(|place| self.forget_position(place));
    }

    /// There is a primary on this timeline. Positions of an older one say nothing about it.
    pub(crate) fn note_timeline(&mut self, timeline: u32) {
        if timeline <= self.timeline {
            return;
        }
        self.timeline = timeline;
        self.samples.clear();
        self.sampling = Question::None;
        for host in &mut self.hosts {
            (host.fresh, host.fresh_writes) = (0, 0);
            if host.state == HostState::Standby {
                // An answer to a question from before does not confirm it.
                (host.is_unconfirmed, host.question) = (true, Question::None);
            }
        }
    }

    /// A client has written: the sample that a standby has to have replayed for its reads.
    pub(crate) fn note_write(&mut self, now_us: u64) -> u64 {
        let needed = self.begun + 1;
        if now_us < self.reads_follow_until_us {
            self.awaited = needed;
        }
        needed
    }

    /// A read had to go to the primary, because no standby was known to have replayed this.
    pub(crate) fn await_sample(&mut self, needs: Needs, now_us: u64) {
        self.reads_follow_until_us = now_us + READS_FOLLOW_US;
        self.awaited = match needs {
            Needs::Nothing => self.awaited,
            Needs::Sample(number) => self.awaited.max(number),
            Needs::Writes { writes, .. } if self.sampling_writes < writes => self.begun + 1,
            Needs::Writes { sample, .. } => self.awaited.max(sample).max(self.begun),
        };
    }

    /// The primary is to be asked for its position.
    pub(crate) fn is_sample_due(&self, now_us: u64) -> bool {
        let pause_us = if self.awaited > self.begun { SAMPLE_AGAIN_US } else { SAMPLE_IDLE_US };
        !self.sampling.is_open(now_us) && now_us.saturating_sub(self.begun_us) >= pause_us
    }

    /// The primary is asked now, when clients have written so often: the number of the sample.
    pub(crate) fn sample_begins(&mut self, writes: u64, now_us: u64) -> u64 {
        self.begun += 1;
        (self.begun_us, self.sampling, self.sampling_writes) = (now_us, Question::Asked(now_us), writes);
        self.begun
    }

    /// The primary has answered the question for this sample; None if it has refused to. An answer that comes when a later one has begun is dropped: what it says
    /// may be older than that.
    pub(crate) fn sampled(&mut self, number: u64, lsn: Option<u64>, timeline: u32, now_us: u64) {
        if number != self.begun || std::mem::take(&mut self.sampling) == Question::None {
            return;
        }
        if lsn.is_none() {
            self.begun_us = now_us + REFUSED_US;
        }
        let Some(lsn) = lsn.filter(|_| timeline == self.timeline) else { return };
        if self.samples.len() >= MAX_SAMPLES {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place > MAX_SAMPLES / 2 || place % 2 == 0
            });
        }
        let (begun_us, writes) = (self.begun_us, self.sampling_writes);
        self.samples.push_back(Sample { number, lsn, begun_us, writes });
        if let Some(host) = self.primary.and_then(|place| self.hosts.get_mut(place)) {
            host.seen_us = begun_us;
        }
    }

    /// A standby is to be asked how far it is: it has not replayed the newest sample, or has not been asked for long.
    pub(crate) fn is_position_due(&self, place: usize, now_us: u64) -> bool {
        let Some(host) = self.hosts.get(place) else { return false };
        let newest = self.samples.back();
        let is_awaited = host.fresh < self.awaited && newest.is_some_and(|newest| newest.number > host.fresh);
        let pause_us = match is_awaited {
            _ if host.is_unconfirmed => 0,
            true if newest.is_some_and(|newest| newest.begun_us >= host.asked_us) => 0,
            true => SAMPLE_AGAIN_US,
            false => SAMPLE_IDLE_US,
        };
        matches!(host.state, HostState::Standby)
            && !host.question.is_open(now_us)
            && now_us.saturating_sub(host.asked_us) >= pause_us
    }

    /// The standby at this place, or the primary, has refused to say how far it is, or not; true if it has and had not before.
    pub(crate) fn note_refusal(&mut self, place: Option<usize>, is_refused: bool) -> bool {
        let of_host = place.and_then(|place| self.hosts.get_mut(place)).map(|host| &mut host.is_refused);
        let before = std::mem::replace(of_host.unwrap_or(&mut self.is_refused), is_refused);
        is_refused && !before
    }

    /// It is not known that a standby follows the primary's timeline.
    pub(crate) fn is_to_name_timeline(&self, place: usize) -> bool {
        self.hosts.get(place).is_some_and(|host| host.follows != self.timeline)
    }

    /// A standby is asked now: the number of the question.
    pub(crate) fn position_asked(&mut self, place: usize, now_us: u64) -> u64 {
        let Some(host) = self.hosts.get_mut(place) else { return 0 };
        (host.question, host.asked_us) = (Question::Asked(now_us), now_us);
        host.silent_since_us.get_or_insert(now_us);
        host.asked += 1;
        host.asked
    }

    /// A standby has answered the question of this number: it has replayed up to there and follows this timeline, if that could be told; None if it has refused to
    /// answer. True if it may have less than was known of it.
    pub(crate) fn replayed(
        &mut self,
        place: usize,
        number: u64,
        position: Option<(u64, Option<u32>)>,
        now_us: u64,
    ) -> bool {
        // What was asked before may have been answered before a crash.
        let Some(host) = self.hosts.get_mut(place).filter(|host| number > host.answered) else {
            return false;
        };
        host.answered = number;
        if number == host.asked {
            host.is_unconfirmed &= host.question == Question::None;
            host.question = Question::None;
        }
        host.silent_since_us = None;
        let Some((lsn, timeline)) = position else {
            host.asked_us = now_us + REFUSED_US;
            (host.replayed, host.fresh, host.fresh_writes) = (None, 0, 0);
            return true;
        };
        let has_less = host.replayed.is_none_or(|(before, _)| lsn < before);
        if has_less {
            (host.fresh, host.fresh_writes) = (0, 0); // It may have crashed since.
        }
        (host.replayed, host.seen_us) = (Some((lsn, now_us)), now_us);
        host.follows = timeline.unwrap_or(host.follows);
        // What another timeline has at these positions is something else.
        if host.follows != self.timeline {
            return has_less;
        }
        if let Some(sample) = self.samples.iter().rev().find(|sample| sample.lsn <= lsn) {
            host.fresh = host.fresh.max(sample.number);
            host.fresh_writes = host.fresh_writes.max(sample.writes);
        }
        has_less
    }

    /// Who has all of the primary's changes up to this position has what a read needs.
    pub(crate) fn has_at(&self, lsn: u64, needs: Needs) -> bool {
        let newest = || self.samples.iter().rev().find(|sample| sample.lsn <= lsn);
        match needs {
            Needs::Nothing => true,
            Needs::Sample(number) => newest().is_some_and(|sample| sample.number >= number),
            Needs::Writes { sample, writes } => {
                newest().is_some_and(|newest| newest.number >= sample.max(1) && newest.writes >= writes)
            }
        }
    }

    /// The reads that wait for this standby are better served elsewhere.
    pub(crate) fn is_silent(&self, place: usize, now_us: u64) -> bool {
        self.hosts.get(place).is_some_and(|host| host.is_silent(now_us))
    }

    /// This standby may serve a read that needs this.
    #[inline]
    fn is_of_use(&self, host: &Host, needs: Needs, most: ReplicaLag, now_us: u64) -> bool {
        let has_it = match needs {
            Needs::Nothing => true,
            Needs::Sample(number) => host.fresh >= number,
            Needs::Writes { sample, writes } => host.fresh >= sample.max(1) && host.fresh_writes >= writes,
        };
        let is_left_behind = host.follows != 0 && host.follows != self.timeline;
        matches!(host.state, HostState::Standby)
            && has_it
            && !host.is_detached()
            && !is_left_behind
            && !host.is_unconfirmed
            && !host.is_silent(now_us)
            && self.is_near_enough(host, most, now_us)
    }

    fn is_near_enough(&self, host: &Host, most: ReplicaLag, now_us: u64) -> bool {
        let lag = || self.lag_of(host, now_us);
        match most {
            ReplicaLag::Unlimited => true,
            ReplicaLag::Time(most) => lag().is_some_and(|lag| lag.time_us <= micros(most)),
            ReplicaLag::Bytes(most) => lag().is_some_and(|lag| lag.bytes <= most),
        }
    }

    /// How far a standby is behind: None if that is not known.
    pub(crate) fn lag(&self, place: usize, now_us: u64) -> Option<Lag> {
        self.lag_of(self.hosts.get(place)?, now_us)
    }

    fn lag_of(&self, host: &Host, now_us: u64) -> Option<Lag> {
        let (lsn, _) = host.replayed?;
        let newest = self.samples.back()?;
        if host.fresh == 0 {
            return None;
        }
        let replayed = self.samples.partition_point(|sample| sample.number <= host.fresh);
        let missing = self.samples.get(replayed);
        let time_us = missing.map_or(0, |sample| now_us.saturating_sub(sample.begun_us));
        Some(Lag { bytes: newest.lsn.saturating_sub(lsn), time_us })
    }
}

/// How a host of an entry is called: by its name and port.
pub(crate) fn label(host: &str, entry: &Database, place: usize) -> Arc<str> {
    format!("{host}:{}", entry.port.of(place)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Origin, Weights};
    use std::time::Duration;

    const MS: u64 = 1_000;

    fn cluster() -> Cluster {
        let mut entry = Database::new("app", Origin { file: "w.ini".into(), line: 1 });
        entry.host = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut cluster = Cluster::new("app".into(), &entry);
        cluster.note_timeline(1);
        cluster.note_primary(0, 0);
        cluster.note_state(1, HostState::Standby, 0);
        cluster
    }

    fn sample(cluster: &mut Cluster, lsn: u64, now_us: u64) {
        let number = cluster.sample_begins(0, now_us);
        cluster.sampled(number, Some(lsn), 1, now_us);
    }

    /// The first standby answers the last question.
    fn replayed(cluster: &mut Cluster, position: Option<(u64, Option<u32>)>, now_us: u64) {
        let host = &mut cluster.hosts[1];
        host.asked += 1;
        let number = host.asked;
        cluster.replayed(1, number, position, now_us);
    }

    fn serves(cluster: &Cluster, place: usize, needs: Needs) -> bool {
        serves_within(cluster, place, needs, ReplicaLag::Unlimited, 0)
    }

    fn serves_within(cluster: &Cluster, place: usize, needs: Needs, most: ReplicaLag, now_us: u64) -> bool {
        cluster.hosts.get(place).is_some_and(|host| cluster.is_of_use(host, needs, most, now_us))
    }

    #[test]
    fn a_write_is_there_once_a_later_sample_is_replayed() {
        let mut cluster = cluster();
        sample(&mut cluster, 100, 0);
        let needed = Needs::Sample(cluster.note_write(0));
        replayed(&mut cluster, Some((1000, Some(1))), 0);
        assert!(!serves(&cluster, 1, needed), "no sample was taken since");
        sample(&mut cluster, 1100, 5 * MS);
        replayed(&mut cluster, Some((1099, Some(1))), 0);
        assert!(!serves(&cluster, 1, needed) && serves(&cluster, 1, Needs::Nothing));
        replayed(&mut cluster, Some((1100, Some(1))), 0);
        assert!(serves(&cluster, 1, needed));
        let needed = Needs::Sample(cluster.note_write(0));
        assert!(!serves(&cluster, 1, needed), "another write");
    }

    #[test]
    fn a_sample_that_had_begun_before_the_write_says_nothing() {
        let mut cluster = cluster();
        let number = cluster.sample_begins(0, 0);
        let needed = Needs::Sample(cluster.note_write(0));
        cluster.sampled(number, Some(100), 1, 0);
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert!(!serves(&cluster, 1, needed));
    }

    #[test]
    fn an_answer_that_comes_late_is_not_that_of_a_later_sample() {
        let mut cluster = cluster();
        let first = cluster.sample_begins(0, 0);
        let needed = Needs::Sample(cluster.note_write(0));
        let second = cluster.sample_begins(0, PATIENCE_US);
        cluster.sampled(first, Some(100), 1, 0);
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert!(!serves(&cluster, 1, needed));
        cluster.sampled(second, Some(200), 1, 0);
        replayed(&mut cluster, Some((200, Some(1))), 0);
        assert!(serves(&cluster, 1, needed));
    }

    #[test]
    fn a_refusal_is_reported_once_for_each_server() {
        let mut cluster = cluster();
        assert!(cluster.note_refusal(Some(1), true) && !cluster.note_refusal(Some(1), true));
        assert!(cluster.note_refusal(None, true) && !cluster.note_refusal(None, true));
        assert!(!cluster.note_refusal(Some(1), false) && cluster.note_refusal(Some(1), true));
    }

    #[test]
    fn a_standby_that_was_started_again_is_asked_again() {
        let mut cluster = cluster();
        sample(&mut cluster, 100, 0);
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert!(serves(&cluster, 1, Needs::Sample(1)));
        cluster.forget_position(1);
        assert!(!serves(&cluster, 1, Needs::Sample(1)) && serves(&cluster, 1, Needs::Nothing));
    }

    #[test]
    fn an_answer_that_a_later_one_has_overtaken_says_nothing() {
        let mut cluster = cluster();
        sample(&mut cluster, 100, 0);
        let (first, second) = (cluster.position_asked(1, 0), cluster.position_asked(1, 0));
        assert!(cluster.replayed(1, second, Some((50, Some(1))), 0), "nothing was known of it");
        assert!(!cluster.replayed(1, first, Some((100, Some(1))), 0));
        assert!(!serves(&cluster, 1, Needs::Sample(1)), "it has crashed in between");
        let third = cluster.position_asked(1, 0);
        cluster.note_crash(1);
        assert!(!cluster.replayed(1, third, Some((100, Some(1))), 0));
        assert!(!serves(&cluster, 1, Needs::Sample(1)), "it has crashed again");
    }

    #[test]
    fn a_standby_that_does_not_answer_serves_nothing() {
        let mut cluster = cluster();
        cluster.position_asked(1, 0);
        let serves = |cluster: &Cluster, now_us| {
            serves_within(cluster, 1, Needs::Nothing, ReplicaLag::Unlimited, now_us)
        };
        assert!(serves(&cluster, SILENT_US - 1) && !serves(&cluster, SILENT_US));
        cluster.position_asked(1, PATIENCE_US);
        assert!(!serves(&cluster, PATIENCE_US), "a further question does not help");
        replayed(&mut cluster, Some((100, Some(1))), PATIENCE_US);
        assert!(serves(&cluster, PATIENCE_US));
    }

    #[test]
    fn positions_of_another_timeline_say_nothing() {
        let mut cluster = cluster();
        sample(&mut cluster, 100, 0);
        let needed = Needs::Sample(1);
        replayed(&mut cluster, Some((100, None)), 0);
        replayed(&mut cluster, Some((100, Some(2))), 0);
        assert!(!serves(&cluster, 1, needed) && !serves(&cluster, 1, Needs::Nothing));
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert!(serves(&cluster, 1, needed) && !cluster.is_to_name_timeline(1));
        let number = cluster.sample_begins(0, 0);
        cluster.note_timeline(2);
        cluster.sampled(number, Some(50), 1, 0);
        replayed(&mut cluster, Some((100, Some(2))), 0);
        assert!(!serves(&cluster, 1, needed), "the old primary's answer came late");
    }

    #[test]
    fn a_standby_says_that_it_is_one_again_when_there_is_a_newer_primary() {
        let mut cluster = cluster();
        cluster.position_asked(1, 0);
        cluster.note_timeline(2);
        assert!(!serves(&cluster, 1, Needs::Nothing) && cluster.is_position_due(1, 0));
        replayed(&mut cluster, Some((100, None)), 0);
        assert!(!serves(&cluster, 1, Needs::Nothing), "it was asked before");
        cluster.position_asked(1, 0);
        replayed(&mut cluster, Some((100, None)), 0);
        assert!(serves(&cluster, 1, Needs::Nothing) && !cluster.is_position_due(1, 0));
    }

    #[test]
    fn only_standbys_serve() {
        let mut cluster = cluster();
        assert!(serves(&cluster, 1, Needs::Nothing));
        assert!(!serves(&cluster, 0, Needs::Nothing) && !serves(&cluster, 2, Needs::Nothing));
        assert!(!serves(&cluster, 9, Needs::Nothing));
        cluster.set_detached(1, true, 0);
        assert!(!serves(&cluster, 1, Needs::Nothing) && !cluster.may_be_standby(1, 0));
        cluster.set_detached(1, false, 0);
        cluster.note_state(1, HostState::Down("gone".to_owned()), 9);
        assert!(!serves(&cluster, 1, Needs::Nothing) && cluster.may_be_standby(1, 0));
        cluster.note_state(1, HostState::Primary, 9);
        assert!(!cluster.may_be_standby(1, 9) && !cluster.may_be_standby(0, 9));
        assert!(cluster.may_be_standby(1, 9 + PRIMARY_AGAIN_US), "it is looked at again");
        cluster.note_primary(1, 9);
        assert!(!cluster.may_be_standby(1, 9 + PRIMARY_AGAIN_US) && cluster.may_be_standby(0, 9));
    }

    #[test]
    fn writes_of_all_clients_count_where_that_is_asked_for() {
        let mut cluster = cluster();
        let number = cluster.sample_begins(7, 0);
        cluster.sampled(number, Some(100), 1, 0);
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert!(serves(&cluster, 1, Needs::Writes { sample: 0, writes: 7 }));
        assert!(!serves(&cluster, 1, Needs::Writes { sample: 0, writes: 8 }));
        assert!(!serves(&cluster, 1, Needs::Writes { sample: 2, writes: 7 }), "its own");
    }

    #[test]
    fn lag_is_measured_from_the_first_sample_that_is_missing() {
        let mut cluster = cluster();
        assert_eq!(cluster.lag(1, 0), None);
        sample(&mut cluster, 100, 0);
        replayed(&mut cluster, Some((100, Some(1))), 0);
        assert_eq!(cluster.lag(1, 50 * MS), Some(Lag { bytes: 0, time_us: 0 }));
        sample(&mut cluster, 300, 100 * MS);
        sample(&mut cluster, 500, 200 * MS);
        replayed(&mut cluster, Some((300, Some(1))), 0);
        assert_eq!(cluster.lag(1, 250 * MS), Some(Lag { bytes: 200, time_us: 50 * MS }));
        let near = |most| serves_within(&cluster, 1, Needs::Nothing, most, 250 * MS);
        assert!(near(ReplicaLag::Bytes(200)) && !near(ReplicaLag::Bytes(199)));
        assert!(near(ReplicaLag::Time(Duration::from_millis(50))));
        assert!(!near(ReplicaLag::Time(Duration::from_millis(49))));
    }

    #[test]
    fn questions_are_not_repeated_before_their_time() {
        let mut cluster = cluster();
        const T: u64 = SAMPLE_IDLE_US;
        assert!(cluster.is_sample_due(T));
        let number = cluster.sample_begins(0, T);
        assert!(!cluster.is_sample_due(2 * T), "one is under way");
        assert!(cluster.is_sample_due(T + PATIENCE_US), "its answer is lost");
        cluster.sampled(number, Some(5), 1, T);
        assert!(!cluster.is_sample_due(T + SAMPLE_AGAIN_US));
        cluster.await_sample(Needs::Sample(2), T);
        assert!(cluster.is_sample_due(T + SAMPLE_AGAIN_US) && cluster.is_position_due(1, T));
        assert_eq!(cluster.note_write(T), 2, "the next one will do for this write, too");
        cluster.position_asked(1, T);
        assert!(!cluster.is_position_due(1, T));
        replayed(&mut cluster, Some((4, Some(1))), T);
        assert!(cluster.is_position_due(1, T + SAMPLE_AGAIN_US), "it is behind");
        replayed(&mut cluster, Some((5, Some(1))), T);
        assert!(!cluster.is_position_due(1, T + SAMPLE_AGAIN_US), "nothing newer is known");
    }

    #[test]
    fn reads_go_to_the_least_loaded_host_and_to_equals_in_turn() {
        let mut cluster = cluster();
        cluster.note_state(2, HostState::Standby, 0);
        let mut read = |loads: [u32; 3]| goes(&mut cluster, loads, &Weights::one(1)).expect("two");
        assert_eq!([read([0; 3]), read([0; 3]), read([0; 3])], [1, 2, 1]);
        assert_eq!([read([0, 0, 1]), read([0, 3, 1])], [1, 2]);
    }

    fn goes(cluster: &mut Cluster, loads: [u32; 3], weights: &Weights) -> Option<usize> {
        let load = |place: usize| Some(loads[place]);
        let place = cluster.least_loaded(Needs::Nothing, ReplicaLag::Unlimited, load, weights, 0);
        place.inspect(|place| cluster.read_goes_to(*place, weights))
    }

    #[test]
    fn hosts_get_reads_by_their_weights() {
        let mut entry = Database::new("app", Origin { file: "w.ini".into(), line: 1 });
        let mut weights = |text: &str| {
            let row = settings::DATABASE.iter().find(|row| row.info.name == "weight").expect("a row");
            (row.assign)(&mut entry, text).expect("weights");
            entry.weight.clone()
        };
        let (uneven, only) = (weights("9,3,1"), weights("1,0,5"));
        let mut cluster = cluster();
        cluster.note_state(2, HostState::Standby, 0);
        let mut count = [0; 3];
        for _ in 0..400 {
            count[goes(&mut cluster, [0; 3], &uneven).expect("two")] += 1;
        }
        assert_eq!(count, [0, 300, 100]);
        assert_eq!(goes(&mut cluster, [0, 3, 2], &uneven), Some(1), "3 of 3 is less than 2 of 1");
        assert_eq!(goes(&mut cluster, [0, 7, 2], &uneven), Some(2));
        assert!((0..5).all(|_| goes(&mut cluster, [0, 0, 9], &only) == Some(2)));
        cluster.note_state(2, HostState::Down(String::new()), 0);
        assert_eq!(goes(&mut cluster, [0; 3], &only), None);
    }

    #[test]
    fn samples_are_thinned_out_and_the_newest_kept() {
        let mut cluster = cluster();
        for number in 0..1000 {
            sample(&mut cluster, number, number);
        }
        assert!(cluster.samples.len() <= MAX_SAMPLES);
        assert_eq!(cluster.samples.back().map(|sample| sample.lsn), Some(999));
        let ordered = cluster.samples.iter().zip(cluster.samples.iter().skip(1));
        assert!(ordered.into_iter().all(|(one, next)| one.number < next.number));
    }
}
