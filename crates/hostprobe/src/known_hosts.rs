//! What is known of the hosts of each entry, from what they have answered.
//!
//! Owns which of them belong to one cluster, and how far a standby is behind. Asks none.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use messages::{ClusterHostRow, ClusterRow, HostLag, HostRole, ServerError};
use pgclient::Place;
use pool::{ProbedCluster, ProbedPrimary};

use crate::plan::ProbedEntry;

/// Positions of a primary that are kept; of more, every second one of the older half is dropped.
const MAX_POSITIONS: usize = 64;

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its system identifier.
    pub(crate) system: u64,
    /// What a primary writes, or a standby is known to follow; 0 is not known.
    pub(crate) timeline: u32,
    pub(crate) is_standby: bool,
    /// What a standby has replayed, or a primary has written.
    pub(crate) lsn: Option<u64>,
}

/// Why a server has not said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It cannot be connected to, or it ends.
    Down(String),
    /// It lets nobody ask: what it is, is not known.
    Refused(String),
}

/// What came of the last question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It was not asked yet.
    #[default]
    Nothing,
    Answered(Answer),
    Unanswered(Unanswered),
}

impl Answer {
    fn primary(&self) -> Option<ProbedPrimary> {
        (!self.is_standby).then_some(ProbedPrimary { system: self.system, timeline: self.timeline })
    }
}

impl Seen {
    fn answer(&self) -> Option<&Answer> {
        if let Seen::Answered(answer) = self { Some(answer) } else { None }
    }

    fn is_alike(&self, other: &Seen) -> bool {
        match (self, other) {
            (Seen::Answered(one), Seen::Answered(other)) => one.is_standby == other.is_standby,
            (Seen::Unanswered(one), Seen::Unanswered(other)) => discriminant(one) == discriminant(other),
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// All entries.
#[derive(Default)]
pub(crate) struct KnownHosts {
    entries: BTreeMap<String, Entry>,
}

#[derive(Default)]
struct Entry {
    hosts: Vec<Host>,
    positions: Positions,
    /// Its servers may be those of another cluster from then on (RECONNECT): what was asked before says nothing of its primary.
    forgotten: Option<Instant>,
}

struct Host {
    label: String,
    place: Place,
    seen: Seen,
    /// Microseconds since 1970: when it began to be seen so, and when it was last; 0 is never.
    since_us: u64,
    seen_us: u64,
    /// When the question began.
    asked: Option<Instant>,
    /// The last system identifier that it has said, and when that question began.
    identified: Option<(u64, Instant)>,
}

/// What a primary had written, and when it was asked.
#[derive(Default)]
struct Positions {
    of: ProbedPrimary,
    known: VecDeque<(u64, Instant)>,
}

impl KnownHosts {
    /// These entries have these hosts. What is known of those that stay is kept. Returns what is known of each entry, also of those that are none any more.
    pub(crate) fn configure(&mut self, entries: Vec<ProbedEntry>) -> Vec<(String, ProbedCluster)> {
        let mut before = std::mem::take(&mut self.entries);
        for ProbedEntry { name, hosts } in entries {
            let Entry { hosts: mut known, positions, mut forgotten } =
                before.remove(&name).unwrap_or_default();
            let is_as_before = known.iter().map(|host| (&host.label, &host.place));
            if !is_as_before.eq(hosts.iter().map(|(label, place)| (label, place))) {
                forgotten = Some(Instant::now());
            }
            let mut host = |(label, place): (String, Place)| {
                let at = known.iter().position(|host| host.label == label && host.place == place);
                at.map(|at| known.swap_remove(at)).unwrap_or_else(|| Host::new(label, place))
            };
            let hosts = hosts.into_iter().map(&mut host).collect();
            self.entries.insert(name, Entry { hosts, positions, forgotten });
        }
        let gone = before.into_keys().map(|name| (name, ProbedCluster::default()));
        gone.chain(self.entries.iter().map(|(name, entry)| (name.clone(), entry.told()))).collect()
    }

    /// The servers of this entry, or of all, may be those of another cluster: of these only answers to later questions are told. Returns what is known, which is
    /// nothing.
    pub(crate) fn forget(&mut self, entry: Option<&str>) -> Vec<(String, ProbedCluster)> {
        let now = Instant::now();
        let is_meant = |name: &str| entry.is_none_or(|entry| entry == name);
        let forget = |(name, entry): (&String, &mut Entry)| {
            entry.forgotten = Some(now);
            (name.clone(), ProbedCluster::default())
        };
        self.entries.iter_mut().filter(|(name, _)| is_meant(name)).map(forget).collect()
    }

    /// A server that was asked then has answered, or has not. Returns what is known of each entry that has it.
    pub(crate) fn note(
        &mut self,
        place: &Place,
        seen: &Seen,
        asked: Instant,
    ) -> Vec<(String, ProbedCluster)> {
        self.note_at(place, seen, (asked, wall_us()))
    }

    fn note_at(
        &mut self,
        place: &Place,
        seen: &Seen,
        (asked, now_us): (Instant, u64),
    ) -> Vec<(String, ProbedCluster)> {
        let mut told = Vec::new();
        for (name, entry) in &mut self.entries {
            if !entry.note(place, seen, (asked, now_us)) {
                continue;
            }
            if let (Some(answer), Some(primary)) = (seen.answer(), entry.primary())
                && answer.primary() == Some(primary)
            {
                entry.positions.note(primary, answer.lsn, asked);
            }
            told.push((name.clone(), entry.told()));
        }
        told
    }

    pub(crate) fn rows(&self) -> Vec<ClusterRow> {
        self.rows_at(Instant::now())
    }

    fn rows_at(&self, now: Instant) -> Vec<ClusterRow> {
        self.entries.iter().map(|(name, entry)| entry.row(name, now)).collect()
    }
}

impl Entry {
    /// True if it has that server.
    fn note(&mut self, place: &Place, seen: &Seen, (asked, now_us): (Instant, u64)) -> bool {
        let mut is_one = false;
        for host in self.hosts.iter_mut().filter(|host| host.place == *place) {
            is_one = true;
            if !host.seen.is_alike(seen) {
                host.since_us = now_us;
            }
            (host.seen, host.seen_us, host.asked) = (seen.clone(), now_us, Some(asked));
            if let Some(answer) = seen.answer() {
                host.identified = Some((answer.system, asked));
            }
        }
        is_one
    }

    /// The cluster that more than half of its hosts belong to; else the one that most of those do that answer, of as many the one that is first in the list.
    fn system(&self) -> Option<u64> {
        let of = |system: u64| self.answers().filter(|answer| answer.system == system).count();
        let most = self.answers().map(|answer| of(answer.system)).max();
        let most = || self.answers().map(|answer| answer.system).find(|system| Some(of(*system)) == most);
        self.majority(|asked| self.counts(asked)).or_else(most)
    }

    /// The cluster that more than half of its hosts have last said that they belong to, as far as these questions count.
    fn majority(&self, counts: impl Fn(Instant) -> bool) -> Option<u64> {
        let identified = self.hosts.iter().filter_map(|host| host.identified);
        let known: Vec<u64> =
            identified.filter(|(_, asked)| counts(*asked)).map(|(system, _)| system).collect();
        let of = |system: &u64| known.iter().filter(|known| *known == system).count();
        known.iter().find(|system| of(system) * 2 > self.hosts.len()).copied()
    }

    /// The one on the newest timeline.
    fn primary(&self) -> Option<ProbedPrimary> {
        self.newest(|_| true)
    }

    /// What is known by the questions since the entry's cluster was forgotten.
    fn told(&self) -> ProbedCluster {
        ProbedCluster {
            majority: self.majority(|asked| self.counts(asked)).unwrap_or_default(),
            primary: self.newest(|host| host.asked.is_some_and(|asked| self.counts(asked))),
        }
    }

    /// The answer to a question of then says something of the entry's servers of now.
    fn counts(&self, asked: Instant) -> bool {
        self.forgotten.is_none_or(|forgotten| asked > forgotten)
    }

    fn newest(&self, counts: impl Fn(&Host) -> bool) -> Option<ProbedPrimary> {
        let system = self.system()?;
        let answers = self.hosts.iter().filter(|host| counts(host)).filter_map(|host| host.seen.answer());
        let primaries = answers.filter_map(Answer::primary).filter(|primary| primary.system == system);
        primaries.max_by_key(|primary| primary.timeline)
    }

    fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.hosts.iter().filter_map(|host| host.seen.answer())
    }

    fn row(&self, name: &str, now: Instant) -> ClusterRow {
        let (primary, system) = (self.primary(), self.system());
        ClusterRow {
            database: name.to_owned(),
            system: system.unwrap_or_default(),
            timeline: primary.map_or(0, |primary| primary.timeline),
            hosts: self.hosts.iter().map(|host| host.row(system, &self.positions, now)).collect(),
        }
    }
}

impl Host {
    fn new(label: String, place: Place) -> Host {
        Host { label, place, seen: Seen::Nothing, since_us: 0, seen_us: 0, asked: None, identified: None }
    }

    /// A host that has said nothing of itself counts as not seen: what others have seen of it holds.
    fn row(&self, system: Option<u64>, positions: &Positions, now: Instant) -> ClusterHostRow {
        let (mut row, error) = match &self.seen {
            Seen::Nothing => (ClusterHostRow::default(), None),
            Seen::Unanswered(Unanswered::Refused(why)) => (ClusterHostRow::default(), Some(why.clone())),
            Seen::Answered(answer) if Some(answer.system) != system => {
                let why = format!(
                    "its system identifier is {} and that of the others is {}",
                    answer.system,
                    system.unwrap_or_default()
                );
                (ClusterHostRow::default(), Some(why))
            }
            Seen::Unanswered(Unanswered::Down(why)) => (self.row_of(HostRole::Down), Some(why.clone())),
            Seen::Answered(answer) => (self.row_of_answer(answer, positions, now), None),
        };
        self.label.clone_into(&mut row.label);
        row.error =
            error.map(|message| ServerError { message, since_us: self.since_us, last_us: self.seen_us });
        row
    }

    fn row_of(&self, role: HostRole) -> ClusterHostRow {
        let (since_us, seen_us) = (self.since_us, self.seen_us);
        ClusterHostRow { role, since_us, seen_us, probed_since_us: since_us, ..ClusterHostRow::default() }
    }

    fn row_of_answer(&self, answer: &Answer, positions: &Positions, now: Instant) -> ClusterHostRow {
        let role = if answer.is_standby { HostRole::Standby } else { HostRole::Primary };
        let replayed = answer.lsn.filter(|_| answer.is_standby).zip(self.asked);
        let lag = replayed.and_then(|(lsn, asked)| positions.lag(lsn, asked, now));
        ClusterHostRow { timeline: answer.timeline, lsn: answer.lsn, lag, ..self.row_of(role) }
    }
}

impl Positions {
    /// Those of another primary, which was thrown away or has been left behind, say nothing of this one's.
    fn note(&mut self, primary: ProbedPrimary, lsn: Option<u64>, asked: Instant) {
        if primary != self.of {
            *self = Positions { of: primary, known: VecDeque::new() };
        }
        let Some(lsn) = lsn else { return };
        if self.known.len() >= MAX_POSITIONS {
            let mut place = 0;
            self.known.retain(|_| {
                place += 1;
                place > MAX_POSITIONS / 2 || place % 2 == 0
            });
        }
        self.known.push_back((lsn, asked));
    }

    /// How far a standby is behind that had replayed so much when it was asked: the time is that since the first position which it had not.
    /// What the primary has written after that, the standby's next answer is measured by.
    fn lag(&self, replayed: u64, asked: Instant, now: Instant) -> Option<HostLag> {
        let before = || self.known.iter().filter(|(_, at)| *at <= asked);
        let (newest, _) = before().next_back()?;
        let missing = before().find(|(lsn, _)| *lsn > replayed);
        let time = missing.map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at));
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Some(HostLag { bytes: newest.saturating_sub(replayed), time_us })
    }
}

fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000;

    fn place(host: &str) -> Place {
        Place::Inet { host: host.to_owned(), port: 1, near: None }
    }

    fn entry(name: &str, hosts: &[&str]) -> ProbedEntry {
        let hosts = hosts.iter().map(|host| (format!("{host}:1"), place(host))).collect();
        ProbedEntry { name: name.to_owned(), hosts }
    }

    fn known_hosts() -> KnownHosts {
        let mut known_hosts = KnownHosts::default();
        known_hosts.configure(vec![entry("app", &["a", "b"]), entry("more", &["b", "c"])]);
        known_hosts
    }

    fn primary(system: u64, timeline: u32, lsn: u64) -> Seen {
        Seen::Answered(Answer { system, timeline, is_standby: false, lsn: Some(lsn) })
    }

    fn standby(system: u64, lsn: u64) -> Seen {
        Seen::Answered(Answer { system, timeline: 1, is_standby: true, lsn: Some(lsn) })
    }

    fn primaries(told: Vec<(String, ProbedCluster)>) -> Vec<(String, Option<ProbedPrimary>)> {
        told.into_iter().map(|(name, probed)| (name, probed.primary)).collect()
    }

    fn host(known_hosts: &KnownHosts, entry: &str, host: &str) -> ClusterHostRow {
        let row = known_hosts.rows().into_iter().find(|row| row.database == entry).unwrap();
        row.hosts.into_iter().find(|row| row.label == format!("{host}:1")).unwrap()
    }

    #[test]
    fn an_answer_holds_for_each_entry_that_has_the_server() {
        let mut known_hosts = known_hosts();
        let found = Some(ProbedPrimary { system: 7, timeline: 2 });
        let of_both = [("app".to_owned(), found), ("more".to_owned(), found)];
        let note = |known_hosts: &mut KnownHosts, name, seen: &Seen| {
            primaries(known_hosts.note(&place(name), seen, Instant::now()))
        };
        assert_eq!(note(&mut known_hosts, "b", &primary(7, 2, 100)), of_both);
        assert_eq!(note(&mut known_hosts, "a", &standby(7, 100)), of_both[..1]);
        let roles = ["a", "b"].map(|name| host(&known_hosts, "app", name).role);
        assert_eq!(
            (roles, host(&known_hosts, "more", "c").role),
            ([HostRole::Standby, HostRole::Primary], HostRole::Unknown)
        );
        let rows = known_hosts.rows();
        assert_eq!((rows[0].system, rows[0].timeline), (7, 2));
        assert_eq!(note(&mut known_hosts, "nowhere", &primary(7, 3, 1)), []);
        note(&mut known_hosts, "a", &primary(7, 1, 100));
        assert_eq!(
            primaries(known_hosts.configure(vec![entry("app", &["a", "b"])])),
            [("more".to_owned(), None), ("app".to_owned(), found)]
        );
        let down = Seen::Unanswered(Unanswered::Down("refused".into()));
        let older = Some(ProbedPrimary { system: 7, timeline: 1 });
        assert_eq!(note(&mut known_hosts, "b", &down), [("app".to_owned(), older)], "as far as is known now");
    }

    #[test]
    fn a_server_of_another_cluster_is_named() {
        let mut known_hosts = known_hosts();
        known_hosts.note(&place("a"), &primary(7, 1, 100), Instant::now());
        known_hosts.note(&place("b"), &standby(8, 100), Instant::now());
        let row = host(&known_hosts, "app", "b");
        assert_eq!((row.role, row.seen_us), (HostRole::Unknown, 0));
        assert_eq!(row.error.unwrap().message, "its system identifier is 8 and that of the others is 7");
        known_hosts.note(&place("c"), &standby(8, 100), Instant::now());
        assert_eq!(host(&known_hosts, "more", "b").role, HostRole::Standby, "there it is one of two");
    }

    #[test]
    fn who_may_not_ask_knows_nothing_and_who_cannot_knows_that_it_is_down() {
        let mut known_hosts = known_hosts();
        known_hosts.note(
            &place("a"),
            &Seen::Unanswered(Unanswered::Refused("password".into())),
            Instant::now(),
        );
        let row = host(&known_hosts, "app", "a");
        assert_eq!(
            (row.role, row.seen_us, row.error.unwrap().message),
            (HostRole::Unknown, 0, "password".into())
        );
        known_hosts.note(&place("a"), &Seen::Unanswered(Unanswered::Down("refused".into())), Instant::now());
        let row = host(&known_hosts, "app", "a");
        assert_eq!(
            (row.role, row.seen_us > 0, row.error.unwrap().message),
            (HostRole::Down, true, "refused".into())
        );
    }

    #[test]
    fn a_state_lasts_since_it_began() {
        let (mut known_hosts, now) = (known_hosts(), Instant::now());
        known_hosts.note_at(&place("a"), &standby(7, 1), (now, 5));
        known_hosts.note_at(&place("a"), &standby(7, 2), (now, 9));
        let row = host(&known_hosts, "app", "a");
        assert_eq!((row.since_us, row.seen_us, row.lsn), (5, 9, Some(2)));
        known_hosts.configure(vec![entry("app", &["b", "a"])]);
        assert_eq!(host(&known_hosts, "app", "a").since_us, 5, "it stays over RELOAD");
        known_hosts.note_at(&place("a"), &primary(7, 2, 3), (now, 11));
        assert_eq!(host(&known_hosts, "app", "a").since_us, 11);
    }

    #[test]
    fn lag_is_measured_from_the_first_position_that_is_missing() {
        let (mut known_hosts, begun) = (known_hosts(), Instant::now());
        let at = |ms: u64| (begun + Duration::from_millis(ms), ms);
        let lag = |known_hosts: &KnownHosts, ms: u64| {
            let rows = known_hosts.rows_at(begun + Duration::from_millis(ms));
            rows[0].hosts[1].lag.map(|lag| (lag.bytes, lag.time_us / MS))
        };
        known_hosts.note_at(&place("b"), &standby(7, 100), at(0));
        assert_eq!(lag(&known_hosts, 0), None);
        for (lsn, ms) in [(100, 0), (300, 100), (500, 200)] {
            known_hosts.note_at(&place("a"), &primary(7, 1, lsn), at(ms));
        }
        known_hosts.note_at(&place("b"), &standby(7, 100), at(240));
        assert_eq!(lag(&known_hosts, 250), Some((400, 150)));
        known_hosts.note_at(&place("b"), &standby(7, 300), at(250));
        assert_eq!(lag(&known_hosts, 260), Some((200, 60)));
        known_hosts.note_at(&place("b"), &standby(7, 500), at(250));
        assert_eq!(lag(&known_hosts, 260), Some((0, 0)));
        known_hosts.note_at(&place("a"), &primary(7, 1, 900), at(300));
        assert_eq!(lag(&known_hosts, 1300), Some((0, 0)), "what was written since it answered is none yet");
    }

    #[test]
    fn positions_are_those_of_the_primary_that_there_is() {
        let (mut known_hosts, begun) = (known_hosts(), Instant::now());
        let at = |ms: u64| (begun + Duration::from_millis(ms), ms);
        let mut lag_behind = |primary: &Seen, replayed: u64, ms: u64| {
            known_hosts.note_at(&place("a"), primary, at(ms));
            let Seen::Answered(Answer { system, .. }) = primary else { return None };
            known_hosts.note_at(&place("b"), &standby(*system, replayed), at(ms));
            known_hosts.rows_at(begun + Duration::from_millis(ms))[0].hosts[1].lag.map(|lag| lag.bytes)
        };
        assert_eq!(lag_behind(&primary(7, 2, 900), 800, 0), Some(100));
        assert_eq!(
            lag_behind(&primary(7, 1, 500), 500, 10),
            Some(0),
            "the one on timeline 2 was thrown away"
        );
        assert_eq!(
            lag_behind(&primary(8, 1, 300), 200, 20),
            Some(100),
            "pg_upgrade has made another cluster"
        );
    }

    #[test]
    fn a_primary_that_was_seen_before_reconnect_is_told_no_more() {
        let (mut known_hosts, second) = (known_hosts(), Duration::from_secs(1));
        let later = Instant::now() + second;
        known_hosts.note(&place("a"), &primary(7, 1, 1), Instant::now());
        known_hosts.note(&place("b"), &primary(7, 2, 1), Instant::now());
        assert_eq!(primaries(known_hosts.forget(Some("app"))), [("app".to_owned(), None)]);
        let found = |timeline| Some(ProbedPrimary { system: 7, timeline });
        let told = primaries(known_hosts.note(&place("a"), &primary(7, 1, 1), later));
        assert_eq!(told, [("app".to_owned(), found(1))], "the other one has not answered since");
        assert_eq!(known_hosts.rows()[0].timeline, 2, "and is still shown");
        let told = primaries(known_hosts.note(&place("b"), &primary(7, 2, 1), later));
        assert_eq!(told[0], ("app".to_owned(), found(2)), "it is still there");
        known_hosts.configure(vec![entry("app", &["a", "b", "c"])]);
        let told = primaries(known_hosts.note(&place("c"), &primary(7, 1, 1), later + second));
        assert_eq!(told, [("app".to_owned(), found(2))]);
    }

    #[test]
    fn the_majority_is_that_of_all_hosts_and_outlasts_their_end() {
        let mut known_hosts = KnownHosts::default();
        known_hosts.configure(vec![entry("app", &["a", "b", "c"])]);
        let (now, down) = (Instant::now(), Seen::Unanswered(Unanswered::Down("refused".into())));
        let mut majority = |name, seen: &Seen| known_hosts.note(&place(name), seen, now)[0].1.majority;
        assert_eq!(majority("c", &standby(8, 1)), 0, "one of three");
        assert_eq!(majority("a", &primary(7, 1, 1)), 0);
        assert_eq!(majority("b", &standby(7, 1)), 7);
        assert_eq!((majority("a", &down), majority("b", &down)), (7, 7));
        assert_eq!(known_hosts.rows()[0].system, 7, "although one of another cluster alone answers");
        known_hosts.forget(None);
        let later = now + Duration::from_secs(9);
        let mut majority = |name, seen: &Seen| known_hosts.note(&place(name), seen, later)[0].1.majority;
        assert_eq!(majority("a", &primary(9, 1, 1)), 0);
        assert_eq!(known_hosts.rows()[0].system, 9, "the others have not answered since");
        let mut majority = |name, seen: &Seen| known_hosts.note(&place(name), seen, later)[0].1.majority;
        assert_eq!((majority("a", &standby(8, 1)), majority("c", &standby(8, 1))), (0, 8));
    }

    #[test]
    fn one_server_of_another_cluster_hides_none_of_the_others() {
        let mut known_hosts = KnownHosts::default();
        known_hosts.configure(vec![entry("app", &["a", "b", "c"])]);
        known_hosts.note(&place("a"), &primary(7, 1, 1), Instant::now());
        known_hosts.note(&place("b"), &standby(7, 1), Instant::now());
        let told = known_hosts.note(&place("c"), &primary(8, 9, 1), Instant::now());
        assert_eq!(told[0].1.primary, Some(ProbedPrimary { system: 7, timeline: 1 }));
        let rows = known_hosts.rows();
        assert_eq!((rows[0].system, rows[0].timeline), (7, 1));
        let errors: Vec<_> = rows[0].hosts.iter().map(|host| host.error.is_some()).collect();
        assert_eq!(errors, [false, false, true]);
    }

    #[test]
    fn positions_are_thinned_out_and_the_newest_kept() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        for lsn in 0..1000 {
            positions.note(ProbedPrimary { system: 1, timeline: 1 }, Some(lsn), now);
        }
        assert!(positions.known.len() <= MAX_POSITIONS);
        assert_eq!(positions.known.back().map(|(lsn, _)| *lsn), Some(999));
    }
}
