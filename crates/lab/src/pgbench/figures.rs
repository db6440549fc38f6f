//! The figures of a run from what pgbench left behind. The seconds that count are found by the times of day in its
//! progress lines, and the log's own times say which transactions fall into them. Never mends a log that is cut.

use std::collections::BTreeMap;

use super::load::{OWN, complaints as complained};
use super::parse::{self, Progress};
use super::tally::{Tally, whole};
use crate::error::Result;
use crate::load::{Asked, Figures, RawFiles, Span, raw};
use crate::record::{Ended, RawKind, Second};

/// Reads all of it.
///
/// # Errors
/// [`LabError::Record`](crate::error::LabError::Record) with the name of a file that is cut or is no log of pgbench.
pub fn figures(files: &RawFiles<'_>, asked: &Asked) -> Result<Figures> {
    let said = files.text(RawKind::Progress)?;
    let summary = parse::summary(&files.text(RawKind::Summary)?);
    let ticks: Vec<Progress> = said.lines().filter_map(parse::progress).collect();
    let counted = asked.span.transactions.is_some();
    let window = if counted { Window::all(&ticks) } else { Window::of(&ticks, asked.span) };
    let mut figures = complaints(&said);
    figures.per_second = seconds(&ticks, &window, asked);
    figures.seconds = window.length();
    figures.transactions = window.transactions(&ticks);
    if counted {
        let done = summary.as_ref().filter(|summary| summary.tps > 0.0);
        figures.transactions = done.map_or(0, |summary| summary.transactions);
        figures.seconds = done.map_or(0.0, |summary| summary.transactions as f64 / summary.tps);
    }
    let mut tally = Tally::new(&window, &asked.think_us);
    for path in files.of(RawKind::Transactions) {
        tally.read_transactions(&path)?;
    }
    for path in files.of(RawKind::Aggregates) {
        tally.read_aggregates(&path)?;
    }
    let is_complete = asked.sampling >= 1.0 && tally.lines > 0 && !tally.is_sums;
    if is_complete && !counted {
        figures.transactions = tally.inside;
    }
    if let Some(summary) = &summary {
        figures.connecting = summary.connecting();
        figures.failed = summary.failed.max(tally.failed);
        figures.skipped = summary.skipped.max(tally.skipped);
        if let Some(path) = files.of(RawKind::Transactions).next()
            && asked.sampling >= 1.0
            && tally.lines < summary.transactions
        {
            let fault =
                format!("has been cut: {} of {} transactions are left", tally.lines, summary.transactions);
            return Err(raw::refuse(&path, fault));
        }
    }
    figures.lag_us = tally.lag();
    figures.latency_us = tally.latency();
    figures.ended = ended(&said, summary.is_some(), !counted && window.is_whole(asked.span), &figures);
    Ok(figures)
}

/// No run is a day long: a moment that is further away is a broken line.
const LONGEST_RUN_S: f64 = 86_400.0;

/// The seconds that count, as times of day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// When the clients began.
    start: f64,
    begin: f64,
    end: f64,
}

impl Window {
    fn of(ticks: &[Progress], span: Span) -> Self {
        let Some(first) = ticks.first() else { return Self::default() };
        let start = first.seconds - 1.0;
        let last_within = |seconds: u32| {
            let within = |tick: &&Progress| (tick.seconds - start).round() <= f64::from(seconds);
            ticks.iter().rev().find(within).map_or(start, |tick| tick.seconds)
        };
        Self { start, begin: last_within(span.warm_up_s), end: last_within(span.warm_up_s + span.seconds) }
    }

    /// All of a run, whenever it was.
    pub(super) fn whole() -> Self {
        Self { start: f64::INFINITY, begin: f64::NEG_INFINITY, end: f64::INFINITY }
    }

    /// All of a run, from the moment at which the clients began.
    fn all(ticks: &[Progress]) -> Self {
        let start = ticks.first().map_or(f64::INFINITY, |first| first.seconds - 1.0);
        Self { start, ..Self::whole() }
    }

    /// From a moment on at which the clients began.
    pub(crate) fn at(start: f64, span: Span) -> Self {
        let begin = start + f64::from(span.warm_up_s);
        Self { start, begin, end: begin + f64::from(span.seconds) }
    }

    /// Which second of the run a moment belongs to, from 0.
    pub(super) fn second(&self, moment: f64) -> Option<usize> {
        let seconds = (moment - self.start).floor();
        (0.0..LONGEST_RUN_S).contains(&seconds).then(|| usize::try_from(whole(seconds)).ok())?
    }

    pub(crate) fn length(&self) -> f64 {
        self.end - self.begin
    }

    pub(super) fn holds(&self, moment: f64) -> bool {
        moment > self.begin && moment <= self.end
    }

    fn is_whole(&self, span: Span) -> bool {
        self.length().round() >= f64::from(span.seconds)
    }

    /// By the progress lines, each of which tells a rate since the one before.
    fn transactions(&self, ticks: &[Progress]) -> u64 {
        let mut before = self.start;
        let mut count = 0.0;
        for tick in ticks {
            if self.holds(tick.seconds) {
                count += tick.tps * (tick.seconds - before);
            }
            before = tick.seconds;
        }
        whole(count)
    }
}

fn seconds(ticks: &[Progress], window: &Window, asked: &Asked) -> Vec<Second> {
    let thinks = asked.think_us.iter().any(|think_us| *think_us > 0);
    let kept = ticks.iter().filter(|tick| tick.seconds <= window.end);
    kept.map(|tick| Second {
        at_s: ((tick.seconds - window.start) * 1000.0).round() / 1000.0,
        warm_up: tick.seconds <= window.begin,
        tps: tick.tps,
        // pgbench counts think time into its mean, and which script slept how often is not said here.
        mean_ms: tick.mean_ms.filter(|_| !thinks),
        failed: tick.failed,
    })
    .collect()
}

/// The complaints, and how many clients were refused.
fn complaints(said: &str) -> Figures {
    let mut errors = BTreeMap::new();
    let mut refused = [0u32; 2];
    for line in complained(said) {
        // A refusal has up to two lines: the server's words, and that a client has no connection.
        refused[0] += u32::from(line.contains("connection") && line.contains("failed:"));
        refused[1] += u32::from(
            line.contains("could not create connection for client")
                || line.contains("aborted while establishing connection"),
        );
        *errors.entry(without_numbers(&line)).or_insert(0) += 1;
    }
    Figures { errors, refused: refused.into_iter().max().unwrap_or_default(), ..Figures::default() }
}

/// The server's own words where there are some; else the line, with `N` for its numbers, so that equal complaints of
/// different clients are one.
fn without_numbers(line: &str) -> String {
    for sign in ["FATAL:", "ERROR:", "PANIC:"] {
        if let Some(at) = line.find(sign) {
            return line[at..].to_owned();
        }
    }
    let mut text = String::new();
    for letter in line.chars() {
        match letter {
            digit if digit.is_ascii_digit() => {
                if !text.ends_with('N') {
                    text.push('N');
                }
            }
            other => text.push(other),
        }
    }
    text
}

fn ended(said: &str, has_summary: bool, is_whole: bool, figures: &Figures) -> Ended {
    let status = said.lines().rev().find_map(|line| line.strip_prefix(OWN)).unwrap_or_default();
    let is_success = status == "exit status: 0";
    if has_summary && (is_success || is_whole) {
        return Ended::Whole;
    }
    let mut complaints: Vec<&str> = figures.errors.keys().map(String::as_str).collect();
    // pgbench's own line about a client adds nothing to the server's words.
    if complaints.iter().any(|line| line.starts_with("FATAL:")) {
        complaints.retain(|line| line.starts_with("FATAL:"));
    }
    let words = if complaints.is_empty() { status.to_owned() } else { complaints.join("; ") };
    if figures.refused > 0 && is_for_want_of_room(&words) {
        Ended::Refused(words)
    } else {
        Ended::Failed(words)
    }
}

/// Whether a refusal means that the connection limit is reached, rather than that logins fail.
pub(crate) fn is_for_want_of_room(words: &str) -> bool {
    const SIGNS: [&str; 5] = [
        "too many clients",
        "connection slots are reserved",
        "too many connections",
        "no more connections allowed",
        "connection limit exceeded",
    ];
    SIGNS.iter().any(|sign| words.contains(sign))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::record::RawLog;

    /// Five seconds from 1000 on, of which the first is warm-up and the last is the way out.
    const PROGRESS: &str = "\
lab: pgbench -n
progress: 1001.000 s, 100.0 tps, lat 9.000 ms stddev 1.0, 0 failed
progress: 1002.002 s, 200.0 tps, lat 5.000 ms stddev 1.0, 0 failed
progress: 1003.000 s, 300.0 tps, lat 4.000 ms stddev 1.0, 2 failed
progress: 1004.000 s, 50.0 tps, lat 4.000 ms stddev 1.0, 0 failed
lab: exit status: 0
";
    const SUMMARY: &str = "\
pgbench (15.18)
number of transactions actually processed: 4
number of failed transactions: 2 (0.3%)
latency average = 1.767 ms
tps = 160.0 (without initial connection time)
";
    const LOG: &str = "\
0 1 9000 0 1000 500000
0 2 4000 0 1002 2000
0 3 6000 1 1002 900000
1 3 failed 1 1002 900000
1 4 deadlock 1 1002 900000
0 4 1000 1 1003 600000
";

    fn read(name: &str, files: &[(&str, RawKind, &str)], asked: &Asked) -> Result<Figures> {
        let directory = std::env::temp_dir().join(format!("weir-figures-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let log = |(path, kind, text): &(&str, RawKind, &str)| {
            std::fs::write(directory.join(path), text).unwrap();
            RawLog { path: (*path).to_owned(), kind: *kind, bytes: text.len() as u64 }
        };
        let logs: Vec<RawLog> = files.iter().map(log).collect();
        let found = figures(&RawFiles { directory: &directory, logs: &logs }, asked);
        std::fs::remove_dir_all(directory).unwrap();
        found
    }

    fn asked() -> Asked {
        Asked { span: Span::seconds(1, 2), sampling: 1.0, think_us: vec![0, 1000], clients: 2 }
    }

    #[test]
    fn only_the_seconds_that_count_do() {
        let files = [
            ("p", RawKind::Progress, PROGRESS),
            ("s", RawKind::Summary, SUMMARY),
            ("l", RawKind::Transactions, LOG),
        ];
        let found = read("window", &files, &asked()).unwrap();
        assert_eq!((found.transactions, found.failed, found.ended), (2, 2, Ended::Whole));
        assert!((found.seconds - 2.0).abs() < 1e-6);
        let latency = found.latency_us.unwrap();
        assert_eq!((latency.count, latency.mean, latency.max), (2, 4500.0, 5000.0));
        assert!((latency.percentiles.unwrap().p50 - 4000.0).abs() < 10.0);
        let seconds: Vec<(f64, bool)> = found.per_second.iter().map(|now| (now.at_s, now.warm_up)).collect();
        assert_eq!(seconds, [(1.0, true), (2.002, false), (3.0, false)]);
    }

    #[test]
    fn a_sampled_log_gives_times_and_the_progress_gives_the_count() {
        let files = [
            ("p", RawKind::Progress, PROGRESS),
            ("s", RawKind::Summary, SUMMARY),
            ("l", RawKind::Transactions, LOG),
        ];
        let found = read("sampled", &files, &Asked { sampling: 0.5, ..asked() }).unwrap();
        assert_eq!(found.transactions, 500, "200 and 300 in a second each");
        assert_eq!(found.latency_us.unwrap().count, 2);
    }

    #[test]
    fn of_a_fixed_number_of_transactions_all_count() {
        let span = Span { warm_up_s: 0, seconds: 0, transactions: Some(2) };
        let files = [
            ("p", RawKind::Progress, PROGRESS),
            ("s", RawKind::Summary, SUMMARY),
            ("l", RawKind::Transactions, LOG),
        ];
        let found = read("counted", &files, &Asked { span, ..asked() }).unwrap();
        assert_eq!((found.transactions, found.ended), (4, Ended::Whole));
        assert!((found.seconds - 4.0 / 160.0).abs() < 1e-9, "as pgbench itself divides");
        assert_eq!(found.latency_us.unwrap().count, 4);
        assert!(found.per_second.iter().all(|second| !second.warm_up && second.at_s.is_finite()));
        let short = [("p", RawKind::Progress, "lab: exit status: 0\n"), files[1], files[2]];
        assert_eq!(
            read("short", &short, &Asked { span, ..asked() }).unwrap().transactions,
            4,
            "less than a second"
        );
    }

    #[test]
    fn sums_have_no_percentiles() {
        let of_15 =
            "1001 200 800000 1 10 9000 0 0 0 0 0 0 0 0 0\n1002 300 900000 1 10 7000 0 0 0 0 0 0 0 0 0\n";
        let of_13 = "1001 200 800000 1 10 9000\n1002 300 900000 1 10 7000\n";
        for log in [of_13, of_15] {
            let files = [("p", RawKind::Progress, PROGRESS), ("l", RawKind::Aggregates, log)];
            let latency = read("sums", &files, &asked()).unwrap().latency_us.unwrap();
            assert_eq!((latency.count, latency.mean, latency.max), (500, 3400.0, 9000.0));
            assert_eq!(latency.percentiles, None);
        }
    }

    #[test]
    fn how_late_an_open_loop_was_is_told() {
        let log = "0 2 4000 0 1002 2000 300\n0 3 6000 0 1002 900000 500\n0 4 skipped 0 1002 900000 500\n";
        let files = [("p", RawKind::Progress, PROGRESS), ("l", RawKind::Transactions, log)];
        let found = read("late", &files, &asked()).unwrap();
        assert_eq!(found.lag_us.map(|lag| (lag.mean, lag.max)), Some((400.0, 500.0)));
    }

    #[test]
    fn a_cut_log_is_an_error_with_its_name() {
        let log = |text: &'static str| {
            read(
                "cut",
                &[
                    ("p", RawKind::Progress, PROGRESS),
                    ("s", RawKind::Summary, SUMMARY),
                    ("transactions.1", RawKind::Transactions, text),
                ],
                &asked(),
            )
        };
        for (text, words) in [
            ("0 1 9000 0 1000 500000\n", "has been cut: 1 of 4"),
            ("0 1 9000 0 1000 500000\n0 1 90", "has been cut in line 2"),
            ("0 1 9000 0\n", "is no log of pgbench: line 1"),
            ("\u{0}\n", "is no log of pgbench"),
        ] {
            let said = log(text).unwrap_err().to_string();
            assert!(said.contains(words) && said.contains("transactions.1"), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_run_that_was_refused_says_by_whom() {
        let of_15 = "\
pgbench: error: connection to server at \"127.0.0.1\", port 5432 failed: FATAL:  sorry, too many clients already
pgbench: error: could not create connection for client 97
lab: exit status: 1
";
        let found = read("refused", &[("p", RawKind::Progress, of_15)], &asked()).unwrap();
        assert!(
            matches!(&found.ended, Ended::Refused(words) if words == "FATAL:  sorry, too many clients already")
        );
        assert_eq!((found.refused, found.transactions), (1, 0));
        assert_eq!(found.errors.get("FATAL:  sorry, too many clients already"), Some(&1));
        let of_13 = "connection to database \"x\" failed:\nFATAL:  password authentication failed\nlab: exit status: 1\n";
        let found = read("password", &[("p", RawKind::Progress, of_13)], &asked()).unwrap();
        assert!(matches!(&found.ended, Ended::Failed(words) if words.contains("password")));
    }

    #[test]
    fn equal_complaints_of_different_clients_are_one() {
        assert_eq!(
            without_numbers("error: client 12 script 0 aborted in command 4 query 0: "),
            without_numbers("error: client 7 script 1 aborted in command 5 query 0: ")
        );
        assert_eq!(without_numbers("client 1: ERROR:  deadlock detected"), "ERROR:  deadlock detected");
    }
}
