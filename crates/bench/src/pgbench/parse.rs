//! What pgbench prints, in the words of versions 10 to 18: the summary on standard output, progress and
//! complaints on standard error. Lines that are not known are passed over.

use std::str::FromStr;

/// The figures at the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Transactions per second; time for connecting is not counted unless every transaction connects.
    pub tps: f64,
    /// Transactions that went through.
    pub transactions: u64,
    /// Transactions that failed and were not repeated (15 and later count them).
    pub failed: u64,
    /// Mean time of a transaction.
    pub latency_average_ms: Option<f64>,
    /// Time until all clients were in (14 and later say it).
    pub connecting_ms: Option<f64>,
}

/// One line of `-P`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Seconds since the start.
    pub seconds: f64,
    /// Transactions per second since the line before.
    pub tps: f64,
}

/// The summary of a whole standard output; `None` when pgbench gave up before it had one.
#[must_use]
pub fn summary(stdout: &str) -> Option<Summary> {
    let mut found = Summary::default();
    let mut is_whole = false;
    for line in stdout.lines() {
        let number = |name: &str| line.strip_prefix(name).and_then(first_number::<f64>);
        let count = |name: &str| line.strip_prefix(name).and_then(first_number::<u64>);
        if let Some(tps) = number("tps = ") {
            // Up to version 13 there are two such lines; the one without the time for connecting comes last.
            found.tps = tps;
        } else if let Some(transactions) = count("number of transactions actually processed:") {
            // The line comes even when there was none, and then no other follows.
            is_whole = true;
            found.transactions = transactions;
        } else if let Some(transactions) = count("number of failed transactions:") {
            found.failed = transactions;
        } else if let Some(time) = number("latency average =") {
            found.latency_average_ms = Some(time);
        } else if let Some(time) = number("initial connection time =") {
            found.connecting_ms = Some(time);
        }
    }
    is_whole.then_some(found)
}

/// A line of `-P 1`: `progress: 1.0 s, 2840.9 tps, lat …`.
#[must_use]
pub fn progress(line: &str) -> Option<Progress> {
    let mut parts = line.strip_prefix("progress: ")?.split(", ");
    let seconds = parts.next()?.strip_suffix(" s").and_then(first_number)?;
    let tps = parts.next()?.strip_suffix(" tps").and_then(first_number)?;
    Some(Progress { seconds, tps })
}

/// How far `pgbench -i` is, between 0 and 1: from `… of … tuples (33%) …`.
#[must_use]
pub fn initialised(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" tuples (")?;
    let percent: f64 = rest.split('%').next()?.parse().ok()?;
    Some(percent / 100.0)
}

/// The lines in which a server refused or pgbench gave up, without pgbench's own name in front.
pub(super) fn complaints(stderr: &[String]) -> Vec<String> {
    const SIGNS: [&str; 5] = ["error:", "fatal:", "FATAL:", "ERROR:", "PANIC:"];
    let lines = stderr.iter().filter(|line| SIGNS.iter().any(|sign| line.contains(sign)));
    lines.map(|line| line.trim_start_matches("pgbench: ").to_owned()).collect()
}

/// The number at the front, after spaces.
fn first_number<T: FromStr>(text: &str) -> Option<T> {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VERSION_15: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 3
query mode: simple
number of clients: 5
number of threads: 2
maximum number of tries: 1
duration: 2 s
number of transactions actually processed: 5619
number of failed transactions: 0 (0.000%)
latency average = 1.767 ms
latency stddev = 0.754 ms
initial connection time = 9.000 ms
tps = 2809.851231 (without initial connection time)
";

    const VERSION_18: &str = "\
pgbench (18.6)
transaction type: <builtin: select only>
scaling factor: 3
query mode: simple
number of clients: 3
number of threads: 1
maximum number of tries: 1
duration: 1 s
number of transactions actually processed: 336
number of failed transactions: 2 (0.591%)
latency average = 8.972 ms
average connection time = 2.941 ms
tps = 334.390911 (including reconnection times)
";

    const VERSION_13: &str = "\
transaction type: <builtin: TPC-B (sort of)>
number of transactions actually processed: 100/100
latency average = 2.5 ms
tps = 380.0 (including connections establishing)
tps = 400.5 (excluding connections establishing)
";

    #[test]
    fn summaries_of_several_versions_are_read() {
        let found = summary(VERSION_15).unwrap();
        assert_eq!((found.tps, found.transactions, found.failed), (2809.851231, 5619, 0));
        assert_eq!((found.latency_average_ms, found.connecting_ms), (Some(1.767), Some(9.0)));
        let found = summary(VERSION_18).unwrap();
        assert_eq!((found.tps, found.transactions, found.failed), (334.390911, 336, 2));
        assert_eq!(found.connecting_ms, None);
        let found = summary(VERSION_13).unwrap();
        assert_eq!((found.tps, found.transactions), (400.5, 100));
    }

    #[test]
    fn a_run_that_gave_up_has_no_summary() {
        assert_eq!(summary("pgbench (18.6)\n"), None);
        assert_eq!(summary(""), None);
        let idle = "number of transactions actually processed: 0\nnumber of failed transactions: 0 (NaN%)\n";
        assert_eq!(summary(idle), Some(Summary::default()));
    }

    #[test]
    fn progress_lines_of_several_versions_are_read() {
        let of_15 = "progress: 1.0 s, 2840.9 tps, lat 1.734 ms stddev 0.580, 0 failed";
        assert_eq!(progress(of_15), Some(Progress { seconds: 1.0, tps: 2840.9 }));
        let of_13 = "progress: 12.0 s, 99.0 tps, lat 1.734 ms stddev 0.580, lag 1.0 ms";
        assert_eq!(progress(of_13), Some(Progress { seconds: 12.0, tps: 99.0 }));
        assert_eq!(progress("pgbench: error: x"), None);
        assert_eq!(progress("progress: soon"), None);
    }

    #[test]
    fn filling_is_followed_in_both_wordings() {
        let of_15 = "100000 of 300000 tuples (33%) done (elapsed 0.01 s, remaining 0.02 s)";
        let of_18 =
            "100000 of 300000 tuples (33%) of pgbench_accounts done (elapsed 0.01 s, remaining 0.03 s)";
        assert_eq!(initialised(of_15), Some(0.33));
        assert_eq!(initialised(of_18), Some(0.33));
        assert_eq!(initialised("vacuuming..."), None);
    }

    #[test]
    fn refusals_are_kept_and_progress_is_not() {
        let lines = [
            "progress: 1.0 s, 1 tps",
            "pgbench: error: connection to server at \"127.0.0.1\", port 1 failed: FATAL:  sorry, too many clients already",
            "pgbench: error: could not create connection for client 23",
        ];
        let found = complaints(&lines.map(str::to_owned));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("error: connection to server"));
    }
}
