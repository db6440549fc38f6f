//! The last hour of each kind of query, a number every ten seconds: for the charts of a query's page.
//!
//! Owns how much is kept: of each kind that SHOW QUERIES has, the intervals in which it ran. Nothing is asked for while
//! `track_queries` is off. Never keeps a text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use telemetry::Histogram;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::shared::Shared;
use crate::table::{Row, Table};
use crate::time::now_us;

/// Seconds between two samples.
const STEP: u64 = 10;

/// So many samples are kept.
const STEPS: u64 = 360;

/// Names of the series, in the order of [`Point::numbers`].
const SERIES: [&str; 4] = ["calls_rate", "errors_rate", "mean_us", "p95_us"];

/// Database and fingerprint.
type Key = (String, String);

/// All kinds of queries.
#[derive(Default)]
pub(crate) struct QueryTrends(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The number of the newest interval since 1970.
    newest: u64,
    kinds: BTreeMap<Key, Trend>,
}

#[derive(Default)]
struct Trend {
    counted: Counted,
    points: VecDeque<Point>,
}

/// The figures at the last sample.
#[derive(Clone, Default)]
struct Counted {
    errors: u64,
    total_us: u64,
    times: Histogram,
}

/// One interval in which the query ran.
struct Point {
    at: u64,
    numbers: [f32; SERIES.len()],
}

/// The past of one kind of query.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct QueryHistory {
    step_seconds: u64,
    /// Seconds since 1970 of the first number of each series.
    from: u64,
    /// `calls_rate` and `errors_rate` per second, `mean_us` and `p95_us`; null where the query did not run.
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
}

impl QueryTrends {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last hour of one kind.
    pub(crate) fn history(&self, database: &str, fingerprint: &str) -> QueryHistory {
        let kept = self.kept();
        let first = (kept.newest + 1).saturating_sub(STEPS);
        let mut history = QueryHistory { step_seconds: STEP, from: first * STEP, series: BTreeMap::new() };
        let length = usize::try_from(STEPS).unwrap_or_default();
        let mut columns = SERIES.map(|_| vec![None; length]);
        if let Some(trend) = kept.kinds.get(&(database.to_owned(), fingerprint.to_owned())) {
            for point in trend.points.iter().filter(|point| point.at >= first) {
                let place = usize::try_from(point.at - first).unwrap_or(length);
                for (column, number) in columns.iter_mut().zip(point.numbers) {
                    if let Some(cell) = column.get_mut(place) {
                        *cell = Some(number);
                    }
                }
            }
        }
        history.series.extend(SERIES.into_iter().zip(columns));
        history
    }

    fn add(&self, interval: u64, table: &Table) {
        let mut kept = self.kept();
        let is_first = kept.newest == 0;
        kept.newest = interval;
        let mut before = std::mem::take(&mut kept.kinds);
        // What is not listed any more has been reset, deleted, or displaced by other kinds.
        for row in table.iter() {
            let key = (owned(row, "database"), owned(row, "fingerprint"));
            let mut trend = before.remove(&key).unwrap_or_default();
            trend.add(interval, row, is_first);
            kept.kinds.insert(key, trend);
        }
    }
}

impl Trend {
    /// Takes a sample; the first of all only says what was counted before.
    fn add(&mut self, interval: u64, row: Row<'_>, is_first: bool) {
        let times: Histogram = row.text("buckets").and_then(|text| text.parse().ok()).unwrap_or_default();
        let now = Counted { errors: row.number("errors"), total_us: row.number("total_us"), times };
        if now.total_us < self.counted.total_us {
            self.counted = Counted::default();
        }
        if let Some(numbers) = now.since(&self.counted, row.number("max_us")).filter(|_| !is_first) {
            self.points.push_back(Point { at: interval, numbers });
        }
        while self.points.front().is_some_and(|point| point.at + STEPS <= interval) {
            self.points.pop_front();
        }
        self.counted = now;
    }
}

impl Counted {
    #[expect(clippy::cast_precision_loss)]
    fn since(&self, earlier: &Counted, max_us: u64) -> Option<[f32; SERIES.len()]> {
        let grown = self.times.since(&earlier.times);
        let calls = grown.count();
        let p95_us = grown.quantile_us(950)?.min(max_us);
        let errors = self.errors.saturating_sub(earlier.errors);
        let mean_us = (self.total_us - earlier.total_us) / calls;
        Some([calls as f32 / STEP as f32, errors as f32 / STEP as f32, mean_us as f32, p95_us as f32])
    }
}

/// Takes a sample every ten seconds, until it is dropped.
pub(crate) async fn keep_query_trends(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(STEP));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !shared.config().global.track_queries {
            *shared.query_trends.kept() = Kept::default();
        } else if let Ok(table) = shared.bridge.show("QUERY_HISTOGRAMS").await {
            shared.query_trends.add(now_us() / 1_000_000 / STEP, &table);
        }
    }
}

fn owned(row: Row<'_>, name: &str) -> String {
    row.text(name).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::{Cell, Column, ColumnType};

    fn table(errors: u64, total_us: u64, buckets: &str) -> Table {
        let column = |name| Column { name, kind: ColumnType::Text };
        let names = ["database", "fingerprint", "errors", "total_us", "max_us", "buckets"];
        let row: Vec<Cell> = vec![
            "app".into(),
            "ab".into(),
            Cell::Sum(errors),
            Cell::Sum(total_us),
            Cell::from(70_u64),
            buckets.into(),
        ];
        Table { columns: names.map(column).into(), rows: vec![row] }
    }

    #[test]
    fn an_interval_has_what_was_counted_in_it() {
        let trends = QueryTrends::default();
        trends.add(1_000, &table(0, 500, "5:100"));
        trends.add(1_001, &table(0, 500, "5:100"));
        trends.add(1_002, &table(5, 1_900, "5:100 64:20"));
        let history = trends.history("app", "ab");
        let last = |name| history.series[name].last().copied().flatten();
        assert_eq!(SERIES.map(last), [Some(2.0), Some(0.5), Some(70.0), Some(70.0)]);
        assert_eq!(history.series["p95_us"].iter().flatten().count(), 1, "it ran in one interval");
        assert_eq!(history.from, (1_002 - 359) * STEP);
        assert!(trends.history("app", "none").series["p95_us"].iter().all(Option::is_none));
    }

    #[test]
    fn memory_has_an_end_and_a_reset_begins_anew() {
        let trends = QueryTrends::default();
        for interval in 1..=2_000 {
            trends.add(interval, &table(0, interval * 70, &format!("64:{interval}")));
        }
        let points = |trends: &QueryTrends| {
            trends.kept().kinds.values().map(|trend| trend.points.len()).sum::<usize>()
        };
        assert_eq!(points(&trends), usize::try_from(STEPS).expect("a small number"));
        trends.add(2_001, &table(0, 70, "64:1"));
        assert_eq!(trends.history("app", "ab").series["calls_rate"].last(), Some(&Some(0.1)));
        trends.add(2_002, &Table::default());
        assert_eq!(points(&trends), 0);
    }
}
