//! A measurement: some intervals at one size, and what they say together.

use super::{SizeInterval, SizeReport};

/// The noise of a measurement that is never believed to be less.
const LEAST_DEVIATION: f64 = 0.02;
const MOST_DEVIATION: f64 = 0.3;
/// That of one interval, which has nothing beside it to scatter from.
const DEVIATION_OF_ONE: f64 = 0.08;

/// Intervals of one size.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    sum: SizeReport,
    elapsed_us: u64,
    reporters: u32,
    /// The throughput of each interval.
    rates: Vec<f64>,
    stuck_intervals: u32,
    short_intervals: u32,
    /// Clients left most servers without work: so it was in the last interval, and in how many.
    was_idle: bool,
    idle_intervals: usize,
}

/// Clients have come or gone while it was measured: it says nothing of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Came,
    Went,
}

/// What a measurement says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Transactions in a second.
    pub(super) rate: f64,
    /// The variance of the logarithm of that.
    pub(super) variance: f64,
    /// Clients that waited, on average.
    pub(super) waiting: f64,
    /// Servers that were busy, on average.
    pub(super) busy: f64,
    /// Time at the server of a transaction, in milliseconds.
    pub(super) server_ms: f64,
}

impl Window {
    pub(super) fn add(&mut self, interval: &SizeInterval, size: u32) {
        self.sum.add(&interval.counted);
        self.elapsed_us += interval.elapsed_us;
        self.reporters = self.reporters.max(interval.reporters);
        self.rates.push(rate(&interval.counted, interval.reporters));
        self.was_idle = is_idle(interval, size);
        self.idle_intervals += usize::from(self.was_idle);
        self.stuck_intervals += u32::from(interval.stuck * 2 > size);
        self.short_intervals += u32::from(interval.waiting > 0 && interval.open + size / 10 < size);
    }

    pub(super) fn intervals(&self) -> usize {
        self.rates.len()
    }

    pub(super) fn elapsed_us(&self) -> u64 {
        self.elapsed_us
    }

    pub(super) fn transactions(&self) -> u64 {
        self.sum.transactions
    }

    pub(super) fn turn(&self) -> Option<Turn> {
        match (self.idle_intervals, self.was_idle) {
            (0, _) => None,
            (idle, true) => (idle < self.rates.len()).then_some(Turn::Went),
            (_, false) => Some(Turn::Came),
        }
    }

    /// Most of the servers did not serve, for a good part of the time.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck_intervals as usize * 3 >= self.rates.len().max(1)
    }

    /// Clients waited though more servers were allowed, most of the time.
    pub(super) fn is_short(&self) -> bool {
        self.short_intervals as usize * 4 >= self.rates.len().max(1) * 3
    }

    pub(super) fn log(&self) -> f64 {
        rate(&self.sum, self.reporters).max(f64::MIN_POSITIVE).ln()
    }

    pub(super) fn measured(&self) -> Measured {
        let count = number(self.rates.len() as u64).max(1.0);
        let mean = self.rates.iter().sum::<f64>() / count;
        let squares =
            self.rates.iter().map(|rate| (rate / mean.max(f64::MIN_POSITIVE) - 1.0).powi(2)).sum::<f64>();
        let scatter = match self.rates.len() {
            0 | 1 => DEVIATION_OF_ONE.powi(2),
            _ => squares / (count - 1.0) / count,
        };
        let transactions = number(self.sum.transactions).max(1.0);
        let elapsed = number(self.sum.elapsed_us).max(1.0) / f64::from(self.reporters.max(1));
        Measured {
            rate: rate(&self.sum, self.reporters),
            variance: scatter.clamp(LEAST_DEVIATION.powi(2), MOST_DEVIATION.powi(2)),
            waiting: number(self.sum.wait_us) / elapsed,
            busy: number(self.sum.server_us) / elapsed,
            server_ms: number(self.sum.server_us) / transactions / 1_000.0,
        }
    }
}

fn is_idle(interval: &SizeInterval, size: u32) -> bool {
    let elapsed = number(interval.counted.elapsed_us).max(1.0) / f64::from(interval.reporters.max(1));
    let (waiting, busy) =
        (number(interval.counted.wait_us) / elapsed, number(interval.counted.server_us) / elapsed);
    interval.waiting == 0 && waiting < 0.5 && busy < 0.5 * f64::from(size)
}

/// Transactions in a second. Shards report at moments of their own: each adds what it has counted with the time that it has counted.
fn rate(counted: &SizeReport, reporters: u32) -> f64 {
    match counted.elapsed_us {
        0 => 0.0,
        elapsed_us => {
            number(counted.transactions) * f64::from(reporters.max(1)) * 1_000_000.0 / number(elapsed_us)
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Figures of a few seconds.
fn number(count: u64) -> f64 {
    count as f64
}
