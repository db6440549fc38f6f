//! What pgbench's logs add up to: a line for each transaction, or for each `--aggregate-interval`. Counts only what
//! falls into the seconds that count; a line that is no log's is an error with the file's name and the line's number.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;

use hdrhistogram::Histogram;

use super::figures::Window;
use crate::error::Result;
use crate::load::raw;
use crate::record::{Lag, Latency, Percentiles};

const LONGEST_US: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// What happened in one second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tick {
    /// Transactions with a time.
    pub(crate) count: u64,
    /// Their times together.
    pub(crate) sum_us: f64,
    /// Transactions that failed.
    pub(crate) failed: u64,
}

/// What is counted over the logs of all threads.
pub(crate) struct Tally<'a> {
    window: &'a Window,
    think_us: &'a [u64],
    histogram: Option<Histogram<u64>>,
    /// Transactions with a time, in all.
    pub(super) lines: u64,
    /// Those that count.
    pub(crate) inside: u64,
    sum_us: f64,
    max_us: f64,
    lag_count: u64,
    lag_sum_us: f64,
    lag_max_us: f64,
    pub(crate) failed: u64,
    pub(super) skipped: u64,
    ticks: Vec<Tick>,
    /// Whether the logs have sums, and so no line for each transaction.
    pub(super) is_sums: bool,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(window: &'a Window, think_us: &'a [u64]) -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).ok();
        Self {
            window,
            think_us,
            histogram,
            lines: 0,
            inside: 0,
            sum_us: 0.0,
            max_us: 0.0,
            lag_count: 0,
            lag_sum_us: 0.0,
            lag_max_us: 0.0,
            failed: 0,
            skipped: 0,
            ticks: Vec::new(),
            is_sums: false,
        }
    }

    /// `CLIENT TRANSACTION TIME_US SCRIPT EPOCH EPOCH_US [LAG_US] [RETRIES]`; the time may be a word. It is 0 where the answer was
    /// there when pgbench had sent the request, because it looks at the clock once for both: then the transaction began when
    /// its client had ended the one before.
    pub(crate) fn read_transactions(&mut self, path: &Path) -> Result<()> {
        let mut ended: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
        each_line(path, |cells| {
            let [client, number, time, script, epoch, epoch_us, rest @ ..] = cells else { return None };
            let moment = epoch.parse::<f64>().ok()? + epoch_us.parse::<f64>().ok()? / 1e6;
            let number: u64 = number.parse().ok()?;
            let before = ended.insert(client.parse().ok()?, (number, moment));
            let counts = self.window.holds(moment);
            let Ok(time_us) = time.parse::<u64>() else {
                self.tick(moment).failed += u64::from(*time != "skipped");
                return self.word(time);
            };
            self.lines += 1;
            let time_us = match before {
                Some((last, before)) if time_us == 0 && last + 1 == number => whole((moment - before) * 1e6),
                _ => time_us,
            };
            let think_us = self.think_us.get(script.parse::<usize>().ok()?).copied().unwrap_or_default();
            let time_us = time_us.saturating_sub(think_us);
            let tick = self.tick(moment);
            tick.count += 1;
            tick.sum_us += time_us as f64;
            if counts {
                self.add(time_us);
                // With `--max-tries` and without `-R` the seventh column would be retries; the lab never asks for that.
                if let Some(lag_us) = rest.first().and_then(|lag| lag.parse::<f64>().ok()) {
                    self.add_lag(1, lag_us, lag_us);
                }
            }
            Some(())
        })
    }

    /// `START COUNT SUM SUM_OF_SQUARES MIN MAX [LAG_SUM LAG_SUM_OF_SQUARES LAG_MIN LAG_MAX [SKIPPED …]]`: 6, 10 or 11
    /// columns up to version 14, 15 since.
    pub(super) fn read_aggregates(&mut self, path: &Path) -> Result<()> {
        self.is_sums = true;
        each_line(path, |cells| {
            let numbers: Option<Vec<f64>> = cells.iter().map(|cell| cell.parse().ok()).collect();
            let numbers = numbers?;
            let [start, count, sum_us, _, _, max_us, rest @ ..] = numbers.as_slice() else { return None };
            if !self.window.holds(*start + 0.5) {
                return Some(());
            }
            self.lines += whole(*count);
            self.inside += whole(*count);
            self.sum_us += sum_us;
            self.max_us = self.max_us.max(*max_us);
            if let [lag_sum_us, _, _, lag_max_us, ..] = rest
                && *lag_sum_us > 0.0
            {
                self.add_lag(whole(*count), *lag_sum_us, *lag_max_us);
            }
            Some(())
        })
    }

    /// A second of the run, from 0.
    pub(crate) fn second(&self, number: usize) -> Tick {
        self.ticks.get(number).copied().unwrap_or_default()
    }

    /// The second of a moment; one that is out of all reason goes to the first.
    fn tick(&mut self, moment: f64) -> &mut Tick {
        let number = self.window.second(moment).unwrap_or_default();
        if self.ticks.len() <= number {
            self.ticks.resize(number + 1, Tick::default());
        }
        &mut self.ticks[number]
    }

    fn word(&mut self, word: &str) -> Option<()> {
        match word {
            "skipped" => self.skipped += 1,
            "failed" | "serialization" | "deadlock" | "other" => self.failed += 1,
            _ => return None,
        }
        Some(())
    }

    fn add(&mut self, time_us: u64) {
        self.inside += 1;
        self.sum_us += time_us as f64;
        self.max_us = self.max_us.max(time_us as f64);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(time_us);
        }
    }

    fn add_lag(&mut self, count: u64, sum_us: f64, max_us: f64) {
        self.lag_count += count;
        self.lag_sum_us += sum_us;
        self.lag_max_us = self.lag_max_us.max(max_us);
    }

    pub(crate) fn lag(&self) -> Option<Lag> {
        (self.lag_count > 0)
            .then(|| Lag { mean: self.lag_sum_us / self.lag_count as f64, max: self.lag_max_us })
    }

    pub(crate) fn latency(&self) -> Option<Latency> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty());
        let percentiles = histogram.map(|histogram| {
            let at = |quantile| histogram.value_at_quantile(quantile) as f64;
            Percentiles { p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), p999: at(0.999) }
        });
        (self.inside > 0).then(|| Latency {
            count: self.inside,
            mean: self.sum_us / self.inside as f64,
            max: self.max_us,
            percentiles,
        })
    }
}

/// Hands each line's cells to `take`; a line that it does not understand, or a last one without its end, is an error.
fn each_line(path: &Path, mut take: impl FnMut(&[&str]) -> Option<()>) -> Result<()> {
    let mut reader = raw::open(path)?;
    let mut line = String::new();
    let mut number = 0u64;
    loop {
        line.clear();
        number += 1;
        match reader.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) if !line.ends_with('\n') => {
                return Err(raw::refuse(path, format!("has been cut in line {number}")));
            }
            Ok(_) => {}
            Err(fault) => return Err(raw::refuse(path, format!("cannot be read: {fault}"))),
        }
        let mut cells = [""; 20];
        let mut count = 0;
        for (place, cell) in cells.iter_mut().zip(line.split_whitespace()) {
            *place = cell;
            count += 1;
        }
        if take(&cells[..count]).is_none() {
            return Err(raw::refuse(path, format!("is no log of pgbench: line {number}")));
        }
    }
}

/// A count that was summed up as a number with a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are far below 2^53 and not negative"
)]
pub(crate) fn whole(count: f64) -> u64 {
    count.round().max(0.0) as u64
}
