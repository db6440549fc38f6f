//! One row of history: the process and every database over one step of time, and the bytes that it is stored as.
//! Owns the names and the order of the series, and how a longer step is made of seconds. Never decides how long a row is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use telemetry::errors::{Sqlstate, sqlstate};

use crate::live::hosts::{self, HostPoints, HostSums};
use crate::live::sample::{DatabaseSample, LiveSample, PoolSample, Quantiles};

/// Databases that are kept of each second, the first by name.
pub(super) const DATABASES: usize = 500;

/// The codes of a database that are kept of a step.
const MAX_CODES: usize = 16;

/// The series of the process.
pub(super) const OF_PROCESS: [&str; 4] = ["clients", "servers", "cpu_percent", "rss_bytes"];

/// How the values of a longer step come of those of its seconds.
#[derive(Clone, Copy, PartialEq)]
enum Merge {
    Mean,
    Highest,
}

use Merge::{Highest, Mean};

/// The series of a database, named as in a sample. A mean of high percentiles would hide what they are looked at for.
pub(super) const OF_DATABASE: [&str; SERIES_COUNT] = names();
/// A number of its own, because the optimizing compiler finds a cycle in a type that depends on the array.
const SERIES_COUNT: usize = 20;
const SERIES: [(&str, Merge); SERIES_COUNT] = [
    ("xact_rate", Mean),
    ("query_rate", Mean),
    ("wait_us_avg", Mean),
    ("errors_rate", Mean),
    ("xact_us.p50", Mean),
    ("xact_us.p95", Highest),
    ("xact_us.p99", Highest),
    ("query_us.p50", Mean),
    ("query_us.p95", Highest),
    ("query_us.p99", Highest),
    ("wait_us.p50", Mean),
    ("wait_us.p95", Highest),
    ("wait_us.p99", Highest),
    ("cl_active", Mean),
    ("cl_waiting", Mean),
    ("sv_active", Mean),
    ("sv_idle", Mean),
    ("sv_used", Mean),
    ("sv_login", Mean),
    ("maxwait_us", Highest),
];

const fn names() -> [&'static str; SERIES_COUNT] {
    let mut names = [""; SERIES_COUNT];
    let mut place = 0;
    while place < names.len() {
        names[place] = SERIES[place].0;
        place += 1;
    }
    names
}

pub(super) type SeriesValues = [f32; SERIES_COUNT];

/// A step of time, from `second` on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HistoryPoint {
    pub(super) second: u64,
    pub(super) process: [f64; OF_PROCESS.len()],
    /// By name, in order.
    pub(super) databases: Vec<(Arc<str>, DatabasePoint)>,
    pub(super) hosts: HostPoints,
}

/// A database in it. What did not happen is NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DatabasePoint {
    pub(super) row: SeriesValues,
    /// Errors a second by code; only those that there were.
    pub(super) errors: Vec<(Sqlstate, f32)>,
}

impl HistoryPoint {
    /// The second of a sample, behind the one before.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn of(sample: &LiveSample, before: Option<&HistoryPoint>) -> HistoryPoint {
        let totals = &sample.totals;
        let process =
            [totals.clients as f64, totals.servers as f64, totals.cpu_percent, totals.rss_bytes as f64];
        let mut pools: BTreeMap<&str, Vec<&PoolSample>> = BTreeMap::new();
        for pool in &sample.pools {
            pools.entry(&pool.database).or_default().push(pool);
        }
        let databases = sample.databases.iter().take(DATABASES).map(|database| {
            let pools = pools.get(database.database.as_str()).into_iter().flatten().copied();
            let happened = database.errors.iter().filter(|error| error.rate > 0.0).take(MAX_CODES);
            let errors = happened.map(|error| (sqlstate(error.sqlstate.as_bytes()), error.rate as f32));
            let point = DatabasePoint { row: row_of(database, pools), errors: errors.collect() };
            (Arc::<str>::from(database.database.as_str()), point)
        });
        let mut databases: Vec<(Arc<str>, DatabasePoint)> = databases.collect();
        databases.sort_by(|(one, _), (other, _)| one.cmp(other));
        let known = HostPoints::new();
        let hosts = hosts::points(&sample.hosts, before.map_or(&known, |point| &point.hosts));
        HistoryPoint { second: sample.t as u64, process, databases, hosts }
    }

    /// What is kept of one database.
    pub(super) fn database(&self, name: &str) -> Option<&DatabasePoint> {
        let place = self.databases.binary_search_by(|(one, _)| (**one).cmp(name)).ok()?;
        self.databases.get(place).map(|(_, point)| point)
    }

    /// As it is stored; its hosts are stored beside it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.databases.len() * 112);
        self.process.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        for (name, DatabasePoint { row, errors }) in &self.databases {
            let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
            bytes.extend(length.to_le_bytes());
            bytes.extend(name.as_bytes().iter().take(length.into()));
            row.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            bytes.push(u8::try_from(errors.len()).unwrap_or(u8::MAX));
            for (code, rate) in errors.iter().take(u8::MAX.into()) {
                bytes.extend(code);
                bytes.extend(rate.to_le_bytes());
            }
        }
        bytes
    }

    /// What was stored of this second; None for bytes that are none.
    pub(super) fn read(second: u64, bytes: &[u8]) -> Option<HistoryPoint> {
        let mut rest = bytes;
        let mut point = HistoryPoint { second, ..HistoryPoint::default() };
        for number in &mut point.process {
            *number = f64::from_le_bytes(take(&mut rest)?);
        }
        while !rest.is_empty() && point.databases.len() < DATABASES {
            let length = u16::from_le_bytes(take(&mut rest)?);
            let (name, behind) = rest.split_at_checked(length.into())?;
            rest = behind;
            let mut database = DatabasePoint::default();
            for number in &mut database.row {
                *number = f32::from_le_bytes(take(&mut rest)?);
            }
            for _ in 0..take::<1>(&mut rest)?[0] {
                let code = sqlstate(&take::<5>(&mut rest)?);
                database.errors.push((code, f32::from_le_bytes(take(&mut rest)?)));
            }
            point.databases.push((str::from_utf8(name).ok()?.into(), database));
        }
        point.databases.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(point)
    }
}

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*taken)
}

/// A longer step, as its seconds come.
#[derive(Debug, Default)]
pub(super) struct StepSum {
    /// The first second of the step; None before there is one.
    begins: Option<u64>,
    seconds: u32,
    process: [f64; OF_PROCESS.len()],
    databases: BTreeMap<Arc<str>, DatabaseSum>,
    hosts: HostSums,
}

#[derive(Debug, Default)]
struct DatabaseSum {
    seconds: u32,
    values: [(f64, u32); SERIES.len()],
    errors: BTreeMap<Sqlstate, f64>,
}

impl StepSum {
    /// Adds a second; returns the step before if this one begins another. At most `databases` of a step are kept.
    pub(super) fn add(&mut self, point: &HistoryPoint, step: u64, databases: usize) -> Option<HistoryPoint> {
        let begins = point.second - point.second % step;
        let ended = self.begins.filter(|before| *before != begins).and_then(|_| self.so_far());
        if self.begins != Some(begins) {
            *self = StepSum { begins: Some(begins), ..StepSum::default() };
        }
        self.seconds += 1;
        self.process.iter_mut().zip(point.process).for_each(|(sum, number)| *sum += number);
        for (name, database) in &point.databases {
            if self.databases.contains_key(name) || self.databases.len() < databases {
                self.databases.entry(Arc::clone(name)).or_default().add(database);
            }
        }
        self.hosts.add(&point.hosts);
        ended
    }

    /// What there is of the step that is under way.
    pub(super) fn so_far(&self) -> Option<HistoryPoint> {
        let databases = self.databases.iter().map(|(name, sum)| (Arc::clone(name), sum.mean()));
        Some(HistoryPoint {
            second: self.begins?,
            process: self.process.map(|sum| sum / f64::from(self.seconds.max(1))),
            databases: databases.collect(),
            hosts: self.hosts.so_far(),
        })
    }
}

impl DatabaseSum {
    fn add(&mut self, point: &DatabasePoint) {
        self.seconds += 1;
        for (place, number) in point.row.iter().enumerate().filter(|(_, number)| number.is_finite()) {
            let (value, count) = &mut self.values[place];
            let number = f64::from(*number);
            *value = if SERIES[place].1 == Mean { *value + number } else { value.max(number) };
            *count += 1;
        }
        for (code, rate) in &point.errors {
            if self.errors.contains_key(code) || self.errors.len() < MAX_CODES {
                *self.errors.entry(*code).or_default() += f64::from(*rate);
            }
        }
    }

    #[expect(clippy::cast_possible_truncation)]
    fn mean(&self) -> DatabasePoint {
        let mut row = [f32::NAN; SERIES_COUNT];
        for (place, (value, count)) in self.values.iter().enumerate().filter(|(_, (_, count))| *count > 0) {
            let divisor = if SERIES[place].1 == Mean { f64::from(*count) } else { 1.0 };
            row[place] = (value / divisor) as f32;
        }
        let seconds = f64::from(self.seconds.max(1));
        let errors = self.errors.iter().map(|(code, sum)| (*code, (sum / seconds) as f32)).collect();
        DatabasePoint { row, errors }
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn row_of<'a>(database: &DatabaseSample, pools: impl Iterator<Item = &'a PoolSample>) -> SeriesValues {
    let mut sums = [0_u64; 7];
    for pool in pools {
        let counts =
            [pool.cl_active, pool.cl_waiting, pool.sv_active, pool.sv_idle, pool.sv_used, pool.sv_login];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        sums[6] = sums[6].max(pool.maxwait_us);
    }
    let mut row = [f32::NAN; SERIES_COUNT];
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn point(second: u64, rate: f32, p95: f32) -> HistoryPoint {
        let mut row = [f32::NAN; SERIES_COUNT];
        (row[0], row[5]) = (rate, p95);
        let errors = if rate > 5.0 { vec![(*b"42P01", rate)] } else { Vec::new() };
        let databases = vec![("app".into(), DatabasePoint { row, errors })];
        HistoryPoint { second, process: [2.0, 1.0, 0.5, 1e6], databases, hosts: HostPoints::new() }
    }

    #[test]
    fn what_is_stored_is_read_back_and_nothing_else_is() {
        let written = point(100, 7.0, 9.0);
        let bytes = written.bytes();
        let read = HistoryPoint::read(100, &bytes).unwrap();
        assert_eq!((read.process, &*read.databases[0].0), (written.process, "app"));
        let (one, other) = (&read.databases[0].1, &written.databases[0].1);
        assert_eq!(one.row.map(f32::to_bits), other.row.map(f32::to_bits));
        assert_eq!(one.errors, other.errors);
        for length in (1..bytes.len()).filter(|length| *length != 32) {
            assert_eq!(HistoryPoint::read(1, &bytes[..length]), None, "{length}");
        }
        assert_eq!(HistoryPoint::read(1, &[0xff; 200]), None);
    }

    #[test]
    fn a_longer_step_has_means_and_the_highest_percentiles() {
        let mut sum = StepSum::default();
        assert!(sum.so_far().is_none());
        assert!(sum.add(&point(100, 4.0, f32::NAN), 10, 1).is_none());
        assert!(sum.add(&point(101, 8.0, 3.0), 10, 1).is_none());
        assert!(sum.add(&point(109, 0.0, 7.0), 10, 1).is_none());
        let ended = sum.add(&point(110, 1.0, 1.0), 10, 1).unwrap();
        let database = ended.database("app").unwrap();
        assert_eq!((ended.second, database.row[0], database.row[5]), (100, 4.0, 7.0));
        assert!(database.row[1].is_nan() && (database.errors[0].1 - 8.0 / 3.0).abs() < 1e-6);
        assert_eq!(sum.so_far().unwrap().second, 110);
    }
}
