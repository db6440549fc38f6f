//! What one subject has used of one resource in the period that runs, and what follows from that.
//!
//! Owns the grace clock: it begins when the soft limit is exceeded, and ends when usage is at the limit or below again, or when the period ends. What the wall clock
//! does never makes it run out sooner, and a period that the clock has left begins anew at nothing.

use crate::limit::Limit;
use crate::resource::Measure;

/// What follows from what was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At the soft limit or below.
    Within,
    /// Above the soft limit; what is refused begins then, in seconds since 1970, if ever.
    OverSoft {
        /// When the grace time ends.
        grace_ends_s: Option<u64>,
    },
    /// Above the soft limit for longer than the grace time: refused.
    GraceOver,
    /// The hard limit is reached: refused.
    HardReached,
}

impl Verdict {
    /// Whether more is refused.
    #[must_use]
    pub fn refuses(self) -> bool {
        matches!(self, Verdict::GraceOver | Verdict::HardReached)
    }
}

/// What a store keeps of a subject and a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUsage {
    /// The subject and the resource, as the file of quotas has them.
    pub key: String,
    /// When its period began, in seconds since 1970; 0 for connections.
    pub period_s: u64,
    /// What was used in it, in units that are counted.
    pub used: u64,
    /// What of that no store has had.
    pub added: u64,
    /// Since when the soft limit is exceeded; 0 if it is not.
    pub over_since_s: u64,
}

/// The usage of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) limit: Limit,
    /// When its period begins and ends.
    period_s: (u64, u64),
    pub(crate) used: u64,
    /// What of that no store has had.
    added: u64,
    over_since_s: Option<u64>,
    pub(crate) verdict: Verdict,
    is_changed: bool,
    /// Of what PostgreSQL is asked for: this process knows how much it is.
    is_measured: bool,
    /// What other nodes of a fleet have used, by the beginning of its period: their clocks differ.
    external: Box<[(u64, u64)]>,
    /// What they have used is not known yet: a grace clock that runs goes on, and refuses nothing.
    is_incomplete: bool,
}

impl Usage {
    pub(crate) fn new(limit: Limit) -> Usage {
        Usage {
            limit,
            period_s: (0, 0),
            used: 0,
            added: 0,
            over_since_s: None,
            verdict: Verdict::Within,
            is_changed: false,
            is_measured: false,
            external: Box::default(),
            is_incomplete: false,
        }
    }

    /// What other nodes of a fleet have used of it, each with the beginning of the period (0 without one); `is_incomplete`: not all is known.
    pub(crate) fn set_external(&mut self, external: &[(u64, u64)], is_incomplete: bool) {
        (self.external, self.is_incomplete) = (external.into(), is_incomplete);
    }

    /// What other nodes of a fleet have used in the period that runs.
    pub(crate) fn external(&self) -> u64 {
        let found = self.external.iter().find(|(period_s, _)| *period_s == self.period_s.0);
        found.map_or(0, |(_, used)| *used)
    }

    /// What all nodes of a fleet have used.
    pub(crate) fn total(&self) -> u64 {
        self.used.saturating_add(self.external())
    }

    /// The period that runs; zeros for connections.
    pub(crate) fn period_s(&self) -> (u64, u64) {
        self.period_s
    }

    /// Nothing of it has to be remembered.
    pub(crate) fn is_unused(&self) -> bool {
        self.used == 0 && self.over_since_s.is_none()
    }

    /// When its period ends; none for connections.
    pub(crate) fn ends_s(&self, measure: Measure) -> Option<u64> {
        measure.period().map(|_| self.period_s.1)
    }

    pub(crate) fn grace_ends_s(&self) -> Option<u64> {
        let since_s = self.over_since_s?;
        (self.limit.grace_s > 0).then(|| since_s.saturating_add(self.limit.grace_s))
    }

    /// The wall clock was set by this many seconds: the grace clock goes on where it is.
    pub(crate) fn clock_was_set(&mut self, by_s: i64) {
        if let Some(since_s) = &mut self.over_since_s {
            *since_s = since_s.saturating_add_signed(by_s);
            self.is_changed = true;
        }
    }

    /// A period that does not go on begins anew.
    fn roll(&mut self, measure: Measure, now_s: u64) {
        let Some(period) = measure.period() else { return };
        let around = period.around(now_s);
        if self.period_s != around {
            self.is_changed |= !self.is_unused();
            (self.period_s, self.used, self.added, self.over_since_s) = (around, 0, 0, None);
        }
    }

    /// So much more was used.
    pub(crate) fn add(&mut self, measure: Measure, more: u64, now_s: u64) {
        self.roll(measure, now_s);
        if more > 0 {
            self.used = self.used.saturating_add(more);
            self.added = self.added.saturating_add(more);
            self.is_changed = true;
        }
    }

    /// So much is in use now.
    pub(crate) fn set(&mut self, now: u64) {
        self.used = now;
    }

    /// So much there is, as PostgreSQL has said.
    pub(crate) fn measured(&mut self, now: u64) {
        self.is_changed |= self.used != now;
        (self.used, self.is_measured) = (now, true);
    }

    /// What follows, after every change of what was used, of the limit and of the time.
    pub(crate) fn judge(&mut self, measure: Measure, now_s: u64) -> Verdict {
        let units = measure.resource().units();
        let (soft, hard) = (self.limit.soft.saturating_mul(units), self.limit.hard.saturating_mul(units));
        let used = self.total();
        let since_s = match self.over_since_s {
            _ if soft == 0 => None,
            before if used <= soft && self.is_incomplete => before,
            _ if used <= soft => None,
            None => Some(now_s),
            // The clock was set back while this process did not run.
            Some(since_s) => Some(since_s.min(now_s)),
        };
        self.is_changed |= since_s != self.over_since_s;
        self.over_since_s = since_s;
        self.verdict = match since_s {
            _ if hard > 0 && used >= hard => Verdict::HardReached,
            _ if used <= soft => Verdict::Within,
            Some(_) if self.is_grace_over(now_s) => Verdict::GraceOver,
            Some(_) => Verdict::OverSoft { grace_ends_s: self.grace_ends_s() },
            None => Verdict::Within,
        };
        self.verdict
    }

    /// Whether the grace time has run out, whatever else follows.
    pub(crate) fn is_grace_over(&self, now_s: u64) -> bool {
        self.grace_ends_s().is_some_and(|ends_s| now_s >= ends_s)
    }

    /// What a store had, and what was added to it since.
    pub(crate) fn restore(&mut self, measure: Measure, stored: &StoredUsage, now_s: u64) {
        self.roll(measure, now_s);
        if measure.period().is_none() {
            self.over_since_s = (stored.over_since_s > 0).then_some(stored.over_since_s);
            if measure.resource().is_measured() && !self.is_measured {
                self.used = stored.used;
            }
        } else if stored.period_s == self.period_s.0 {
            self.used = stored.used.saturating_add(self.added);
            self.over_since_s = (stored.over_since_s > 0).then_some(stored.over_since_s);
        }
    }

    /// What another process has added, which no store has had.
    pub(crate) fn absorb(&mut self, measure: Measure, other: &StoredUsage, now_s: u64) {
        self.roll(measure, now_s);
        if measure.period().is_some() && other.period_s == self.period_s.0 {
            self.used = self.used.saturating_add(other.added);
            self.added = self.added.saturating_add(other.added);
            self.is_changed = true;
        }
    }

    /// What a store has to have, if it has changed.
    pub(crate) fn take_changed(
        &mut self,
        key: impl FnOnce() -> String,
        is_counted: bool,
    ) -> Option<StoredUsage> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        Some(StoredUsage {
            key: key(),
            period_s: self.period_s.0,
            used: if is_counted { self.used } else { 0 },
            added: std::mem::take(&mut self.added),
            over_since_s: self.over_since_s.unwrap_or(0),
        })
    }

    /// A store does not have it.
    pub(crate) fn mark_changed(&mut self) {
        self.is_changed = !self.is_unused();
    }

    /// That could not be stored.
    pub(crate) fn put_back(&mut self, unstored: &StoredUsage) {
        self.is_changed = true;
        if unstored.period_s == self.period_s.0 {
            self.added = self.added.saturating_add(unstored.added);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: u64 = 86_400;
    /// A midnight.
    const NOON: u64 = 20_000 * DAY + DAY / 2;

    fn queries(soft: u64, hard: u64, grace_s: u64) -> (Usage, Measure) {
        (
            Usage::new(Limit { soft, hard, grace_s, allows_delete: false }),
            Measure::read("queries/day").unwrap(),
        )
    }

    #[test]
    fn the_hard_limit_can_be_reached_and_not_passed() {
        let (mut usage, day) = queries(0, 10, 0);
        usage.add(day, 9, NOON);
        assert_eq!(usage.judge(day, NOON), Verdict::Within);
        usage.add(day, 1, NOON);
        assert_eq!(usage.judge(day, NOON), Verdict::HardReached);
        usage.add(day, 0, NOON + DAY / 2);
        assert_eq!(usage.judge(day, NOON + DAY / 2), Verdict::Within, "the next day begins at nothing");
    }

    #[test]
    fn the_grace_clock_runs_while_usage_is_above_the_soft_limit() {
        let (mut usage, day) = queries(10, 0, 60);
        usage.add(day, 10, NOON);
        assert_eq!(usage.judge(day, NOON), Verdict::Within, "at the limit is not above it");
        usage.add(day, 1, NOON);
        let grace_ends_s = Some(NOON + 60);
        assert_eq!(usage.judge(day, NOON), Verdict::OverSoft { grace_ends_s });
        assert_eq!(usage.judge(day, NOON + 59), Verdict::OverSoft { grace_ends_s });
        assert_eq!(usage.judge(day, NOON + 60), Verdict::GraceOver);
        usage.limit.soft = 11;
        assert_eq!(usage.judge(day, NOON + 61), Verdict::Within);
        usage.limit.soft = 10;
        assert_eq!(usage.judge(day, NOON + 62), Verdict::OverSoft { grace_ends_s: Some(NOON + 122) });
        usage.limit.grace_s = 0;
        assert_eq!(usage.judge(day, NOON + 600), Verdict::OverSoft { grace_ends_s: None });
    }

    #[test]
    fn a_clock_that_is_set_refuses_nobody() {
        let (mut usage, day) = queries(10, 20, 3_600);
        usage.add(day, 11, NOON);
        usage.judge(day, NOON);
        // Two hours on, within the day: the grace time has not run out.
        usage.clock_was_set(7_200);
        assert_eq!(usage.judge(day, NOON + 7_200), Verdict::OverSoft { grace_ends_s: Some(NOON + 10_800) });
        // Back by a day, and forward again: each day begins at nothing.
        for now_s in [NOON - DAY, NOON] {
            usage.add(day, 0, now_s);
            assert_eq!((usage.judge(day, now_s), usage.used), (Verdict::Within, 0));
            usage.add(day, 20, now_s);
            assert_eq!(usage.judge(day, now_s), Verdict::HardReached);
        }
        // Set back while no process ran: the grace time begins anew.
        let (mut usage, day) = queries(10, 0, 3_600);
        let stored = StoredUsage {
            key: String::new(),
            period_s: NOON - DAY / 2,
            used: 15,
            added: 0,
            over_since_s: NOON + 9_000,
        };
        usage.restore(day, &stored, NOON);
        assert_eq!(usage.judge(day, NOON), Verdict::OverSoft { grace_ends_s: Some(NOON + 3_600) });
    }

    #[test]
    fn what_is_stored_and_restored_is_the_same() {
        let (mut usage, day) = queries(10, 0, 3_600);
        usage.add(day, 15, NOON);
        usage.judge(day, NOON);
        let stored = usage.take_changed(|| "k".to_owned(), true).unwrap();
        assert_eq!((stored.used, stored.added, stored.over_since_s), (15, 15, NOON));
        assert_eq!(usage.take_changed(String::new, true), None);
        let (mut next, _) = queries(10, 0, 3_600);
        next.add(day, 2, NOON + 5);
        next.restore(day, &stored, NOON + 5);
        assert_eq!(
            (next.used, next.judge(day, NOON + 5)),
            (17, Verdict::OverSoft { grace_ends_s: Some(NOON + 3_600) })
        );
        let (mut later, _) = queries(10, 0, 3_600);
        later.restore(day, &stored, NOON + DAY);
        assert_eq!((later.used, later.judge(day, NOON + DAY)), (0, Verdict::Within), "that day is over");
    }

    #[test]
    fn storage_is_what_was_measured_last() {
        let limit = Limit { soft: 10, hard: 20, grace_s: 60, allows_delete: false };
        let (mut usage, storage) = (Usage::new(limit), Measure::STORAGE);
        usage.measured(11);
        assert_eq!(usage.judge(storage, NOON), Verdict::OverSoft { grace_ends_s: Some(NOON + 60) });
        let stored = usage.take_changed(String::new, true).unwrap();
        usage.measured(11);
        assert_eq!(usage.take_changed(String::new, true), None, "nothing has changed");
        usage.add(storage, 0, NOON + 40 * DAY);
        assert_eq!(usage.judge(storage, NOON + 40 * DAY), Verdict::GraceOver, "no period ends it");
        let (mut next, mut late) = (Usage::new(limit), Usage::new(limit));
        next.restore(storage, &stored, NOON + 60);
        assert_eq!((next.used, next.judge(storage, NOON + 60)), (11, Verdict::GraceOver));
        late.measured(5);
        late.restore(storage, &stored, NOON + 60);
        assert_eq!((late.used, late.judge(storage, NOON + 60)), (5, Verdict::Within), "it is known better");
    }

    #[test]
    fn what_other_nodes_have_used_counts_in_its_period_and_is_not_stored() {
        let (mut usage, day) = queries(10, 20, 60);
        let midnight = NOON - DAY / 2;
        usage.add(day, 5, NOON);
        usage.set_external(&[(midnight + DAY, 100), (midnight, 6)], false);
        assert_eq!(usage.judge(day, NOON), Verdict::OverSoft { grace_ends_s: Some(NOON + 60) });
        assert_eq!(usage.judge(day, NOON + 60), Verdict::GraceOver);
        let stored = usage.take_changed(String::new, true).unwrap();
        assert_eq!((stored.used, stored.over_since_s), (5, NOON));
        usage.set_external(&[(midnight, 15)], false);
        assert_eq!((usage.judge(day, NOON), usage.total()), (Verdict::HardReached, 20));
        usage.add(day, 1, NOON + DAY);
        assert_eq!((usage.judge(day, NOON + DAY), usage.total()), (Verdict::Within, 1), "another period");
        // Started again, before the others are known: the grace clock goes on, and nothing is refused.
        let (mut next, _) = queries(10, 20, 60);
        next.set_external(&[], true);
        next.restore(day, &stored, NOON + 30);
        assert_eq!(next.judge(day, NOON + 90), Verdict::Within);
        next.set_external(&[(midnight, 6)], false);
        assert_eq!(next.judge(day, NOON + 90), Verdict::GraceOver);
        next.set_external(&[(midnight, 1)], false);
        assert_eq!(next.judge(day, NOON + 90), Verdict::Within);
        next.set_external(&[(midnight, 6)], false);
        assert_eq!(next.judge(day, NOON + 90), Verdict::OverSoft { grace_ends_s: Some(NOON + 150) });
    }

    #[test]
    fn what_could_not_be_stored_is_stored_later() {
        let (mut usage, day) = queries(0, 100, 0);
        usage.add(day, 15, NOON);
        let stored = usage.take_changed(String::new, true).unwrap();
        usage.put_back(&stored);
        usage.add(day, 1, NOON);
        assert_eq!(
            usage.take_changed(String::new, true).map(|stored| (stored.used, stored.added)),
            Some((16, 16))
        );
        let (mut other, _) = queries(0, 100, 0);
        other.add(day, 4, NOON);
        other.absorb(day, &stored, NOON);
        assert_eq!(
            other.take_changed(String::new, true).map(|stored| (stored.used, stored.added)),
            Some((19, 19))
        );
    }
}
