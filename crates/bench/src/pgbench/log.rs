//! pgbench's log of transactions, `CLIENT TRANSACTION TIME_US SCRIPT EPOCH EPOCH_US …`, one file for each of
//! its threads: read into a histogram, then removed. pgbench itself prints no percentiles.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use hdrhistogram::Histogram;

use crate::error::{LabError, Result};

/// What the files' names begin with; `.PROCESS` and `.PROCESS.THREAD` follow.
pub(super) const PREFIX: &str = "transactions";

const LONGEST_US: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Percentiles of the transactions' times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of them took at most this long, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 took at most this long, in milliseconds.
    pub p99_ms: f64,
}

/// Reads and removes the log files in `directory`; `None` when there are none, or no transaction in them.
pub(super) fn collect(directory: &Path) -> Result<Option<Latency>> {
    let doing = || LabError::system(format!("reading pgbench's log in {}", directory.display()));
    let Some(mut histogram) = empty() else { return Ok(None) };
    for entry in fs::read_dir(directory).map_err(doing())? {
        let entry = entry.map_err(doing())?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{PREFIX}.")) {
            let file = fs::File::open(entry.path()).map_err(doing())?;
            read(BufReader::new(file), &mut histogram).map_err(doing())?;
            fs::remove_file(entry.path()).map_err(doing())?;
        }
    }
    Ok(latency(&histogram))
}

fn empty() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).ok()
}

fn read(lines: impl BufRead, histogram: &mut Histogram<u64>) -> std::io::Result<()> {
    for line in lines.lines() {
        // The time may be a word, `failed` or `skipped`: such a transaction has none.
        if let Some(time_us) = line?.split(' ').nth(2).and_then(|time| time.parse().ok()) {
            histogram.saturating_record(time_us);
        }
    }
    Ok(())
}

fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    (!histogram.is_empty()).then(|| Latency { p50_ms: at(0.5), p99_ms: at(0.99) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percentiles_come_from_the_third_column_and_words_do_not_count() {
        let mut text = String::from("0 1 failed 0 1700000000 1\n1 2 skipped 0 1700000000 1\nodd\n\n");
        for number in 1..=100 {
            text.push_str(&format!("0 {number} {} 0 1700000000 123456\n", number * 1000));
        }
        let mut histogram = empty().unwrap();
        read(text.as_bytes(), &mut histogram).unwrap();
        let found = latency(&histogram).unwrap();
        assert_eq!(histogram.len(), 100);
        assert!((found.p50_ms - 50.0).abs() < 0.1, "{found:?}");
        assert!((found.p99_ms - 99.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn nothing_logged_is_no_latency() {
        assert_eq!(latency(&empty().unwrap()), None);
    }
}
