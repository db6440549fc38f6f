//! The accounts of all subjects: what they may use, what they have used, and what their meters are told.
//!
//! Owns which subjects have an account: those that the file names, and those that a default limits, from their first login until nothing of them has to be remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::account::{StoredUsage, Usage, Verdict};
use crate::calendar::utc;
use crate::clock::{Instant, WallClock};
use crate::external::{External, ExternalQuota, SharedQuota};
use crate::line::read_key;
use crate::meter::{Counted, Meter, Standing, StorageStanding};
use crate::resource::{Measure, Resource};
use crate::row::QuotaRow;
use crate::rules::Rules;
use crate::subject::{Subject, SubjectKind};

/// The most accounts of subjects that only a default limits; further ones are not limited, so that names that clients choose do not fill the memory.
const MOST_UNNAMED: usize = 65_536;

/// A subject stands otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it has used, of what, and how it stands.
    pub row: QuotaRow,
    /// What it stands at now.
    pub verdict: Verdict,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Resource, figure, limit, and when it ends.
    pub text: String,
}

#[derive(Debug)]
struct Account {
    meter: Arc<Meter>,
    usages: BTreeMap<Measure, Usage>,
}

/// All accounts. What holds it says who may look at it when.
#[derive(Debug, Default)]
pub struct Book {
    rules: Arc<Rules>,
    accounts: BTreeMap<Subject, Account>,
    unnamed: usize,
    /// What a store has of accounts that are gone, and is to forget.
    gone: Vec<StoredUsage>,
    clock: WallClock,
    now_s: u64,
    /// What was measured last, so that accounts that are opened later begin with it.
    measured: BTreeMap<Measure, BTreeMap<Subject, u64>>,
    external: External,
}

impl Book {
    /// Whether no subject has any limit: nothing has to be counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Other rules are in force. What was used of resources that are still limited stays.
    pub fn set_rules(&mut self, rules: &Arc<Rules>) {
        if Arc::ptr_eq(&self.rules, rules) {
            return;
        }
        self.rules = Arc::clone(rules);
        for subject in rules.named() {
            if !self.accounts.contains_key(&subject) {
                self.open(subject);
            }
        }
        self.unnamed = 0;
        let (now_s, measured) = (self.now_s, &self.measured);
        self.accounts.retain(|subject, account| {
            let limits = rules.limits_of(subject);
            let is_held = Arc::strong_count(&account.meter) > 1;
            account.usages.retain(|measure, _| limits.contains_key(measure));
            for (measure, limit) in limits {
                let is_new = !account.usages.contains_key(&measure);
                let usage = account.usages.entry(measure).or_insert_with(|| Usage::new(limit));
                usage.limit = limit;
                self.external.apply(subject, measure, usage);
                let known = measured.get(&measure).and_then(|known| known.get(subject));
                if let Some(bytes) = known.filter(|_| is_new) {
                    usage.measured(*bytes);
                }
            }
            account.judge(now_s);
            let is_kept = is_held || !account.usages.is_empty();
            self.unnamed += usize::from(is_kept && !rules.is_named(subject));
            is_kept
        });
    }

    fn open(&mut self, subject: Subject) -> &mut Account {
        let (limits, now_s) = (self.rules.limits_of(&subject), self.now_s);
        let mut usages: BTreeMap<Measure, Usage> =
            limits.into_iter().map(|(measure, limit)| (measure, Usage::new(limit))).collect();
        for (measure, known) in &self.measured {
            if let (Some(usage), Some(bytes)) = (usages.get_mut(measure), known.get(&subject)) {
                usage.measured(*bytes);
            }
        }
        usages.iter_mut().for_each(|(measure, usage)| self.external.apply(&subject, *measure, usage));
        let meter = Arc::new(Meter::new(subject.clone()));
        let account = self.accounts.entry(subject).or_insert(Account { meter, usages });
        account.judge(now_s);
        account
    }

    /// The meters of a client: of each subject that it belongs to and that has limits.
    pub fn meters(&mut self, user: &str, database: &str, application_name: &str) -> Vec<Arc<Meter>> {
        let rules = Arc::clone(&self.rules);
        let mut meters = Vec::new();
        for subject in rules.subjects(user, database, application_name) {
            match self.accounts.get(&subject) {
                Some(account) if account.usages.is_empty() => {}
                Some(account) => meters.push(Arc::clone(&account.meter)),
                None if rules.limits_of(&subject).is_empty() || self.unnamed >= MOST_UNNAMED => {}
                None => {
                    self.unnamed += 1;
                    meters.push(Arc::clone(&self.open(subject).meter));
                }
            }
        }
        meters
    }

    /// Collects what the meters have counted, and says what has changed. To be called about once a second.
    pub fn tick(&mut self, now: Instant) -> Vec<Change> {
        let (set_by_s, now_s) = (self.clock.look(now), now.wall_s);
        self.now_s = now_s;
        let mut changes = Vec::new();
        let rules = Arc::clone(&self.rules);
        self.accounts.retain(|subject, account| {
            let counted = account.meter.collect();
            let connections = u64::from(account.meter.connections());
            for (measure, usage) in &mut account.usages {
                if set_by_s != 0 {
                    usage.clock_was_set(set_by_s);
                }
                match measure.resource() {
                    Resource::Connections => usage.set(connections),
                    Resource::Storage | Resource::TempFiles => {}
                    resource => usage.add(*measure, of(counted, resource), now_s),
                }
                let before = std::mem::discriminant(&usage.verdict);
                let verdict = usage.judge(*measure, now_s);
                if std::mem::discriminant(&verdict) != before {
                    changes.push(Change { row: row(&rules, subject, *measure, usage), verdict });
                }
            }
            account.tell_meter(now_s);
            let is_needed = rules.is_named(subject)
                || Arc::strong_count(&account.meter) > 1
                || !account.usages.values().all(Usage::is_unused);
            if !is_needed {
                self.unnamed -= 1;
                let room = MOST_UNNAMED.saturating_sub(self.gone.len());
                self.gone.extend(account.take_changed(subject).take(room));
            }
            is_needed
        });
        changes
    }

    /// What servers have said: how much there is of databases and users. Of a user that is not named there is nothing, if `is_all`. Takes effect at the next tick.
    pub fn set_measured(&mut self, measure: Measure, measured: BTreeMap<Subject, u64>, is_all: bool) {
        for (subject, account) in &mut self.accounts {
            let Some(usage) = account.usages.get_mut(&measure) else { continue };
            match measured.get(subject) {
                Some(bytes) => usage.measured(*bytes),
                None if is_all && subject.kind == SubjectKind::User => usage.measured(0),
                None => {}
            }
        }
        self.measured.insert(measure, measured);
    }

    /// Whether quotas hold for all nodes of a fleet. What the others have used is not known before [`Book::set_external`] has been called.
    pub fn set_shared(&mut self, is_shared: bool) {
        if self.external.set_shared(is_shared) {
            self.apply_external();
        }
    }

    /// What the other nodes of the fleet have used: all of it. Counts where quotas are shared, from the next tick on.
    pub fn set_external<'a>(&mut self, external: impl IntoIterator<Item = ExternalQuota<'a>>) {
        if self.external.set(external) {
            self.apply_external();
        }
    }

    fn apply_external(&mut self) {
        for (subject, account) in &mut self.accounts {
            for (measure, usage) in &mut account.usages {
                self.external.apply(subject, *measure, usage);
            }
        }
    }

    /// What this node has used of quotas that hold for all nodes, as of the last tick.
    #[must_use]
    pub fn shared(&self) -> Vec<SharedQuota> {
        let accounts = self.accounts.iter();
        let usages = accounts.flat_map(|(subject, account)| {
            let live = u64::from(account.meter.connections());
            account.usages.iter().map(move |(measure, usage)| (subject, *measure, usage, live))
        });
        usages
            .filter_map(|(subject, measure, usage, live)| SharedQuota::of(subject, measure, usage, live))
            .collect()
    }

    /// What is shown, in the order of subjects.
    #[must_use]
    pub fn rows(&self) -> Vec<QuotaRow> {
        let of = |(subject, account): (&Subject, &Account)| {
            let live = u64::from(account.meter.connections());
            let usages = account.usages.iter();
            let rows: Vec<_> =
                usages.map(|(measure, usage)| row(&self.rules, subject, *measure, usage)).collect();
            rows.into_iter().map(move |row| match row.measure.resource() {
                Resource::Connections => QuotaRow { used: live.saturating_add(row.external), ..row },
                _ => row,
            })
        };
        self.accounts.iter().flat_map(of).collect()
    }

    /// What a client of this subject is told when a connection of it is refused.
    #[must_use]
    pub fn refused_connection(&self, subject: &Subject) -> Refused {
        let account = self.accounts.get(subject);
        let is_of = |measure: &Measure| measure.resource() == Resource::Connections;
        let found = account.and_then(|account| account.usages.iter().find(|(measure, _)| is_of(measure)));
        let text = found.map_or_else(
            || format!("quota of {subject} exceeded: connections"),
            |(_, usage)| {
                let (soft, hard) = (usage.limit.soft, usage.limit.hard);
                let limit = match usage.verdict {
                    Verdict::GraceOver => format!("soft limit {soft}, grace time over"),
                    _ => format!("hard limit {hard}"),
                };
                let by = if usage.external() > 0 { " in all nodes of the fleet" } else { "" };
                format!("quota of {subject} exceeded: connections: {limit}{by}; ends when one of its connections is closed")
            },
        );
        Refused { text }
    }

    /// What a client of this subject is told: why its requests are refused, or of which soft limit it is warned. None if there is nothing to be told any more.
    #[must_use]
    pub fn told(&self, subject: &Subject, standing: Standing) -> Option<Refused> {
        let account = self.accounts.get(subject)?;
        let concerns = |(measure, usage): &(&Measure, &Usage)| match standing {
            Standing::Within => false,
            Standing::OverSoft => usage.verdict != Verdict::Within,
            Standing::Refused => usage.verdict.refuses() && refuses_requests(**measure),
        };
        let (measure, usage) = account.usages.iter().find(concerns)?;
        let row = row(&self.rules, subject, *measure, usage);
        Some(Refused { text: sentence(&row, usage.verdict) })
    }

    /// What a client of this subject is told when its storage allows only reading. None if it allows more.
    #[must_use]
    pub fn told_of_storage(&self, subject: &Subject) -> Option<Refused> {
        let usage = self.accounts.get(subject)?.usages.get(&Measure::STORAGE)?;
        let row = row(&self.rules, subject, Measure::STORAGE, usage);
        usage.verdict.refuses().then(|| Refused { text: sentence(&row, usage.verdict) })
    }

    /// What a store had, when it is opened: what was counted meanwhile is added to it.
    pub fn restore(&mut self, stored: &[StoredUsage], now: Instant) {
        self.now_s = now.wall_s;
        self.for_stored(stored, |measure, usage, stored| usage.restore(measure, stored, now.wall_s));
    }

    /// What another process has added to its own count since the store was handed over.
    pub fn absorb(&mut self, others: &[StoredUsage], now: Instant) {
        self.now_s = now.wall_s;
        self.for_stored(others, |measure, usage, stored| usage.absorb(measure, stored, now.wall_s));
    }

    /// These could not be stored.
    pub fn put_back(&mut self, unstored: &[StoredUsage]) {
        self.for_stored(unstored, |_, usage, stored| usage.put_back(stored));
    }

    fn for_stored(&mut self, stored: &[StoredUsage], each: impl Fn(Measure, &mut Usage, &StoredUsage)) {
        let now_s = self.now_s;
        for usage in stored {
            let Some((subject, measure)) = read_key(&usage.key) else { continue };
            if !self.accounts.contains_key(&subject) {
                let is_limited = self.rules.limits_of(&subject).contains_key(&measure);
                if !is_limited || self.unnamed >= MOST_UNNAMED {
                    continue;
                }
                self.unnamed += 1;
                self.open(subject.clone());
            }
            let Some(account) = self.accounts.get_mut(&subject) else { continue };
            if let Some(of) = account.usages.get_mut(&measure) {
                each(measure, of, usage);
            }
            account.judge(now_s);
        }
    }

    /// A store has nothing of it.
    pub fn mark_changed(&mut self) {
        let usages = self.accounts.values_mut().flat_map(|account| account.usages.values_mut());
        usages.for_each(Usage::mark_changed);
    }

    /// What a store has to have: everything that has changed since the last call.
    pub fn take_changed(&mut self) -> Vec<StoredUsage> {
        let mut changed = std::mem::take(&mut self.gone);
        for (subject, account) in &mut self.accounts {
            changed.extend(account.take_changed(subject));
        }
        changed
    }
}

impl Account {
    fn judge(&mut self, now_s: u64) {
        for (measure, usage) in &mut self.usages {
            usage.add(*measure, 0, now_s);
            usage.judge(*measure, now_s);
        }
        self.tell_meter(now_s);
    }

    fn take_changed(&mut self, subject: &Subject) -> impl Iterator<Item = StoredUsage> {
        self.usages.iter_mut().filter_map(move |(measure, usage)| {
            let is_counted = measure.period().is_some() || measure.resource().is_measured();
            usage.take_changed(|| format!("{subject} {measure}"), is_counted)
        })
    }

    fn tell_meter(&self, now_s: u64) {
        let mut standing = Standing::Within;
        let (mut most, mut external, mut storage) = (0, 0, StorageStanding::Free);
        for (measure, usage) in &self.usages {
            standing = standing.max(match usage.verdict {
                Verdict::Within => Standing::Within,
                Verdict::OverSoft { .. } => Standing::OverSoft,
                _ if refuses_requests(*measure) => Standing::Refused,
                _ if *measure == Measure::STORAGE => {
                    storage = match usage.limit.allows_delete {
                        true => StorageStanding::ReadsAndDeletes,
                        false => StorageStanding::ReadsOnly,
                    };
                    Standing::OverSoft
                }
                // The connections that are there go on.
                Verdict::GraceOver => Standing::OverSoft,
                Verdict::HardReached if usage.limit.soft > 0 => Standing::OverSoft,
                Verdict::HardReached => Standing::Within,
            });
            if measure.resource() == Resource::Connections {
                // Once the grace time is over the soft limit is as hard as the other.
                most = if usage.is_grace_over(now_s) { usage.limit.soft } else { usage.limit.hard };
                external = usage.external();
            }
        }
        self.meter.set_connections_external(u32::try_from(external).unwrap_or(u32::MAX));
        self.meter.set_connections_most(u32::try_from(most).unwrap_or(u32::MAX));
        self.meter.set_storage(storage);
        self.meter.set_standing(standing);
    }
}

/// Whether requests are refused at the limit, not connections or writing.
fn refuses_requests(measure: Measure) -> bool {
    measure.period().is_some() || measure == Measure::TEMP_FILES
}

fn of(counted: Counted, resource: Resource) -> u64 {
    match resource {
        Resource::Connections | Resource::Storage | Resource::TempFiles => 0,
        Resource::ServerSeconds => counted.server_us,
        Resource::Queries => counted.queries,
        Resource::Bytes => counted.bytes,
    }
}

fn row(rules: &Rules, subject: &Subject, measure: Measure, usage: &Usage) -> QuotaRow {
    let group = subject.name.as_ref().filter(|_| subject.kind == SubjectKind::Group);
    QuotaRow {
        members: group.and_then(|group| rules.members_of(group)),
        subject: subject.clone(),
        measure,
        used: usage.total() / measure.resource().units(),
        soft: usage.limit.soft,
        hard: usage.limit.hard,
        grace_ends_s: usage.grace_ends_s(),
        period_ends_s: usage.ends_s(measure),
        state: usage.verdict.into(),
        external: usage.external() / measure.resource().units(),
    }
}

/// The words of `warnquota`, for one resource.
fn sentence(row: &QuotaRow, verdict: Verdict) -> String {
    let QuotaRow { subject, measure, used, soft, hard, .. } = row;
    let by = if row.external > 0 { " in all nodes of the fleet" } else { "" };
    let begin = |what: &str| format!("quota of {subject} exceeded: {measure}: {used} used{by}, {what}");
    let until = match row.period_ends_s {
        Some(ends_s) => format!("; refused until {}", utc(ends_s)),
        None if *measure == Measure::STORAGE => "; read-only until storage is freed".to_owned(),
        None if *measure == Measure::TEMP_FILES => "; refused until temporary files are removed".to_owned(),
        None => String::new(),
    };
    match verdict {
        Verdict::HardReached => begin(&format!("hard limit {hard}{until}")),
        Verdict::GraceOver => begin(&format!("soft limit {soft}, grace time over{until}")),
        Verdict::Within | Verdict::OverSoft { .. } => match row.grace_ends_s {
            Some(ends_s) => begin(&format!("soft limit {soft}; grace time ends {}", utc(ends_s))),
            None => begin(&format!("soft limit {soft}")),
        },
    }
}

impl Change {
    /// As a line of the log.
    #[must_use]
    pub fn text(&self) -> String {
        match self.verdict {
            Verdict::Within => format!(
                "quota of {}: {}: {} used, within limits",
                self.row.subject, self.row.measure, self.row.used
            ),
            verdict => sentence(&self.row, verdict),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ClientMeters, State};

    const NOON: u64 = 20_000 * 86_400 + 43_200;

    fn at(second: u64) -> Instant {
        Instant { wall_s: NOON + second, mono_us: second * 1_000_000 }
    }

    fn book(rules: &str) -> Book {
        let mut book = Book::default();
        book.tick(at(0));
        book.set_rules(&Arc::new(Rules::read(rules.as_bytes()).unwrap()));
        book
    }

    fn client(book: &mut Book, user: &str) -> ClientMeters {
        ClientMeters::enter_anyway(book.meters(user, "d", "app"), false, 0)
    }

    fn used(book: &Book) -> Vec<(String, u64, State)> {
        book.rows()
            .into_iter()
            .map(|row| (format!("{} {}", row.subject, row.measure), row.used, row.state))
            .collect()
    }

    #[test]
    fn subjects_of_a_default_come_with_their_clients_and_go_with_them() {
        let mut book = book("user default queries/hour hard=5\nuser own connections hard=3");
        assert_eq!(used(&book).len(), 2, "{:?}", used(&book));
        let alice = client(&mut book, "alice");
        alice.add(0, 2, 9);
        book.tick(at(1));
        assert!(used(&book).contains(&("user alice queries/hour".to_owned(), 2, State::Within)));
        drop(alice);
        book.tick(at(2));
        assert_eq!(used(&book).len(), 3, "what it has used is remembered");
        book.tick(at(3_600));
        assert_eq!(used(&book).len(), 2);
    }

    #[test]
    fn names_that_clients_choose_do_not_fill_the_memory() {
        let mut book =
            book("application_name default queries/day hard=5\napplication_name own queries/day hard=5");
        for number in 0..MOST_UNNAMED + 10 {
            ClientMeters::enter_anyway(book.meters("u", "d", &number.to_string()), false, 0).add(0, 1, 0);
        }
        assert_eq!(book.accounts.len(), MOST_UNNAMED + 1);
        assert_eq!(book.meters("u", "d", "own").len(), 1, "those that are named are always limited");
        book.tick(at(1));
        book.tick(at(86_400));
        assert_eq!((book.accounts.len(), book.unnamed), (1, 0));
    }

    #[test]
    fn a_store_forgets_subjects_that_are_gone() {
        let mut book = book("application_name default queries/hour hard=5");
        ClientMeters::enter_anyway(book.meters("u", "d", "x"), false, 0).add(0, 2, 9);
        book.tick(at(1));
        let stored = book.take_changed();
        assert_eq!(stored.iter().map(|usage| usage.used).collect::<Vec<_>>(), [2]);
        book.tick(at(3_600));
        assert!(book.accounts.is_empty());
        let forgotten = book.take_changed();
        assert_eq!((forgotten.len(), &forgotten[0].key, forgotten[0].used), (1, &stored[0].key, 0));
        book.put_back(&forgotten); // It could not be written.
        book.tick(at(3_601));
        assert_eq!(book.take_changed().len(), 1);
        book.tick(at(3_602));
        assert!(book.take_changed().is_empty());
    }

    #[test]
    fn names_of_clients_can_be_stored_and_shown_in_a_line() {
        let rules = "application_name default queries/hour hard=1000";
        let hostile = "x\" queries/hour\n3600 99 user alice queries/hour\u{1b}";
        for name in [hostile, "", "default", "a b", "\"", &"ä".repeat(5_000)] {
            let mut before = book(rules);
            ClientMeters::enter_anyway(before.meters("u", "d", name), false, 0).add(0, 2, 9);
            before.tick(at(1));
            let stored = before.take_changed();
            assert!(stored[0].key.len() < 300 && !stored[0].key.contains(char::is_control), "{stored:?}");
            let mut after = book(rules);
            after.restore(&stored, at(2));
            assert_eq!(used(&after), used(&before), "{name}");
            assert_eq!(used(&after).len(), 1);
        }
    }

    #[test]
    fn a_change_is_told_once() {
        let mut book = book("user a queries/day soft=2 hard=4");
        let a = client(&mut book, "a");
        let told = |book: &mut Book, second| {
            book.tick(at(second)).iter().map(Change::text).collect::<Vec<_>>().join("|")
        };
        a.add(0, 3, 0);
        assert!(told(&mut book, 1).contains("queries/day: 3 used, soft limit 2; grace time ends 2024-10-11"));
        assert_eq!(told(&mut book, 2), "");
        a.add(0, 1, 0);
        assert!(told(&mut book, 3).contains("4 used, hard limit 4; refused until 2024-10-05 00:00:00 UTC"));
        assert!(told(&mut book, 43_200).contains("0 used, within limits"));
    }

    #[test]
    fn what_other_nodes_have_used_counts_where_quotas_are_shared() {
        let rules =
            "user default queries/hour hard=10\nuser default connections hard=2\nuser a bytes/day soft=5";
        let mut book = book(rules);
        let a = client(&mut book, "a");
        a.add(0, 4, 1);
        book.tick(at(1));
        let hour_s = NOON / 3_600 * 3_600;
        let of = |key, period_s, used| ExternalQuota { key, period_s, used };
        let others = [
            of("user a queries/hour", hour_s, 6),
            of("user a queries/hour", hour_s - 3_600, 100),
            of("user a connections", 0, 1),
            of("user b connections", 0, 2),
            of("nonsense", 0, u64::MAX),
            of("user a bytes/day", hour_s, u64::MAX), // Of a period that is not the one that runs.
        ];
        book.set_external(others);
        book.tick(at(2));
        assert_eq!(a.concern().map(|(standing, _)| standing), None, "they are not shared");
        book.set_shared(true);
        let changes = book.tick(at(3));
        assert!(
            changes.iter().any(|change| change
                .text()
                .contains("queries/hour: 10 used in all nodes of the fleet, hard limit 10; refused until")),
            "{changes:?}"
        );
        assert_eq!(a.concern().map(|(standing, _)| standing), Some(Standing::Refused));
        let row = |book: &Book, measure: &str| {
            let found = book
                .rows()
                .into_iter()
                .find(|row| row.measure.to_string() == measure && row.subject.name.is_some());
            found.map(|row| (row.used, row.external)).unwrap()
        };
        assert_eq!((row(&book, "queries/hour"), row(&book, "connections")), ((10, 6), (2, 1)));
        assert_eq!(row(&book, "bytes/day"), (1, 0));
        let enters =
            |book: &mut Book, user: &str| ClientMeters::enter(book.meters(user, "d", ""), false, 0).is_ok();
        assert!(
            !enters(&mut book, "a") && !enters(&mut book, "b") && enters(&mut book, "c"),
            "also where an account is opened"
        );
        let refused = book.refused_connection(&Subject::named(SubjectKind::User, "a")).text;
        assert!(refused.contains("hard limit 2 in all nodes of the fleet"), "{refused}");
        assert_eq!(
            book.take_changed().iter().map(|stored| stored.used).max(),
            Some(4),
            "what is stored is its own"
        );
        book.set_shared(false);
        book.tick(at(4));
        assert!(a.concern().is_none() && enters(&mut book, "a"));
    }

    #[test]
    fn what_other_nodes_should_know_is_what_is_used_of_limits() {
        let mut book = book(
            "user default queries/hour hard=10\nuser default connections soft=2\nuser default server_seconds/hour soft=1 hard=3\nuser a storage hard=5",
        );
        let (a, b) = (client(&mut book, "a\n\"b"), client(&mut book, "c"));
        a.add(1_500_000, 4, 1);
        book.tick(at(1));
        let shared = book.shared();
        let keys: Vec<_> =
            shared.iter().map(|shared| (shared.key.as_str(), shared.used, shared.limit)).collect();
        assert_eq!(
            keys,
            [
                ("user \"a?\"\"b\" connections", 1, 2),
                ("user \"a?\"\"b\" server_seconds/hour", 1_500_000, 3_000_000),
                ("user \"a?\"\"b\" queries/hour", 4, 10),
                ("user c connections", 1, 2),
            ]
        );
        assert_eq!(shared[2].period_s, (NOON / 3_600 * 3_600, NOON / 3_600 * 3_600 + 3_600));
        drop(b);
        assert_eq!(book.shared().len(), 3);
    }

    #[test]
    fn other_rules_leave_what_was_used() {
        let mut book = book("user a queries/day hard=4\nuser b queries/day hard=4");
        let a = client(&mut book, "a");
        a.add(0, 4, 0);
        book.tick(at(1));
        assert_eq!(a.concern().map(|(standing, _)| standing), Some(Standing::Refused));
        book.set_rules(&Arc::new(Rules::read(b"user a queries/day hard=5").unwrap()));
        assert_eq!(used(&book), [("user a queries/day".to_owned(), 4, State::Within)]);
        assert!(a.concern().is_none(), "at once");
    }

    #[test]
    fn when_the_grace_time_is_over_the_soft_limit_is_a_hard_one_for_connections() {
        let mut book = book("user a connections soft=1 hard=3 grace=60");
        let (one, two) = (client(&mut book, "a"), client(&mut book, "a"));
        book.tick(at(1));
        let enters = |book: &mut Book| ClientMeters::enter(book.meters("a", "d", ""), false, 0).is_ok();
        assert!(enters(&mut book));
        book.tick(at(61));
        assert!(!enters(&mut book));
        let subject = Subject::named(SubjectKind::User, "a");
        assert!(book.refused_connection(&subject).text.contains("soft limit 1, grace time over"));
        assert!(
            one.concern().is_some_and(|(standing, _)| standing == Standing::OverSoft),
            "those that are there go on"
        );
        drop(one);
        book.tick(at(62));
        assert!(enters(&mut book), "below the soft limit the clock ends");
        drop(two);
    }

    #[test]
    fn what_was_stored_is_there_again_with_what_was_counted_since() {
        let rules = "group g = a\ngroup g bytes/day hard=100\nuser default queries/day hard=9";
        let mut before = book(rules);
        client(&mut before, "a \"b\"").add(0, 3, 7);
        client(&mut before, "a").add(0, 2, 5);
        before.tick(at(1));
        let stored = before.take_changed();
        assert_eq!(stored.len(), 3, "{stored:?}");
        let mut after = book(rules);
        client(&mut after, "a").add(0, 1, 1);
        after.tick(at(2));
        after.restore(&stored, at(2));
        let rows: Vec<_> = used(&after).into_iter().map(|(key, used, _)| (key, used)).collect();
        let expected =
            [("group g bytes/day", 6), ("user a queries/day", 3), ("user \"a \"\"b\"\"\" queries/day", 3)];
        for (key, used) in expected {
            assert!(rows.contains(&(key.to_owned(), used)), "{key}: {rows:?}");
        }
        after.absorb(&stored, at(2));
        assert!(used(&after).iter().any(|(key, used, _)| key == "user a queries/day" && *used == 5));
        after.restore(
            &[StoredUsage { key: "nonsense".into(), period_s: 0, used: 1, added: 1, over_since_s: 0 }],
            at(2),
        );
    }

    #[test]
    fn storage_that_is_full_is_for_reading_until_it_is_freed() {
        let rules = "database d storage soft=5 hard=10 grace=60\nuser default storage hard=3 allow=delete\nuser b storage hard=7";
        let (mut book, mut restarted) = (book(rules), book(rules));
        let of = |kind, name| Subject::named(kind, name);
        let (d, a) = (of(SubjectKind::Database, "d"), of(SubjectKind::User, "a"));
        let b = client(&mut book, "b");
        let standing =
            |client: &ClientMeters| (client.concern().map(|(standing, _)| standing), client.storage());
        let within = (None, StorageStanding::Free);
        let full = |storage| (Some(Standing::OverSoft), storage);
        let (reads, deletes) = (full(StorageStanding::ReadsOnly), full(StorageStanding::ReadsAndDeletes));
        let measured = |book: &mut Book, bytes, second| {
            book.set_measured(Measure::STORAGE, BTreeMap::from([(d.clone(), bytes), (a.clone(), 3)]), true);
            book.tick(at(second)).iter().map(Change::text).collect::<Vec<_>>().join("|")
        };
        assert_eq!((measured(&mut book, 5, 1), standing(&b)), (String::new(), within));
        assert!(measured(&mut book, 6, 2).contains("storage: 6 used, soft limit 5; grace time ends"));
        assert_eq!(standing(&b), full(StorageStanding::Free));
        assert!(
            measured(&mut book, 6, 62)
                .contains("soft limit 5, grace time over; read-only until storage is freed")
        );
        assert_eq!(standing(&b), reads);
        assert!(measured(&mut book, 10, 63).contains("hard limit 10; read-only until storage is freed"));
        let stored = book.take_changed();
        restarted.restore(&stored, at(64));
        assert_eq!(standing(&client(&mut restarted, "b")), reads, "before it is measured again");
        assert!(measured(&mut book, 2, 64).contains("2 used, within limits"));
        assert_eq!(standing(&b), within);
        let a = client(&mut book, "a");
        assert_eq!(standing(&a), deletes, "it was measured before its client came");
        let told = book.told_of_storage(&of(SubjectKind::User, "a")).map(|told| told.text);
        assert!(told.is_some_and(|text| text.contains("user a exceeded: storage: 3 used, hard limit 3")));
        book.set_measured(Measure::STORAGE, BTreeMap::new(), false);
        book.tick(at(65));
        assert_eq!(standing(&a), deletes, "what cannot be asked stays");
        book.set_measured(Measure::STORAGE, BTreeMap::new(), true);
        book.tick(at(66));
        assert_eq!(standing(&a), within);
    }

    #[test]
    fn above_a_limit_of_temporary_files_requests_are_refused_until_there_are_less() {
        let rules = "user a temp_files soft=5 hard=10 grace=60\nuser a storage hard=100";
        let (mut book, mut taken_over) = (book(rules), book(rules));
        let (a, subject) = (client(&mut book, "a"), Subject::named(SubjectKind::User, "a"));
        let standing = |client: &ClientMeters| client.concern().map(|(standing, _)| standing);
        let measured = |book: &mut Book, bytes: Option<u64>, second| {
            let known = bytes.map(|bytes| (subject.clone(), bytes)).into_iter().collect();
            book.set_measured(Measure::TEMP_FILES, known, true);
            book.tick(at(second)).iter().map(Change::text).collect::<Vec<_>>().join("|")
        };
        assert_eq!((measured(&mut book, Some(5), 1), standing(&a)), (String::new(), None));
        assert!(
            measured(&mut book, Some(6), 2).contains("temp_files: 6 used, soft limit 5; grace time ends")
        );
        assert_eq!(standing(&a), Some(Standing::OverSoft));
        assert!(
            measured(&mut book, Some(6), 62)
                .contains("grace time over; refused until temporary files are removed")
        );
        assert_eq!((standing(&a), a.storage()), (Some(Standing::Refused), StorageStanding::Free));
        let told = book.told(&subject, Standing::Refused).map(|told| told.text);
        assert!(
            told.is_some_and(|text| text.starts_with("quota of user a exceeded: temp_files: 6 used, soft"))
        );
        taken_over.restore(&book.take_changed(), at(63));
        assert_eq!(
            standing(&client(&mut taken_over, "a")),
            Some(Standing::Refused),
            "before it is asked again"
        );
        assert!(measured(&mut book, Some(10), 64).contains("hard limit 10; refused until temporary files"));
        assert!(measured(&mut book, None, 65).contains("0 used, within limits"));
        assert_eq!(standing(&a), None);
    }

    #[test]
    fn a_wall_clock_that_is_set_forward_does_not_end_the_grace_time() {
        let mut book = book("user a queries/month soft=2 grace=1h");
        let a = client(&mut book, "a");
        a.add(0, 3, 0);
        book.tick(at(1));
        book.tick(Instant { wall_s: NOON + 90_000, mono_us: 2_000_000 });
        assert_eq!(used(&book)[0].2, State::Soft, "a day on, within the month");
        book.tick(Instant { wall_s: NOON + 93_700, mono_us: 3_702_000_000 });
        assert_eq!(used(&book)[0].2, State::Grace);
    }
}
