//! What is known of the hosts of each entry, from what they have answered.
//!
//! Owns which of them belong to one cluster, and how far a standby is behind. Asks none.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use messages::{ClusterHostRow, ClusterRow, HostLag, HostRole, ServerError};
use pgclient::Place;
use pool::ProbedPrimary;

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
pub(crate) struct Board {
    entries: BTreeMap<String, Entry>,
}

#[derive(Default)]
struct Entry {
    hosts: Vec<Host>,
    positions: Positions,
}

struct Host {
    label: String,
    place: Place,
    seen: Seen,
    /// Microseconds since 1970: when it began to be seen so, and when it was last; 0 is never.
    since_us: u64,
    seen_us: u64,
}

/// What the primary had written, and when.
#[derive(Default)]
struct Positions {
    timeline: u32,
    known: VecDeque<(u64, Instant)>,
}

impl Board {
    /// These entries have these hosts. What is known of those that stay is kept. Returns the primary of each entry, also of those that are none any more.
    pub(crate) fn configure(&mut self, entries: Vec<ProbedEntry>) -> Vec<(String, Option<ProbedPrimary>)> {
        let mut before = std::mem::take(&mut self.entries);
        for ProbedEntry { name, hosts } in entries {
            let Entry { hosts: mut known, positions } = before.remove(&name).unwrap_or_default();
            let mut host = |(label, place): (String, Place)| {
                let at = known.iter().position(|host| host.label == label && host.place == place);
                at.map(|at| known.swap_remove(at)).unwrap_or_else(|| Host::new(label, place))
            };
            let hosts = hosts.into_iter().map(&mut host).collect();
            self.entries.insert(name, Entry { hosts, positions });
        }
        let gone = before.into_keys().map(|name| (name, None));
        gone.chain(self.entries.iter().map(|(name, entry)| (name.clone(), entry.primary()))).collect()
    }

    /// A server has answered, or has not. Returns the primary of each entry that has it.
    pub(crate) fn note(&mut self, place: &Place, seen: &Seen) -> Vec<(String, Option<ProbedPrimary>)> {
        self.note_at(place, seen, (Instant::now(), wall_us()))
    }

    fn note_at(
        &mut self,
        place: &Place,
        seen: &Seen,
        (now, now_us): (Instant, u64),
    ) -> Vec<(String, Option<ProbedPrimary>)> {
        let mut primaries = Vec::new();
        for (name, entry) in &mut self.entries {
            if !entry.note(place, seen, now_us) {
                continue;
            }
            let primary = entry.primary();
            if let Some(answer) = seen.answer().filter(|answer| !answer.is_standby)
                && primary.is_some_and(|primary| primary.system == answer.system)
            {
                entry.positions.note(answer, now);
            }
            primaries.push((name.clone(), primary));
        }
        primaries
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
    fn note(&mut self, place: &Place, seen: &Seen, now_us: u64) -> bool {
        let mut is_one = false;
        for host in self.hosts.iter_mut().filter(|host| host.place == *place) {
            is_one = true;
            if !host.seen.is_alike(seen) {
                host.since_us = now_us;
            }
            (host.seen, host.seen_us) = (seen.clone(), now_us);
        }
        is_one
    }

    /// The one on the newest timeline.
    fn primary(&self) -> Option<ProbedPrimary> {
        let primaries = self.answers().filter(|answer| !answer.is_standby);
        let newest = primaries.max_by_key(|answer| answer.timeline)?;
        Some(ProbedPrimary { system: newest.system, timeline: newest.timeline })
    }

    fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.hosts.iter().filter_map(|host| host.seen.answer())
    }

    fn row(&self, name: &str, now: Instant) -> ClusterRow {
        let primary = self.primary();
        // Without a primary, the first host says which cluster it is.
        let system = primary
            .map(|primary| primary.system)
            .or_else(|| self.answers().next().map(|answer| answer.system));
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
        Host { label, place, seen: Seen::Nothing, since_us: 0, seen_us: 0 }
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
        ClusterHostRow { role, since_us: self.since_us, seen_us: self.seen_us, ..ClusterHostRow::default() }
    }

    fn row_of_answer(&self, answer: &Answer, positions: &Positions, now: Instant) -> ClusterHostRow {
        let role = if answer.is_standby { HostRole::Standby } else { HostRole::Primary };
        let lag = answer.lsn.filter(|_| answer.is_standby).and_then(|lsn| positions.lag(lsn, now));
        ClusterHostRow { timeline: answer.timeline, lsn: answer.lsn, lag, ..self.row_of(role) }
    }
}

impl Positions {
    /// Those of an older primary say nothing of a newer one's.
    fn note(&mut self, primary: &Answer, now: Instant) {
        if primary.timeline > self.timeline {
            (self.timeline, self.known) = (primary.timeline, VecDeque::new());
        }
        let Some(lsn) = primary.lsn.filter(|_| primary.timeline == self.timeline) else { return };
        if self.known.len() >= MAX_POSITIONS {
            let mut place = 0;
            self.known.retain(|_| {
                place += 1;
                place > MAX_POSITIONS / 2 || place % 2 == 0
            });
        }
        self.known.push_back((lsn, now));
    }

    /// How far a standby is behind that has replayed so much: the time is that since the first position which it has not.
    fn lag(&self, replayed: u64, now: Instant) -> Option<HostLag> {
        let (newest, _) = self.known.back()?;
        let missing = self.known.iter().find(|(lsn, _)| *lsn > replayed);
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

    fn board() -> Board {
        let mut board = Board::default();
        board.configure(vec![entry("app", &["a", "b"]), entry("more", &["b", "c"])]);
        board
    }

    fn primary(system: u64, timeline: u32, lsn: u64) -> Seen {
        Seen::Answered(Answer { system, timeline, is_standby: false, lsn: Some(lsn) })
    }

    fn standby(system: u64, lsn: u64) -> Seen {
        Seen::Answered(Answer { system, timeline: 1, is_standby: true, lsn: Some(lsn) })
    }

    fn host(board: &Board, entry: &str, host: &str) -> ClusterHostRow {
        let row = board.rows().into_iter().find(|row| row.database == entry).unwrap();
        row.hosts.into_iter().find(|row| row.label == format!("{host}:1")).unwrap()
    }

    #[test]
    fn an_answer_holds_for_each_entry_that_has_the_server() {
        let mut board = board();
        let found = Some(ProbedPrimary { system: 7, timeline: 2 });
        let of_both = [("app".to_owned(), found), ("more".to_owned(), found)];
        assert_eq!(board.note(&place("b"), &primary(7, 2, 100)), of_both);
        assert_eq!(board.note(&place("a"), &standby(7, 100)), of_both[..1]);
        let roles = ["a", "b"].map(|name| host(&board, "app", name).role);
        assert_eq!(
            (roles, host(&board, "more", "c").role),
            ([HostRole::Standby, HostRole::Primary], HostRole::Unknown)
        );
        let rows = board.rows();
        assert_eq!((rows[0].system, rows[0].timeline), (7, 2));
        assert_eq!(board.note(&place("nowhere"), &primary(7, 3, 1)), []);
        board.note(&place("a"), &primary(7, 1, 100));
        assert_eq!(
            board.configure(vec![entry("app", &["a", "b"])]),
            [("more".to_owned(), None), ("app".to_owned(), found)]
        );
        let down = Seen::Unanswered(Unanswered::Down("refused".into()));
        let older = Some(ProbedPrimary { system: 7, timeline: 1 });
        assert_eq!(board.note(&place("b"), &down), [("app".to_owned(), older)], "as far as is known now");
    }

    #[test]
    fn a_server_of_another_cluster_is_named() {
        let mut board = board();
        board.note(&place("a"), &primary(7, 1, 100));
        board.note(&place("b"), &standby(8, 100));
        let row = host(&board, "app", "b");
        assert_eq!((row.role, row.seen_us), (HostRole::Unknown, 0));
        assert_eq!(row.error.unwrap().message, "its system identifier is 8 and that of the others is 7");
        board.note(&place("c"), &standby(8, 100));
        assert_eq!(host(&board, "more", "b").role, HostRole::Standby, "there it is one of two");
    }

    #[test]
    fn who_may_not_ask_knows_nothing_and_who_cannot_knows_that_it_is_down() {
        let mut board = board();
        board.note(&place("a"), &Seen::Unanswered(Unanswered::Refused("password".into())));
        let row = host(&board, "app", "a");
        assert_eq!(
            (row.role, row.seen_us, row.error.unwrap().message),
            (HostRole::Unknown, 0, "password".into())
        );
        board.note(&place("a"), &Seen::Unanswered(Unanswered::Down("refused".into())));
        let row = host(&board, "app", "a");
        assert_eq!(
            (row.role, row.seen_us > 0, row.error.unwrap().message),
            (HostRole::Down, true, "refused".into())
        );
    }

    #[test]
    fn a_state_lasts_since_it_began() {
        let (mut board, now) = (board(), Instant::now());
        board.note_at(&place("a"), &standby(7, 1), (now, 5));
        board.note_at(&place("a"), &standby(7, 2), (now, 9));
        let row = host(&board, "app", "a");
        assert_eq!((row.since_us, row.seen_us, row.lsn), (5, 9, Some(2)));
        board.configure(vec![entry("app", &["b", "a"])]);
        assert_eq!(host(&board, "app", "a").since_us, 5, "it stays over RELOAD");
        board.note_at(&place("a"), &primary(7, 2, 3), (now, 11));
        assert_eq!(host(&board, "app", "a").since_us, 11);
    }

    #[test]
    fn lag_is_measured_from_the_first_position_that_is_missing() {
        let (mut board, begun) = (board(), Instant::now());
        let at = |ms: u64| (begun + Duration::from_millis(ms), ms);
        let lag = |board: &Board, ms: u64| {
            let rows = board.rows_at(begun + Duration::from_millis(ms));
            rows[0].hosts[1].lag.map(|lag| (lag.bytes, lag.time_us / MS))
        };
        board.note_at(&place("b"), &standby(7, 100), at(0));
        assert_eq!(lag(&board, 0), None);
        for (lsn, ms) in [(100, 0), (300, 100), (500, 200)] {
            board.note_at(&place("a"), &primary(7, 1, lsn), at(ms));
        }
        assert_eq!(lag(&board, 250), Some((400, 150)));
        board.note_at(&place("b"), &standby(7, 300), at(250));
        assert_eq!(lag(&board, 260), Some((200, 60)));
        board.note_at(&place("b"), &standby(7, 500), at(250));
        assert_eq!(lag(&board, 260), Some((0, 0)));
        board.note_at(&place("a"), &primary(7, 2, 400), at(300));
        assert_eq!(lag(&board, 310), Some((0, 0)), "of the new timeline");
    }

    #[test]
    fn positions_are_thinned_out_and_the_newest_kept() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        for lsn in 0..1000 {
            positions.note(&Answer { system: 1, timeline: 1, is_standby: false, lsn: Some(lsn) }, now);
        }
        assert!(positions.known.len() <= MAX_POSITIONS);
        assert_eq!(positions.known.back().map(|(lsn, _)| *lsn), Some(999));
    }
}
