//! The contract of every load generator: a [`Job`] goes in, raw files come out, and every figure is read from those
//! files alone, so that a saved result can be read again without generator, server or clock.
//!
//! Owns what a generator is given and what it leaves. Never decides what is run when (`experiment` does), and knows no generator.

pub(crate) mod raw;

use std::fmt::Debug;
use std::path::Path;

pub use raw::{Figures, RawFiles};

use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::record::{self, RawKind, Second, WorkloadRecord};
use crate::target::Address;

/// One load on one target.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Where the clients go.
    pub address: &'a Address,
    /// What they do.
    pub workload: &'a WorkloadRecord,
    /// How many there are.
    pub clients: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// How long it is measured, and what of it counts.
    pub span: Span,
    /// `simple`, `extended` or `prepared`.
    pub query_mode: &'a str,
    /// Transactions per second that are begun whether or not earlier ones are done; `None`: a closed loop.
    pub rate_tps: Option<f64>,
    /// The part of the transactions whose time is logged; 1 is all.
    pub sampling: f64,
    /// Sums over this many seconds instead of a line for each transaction.
    pub aggregate_s: Option<u32>,
    /// pgbench's scale, where its tables are there.
    pub scale: Option<u32>,
    /// An empty directory for the raw files.
    pub directory: &'a Path,
    /// A directory for files that are the same for all runs, such as scripts.
    pub shared: &'a Path,
}

impl Job<'_> {
    /// Only pgbench has a log of sums.
    pub(crate) fn refuse_sums(&self, generator: &str) -> Result<()> {
        match self.aggregate_s {
            None => Ok(()),
            Some(_) => Err(LabError::Missing {
                what: format!("{generator} has no log of sums"),
                remedy: "leave the aggregate interval out".to_owned(),
            }),
        }
    }
}

/// The seconds of a run: the warm-up counts for nothing, the rest does, and what comes after it (clients that end one
/// after the other) is left out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Seconds that count for nothing.
    pub warm_up_s: u32,
    /// Seconds that count.
    pub seconds: u32,
    /// Transactions of each client in place of seconds: then all of them count.
    pub transactions: Option<u32>,
}

impl Span {
    /// Seconds, behind a warm-up.
    #[must_use]
    pub fn seconds(warm_up_s: u32, seconds: u32) -> Self {
        Self { warm_up_s, seconds, transactions: None }
    }

    /// How long the generator runs: a second more than counts, so that the last one is whole.
    #[must_use]
    pub fn total_s(self) -> u32 {
        self.warm_up_s + self.seconds + 1
    }
}

/// Events of a running load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The generator's process.
    Started {
        /// Its id, for accounting.
        process_id: u32,
    },
    /// A second is over.
    Second(Second),
}

/// A raw file that a generator left in the job's directory.
pub type Left = (String, RawKind);

/// What makes load.
pub trait Generator: Debug {
    /// Its name, version and threads.
    fn record(&self) -> record::Generator;

    /// Makes the load to its end and names the raw files that it left. A load that is refused or fails is no error:
    /// the raw files say so.
    ///
    /// # Errors
    /// When the generator does not start, never ends, or [`LabError::Interrupted`].
    fn run(&self, job: &Job<'_>, interrupt: &Interrupt, watch: &mut dyn FnMut(Event)) -> Result<Vec<Left>>;
}

/// What a reader of raw files must know of the run.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Which seconds count.
    pub span: Span,
    /// The part of the transactions whose time was logged.
    pub sampling: f64,
    /// What each script slept, in microseconds: think time is no one's latency.
    pub think_us: Vec<u64>,
    /// Clients that the generator was given.
    pub clients: u32,
}
