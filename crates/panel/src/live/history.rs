//! The last day: a row a second of ten minutes, one for 10 s of two hours, one for a minute of 24 hours.
//!
//! Owns how much is kept: 600 + 720 + 1,440 rows, of 500 databases in those of a second and of 100 in the others, of each 20 numbers and at
//! most 16 codes of errors, and of 100 hosts; some 85 MB where all of that is used, 0.4 MB for each database otherwise. Never reads or writes a
//! file.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use crate::live::host_history::HostSeries;
use crate::live::point::{DATABASES, HistoryPoint, OF_DATABASE, OF_PROCESS, StepSum};
use crate::live::sample::LiveSample;
use crate::time::us_rfc3339;

/// The rows of one step.
struct Tier {
    step: u64,
    most: usize,
    databases: usize,
    rows: VecDeque<Arc<HistoryPoint>>,
    /// The row that is not complete yet.
    sum: StepSum,
    /// Rows from this second on are not stored yet.
    unsaved: u64,
}

/// Step in seconds, rows, databases.
pub(super) const TIERS: [(u64, usize, usize); 3] = [(1, 600, DATABASES), (10, 720, 100), (60, 1_440, 100)];

/// The clock may go back by so much without the past being another one.
const CLOCK_STEP: u64 = 60;

/// The longest past that can be asked for, in seconds.
pub(crate) const DAY: u64 = 86_400;

/// Everything that is kept.
pub(crate) struct History {
    tiers: [Tier; 3],
    newest: u64,
}

/// The rows of a span of time, each with its place.
pub(super) struct SpanRows {
    pub(super) step: u64,
    /// The first second.
    pub(super) from: u64,
    /// How many steps there are.
    pub(super) length: usize,
    pub(super) rows: Vec<(usize, Arc<HistoryPoint>)>,
}

/// What is new for the store: tier, row.
pub(super) type UnsavedRows = Vec<(u8, Arc<HistoryPoint>)>;

/// Which time is asked for; seconds since 1970, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpan {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl TimeSpan {
    /// What a request asks for: the last `seconds` (ten minutes), or from one second to another; up to the newest.
    pub(crate) fn asked(seconds: Option<u64>, from: Option<u64>, to: Option<u64>, newest: u64) -> TimeSpan {
        let to = to.unwrap_or(newest);
        let seconds = seconds.unwrap_or(600).clamp(1, DAY);
        TimeSpan { from: from.unwrap_or_else(|| (to + 1).saturating_sub(seconds)), to }
    }
}

/// A span of the history as the API shows it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct HistorySeries {
    pub(crate) step_seconds: u64,
    /// Seconds since 1970 of the first number of each series.
    pub(crate) from: u64,
    /// By name; null where nothing was sampled or nothing happened. Errors a second with one code are `errors.` and the code. Over
    /// steps of more than a second rates, counts and medians are means, other percentiles and maxwait the highest.
    pub(crate) series: BTreeMap<Cow<'static, str>, Vec<Option<f64>>>,
}

impl Default for History {
    fn default() -> History {
        let tier = |(step, most, databases)| Tier {
            step,
            most,
            databases,
            rows: VecDeque::new(),
            sum: StepSum::default(),
            unsaved: 0,
        };
        History { tiers: TIERS.map(tier), newest: 0 }
    }
}

impl Tier {
    fn push(&mut self, row: Arc<HistoryPoint>) {
        self.rows.push_back(row);
        if self.rows.len() > self.most {
            self.rows.pop_front();
        }
    }

    fn reach(&self) -> u64 {
        self.step * self.most as u64
    }

    /// Adds a second to the row that is under way.
    fn add_second(&mut self, point: &HistoryPoint) {
        if let Some(ended) = self.sum.add(point, self.step, self.databases) {
            self.push(Arc::new(ended));
        }
    }
}

impl History {
    /// Keeps a sample.
    pub(crate) fn add(&mut self, sample: &LiveSample) {
        let before = self.tiers[0].rows.back();
        let point = HistoryPoint::of(sample, before.map(|row| &**row));
        if point.second + CLOCK_STEP < self.newest {
            // The clock was set back: what is newer than now would stay for ever.
            *self = History::default();
        }
        if point.second <= self.newest {
            return;
        }
        self.newest = point.second;
        let [seconds, longer @ ..] = &mut self.tiers;
        longer.iter_mut().for_each(|tier| tier.add_second(&point));
        seconds.push(Arc::new(point));
    }

    /// The newest second.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Rows that were not given by this before, and when each tier begins: older rows need not be stored any more.
    pub(super) fn unsaved(&mut self) -> (UnsavedRows, [u64; 3]) {
        let mut rows = UnsavedRows::new();
        for (number, tier) in (0_u8..).zip(&mut self.tiers) {
            let new = tier.rows.iter().rev().take_while(|row| row.second >= tier.unsaved);
            rows.extend(new.map(|row| (number, Arc::clone(row))));
            tier.unsaved = tier.rows.back().map_or(tier.unsaved, |row| row.second + 1);
        }
        let begins = self.tiers.each_ref().map(|tier| (self.newest + 1).saturating_sub(tier.reach()));
        (rows, begins)
    }

    /// Those rows were not stored after all.
    pub(super) fn mark_unsaved(&mut self) {
        self.tiers.iter_mut().for_each(|tier| tier.unsaved = 0);
    }

    /// Puts in what another process has stored. Where both have a row, the one here stays.
    pub(super) fn restore(&mut self, stored: UnsavedRows, now: u64) {
        for (number, tier) in (0_u8..).zip(&mut self.tiers) {
            let own = std::mem::take(&mut tier.rows);
            let mut all: BTreeMap<u64, Arc<HistoryPoint>> = BTreeMap::new();
            let oldest = (now + 1).saturating_sub(tier.reach());
            let fits = |row: &HistoryPoint| row.second >= oldest && row.second <= now;
            let stored = stored.iter().filter(|(of, row)| *of == number && fits(row));
            all.extend(stored.map(|(_, row)| (row.second, Arc::clone(row))));
            let stored_to = all.keys().next_back().map_or(0, |second| second + tier.step);
            tier.unsaved = own.front().map_or(stored_to, |row| row.second.min(stored_to));
            all.extend(own.into_iter().map(|row| (row.second, row)));
            all.into_values().for_each(|row| tier.push(row));
        }
        let [seconds, longer @ ..] = &mut self.tiers;
        self.newest = seconds.rows.back().map_or(self.newest, |row| row.second.max(self.newest));
        // Rows that ended with the process before are complete only with its last seconds.
        for tier in longer {
            tier.sum = StepSum::default();
            let known = tier.rows.back().map_or(0, |row| row.second + tier.step);
            seconds.rows.iter().filter(|row| row.second >= known).for_each(|row| tier.add_second(row));
        }
    }

    /// The rows of a span, in the finest steps that reach back so far; the one that is under way too.
    fn span_rows(&self, span: TimeSpan) -> Option<SpanRows> {
        let oldest = (self.newest + 1).saturating_sub(DAY).min(self.newest);
        let to = span.to.clamp(oldest, self.newest);
        let from = span.from.clamp(oldest, to);
        let reaches = |tier: &&Tier| from + tier.reach() > self.newest;
        let tier = self.tiers.iter().find(reaches).or(self.tiers.last())?;
        let from = from - from % tier.step;
        let length = usize::try_from((to - from) / tier.step + 1).unwrap_or(0).min(tier.most + 1);
        let under_way = tier.sum.so_far().map(Arc::new);
        let place = |row: &HistoryPoint| {
            let steps = row.second.checked_sub(from)? / tier.step;
            usize::try_from(steps).ok().filter(|place| *place < length)
        };
        let rows = tier.rows.iter().chain(&under_way);
        let rows = rows.filter_map(|row| Some((place(row)?, Arc::clone(row)))).collect();
        Some(SpanRows { step: tier.step, from, length, rows })
    }

    /// The past of the hosts of an entry.
    pub(crate) fn host_series(&self, database: &str, span: TimeSpan) -> HostSeries {
        self.span_rows(span).map_or_else(HostSeries::default, |rows| HostSeries::of(database, &rows))
    }

    /// The past of one database, or of the process.
    pub(crate) fn series(&self, database: Option<&str>, span: TimeSpan) -> HistorySeries {
        let Some(SpanRows { step, from, length, rows }) = self.span_rows(span) else {
            return HistorySeries::default();
        };
        let mut series = HistorySeries { step_seconds: step, from, series: BTreeMap::new() };
        match database {
            None => {
                series.fill(&OF_PROCESS, length, rows.iter().map(|(place, row)| (*place, row.process)));
            }
            Some(name) => {
                let own = rows.iter().filter_map(|(place, row)| Some((*place, row.database(name)?)));
                let own: Vec<_> = own.collect();
                series.fill(
                    &OF_DATABASE,
                    length,
                    own.iter().map(|(place, of)| (*place, of.row.map(f64::from))),
                );
                for (place, of) in own {
                    series.add_errors(place, &of.errors);
                }
            }
        }
        series
    }
}

impl HistorySeries {
    /// A line for each step, the time first (RFC 3339), then the series by name; nothing where there is no number.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("time");
        self.series.keys().for_each(|name| text.extend([",", name.as_ref()]));
        text.push('\n');
        let length = self.series.values().map(Vec::len).max().unwrap_or(0);
        for (place, step) in (0_u64..).enumerate().take(length) {
            text.push_str(&us_rfc3339((self.from + step * self.step_seconds) * 1_000_000));
            for column in self.series.values() {
                text.push(',');
                if let Some(Some(number)) = column.get(place) {
                    let _ = write!(text, "{}", (number * 1e3).round() / 1e3);
                }
            }
            text.push('\n');
        }
        text
    }

    fn fill<const N: usize>(
        &mut self,
        names: &[&'static str; N],
        length: usize,
        rows: impl Iterator<Item = (usize, [f64; N])>,
    ) {
        let mut columns = vec![vec![None; length]; N];
        for (place, row) in rows {
            for (column, number) in columns.iter_mut().zip(row) {
                column[place] = number.is_finite().then_some(number);
            }
        }
        self.series.extend(names.iter().map(|name| Cow::Borrowed(*name)).zip(columns));
    }

    /// A code that there was has a series: 0 in each step that was sampled and had none.
    fn add_errors(&mut self, place: usize, errors: &[(telemetry::errors::Sqlstate, f32)]) {
        for (code, rate) in errors {
            let name = format!("errors.{}", str::from_utf8(code).unwrap_or("other"));
            if !self.series.contains_key(name.as_str()) {
                let sampled = self.series.get("errors_rate").map(Vec::as_slice).unwrap_or_default();
                let none = sampled.iter().map(|number| number.and(Some(0.0))).collect();
                self.series.insert(Cow::Owned(name.clone()), none);
            }
            let column = self.series.get_mut(name.as_str());
            if let Some(number) = column.and_then(|column| column.get_mut(place)) {
                *number = Some((*rate).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::live::hosts::{HostSample, HostState};
    use crate::live::sample::{DatabaseSample, ErrorSample};

    fn sample(t: f64, database: &str, xact_rate: f64) -> LiveSample {
        let database =
            DatabaseSample { database: database.to_owned(), xact_rate, ..DatabaseSample::default() };
        LiveSample { t, databases: vec![database], ..LiveSample::default() }
    }

    fn last(history: &History, database: Option<&str>, seconds: u64) -> HistorySeries {
        let to = history.newest();
        history.series(database, TimeSpan { from: (to + 1).saturating_sub(seconds), to })
    }

    #[test]
    fn a_second_without_a_sample_is_a_gap() {
        let mut history = History::default();
        history.add(&sample(1_000.2, "app", 7.0));
        history.add(&sample(1_002.9, "app", 9.0));
        let series = last(&history, Some("app"), 4);
        assert_eq!((series.from, series.step_seconds), (999, 1));
        assert_eq!(series.series["xact_rate"], [None, Some(7.0), None, Some(9.0)]);
        assert_eq!(series.series["xact_us.p50"], [None; 4]);
        assert_eq!(series.series["cl_active"][3], Some(0.0));
        assert_eq!(last(&history, Some("none"), 2).series["xact_rate"], [None; 2]);
        assert_eq!(last(&history, None, 1).series["clients"], [Some(0.0)]);
    }

    #[test]
    fn hosts_have_series_and_the_changes_of_their_states() {
        let mut history = History::default();
        let host = |state, lag_bytes| HostSample {
            database: "app".to_owned(),
            host: "h".to_owned(),
            port: 5432,
            state,
            timeline: Some(1),
            lag_bytes,
            lag_seconds: lag_bytes.map(|_| 0.5),
        };
        for (t, state, lag) in [(1_000.0, HostState::Standby, Some(7)), (1_001.0, HostState::Down, None)] {
            history.add(&LiveSample { t, hosts: vec![host(state, lag)], ..LiveSample::default() });
        }
        let series = history.host_series("app", TimeSpan { from: 999, to: 1_001 });
        assert_eq!(
            serde_json::to_value(&series).unwrap(),
            serde_json::json!({"step_seconds": 1, "from": 999, "hosts": [{
                "host": "h:5432", "lag_bytes": [null, 7.0, null], "lag_seconds": [null, 0.5, null],
                "changes": [{"t": 1_000, "state": "standby", "timeline": 1}, {"t": 1_001, "state": "down", "timeline": 1}],
            }]})
        );
        let csv = series.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[1], "1970-01-01T00:16:40Z,h:5432,standby,1,7,0.5");
        assert_eq!(lines[2], "1970-01-01T00:16:41Z,h:5432,down,1,,");
        let minutes = history.host_series("app", TimeSpan { from: 0, to: 1_001 });
        assert!(history.host_series("other", TimeSpan { from: 0, to: 1_001 }).hosts.is_empty());
        assert_eq!((minutes.step_seconds, minutes.hosts.len()), (10, 1), "with the step that is under way");
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
        let series = last(&history, Some("app"), 4).series;
        assert_eq!(series["errors.42P01"], [Some(2.0), Some(0.0), None, Some(0.5)]);
        assert_eq!(series["errors.other"], [Some(0.0), Some(0.0), None, Some(1.0)]);
        assert!(!series.contains_key("errors.22012"), "it has only a total, from before");
        assert!(!last(&history, Some("app"), 1).series.contains_key("errors.none"));
    }

    /// This many seconds of a database whose rate is the second's number.
    fn over(seconds: std::ops::Range<u32>) -> History {
        let mut history = History::default();
        for second in seconds {
            history.add(&sample(f64::from(second), "app", f64::from(second)));
        }
        history
    }

    #[test]
    fn longer_ago_steps_are_longer_and_what_is_kept_is_bounded() {
        let history = over(100_000..200_000);
        assert_eq!(history.tiers.each_ref().map(|tier| tier.rows.len()), [600, 720, 1_440]);
        assert_eq!(last(&history, Some("app"), 600).step_seconds, 1);
        let hour = last(&history, Some("app"), 3_600);
        assert_eq!((hour.step_seconds, hour.series["xact_rate"].len()), (10, 360));
        assert!(hour.series["xact_rate"].iter().all(Option::is_some), "with the step that is under way");
        let day = last(&history, None, 10 * DAY);
        assert_eq!((day.step_seconds, day.series["clients"].len()), (60, 1_441));
        let zoomed = history.series(Some("app"), TimeSpan { from: 150_000, to: 150_599 });
        assert_eq!((zoomed.step_seconds, zoomed.series["xact_rate"].len()), (60, 10));
        assert_eq!(zoomed.series["xact_rate"][0], Some(150_029.5));
        let before = history.series(None, TimeSpan { from: 0, to: 5 });
        assert_eq!((before.from, before.series["clients"].len()), (113_580, 1), "before all that is kept");
    }

    #[test]
    fn what_was_stored_goes_on_where_it_ended() {
        let mut before = over(100_000..100_657);
        let (rows, begins) = before.unsaved();
        assert_eq!(begins[0], 100_057);
        assert!(before.unsaved().0.is_empty());
        before.mark_unsaved();
        assert_eq!(before.unsaved().0.len(), rows.len());
        let rows: UnsavedRows = rows
            .iter()
            .map(|(tier, row)| (*tier, Arc::new(HistoryPoint::read(row.second, &row.bytes()).unwrap())))
            .collect();
        let mut after = over(100_660..100_664);
        after.restore(rows, 100_663);
        let series = last(&after, Some("app"), 10);
        let rates = series.series["xact_rate"].iter().map(|rate| rate.map(|rate| rate - 100_000.0));
        let known = |rate: u32| Some(f64::from(rate));
        let expected = [known(654), known(655), known(656), None, None, None];
        assert_eq!(rates.take(6).collect::<Vec<_>>(), expected);
        let minutes = after.series(Some("app"), TimeSpan { from: 100_000, to: 100_663 });
        assert!(minutes.series["xact_rate"][0].is_some(), "{minutes:?}");
        let stored = after.unsaved().0;
        assert!(stored.iter().filter(|(tier, _)| *tier == 0).all(|(_, row)| row.second >= 100_660));
    }

    #[test]
    fn a_table_of_values_has_a_line_for_each_step() {
        let csv = last(&over(100_000..100_002), Some("app"), 3).csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("time,cl_active,") && lines[0].ends_with(",xact_us.p99"), "{csv}");
        assert!(lines[1].starts_with("1970-01-02T03:46:39Z,,") && lines[3].contains(",100001,"), "{csv}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_clock_that_was_set_back_begins_anew() {
        let mut history = over(100_000..100_100);
        history.add(&sample(50_000.0, "app", 1.0));
        assert_eq!((history.newest(), history.tiers[0].rows.len()), (50_000, 1));
        history.add(&sample(49_990.0, "app", 1.0));
        assert_eq!(history.newest(), 50_000, "a little is waited for");
    }
}
