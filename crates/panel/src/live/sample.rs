//! One sample: what pools hold now, and what databases did since the sample before.
//! Owns how rates and percentiles come of two looks at counters that only grow. Never asks for anything.

use std::collections::BTreeMap;

use control::{ErrorColumn, HistogramColumn, HostColumn, Measure, PoolColumn, ShardColumn, TotalsColumn};
use serde::Serialize;
use settings::Config;
use telemetry::{COUNTERS, Counters, Histogram, Percentiles};
use utoipa::ToSchema;

use crate::live::hosts::{self, HostSample};
use crate::live::process_usage::ProcessUsage;
use crate::table::{ViewRow, ViewTable};

/// A sample.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct LiveSample {
    /// Seconds since 1970.
    pub(crate) t: f64,
    pub(crate) pools: Vec<PoolSample>,
    pub(crate) databases: Vec<DatabaseSample>,
    /// The hosts of entries whose reads go to standbys.
    pub(crate) hosts: Vec<HostSample>,
    pub(crate) totals: Totals,
}

/// A pool now.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct PoolSample {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) cl_active: u64,
    pub(crate) cl_waiting: u64,
    pub(crate) sv_active: u64,
    pub(crate) sv_idle: u64,
    pub(crate) sv_used: u64,
    pub(crate) sv_login: u64,
    /// How long the longest waiting client has waited.
    pub(crate) maxwait_us: u64,
}

/// A database since the sample before.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct DatabaseSample {
    pub(crate) database: String,
    /// Transactions a second.
    pub(crate) xact_rate: f64,
    /// Queries a second.
    pub(crate) query_rate: f64,
    /// How long a client waited for a server, on average.
    pub(crate) wait_us_avg: f64,
    pub(crate) xact_us: Quantiles,
    pub(crate) query_us: Quantiles,
    pub(crate) wait_us: Quantiles,
    /// Errors a second that clients received.
    pub(crate) errors_rate: f64,
    /// The same by code: every code that there was since the start.
    pub(crate) errors: Vec<ErrorSample>,
}

/// Errors with one code that clients received.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ErrorSample {
    /// Five characters, or `other`.
    pub(crate) sqlstate: String,
    /// Since the start.
    pub(crate) count: u64,
    /// A second, since the sample before.
    pub(crate) rate: f64,
}

/// Percentiles in microseconds; null where nothing happened.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Quantiles {
    #[schema(required)]
    pub(crate) p50: Option<u64>,
    #[schema(required)]
    pub(crate) p95: Option<u64>,
    #[schema(required)]
    pub(crate) p99: Option<u64>,
}

/// The process now.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Totals {
    pub(crate) clients: u64,
    pub(crate) servers: u64,
    /// Of one processor.
    pub(crate) cpu_percent: f64,
    pub(crate) rss_bytes: u64,
}

/// What was asked for.
pub(crate) struct ViewTables {
    pub(crate) pools: ViewTable<PoolColumn>,
    pub(crate) totals: ViewTable<TotalsColumn>,
    pub(crate) histograms: ViewTable<HistogramColumn>,
    pub(crate) errors: ViewTable<ErrorColumn>,
    pub(crate) shards: ViewTable<ShardColumn>,
    pub(crate) hosts: ViewTable<HostColumn>,
}

/// The counters of a database.
#[derive(Clone, Default)]
struct Count {
    counters: Counters,
    errors: BTreeMap<String, u64>,
    /// transaction, query, wait.
    histograms: [Histogram; 3],
}

/// What the sample before has counted.
#[derive(Default)]
pub(crate) struct CounterSnapshot {
    t: f64,
    pools: usize,
    databases: BTreeMap<String, Count>,
}

/// The measures of SHOW HISTOGRAMS, in the order of [`Count::histograms`].
const MEASURES: [Measure; 3] = [Measure::Transaction, Measure::Query, Measure::Wait];

impl CounterSnapshot {
    /// How many pools there were.
    pub(crate) fn pools(&self) -> usize {
        self.pools
    }

    /// A sample of what was looked at, and the counts for the next.
    pub(crate) fn sample(
        &mut self,
        t: f64,
        tables: &ViewTables,
        config: &Config,
        usage: ProcessUsage,
    ) -> LiveSample {
        let now = counts(tables);
        let seconds = if self.t > 0.0 { (t - self.t).max(0.001) } else { f64::INFINITY };
        let nothing = Count::default();
        let before = |name: &String| self.databases.get(name).unwrap_or(&nothing);
        let databases = now.iter().map(|(name, count)| rates(name, before(name), count, seconds)).collect();
        let sum = |column| tables.shards.iter().map(|row| row.number(column)).sum();
        let totals = Totals {
            clients: sum(ShardColumn::Clients),
            servers: sum(ShardColumn::Servers),
            cpu_percent: usage.cpu_percent,
            rss_bytes: usage.rss_bytes,
        };
        let pools: Vec<PoolSample> = tables.pools.iter().map(pool).collect();
        *self = CounterSnapshot { t, pools: pools.len(), databases: now };
        LiveSample { t, pools, databases, hosts: hosts::samples(&tables.hosts, config), totals }
    }
}

fn pool(row: ViewRow<'_, PoolColumn>) -> PoolSample {
    PoolSample {
        database: row.text(PoolColumn::Database).unwrap_or_default().to_owned(),
        user: row.text(PoolColumn::User).unwrap_or_default().to_owned(),
        cl_active: row.number(PoolColumn::ClActive),
        cl_waiting: row.number(PoolColumn::ClWaiting),
        sv_active: row.number(PoolColumn::SvActive),
        sv_idle: row.number(PoolColumn::SvIdle),
        sv_used: row.number(PoolColumn::SvUsed),
        sv_login: row.number(PoolColumn::SvLogin),
        maxwait_us: row.number(PoolColumn::Maxwait) * 1_000_000 + row.number(PoolColumn::MaxwaitUs),
    }
}

fn counts(tables: &ViewTables) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for row in tables.totals.iter() {
        let count = counts.entry(row.owned(TotalsColumn::Database)).or_default();
        let values = (0..COUNTERS.len()).map(|place| row.number(TotalsColumn::Counter(place)));
        count.counters = Counters::of(values);
    }
    for row in tables.errors.iter() {
        let count = counts.entry(row.owned(ErrorColumn::Database)).or_default();
        *count.errors.entry(row.owned(ErrorColumn::Sqlstate)).or_default() += row.number(ErrorColumn::Count);
    }
    for row in tables.histograms.iter() {
        let measure = row.text(HistogramColumn::Measure);
        let Some(place) = MEASURES.iter().position(|one| measure == Some(one.word())) else { continue };
        if let Some(Ok(histogram)) = row.text(HistogramColumn::Buckets).map(str::parse) {
            let count = counts.entry(row.owned(HistogramColumn::Database)).or_default();
            count.histograms[place].merge(&histogram);
        }
    }
    counts
}

#[expect(clippy::cast_precision_loss)]
fn rates(name: &str, before: &Count, now: &Count, seconds: f64) -> DatabaseSample {
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let assigned =
        now.counters.server_assignment_count.saturating_sub(before.counters.server_assignment_count).max(1);
    let quantiles = |place: usize| {
        let Percentiles { p50_us, p95_us, p99_us } =
            Percentiles::between(Some(&before.histograms[place]), &now.histograms[place]);
        Quantiles { p50: p50_us, p95: p95_us, p99: p99_us }
    };
    let error = |(code, count): (&String, &u64)| ErrorSample {
        sqlstate: code.clone(),
        count: *count,
        rate: rate(before.errors.get(code).copied().unwrap_or(0), *count),
    };
    let errors: Vec<ErrorSample> = now.errors.iter().map(error).collect();
    DatabaseSample {
        database: name.to_owned(),
        xact_rate: rate(before.counters.xact_count, now.counters.xact_count),
        query_rate: rate(before.counters.query_count, now.counters.query_count),
        wait_us_avg: now.counters.wait_time.saturating_sub(before.counters.wait_time) as f64
            / assigned as f64,
        xact_us: quantiles(0),
        query_us: quantiles(1),
        wait_us: quantiles(2),
        errors_rate: errors.iter().map(|error| error.rate).sum(),
        errors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::rows_of;
    use messages::Cell;

    fn tables(transactions: u64, buckets: &str, errors: u64) -> ViewTables {
        let is_xact_count = |counter: &telemetry::Counter| counter.name == "xact_count";
        let xact_count = COUNTERS.iter().position(is_xact_count).expect("a counter");
        ViewTables {
            pools: rows_of(&[&[
                (PoolColumn::Database, "app".into()),
                (PoolColumn::Maxwait, Cell::from(2_u64)),
                (PoolColumn::MaxwaitUs, Cell::from(5_u64)),
            ]]),
            totals: rows_of(&[&[
                (TotalsColumn::Database, "app".into()),
                (TotalsColumn::Counter(xact_count), Cell::Sum(transactions)),
            ]]),
            histograms: rows_of(&[&[
                (HistogramColumn::Database, "app".into()),
                (HistogramColumn::Measure, "transaction".into()),
                (HistogramColumn::Buckets, buckets.into()),
            ]]),
            errors: rows_of(&[&[
                (ErrorColumn::Sqlstate, "42P01".into()),
                (ErrorColumn::Database, "app".into()),
                (ErrorColumn::Count, Cell::from(errors)),
            ]]),
            shards: rows_of(&[
                &[(ShardColumn::Clients, Cell::from(3_u64))],
                &[(ShardColumn::Clients, Cell::from(4_u64))],
            ]),
            hosts: ViewTable::default(),
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut counted = CounterSnapshot::default();
        let (config, usage) = (Config::default(), ProcessUsage::default);
        let first = counted.sample(100.0, &tables(50, "1024:50", 3), &config, usage());
        assert!(first.databases[0].xact_rate.abs() < f64::EPSILON, "nobody knows since when");
        let second = counted.sample(102.0, &tables(150, "1024:50 8192:100", 7), &config, usage());
        assert!((second.databases[0].xact_rate - 50.0).abs() < 1e-9);
        assert!(second.databases[0].xact_us.p50.is_some_and(|us| us >= 8_192), "{:?}", second.databases);
        assert_eq!((second.totals.clients, second.pools[0].maxwait_us), (7, 2_000_005));
        assert!(second.databases[0].wait_us.p99.is_none());
        let told: Vec<_> = [&first, &second].map(|sample| sample.databases[0].errors[0].clone()).into();
        assert_eq!((told[0].count, told[1].count, told[1].sqlstate.as_str()), (3, 7, "42P01"));
        assert!(told[0].rate.abs() < 1e-9 && (told[1].rate - 2.0).abs() < 1e-9, "{told:?}");
    }
}
