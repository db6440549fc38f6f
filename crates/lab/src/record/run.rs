//! What was measured: points, their runs, and a run's figures. Times of transactions are in microseconds,
//! moments in seconds since the run's begin. Medians are over the whole runs of a point; a run that did not end well
//! is kept and never counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::figures::median;
use crate::interval::Interval;
use crate::record::Placement;

/// One combination that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of the target.
    pub target: String,
    /// Name of the workload.
    pub workload: String,
    /// Server connections of the pool; `None` without a pool, or when it is a running pooler's own affair.
    pub pool_size: Option<u32>,
    /// Clients that were asked for.
    pub clients: u32,
    /// The offered load of an open loop; `None` for a closed one (each client begins when its last one is done).
    pub offered: Option<Offered>,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Load that comes whether or not earlier work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Transactions per second.
    pub tps: f64,
    /// The part of the peak of the same target, workload and clients, in percent.
    pub percent_of_peak: f64,
}

/// A median over runs with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// `None` of fewer than three runs.
    pub interval: Option<Interval>,
}

impl Point {
    /// The runs that ended well: only they count.
    pub fn whole(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.ended == Ended::Whole && !run.unpaired)
    }

    /// The rounds of those runs.
    #[must_use]
    pub fn rounds(&self) -> BTreeSet<u32> {
        self.whole().map(|run| run.round).collect()
    }

    /// The median of a figure over the whole runs; `None` when no run has it.
    pub fn figure(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Figure> {
        let values: Vec<f64> = self.whole().filter_map(of).collect();
        Some(Figure { median: median(&values)?, interval: Interval::of(&values) })
    }

    /// Transactions per second.
    #[must_use]
    pub fn tps(&self) -> Option<Figure> {
        self.figure(|run| Some(run.tps))
    }

    /// A percentile of the transactions' time, in microseconds.
    pub fn percentile(&self, of: impl Fn(&Percentiles) -> f64) -> Option<Figure> {
        self.figure(|run| Some(of(run.latency_us.as_ref()?.percentiles.as_ref()?)))
    }

    /// Whether this is the point of a closed loop with these values.
    #[must_use]
    pub fn is_closed(&self, target: &str, workload: &str, pool_size: Option<u32>, clients: u32) -> bool {
        self.offered.is_none()
            && self.target == target
            && self.workload == workload
            && self.pool_size == pool_size
            && self.clients == clients
    }
}

/// One run of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round, from 0.
    pub round: u32,
    /// Place among all runs of the experiment, from 0.
    pub order: u32,
    /// When it began, in seconds since the experiment's begin.
    pub began_s: f64,
    /// What the generator wrote, below the result's directory. Every figure here comes from these files.
    pub raw: Vec<RawLog>,
    /// Seconds that count.
    pub seconds: f64,
    /// Transactions that were done in them.
    pub transactions: u64,
    /// Transactions per second that count.
    pub tps: f64,
    /// Time of the transactions that count.
    pub latency_us: Option<Latency>,
    /// The part of the transactions whose time was logged; 1 is all.
    pub sampling: f64,
    /// How late transactions of an open loop began.
    pub lag_us: Option<Lag>,
    /// Clients that got no connection.
    pub refused: u32,
    /// Transactions that failed and were not repeated, over the whole run.
    pub failed: u64,
    /// Transactions of an open loop that were not begun because they were too late already.
    pub skipped: u64,
    /// What server, pooler or generator complained about, and how often.
    pub errors: BTreeMap<String, u64>,
    /// CPU time in the seconds that count.
    pub cpu_us: Spending,
    /// Second by second, warm-up included.
    pub per_second: Vec<Second>,
    /// What connecting took, where the generator tells it.
    #[serde(default)]
    pub connecting: Option<Connecting>,
    /// Where requests went, of a pooler that sends reads to standbys.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// The size that a pool which sizes itself had when the run was over.
    #[serde(default)]
    pub found_size: Option<u32>,
    /// How it ended.
    pub ended: Ended,
    /// Whether what it is compared with has no whole run in its round, so that it counts for no figure of a report.
    #[serde(skip)]
    pub unpaired: bool,
}

impl Run {
    /// CPU time of `part` for one transaction, in microseconds.
    pub fn per_transaction(&self, part: impl Fn(&Spending) -> Option<f64>) -> Option<f64> {
        Some(part(&self.cpu_us)? / self.transactions as f64).filter(|value| value.is_finite())
    }
}

/// A file that the generator wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawLog {
    /// Below the result's directory, as `raw/0012-weir-tpcb-20-150/transactions.4711`.
    pub path: String,
    /// What is in it.
    pub kind: RawKind,
    /// Its size: a shorter one has been cut.
    pub bytes: u64,
}

/// What a raw file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RawKind {
    /// What the generator printed as its result.
    #[default]
    Summary,
    /// What the generator printed on the way: progress and complaints.
    Progress,
    /// pgbench's log with a line for each transaction.
    Transactions,
    /// pgbench's log with a line for each `--aggregate-interval`.
    Aggregates,
    /// JMeter's table of samples (JTL as CSV).
    Samples,
    /// What JMeter's plan wrote about transactions that failed.
    Complaints,
    /// CPU time at the begin and at the end of the seconds that count, as the lab saw it.
    Accounting,
    /// Where the pooler has sent requests, by its own count.
    Placement,
    /// The size that a pool which sizes itself has found.
    FoundSize,
}

/// Time of transactions, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were logged.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
    /// `None` where the raw log has sums only.
    pub percentiles: Option<Percentiles>,
}

/// Percentiles, in microseconds, good to three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half is quicker.
    pub p50: f64,
    /// Nine of ten are quicker.
    pub p90: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
}

/// What connecting took, and throughput with and without it: of the whole run, warm-up included, as the generator itself
/// sums it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connecting {
    /// Time until all clients were in.
    pub ms: Option<f64>,
    /// Transactions per second with that time counted.
    pub tps_including: f64,
    /// Without.
    pub tps_excluding: f64,
}

/// How late transactions began, against their schedule, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lag {
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// CPU time in microseconds; `None` for who is not on this machine or cannot be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// PostgreSQL, all its processes.
    pub server: Option<f64>,
    /// The pooler.
    pub pooler: Option<f64>,
    /// The load generator.
    pub generator: Option<f64>,
    /// Everything on this machine.
    pub machine: Option<f64>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its end, in seconds since the run's begin.
    pub at_s: f64,
    /// Whether it belongs to the warm-up and does not count.
    pub warm_up: bool,
    /// Transactions per second.
    pub tps: f64,
    /// Mean time of a transaction.
    pub mean_ms: Option<f64>,
    /// Transactions that failed.
    pub failed: u64,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// As it should: it counts (single transactions may have failed, clients may have been refused).
    #[default]
    Whole,
    /// The generator gave up because connections were refused; in whose words.
    Refused(String),
    /// The generator gave up for another reason; what it said.
    Failed(String),
    /// Ctrl-C.
    Interrupted,
}
