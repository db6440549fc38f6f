//! One sample: what pools hold now, and what databases did since the sample before.
//! Owns how rates and percentiles come of two looks at counters that only grow. Never asks for anything.

use std::collections::BTreeMap;

use serde::Serialize;
use telemetry::{Histogram, Percentiles};
use utoipa::ToSchema;

use crate::live::process::Taken;
use crate::table::{Row, Table};

/// A sample.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Sample {
    /// Seconds since 1970.
    pub(crate) t: f64,
    pub(crate) pools: Vec<PoolSample>,
    pub(crate) databases: Vec<DatabaseSample>,
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
    /// How long the first of those who wait has waited.
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
    /// Errors a second that clients were told of.
    pub(crate) errors_rate: f64,
    /// The same by code: every code that there was since the start.
    pub(crate) errors: Vec<ErrorSample>,
}

/// Errors with one code that clients were told of.
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
    pub(crate) p50: Option<u64>,
    pub(crate) p95: Option<u64>,
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
pub(crate) struct Looked {
    pub(crate) pools: Table,
    pub(crate) totals: Table,
    pub(crate) histograms: Table,
    pub(crate) errors: Table,
    pub(crate) shards: Table,
}

/// The counters of a database.
#[derive(Clone, Default)]
struct Count {
    transactions: u64,
    queries: u64,
    assignments: u64,
    wait_us: u64,
    errors: BTreeMap<String, u64>,
    /// transaction, query, wait.
    histograms: [Histogram; 3],
}

/// What the sample before has counted.
#[derive(Default)]
pub(crate) struct Counted {
    t: f64,
    pools: usize,
    databases: BTreeMap<String, Count>,
}

/// The measures of SHOW HISTOGRAMS, in the order of [`Count::histograms`].
const MEASURES: [&str; 3] = ["transaction", "query", "wait"];

impl Counted {
    /// How many pools there were.
    pub(crate) fn pools(&self) -> usize {
        self.pools
    }

    /// A sample of what was looked at, and the counts for the next.
    pub(crate) fn sample(&mut self, t: f64, looked: &Looked, taken: Taken) -> Sample {
        let now = counts(looked);
        let seconds = if self.t > 0.0 { (t - self.t).max(0.001) } else { f64::INFINITY };
        let nothing = Count::default();
        let before = |name: &String| self.databases.get(name).unwrap_or(&nothing);
        let databases = now.iter().map(|(name, count)| grown(name, before(name), count, seconds)).collect();
        let sum = |name: &str| looked.shards.iter().map(|row| row.number(name)).sum();
        let totals = Totals {
            clients: sum("clients"),
            servers: sum("servers"),
            cpu_percent: taken.cpu_percent,
            rss_bytes: taken.rss_bytes,
        };
        let pools: Vec<PoolSample> = looked.pools.iter().map(pool).collect();
        *self = Counted { t, pools: pools.len(), databases: now };
        Sample { t, pools, databases, totals }
    }
}

fn pool(row: Row<'_>) -> PoolSample {
    PoolSample {
        database: row.text("database").unwrap_or_default().to_owned(),
        user: row.text("user").unwrap_or_default().to_owned(),
        cl_active: row.number("cl_active"),
        cl_waiting: row.number("cl_waiting"),
        sv_active: row.number("sv_active"),
        sv_idle: row.number("sv_idle"),
        sv_used: row.number("sv_used"),
        sv_login: row.number("sv_login"),
        maxwait_us: row.number("maxwait") * 1_000_000 + row.number("maxwait_us"),
    }
}

fn counts(looked: &Looked) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let name = |row: &Row<'_>| row.text("database").unwrap_or_default().to_owned();
    for row in looked.totals.iter() {
        let count = counts.entry(name(&row)).or_default();
        count.transactions = row.number("xact_count");
        count.queries = row.number("query_count");
        count.assignments = row.number("server_assignment_count");
        count.wait_us = row.number("wait_time");
    }
    for row in looked.errors.iter() {
        let code = row.text("sqlstate").unwrap_or_default().to_owned();
        *counts.entry(name(&row)).or_default().errors.entry(code).or_default() += row.number("count");
    }
    for row in looked.histograms.iter() {
        let Some(place) = MEASURES.iter().position(|measure| row.text("measure") == Some(measure)) else {
            continue;
        };
        if let Some(Ok(histogram)) = row.text("buckets").map(str::parse) {
            counts.entry(name(&row)).or_default().histograms[place].merge(&histogram);
        }
    }
    counts
}

#[expect(clippy::cast_precision_loss)]
fn grown(name: &str, before: &Count, now: &Count, seconds: f64) -> DatabaseSample {
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let assigned = now.assignments.saturating_sub(before.assignments).max(1);
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
        xact_rate: rate(before.transactions, now.transactions),
        query_rate: rate(before.queries, now.queries),
        wait_us_avg: now.wait_us.saturating_sub(before.wait_us) as f64 / assigned as f64,
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
    use messages::{Cell, Column, ColumnType};

    fn table(columns: &[&'static str], rows: Vec<Vec<Cell>>) -> Table {
        let columns = columns.iter().map(|name| Column { name, kind: ColumnType::Text }).collect();
        Table { columns, rows }
    }

    fn looked(transactions: u64, buckets: &str, errors: u64) -> Looked {
        Looked {
            pools: table(
                &["database", "maxwait", "maxwait_us"],
                vec![vec!["app".into(), Cell::from(2_u64), Cell::from(5_u64)]],
            ),
            totals: table(&["database", "xact_count"], vec![vec!["app".into(), Cell::Sum(transactions)]]),
            histograms: table(
                &["database", "measure", "buckets"],
                vec![vec!["app".into(), "transaction".into(), buckets.into()]],
            ),
            errors: table(
                &["sqlstate", "database", "count"],
                vec![vec!["42P01".into(), "app".into(), Cell::from(errors)]],
            ),
            shards: table(&["clients"], vec![vec![Cell::from(3_u64)], vec![Cell::from(4_u64)]]),
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut counted = Counted::default();
        let first = counted.sample(100.0, &looked(50, "1024:50", 3), Taken::default());
        assert!(first.databases[0].xact_rate.abs() < f64::EPSILON, "nobody knows since when");
        let second = counted.sample(102.0, &looked(150, "1024:50 8192:100", 7), Taken::default());
        assert!((second.databases[0].xact_rate - 50.0).abs() < 1e-9);
        assert!(second.databases[0].xact_us.p50.is_some_and(|us| us >= 8_192), "{:?}", second.databases);
        assert_eq!((second.totals.clients, second.pools[0].maxwait_us), (7, 2_000_005));
        assert!(second.databases[0].wait_us.p99.is_none());
        let told: Vec<_> = [&first, &second].map(|sample| sample.databases[0].errors[0].clone()).into();
        assert_eq!((told[0].count, told[1].count, told[1].sqlstate.as_str()), (3, 7, "42P01"));
        assert!(told[0].rate.abs() < 1e-9 && (told[1].rate - 2.0).abs() < 1e-9, "{told:?}");
    }
}
