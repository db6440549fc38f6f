//! What pgbench prints, in the words of versions 10 to 18: the summary on standard output, progress and
//! complaints on standard error. Lines that are not known are passed over.

use std::str::FromStr;

use crate::record::Connecting;

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
    /// Transactions per second with that time counted (up to 13 said it).
    pub tps_including: Option<f64>,
    /// Transactions that were not begun because they were too late already (`-R` with `-L`).
    pub skipped: u64,
    /// How late transactions began: mean and largest (`-R`).
    pub lag_ms: Option<(f64, f64)>,
}

impl Summary {
    /// What connecting took, and throughput with and without it; `None` where pgbench says nothing of it.
    #[must_use]
    pub fn connecting(&self) -> Option<Connecting> {
        let by_time = || {
            let seconds = self.transactions as f64 / self.tps + self.connecting_ms? / 1000.0;
            Some(self.transactions as f64 / seconds).filter(|tps| tps.is_finite())
        };
        let tps_including = self.tps_including.or_else(by_time)?;
        Some(Connecting { ms: self.connecting_ms, tps_including, tps_excluding: self.tps })
    }
}

/// One line of `-P`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds since the start; since 1970 with `--progress-timestamp`.
    pub seconds: f64,
    /// Transactions per second since the line before.
    pub tps: f64,
    /// Mean time of those transactions.
    pub mean_ms: Option<f64>,
    /// How late they began on average, with `-R`.
    pub lag_ms: Option<f64>,
    /// How many were not begun, with `-R` and `-L`.
    pub skipped: u64,
    /// How many failed (15 and later say it).
    pub failed: u64,
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
            if line.contains("including connections establishing") {
                found.tps_including = Some(tps);
            }
        } else if let Some(transactions) = count("number of transactions actually processed:") {
            // The line comes even when there was none, and then no other follows.
            is_whole = true;
            found.transactions = transactions;
        } else if let Some(transactions) = count("number of failed transactions:") {
            found.failed = transactions;
        } else if let Some(transactions) = count("number of transactions skipped:") {
            found.skipped = transactions;
        } else if let Some(time) = number("rate limit schedule lag: avg") {
            let largest = line.split_once("(max ").and_then(|(_, rest)| first_number(rest));
            found.lag_ms = Some((time, largest.unwrap_or(time)));
        } else if let Some(time) = number("latency average =").or_else(|| number("latency average:")) {
            // A colon up to version 9.6.
            found.latency_average_ms = Some(time);
        } else if let Some(time) = number("initial connection time =") {
            found.connecting_ms = Some(time);
        }
    }
    is_whole.then_some(found)
}

/// A line of `-P 1`: `progress: 1.0 s, 2840.9 tps, lat 1.734 ms stddev 0.580, lag 0.1 ms, 0 skipped, 0 failed`.
/// What has no meaning (a mean of nothing is `NaN`) is left out.
#[must_use]
pub fn progress(line: &str) -> Option<Progress> {
    let mut parts = line.strip_prefix("progress: ")?.split(", ");
    let seconds = parts.next()?.strip_suffix(" s").and_then(first_number)?;
    let tps = parts.next()?.strip_suffix(" tps").and_then(first_number)?;
    let mut found = Progress { seconds, tps, ..Progress::default() };
    for part in parts {
        if let Some(mean) = part.strip_prefix("lat ") {
            found.mean_ms = first_number(mean);
        } else if let Some(lag) = part.strip_prefix("lag ") {
            found.lag_ms = first_number(lag);
        } else if let Some(count) = part.strip_suffix(" skipped") {
            found.skipped = first_number(count)?;
        } else if let Some(count) = part.strip_suffix(" failed") {
            found.failed = first_number(count)?;
        }
    }
    Some(found)
}

/// How far `pgbench -i` is, between 0 and 1: from `… of … tuples (33%) …`.
#[must_use]
pub fn initialised(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" tuples (")?;
    let percent: f64 = rest.split('%').next()?.parse().ok()?;
    Some(percent / 100.0)
}

/// The lines in which a server refused or pgbench gave up, without pgbench's own name in front.
pub(super) fn complaints<T: AsRef<str>>(stderr: impl IntoIterator<Item = T>) -> Vec<String> {
    const SIGNS: [&str; 8] =
        ["error:", "fatal:", "FATAL:", "ERROR:", "PANIC:", " aborted", " failed:", "closed the connection"];
    let of_interest =
        |line: &str| !line.starts_with("progress: ") && SIGNS.iter().any(|sign| line.contains(sign));
    let lines = stderr.into_iter().filter(|line| of_interest(line.as_ref()));
    lines.map(|line| line.as_ref().trim_start_matches("pgbench: ").to_owned()).collect()
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

    /// As the manuals of 10 to 12 show it; 10 and 12 themselves could not be had (`captured` has the others).
    const BY_THE_MANUAL: &str = "\
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 10
query mode: simple
number of clients: 10
number of threads: 1
number of transactions per client: 10
number of transactions actually processed: 100/100
latency average = 2.500 ms
latency stddev = 0.715 ms
tps = 380.000000 (including connections establishing)
tps = 400.500000 (excluding connections establishing)
";

    #[test]
    fn the_summary_of_the_manuals_is_read() {
        let found = summary(BY_THE_MANUAL).unwrap();
        assert_eq!((found.tps, found.transactions, found.failed), (400.5, 100, 0));
        assert_eq!((found.latency_average_ms, found.connecting_ms), (Some(2.5), None));
        assert_eq!(
            found.connecting().map(|told| (told.tps_including, told.tps_excluding)),
            Some((380.0, 400.5))
        );
        let since_14 = "number of transactions actually processed: 100\ninitial connection time = 50.000 ms\ntps = 400.0 \
                        (without initial connection time)\n";
        let told = summary(since_14).unwrap().connecting().unwrap();
        assert_eq!((told.ms, told.tps_excluding), (Some(50.0), 400.0));
        assert!(
            (told.tps_including - 100.0 / 0.3).abs() < 1e-9,
            "100 transactions in 0.25 s, and 0.05 s before them"
        );
        let failed = summary(
            "number of transactions actually processed: 336\nnumber of failed transactions: 2 (0.591%)\n\
             initial connection time = 9.000 ms\ntps = 334.390911 (including reconnection times)\n",
        );
        let failed = failed.unwrap();
        assert_eq!((failed.tps, failed.failed, failed.connecting_ms), (334.390911, 2, Some(9.0)));
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
        assert_eq!(
            progress(of_15),
            Some(Progress { seconds: 1.0, tps: 2840.9, mean_ms: Some(1.734), ..Progress::default() })
        );
        let of_13 = "progress: 12.0 s, 99.0 tps, lat 1.734 ms stddev 0.580, lag 1.0 ms, 4 skipped";
        let found = progress(of_13).unwrap();
        assert_eq!((found.seconds, found.tps, found.lag_ms, found.skipped), (12.0, 99.0, Some(1.0), 4));
        let stamped =
            "progress: 1795210000.123 s, 0.0 tps, lat NaN ms stddev NaN, 3 failed, 1 retried, 2 retries";
        let found = progress(stamped).unwrap();
        assert_eq!((found.seconds, found.mean_ms, found.failed), (1_795_210_000.123, None, 3));
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
        let found = complaints(lines);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("error: connection to server"));
    }
}
