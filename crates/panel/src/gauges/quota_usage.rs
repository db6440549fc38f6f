//! What subjects of quotas have used, as it was.
//! Owns of how many of them it is kept: those that have used most of what they may. Never knows a resource by name.

use control::QuotaColumn;

use super::history::{GaugeHistory, GaugeSpan, Tier};
use crate::live::{HistorySeries, TimeSpan};
use crate::quota_listing::{measure, share};
use crate::table::ViewTable;

/// An hour in steps of ten seconds, and a day in steps of five minutes.
const TIERS: &[Tier] = &[(10, 360), (300, 288)];

/// Subjects and resources whose past is kept, some 10 kB each.
const MOST: usize = 1_000;

/// Subject, name, resource and period.
pub(crate) type UsageKey = (String, String, String);

/// The past of all that is kept.
pub(super) struct QuotaUsage(GaugeHistory<UsageKey, 1>);

impl Default for QuotaUsage {
    fn default() -> QuotaUsage {
        QuotaUsage(GaugeHistory::new(TIERS, MOST))
    }
}

impl QuotaUsage {
    /// Takes what SHOW QUOTAS says now.
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn add(&mut self, second: u64, table: &ViewTable<QuotaColumn>) {
        let mut rows: Vec<_> = table.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((share(*row), row.number(QuotaColumn::Used))));
        let figures = rows.into_iter().map(|row| {
            let key = (row.owned(QuotaColumn::Subject), row.owned(QuotaColumn::Name), measure(row));
            (key, [row.number(QuotaColumn::Used) as f64])
        });
        self.0.add(second, figures);
    }

    /// The past of one subject and resource.
    pub(super) fn series(&self, key: &UsageKey, span: TimeSpan) -> HistorySeries {
        let GaugeSpan { step, from, columns } = self.0.span(key, span);
        let series = ["used"].into_iter().map(Into::into).zip(columns).collect();
        HistorySeries { step_seconds: step, from, series }
    }

    pub(super) fn newest(&self) -> u64 {
        self.0.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::rows_of;
    use messages::Cell;

    #[test]
    fn where_there_are_too_many_those_nearest_to_their_limits_are_kept() {
        let names: Vec<String> = (0..MOST + 5).map(|number| format!("u{number:04}")).collect();
        let rows: Vec<Vec<(QuotaColumn, Cell)>> = names
            .iter()
            .zip(0_u64..)
            .map(|(name, used)| {
                vec![
                    (QuotaColumn::Subject, Cell::from("user")),
                    (QuotaColumn::Name, Cell::from(name.as_str())),
                    (QuotaColumn::Resource, Cell::from("queries")),
                    (QuotaColumn::Period, Cell::from("day")),
                    (QuotaColumn::Used, Cell::Sum(used)),
                    (QuotaColumn::Hard, Cell::Sum(5_000)),
                ]
            })
            .collect();
        let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
        let mut usage = QuotaUsage::default();
        usage.add(1_000, &rows_of(&rows));
        let used = |name: &str| {
            let key = ("user".to_owned(), name.to_owned(), "queries/day".to_owned());
            usage.series(&key, TimeSpan { from: 1_000, to: 1_000 }).series["used"][0]
        };
        assert_eq!((used("u1004"), used("u0005"), used("u0004")), (Some(1_004.0), Some(5.0), None));
    }
}
