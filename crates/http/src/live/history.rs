//! The last ten minutes, a number a second: for charts that begin full.
//! Owns how much is kept: 600 numbers of each series of each database, of 500 databases. Never keeps a text.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use utoipa::ToSchema;

use crate::live::sample::{DatabaseSample, PoolSample, Quantiles, Sample};

/// So many seconds are kept.
pub(crate) const SECONDS: usize = 600;

/// Of so many databases; further ones have no past.
const DATABASES: usize = 500;

/// The series of a database, named as in a sample.
const OF_DATABASE: [&str; 20] = [
    "xact_rate",
    "query_rate",
    "wait_us_avg",
    "errors_rate",
    "xact_us.p50",
    "xact_us.p95",
    "xact_us.p99",
    "query_us.p50",
    "query_us.p95",
    "query_us.p99",
    "wait_us.p50",
    "wait_us.p95",
    "wait_us.p99",
    "cl_active",
    "cl_waiting",
    "sv_active",
    "sv_idle",
    "sv_used",
    "sv_login",
    "maxwait_us",
];

/// The series of the process.
const OF_PROCESS: [&str; 4] = ["clients", "servers", "cpu_percent", "rss_bytes"];

/// Everything that is kept.
#[derive(Default)]
pub(crate) struct History {
    /// The second of the newest sample.
    newest: u64,
    process: VecDeque<(u64, [f64; OF_PROCESS.len()])>,
    databases: BTreeMap<String, VecDeque<(u64, [f32; OF_DATABASE.len()])>>,
}

/// A past as the API tells it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Past {
    step_seconds: u32,
    /// Seconds since 1970 of the first number of each series.
    from: u64,
    /// By name; null where nothing was sampled or nothing happened.
    series: BTreeMap<&'static str, Vec<Option<f64>>>,
}

impl History {
    /// Keeps a sample.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn add(&mut self, sample: &Sample) {
        let second = sample.t as u64;
        self.newest = second;
        let totals = &sample.totals;
        let row = [totals.clients as f64, totals.servers as f64, totals.cpu_percent, totals.rss_bytes as f64];
        keep(&mut self.process, second, row);
        let oldest = second.saturating_sub(SECONDS as u64);
        self.databases.retain(|_, rows| rows.back().is_some_and(|(at, _)| *at > oldest));
        for database in &sample.databases {
            if self.databases.contains_key(&database.database) || self.databases.len() < DATABASES {
                let pools = sample.pools.iter().filter(|pool| pool.database == database.database);
                let rows = self.databases.entry(database.database.clone()).or_default();
                keep(rows, second, row_of(database, pools));
            }
        }
    }

    /// The last so many seconds of one database, or of the process.
    pub(crate) fn past(&self, database: Option<&str>, seconds: usize) -> Past {
        let seconds = seconds.clamp(1, SECONDS);
        let from = (self.newest + 1).saturating_sub(seconds as u64);
        let mut past = Past { step_seconds: 1, from, series: BTreeMap::new() };
        match database {
            None => past.fill(&OF_PROCESS, &self.process, seconds),
            Some(name) => {
                past.fill(&OF_DATABASE, self.databases.get(name).unwrap_or(&VecDeque::new()), seconds)
            }
        }
        past
    }
}

impl Past {
    fn fill<T: Into<f64> + Copy, const N: usize>(
        &mut self,
        names: &[&'static str; N],
        rows: &VecDeque<(u64, [T; N])>,
        seconds: usize,
    ) {
        for (column, name) in names.iter().enumerate() {
            let mut numbers = vec![None; seconds];
            for (second, row) in rows {
                let place = second.checked_sub(self.from).and_then(|place| usize::try_from(place).ok());
                let number: f64 = row[column].into();
                if let Some(place) =
                    place.and_then(|place| numbers.get_mut(place)).filter(|_| number.is_finite())
                {
                    *place = Some(number);
                }
            }
            self.series.insert(name, numbers);
        }
    }
}

fn keep<T>(rows: &mut VecDeque<(u64, T)>, second: u64, row: T) {
    rows.push_back((second, row));
    if rows.len() > SECONDS {
        rows.pop_front();
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn row_of<'a>(
    database: &DatabaseSample,
    pools: impl Iterator<Item = &'a PoolSample>,
) -> [f32; OF_DATABASE.len()] {
    let mut sums = [0_u64; 7];
    for pool in pools {
        let counts =
            [pool.cl_active, pool.cl_waiting, pool.sv_active, pool.sv_idle, pool.sv_used, pool.sv_login];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        sums[6] = sums[6].max(pool.maxwait_us);
    }
    let mut row = [f32::NAN; OF_DATABASE.len()];
    let rates = [database.xact_rate, database.query_rate, database.wait_us_avg, database.errors_rate];
    let quantiles = [database.xact_us, database.query_us, database.wait_us];
    let quantiles = quantiles.iter().flat_map(|Quantiles { p50, p95, p99 }| [*p50, *p95, *p99]);
    let numbers = rates.into_iter().map(|rate| rate as f32);
    let numbers = numbers.chain(quantiles.map(|us| us.map_or(f32::NAN, |us| us as f32)));
    let numbers = numbers.chain(sums.into_iter().map(|sum| sum as f32));
    row.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(t: f64, database: &str, xact_rate: f64) -> Sample {
        let database =
            DatabaseSample { database: database.to_owned(), xact_rate, ..DatabaseSample::default() };
        Sample { t, databases: vec![database], ..Sample::default() }
    }

    #[test]
    fn a_second_without_a_sample_is_a_gap() {
        let mut history = History::default();
        history.add(&sample(1_000.2, "app", 7.0));
        history.add(&sample(1_002.9, "app", 9.0));
        let past = history.past(Some("app"), 4);
        assert_eq!((past.from, past.step_seconds), (999, 1));
        assert_eq!(past.series["xact_rate"], [None, Some(7.0), None, Some(9.0)]);
        assert_eq!(past.series["xact_us.p50"], [None; 4]);
        assert_eq!(past.series["cl_active"][3], Some(0.0));
        assert_eq!(history.past(Some("none"), 2).series["xact_rate"], [None; 2]);
        assert_eq!(history.past(None, 1).series["clients"], [Some(0.0)]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut history = History::default();
        for number in 0..SECONDS + 50 {
            #[expect(clippy::cast_precision_loss)]
            history.add(&sample(1_000.0 + number as f64, &format!("db{number}"), 1.0));
        }
        assert_eq!((history.databases.len(), history.process.len()), (DATABASES, SECONDS));
    }
}
