//! The sizes of pools that size themselves, as they were, and when and why each was changed.
//! Owns how many are kept. Never knows how a size is found.

use std::collections::{BTreeMap, VecDeque};

use control::PoolSizeColumn;

use super::history::{GaugeHistory, GaugeSpan, Tier};
use crate::audit_trail::{AuditKind, Mark};
use crate::live::{HistorySeries, TimeSpan};
use crate::table::{ViewRow, ViewTable};

/// Ten minutes, two hours and a day, as the charts beside have them.
const TIERS: &[Tier] = &[(1, 600), (10, 720), (60, 1_440)];

/// Pools whose past is kept, some 65 kB each.
const MOST_POOLS: usize = 100;

/// Changes that are kept.
const MOST_CHANGES: usize = 500;

/// The names of the figures.
const SERIES: [&str; 2] = ["size", "found"];

/// Database, user, and the host of a pool for reads.
type Key = (String, String, Option<String>);

/// The past of all pools.
pub(super) struct PoolSizes {
    sizes: GaugeHistory<Key, 2>,
    /// How often the size of each was changed, when it was looked at last.
    counted: BTreeMap<Key, u64>,
    /// The oldest first, each with its database.
    changes: VecDeque<(String, Mark)>,
}

impl Default for PoolSizes {
    fn default() -> PoolSizes {
        PoolSizes {
            sizes: GaugeHistory::new(TIERS, MOST_POOLS),
            counted: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }
}

impl PoolSizes {
    /// Takes what SHOW POOL_SIZES says now.
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn add(&mut self, now_us: u64, table: &ViewTable<PoolSizeColumn>) {
        let is_auto = |row: &ViewRow<'_, PoolSizeColumn>| row.text(PoolSizeColumn::Mode) == Some("auto");
        let before = std::mem::take(&mut self.counted);
        for row in table.iter().filter(is_auto) {
            let (key, changes) = (key(row), row.number(PoolSizeColumn::Changes));
            if before.get(&key).is_some_and(|known| *known < changes) {
                let ago_s = row.number(PoolSizeColumn::ChangedSeconds) as f64;
                self.changes.push_back((key.0.clone(), mark(now_us as f64 / 1e6 - ago_s, &key, row)));
            }
            self.counted.insert(key, changes);
        }
        let over = self.changes.len().saturating_sub(MOST_CHANGES);
        self.changes.drain(..over);
        let figures = table.iter().filter(is_auto).map(|row| {
            (key(row), [PoolSizeColumn::Size, PoolSizeColumn::Found].map(|column| row.number(column) as f64))
        });
        self.sizes.add(now_us / 1_000_000, figures);
    }

    /// The past of one pool.
    pub(super) fn series(&self, key: &Key, span: TimeSpan) -> HistorySeries {
        let GaugeSpan { step, from, columns } = self.sizes.span(key, span);
        let series = SERIES.into_iter().map(Into::into).zip(columns).collect();
        HistorySeries { step_seconds: step, from, series }
    }

    /// Changes of sizes between two seconds: of all pools, or of those of one entry.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn marks(&self, database: Option<&str>, from: u64, to: u64) -> Vec<Mark> {
        let is_in = |mark: &Mark| (from..=to).contains(&(mark.t as u64));
        let is_of = |name: &str| database.is_none_or(|wanted| wanted == name);
        let found = self.changes.iter().filter(|(name, mark)| is_of(name) && is_in(mark));
        found.map(|(_, mark)| mark.clone()).collect()
    }

    pub(super) fn newest(&self) -> u64 {
        self.sizes.newest()
    }
}

fn key(row: ViewRow<'_, PoolSizeColumn>) -> Key {
    let host = row.text(PoolSizeColumn::Host).map(str::to_owned);
    (row.owned(PoolSizeColumn::Database), row.owned(PoolSizeColumn::User), host)
}

fn mark(t: f64, (database, user, host): &Key, row: ViewRow<'_, PoolSizeColumn>) -> Mark {
    let on = host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    let change = row.text(PoolSizeColumn::Change).unwrap_or_default();
    let text = format!("pool_size of {database}/{user}{on}: {change}");
    Mark { t, kind: AuditKind::PoolSize, text, user: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::rows_of;
    use messages::Cell;

    fn table(mode: &'static str, size: i64, changes: u64) -> ViewTable<PoolSizeColumn> {
        rows_of(&[&[
            (PoolSizeColumn::Database, Cell::from("app")),
            (PoolSizeColumn::User, Cell::from("web")),
            (PoolSizeColumn::Mode, Cell::from(mode)),
            (PoolSizeColumn::Size, Cell::Number(size)),
            (PoolSizeColumn::Found, Cell::Number(size - 1)),
            (PoolSizeColumn::ChangedSeconds, Cell::Number(2)),
            (PoolSizeColumn::Change, Cell::from("4 -> 6: more")),
            (PoolSizeColumn::Changes, Cell::Sum(changes)),
        ]])
    }

    #[test]
    fn a_change_is_a_mark_with_its_reason_once() {
        let mut sizes = PoolSizes::default();
        for (second, changes) in [(100, 3), (101, 3), (102, 4), (103, 4)] {
            sizes.add(second * 1_000_000 + 700_000, &table("auto", 6, changes));
        }
        let marks = sizes.marks(Some("app"), 0, 200);
        assert_eq!(
            marks.iter().map(|mark| (mark.t, &*mark.text)).collect::<Vec<_>>(),
            [(100.7, "pool_size of app/web: 4 -> 6: more")]
        );
        assert_eq!(sizes.marks(None, 0, 200).len(), 1);
        assert_eq!(sizes.marks(None, 100, 100).len(), 1, "in the whole second");
        assert!(sizes.marks(Some("other"), 0, 200).is_empty() && sizes.marks(None, 101, 200).is_empty());
        let key = ("app".to_owned(), "web".to_owned(), None);
        let series = sizes.series(&key, TimeSpan { from: 102, to: 103 }).series;
        assert_eq!((&series["size"], &series["found"]), (&vec![Some(6.0); 2], &vec![Some(5.0); 2]));
    }

    #[test]
    fn pools_of_a_fixed_size_have_no_past() {
        let mut sizes = PoolSizes::default();
        sizes.add(100_000_000, &table("fixed", 6, 1));
        sizes.add(101_000_000, &table("fixed", 6, 2));
        let key = ("app".to_owned(), "web".to_owned(), None);
        assert_eq!(sizes.series(&key, TimeSpan { from: 100, to: 101 }).series["size"], [None, None]);
        assert!(sizes.marks(None, 0, 200).is_empty());
    }
}
