//! The last hour of each kind of query, a number every ten seconds: for the charts of a query's page.
//!
//! Owns how much is kept: of each kind that SHOW QUERIES has, the intervals in which it ran. Nothing is asked for while
//! `track_queries` is off. Never keeps a text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{QUERY_HISTOGRAMS, QueryHistogramColumn};
use serde::Serialize;
use telemetry::Histogram;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::table::{ViewRow, ViewTable};
use crate::time::now_us;

/// Seconds between two samples.
const STEP: u64 = 10;

/// The number of samples that are kept.
const STEPS: u64 = 360;

/// Names of the series, in the order of [`TrendPoint::numbers`].
const SERIES: [&str; 4] = ["calls_rate", "errors_rate", "mean_us", "p95_us"];

/// Database and fingerprint.
type Key = (String, String);

/// All kinds of queries.
#[derive(Default)]
pub(crate) struct QueryTrends(Mutex<Trends>);

#[derive(Default)]
struct Trends {
    /// The number of the newest interval since 1970.
    newest: u64,
    kinds: BTreeMap<Key, Trend>,
}

#[derive(Default)]
struct Trend {
    counters: CounterValues,
    points: VecDeque<TrendPoint>,
}

/// The figures at the last sample.
#[derive(Clone, Default)]
struct CounterValues {
    errors: u64,
    total_us: u64,
    times: Histogram,
}

/// One interval in which the query ran.
struct TrendPoint {
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
    fn locked(&self) -> MutexGuard<'_, Trends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last hour of one kind.
    pub(crate) fn history(&self, database: &str, fingerprint: &str) -> QueryHistory {
        let locked = self.locked();
        let first = (locked.newest + 1).saturating_sub(STEPS);
        let mut history = QueryHistory { step_seconds: STEP, from: first * STEP, series: BTreeMap::new() };
        let length = usize::try_from(STEPS).unwrap_or_default();
        let mut columns = SERIES.map(|_| vec![None; length]);
        if let Some(trend) = locked.kinds.get(&(database.to_owned(), fingerprint.to_owned())) {
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

    fn add(&self, interval: u64, table: &ViewTable<QueryHistogramColumn>) {
        let mut locked = self.locked();
        let is_first = locked.newest == 0;
        locked.newest = interval;
        let mut before = std::mem::take(&mut locked.kinds);
        // What is not listed any more has been reset, deleted, or displaced by other kinds.
        for row in table.iter() {
            let key =
                (row.owned(QueryHistogramColumn::Database), row.owned(QueryHistogramColumn::Fingerprint));
            let mut trend = before.remove(&key).unwrap_or_default();
            trend.add(interval, row, is_first);
            locked.kinds.insert(key, trend);
        }
    }
}

impl Trend {
    /// Takes a sample; the first of all only says what was counted before.
    fn add(&mut self, interval: u64, row: ViewRow<'_, QueryHistogramColumn>, is_first: bool) {
        let times: Histogram =
            row.text(QueryHistogramColumn::Buckets).and_then(|text| text.parse().ok()).unwrap_or_default();
        let now = CounterValues {
            errors: row.number(QueryHistogramColumn::Errors),
            total_us: row.number(QueryHistogramColumn::TotalUs),
            times,
        };
        if now.total_us < self.counters.total_us {
            self.counters = CounterValues::default();
        }
        if let Some(numbers) =
            now.since(&self.counters, row.number(QueryHistogramColumn::MaxUs)).filter(|_| !is_first)
        {
            self.points.push_back(TrendPoint { at: interval, numbers });
        }
        while self.points.front().is_some_and(|point| point.at + STEPS <= interval) {
            self.points.pop_front();
        }
        self.counters = now;
    }
}

impl CounterValues {
    #[expect(clippy::cast_precision_loss)]
    fn since(&self, earlier: &CounterValues, max_us: u64) -> Option<[f32; SERIES.len()]> {
        let grown = self.times.since(&earlier.times);
        let calls = grown.count();
        let p95_us = grown.quantile_us(950)?.min(max_us);
        let errors = self.errors.saturating_sub(earlier.errors);
        let mean_us = (self.total_us - earlier.total_us) / calls;
        Some([calls as f32 / STEP as f32, errors as f32 / STEP as f32, mean_us as f32, p95_us as f32])
    }
}

/// Takes a sample every ten seconds, until it is dropped.
pub(crate) async fn run_query_trends(
    context: PanelContext,
    control_client: Arc<ControlClient>,
    query_trends: Arc<QueryTrends>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(STEP));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !context.config().global.track_queries {
            *query_trends.locked() = Trends::default();
        } else if let Ok(table) = control_client.show(QUERY_HISTOGRAMS).await {
            query_trends.add(now_us() / 1_000_000 / STEP, &table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::rows_of;
    use messages::Cell;

    fn table(errors: u64, total_us: u64, buckets: &str) -> ViewTable<QueryHistogramColumn> {
        rows_of(&[&[
            (QueryHistogramColumn::Database, "app".into()),
            (QueryHistogramColumn::Fingerprint, "ab".into()),
            (QueryHistogramColumn::Errors, Cell::Sum(errors)),
            (QueryHistogramColumn::TotalUs, Cell::Sum(total_us)),
            (QueryHistogramColumn::MaxUs, Cell::from(70_u64)),
            (QueryHistogramColumn::Buckets, buckets.into()),
        ]])
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
            trends.locked().kinds.values().map(|trend| trend.points.len()).sum::<usize>()
        };
        assert_eq!(points(&trends), usize::try_from(STEPS).expect("a small number"));
        trends.add(2_001, &table(0, 70, "64:1"));
        assert_eq!(trends.history("app", "ab").series["calls_rate"].last(), Some(&Some(0.1)));
        trends.add(2_002, &ViewTable::default());
        assert_eq!(points(&trends), 0);
    }
}
