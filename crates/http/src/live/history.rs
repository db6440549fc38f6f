//! The last ten minutes, a number a second: for charts that begin full.
//! Owns how much is kept: 600 numbers of each series of each database, of 500 databases, and of errors by code only those seconds that had
//! some, 2,400 of a database at most. Never keeps a text but the codes.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use utoipa::ToSchema;

use crate::live::sample::{DatabaseSample, ErrorSample, PoolSample, Quantiles, Sample};

/// So many seconds are kept.
pub(crate) const SECONDS: usize = 600;

/// Of so many databases; further ones have no past.
const DATABASES: usize = 500;

/// So many numbers of errors are kept of a database, the newest: four codes in every second.
const ERRORS: usize = 4 * SECONDS;

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
    databases: BTreeMap<String, OfDatabase>,
}

/// What is kept of a database.
#[derive(Default)]
struct OfDatabase {
    rows: VecDeque<(u64, [f32; OF_DATABASE.len()])>,
    /// A second, a code and how many a second there were.
    errors: VecDeque<(u64, telemetry::errors::Sqlstate, f32)>,
}

impl OfDatabase {
    #[expect(clippy::cast_possible_truncation)]
    fn add_errors(&mut self, second: u64, errors: &[ErrorSample]) {
        let oldest = second.saturating_sub(SECONDS as u64);
        while self.errors.front().is_some_and(|(at, ..)| *at <= oldest) {
            self.errors.pop_front();
        }
        for ErrorSample { sqlstate, rate, .. } in errors.iter().filter(|error| error.rate > 0.0) {
            self.errors.push_back((second, telemetry::errors::sqlstate(sqlstate.as_bytes()), *rate as f32));
        }
        let over = self.errors.len().saturating_sub(ERRORS);
        self.errors.drain(..over);
    }
}

/// A past as the API tells it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Past {
    step_seconds: u32,
    /// Seconds since 1970 of the first number of each series.
    from: u64,
    /// By name; null where nothing was sampled or nothing happened. Errors a second with one code are `errors.` and the code.
    series: BTreeMap<Cow<'static, str>, Vec<Option<f64>>>,
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
        self.databases.retain(|_, kept| kept.rows.back().is_some_and(|(at, _)| *at > oldest));
        for database in &sample.databases {
            if self.databases.contains_key(&database.database) || self.databases.len() < DATABASES {
                let pools = sample.pools.iter().filter(|pool| pool.database == database.database);
                let kept = self.databases.entry(database.database.clone()).or_default();
                keep(&mut kept.rows, second, row_of(database, pools));
                kept.add_errors(second, &database.errors);
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
                let nothing = OfDatabase::default();
                let kept = self.databases.get(name).unwrap_or(&nothing);
                past.fill(&OF_DATABASE, &kept.rows, seconds);
                past.fill_errors(kept);
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
                let number: f64 = row[column].into();
                if let Some(place) = place(self.from, *second, &mut numbers).filter(|_| number.is_finite()) {
                    *place = Some(number);
                }
            }
            self.series.insert(Cow::Borrowed(name), numbers);
        }
    }

    /// A series for each code that there was in this time: 0 in each second that was sampled and had none.
    fn fill_errors(&mut self, kept: &OfDatabase) {
        let Some(sampled) = self.series.get("errors_rate") else { return };
        let none: Vec<Option<f64>> = sampled.iter().map(|number| number.and(Some(0.0))).collect();
        for (second, code, rate) in kept.errors.iter().filter(|(second, ..)| *second >= self.from) {
            let code = str::from_utf8(code).unwrap_or("other");
            let numbers =
                self.series.entry(Cow::Owned(format!("errors.{code}"))).or_insert_with(|| none.clone());
            if let Some(place) = place(self.from, *second, numbers) {
                *place = Some((*rate).into());
            }
        }
    }
}

/// The place of a second among numbers that begin at `from`.
fn place(from: u64, second: u64, numbers: &mut [Option<f64>]) -> Option<&mut Option<f64>> {
    numbers.get_mut(usize::try_from(second.checked_sub(from)?).ok()?)
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
    fn errors_have_a_series_for_each_code() {
        let error = |code: &str, rate| ErrorSample { sqlstate: code.to_owned(), count: 9, rate };
        let mut history = History::default();
        for (t, errors) in [
            (1_000.0, vec![error("42P01", 2.0)]),
            (1_001.0, vec![error("22012", 0.0), error("42P01", 0.0)]),
            (1_003.0, vec![error("other", 1.0), error("42P01", 0.5)]),
        ] {
            let mut sample = sample(t, "app", 0.0);
            sample.databases[0].errors = errors;
            history.add(&sample);
        }
        let series = history.past(Some("app"), 4).series;
        assert_eq!(series["errors.42P01"], [Some(2.0), Some(0.0), None, Some(0.5)]);
        assert_eq!(series["errors.other"], [Some(0.0), Some(0.0), None, Some(1.0)]);
        assert!(!series.contains_key("errors.22012"), "it has only a total, from before");
        assert!(!history.past(Some("app"), 1).series.contains_key("errors.none"));
    }

    #[test]
    fn errors_that_are_kept_are_bounded() {
        let mut history = History::default();
        let errors: Vec<ErrorSample> = (0..60)
            .map(|code| ErrorSample { sqlstate: format!("U{code:04}"), count: 1, rate: 1.0 })
            .collect();
        for second in 0..300_u16 {
            let mut sample = sample(1_000.0 + f64::from(second), "app", 0.0);
            sample.databases[0].errors.clone_from(&errors);
            history.add(&sample);
        }
        assert_eq!(history.databases["app"].errors.len(), ERRORS);
        history.add(&sample(5_000.0, "app", 0.0));
        assert!(history.databases["app"].errors.is_empty());
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
