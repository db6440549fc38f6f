//! What the other nodes of a fleet have used, and what this one has that they should know of.

use std::collections::BTreeMap;

use crate::account::Usage;
use crate::line::read_key;
use crate::resource::{Measure, Resource};
use crate::subject::Subject;

/// Periods of a resource that are known, the latest: clocks differ by less than two of the shortest.
const MOST_PERIODS: usize = 4;

/// What this node has used of a quota that holds for all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedQuota {
    /// The subject and the resource, as the file of quotas has them.
    pub key: String,
    /// When its period begins and ends, in seconds since 1970; zeros for connections.
    pub period_s: (u64, u64),
    /// How much, in units that are counted.
    pub used: u64,
    /// Its hard limit, else its soft one, in the same units.
    pub limit: u64,
}

/// What the other nodes have used of a quota together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalQuota<'a> {
    /// As in [`SharedQuota::key`].
    pub key: &'a str,
    /// When its period began.
    pub period_s: u64,
    /// How much.
    pub used: u64,
}

impl SharedQuota {
    /// None of what is not limited, and of what PostgreSQL is asked for: that is known to all nodes.
    pub(crate) fn of(
        subject: &Subject,
        measure: Measure,
        usage: &Usage,
        connections: u64,
    ) -> Option<SharedQuota> {
        let (soft, hard) = (usage.limit.soft, usage.limit.hard);
        let limit = if hard > 0 { hard } else { soft }.saturating_mul(measure.resource().units());
        let is_counted = measure.resource() == Resource::Connections;
        if limit == 0 || measure.resource().is_measured() {
            return None;
        }
        let used = if is_counted { connections } else { usage.used };
        (used > 0).then(|| SharedQuota {
            key: format!("{subject} {measure}"),
            period_s: usage.period_s(),
            used,
            limit,
        })
    }
}

/// What is known of the other nodes.
#[derive(Debug, Default)]
pub(crate) struct External {
    is_shared: bool,
    /// By subject and resource: when a period began, and how much; the latest first.
    used: BTreeMap<(Subject, Measure), Vec<(u64, u64)>>,
    is_known: bool,
}

impl External {
    /// Whether anything may count otherwise.
    pub(crate) fn set_shared(&mut self, is_shared: bool) -> bool {
        std::mem::replace(&mut self.is_shared, is_shared) != is_shared
    }

    /// Whether anything counts otherwise.
    pub(crate) fn set<'a>(&mut self, external: impl IntoIterator<Item = ExternalQuota<'a>>) -> bool {
        let known = external
            .into_iter()
            .filter_map(|ExternalQuota { key, period_s, used }| Some((read_key(key)?, (period_s, used))));
        let mut sums = BTreeMap::<(Subject, Measure), Vec<(u64, u64)>>::new();
        for (key, (period_s, used)) in known {
            let periods = sums.entry(key).or_default();
            match periods.binary_search_by(|(known_s, _)| period_s.cmp(known_s)) {
                Ok(at) => periods[at].1 = periods[at].1.saturating_add(used),
                Err(at) => periods.insert(at, (period_s, used)),
            }
            periods.truncate(MOST_PERIODS);
        }
        let is_other = !self.is_known || sums != self.used;
        (self.used, self.is_known) = (sums, true);
        is_other
    }

    pub(crate) fn apply(&self, subject: &Subject, measure: Measure, usage: &mut Usage) {
        let used = if self.is_shared { self.used.get(&(subject.clone(), measure)) } else { None };
        usage.set_external(used.map_or(&[], Vec::as_slice), self.is_shared && !self.is_known);
    }
}
