//! A load of the developers' harness: run like every other of the lab, and told as pgbench itself tells it, by the summary of
//! the whole run. (An experiment counts the seconds behind its warm-up instead: see `figures`.)

use std::path::{Path, PathBuf};

use super::figures::Window;
use super::load::{Loader, complaints};
use super::parse::{self, Summary};
use super::tally::Tally;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::load::{Event, Generator as _, Job, RawFiles, Span};
use crate::record::{Percentiles, RawKind, RawLog, Second, WorkloadRecord};
use crate::target::Address;

/// What each client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// pgbench's own: a transaction of five statements, close to TPC-B.
    #[default]
    TpcB,
    /// One SELECT by key.
    SelectOnly,
}

impl Workload {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TpcB => "TPC-B",
            Self::SelectOnly => "select-only",
        }
    }
}

/// One load.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// What each client does.
    pub workload: Workload,
    /// How many clients.
    pub clients: u32,
    /// For how long; at least one.
    pub seconds: u32,
    /// The part of the transactions that is logged for the percentiles; 1 is all, 0 none.
    pub sampling: f64,
    /// `simple`, `extended` or `prepared`.
    pub query_mode: String,
    /// Whether each transaction has a connection of its own.
    pub reconnect: bool,
    /// Transactions per second that are begun whether or not earlier ones are done; latency counts from the time at
    /// which a transaction was due. `None`: each client begins when its last one is done.
    pub rate_tps: Option<f64>,
    /// Where the raw files are kept; without, they go when they were read.
    pub keep: Option<PathBuf>,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// pgbench's figures; `None` when it stopped before it had any.
    pub summary: Option<Summary>,
    /// Percentiles from the log.
    pub latency_us: Option<Percentiles>,
    /// Lines in which a server refused or pgbench gave up.
    pub complaints: Vec<String>,
    /// The raw files, by their names in their directory.
    pub files: Vec<String>,
}

impl Load {
    /// Runs it, with its raw files in `directory`; `watch` gets each second. A load that a server refuses is an outcome,
    /// no error.
    ///
    /// # Errors
    /// When pgbench does not start, says nothing of use or is interrupted.
    pub fn run(
        &self,
        loader: &Loader,
        address: &Address,
        directory: &Path,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(&Second),
    ) -> Result<Outcome> {
        let workload = WorkloadRecord { arguments: self.arguments(), ..WorkloadRecord::default() };
        let job = Job {
            address,
            workload: &workload,
            clients: self.clients,
            threads: loader.threads(),
            // All of it counts, and a span runs for a second more than counts.
            span: Span::seconds(0, self.seconds.saturating_sub(1)),
            query_mode: &self.query_mode,
            rate_tps: self.rate_tps,
            sampling: self.sampling,
            aggregate_s: None,
            scale: None,
            directory,
            shared: directory,
        };
        let left = loader.run(&job, interrupt, &mut |event| {
            if let Event::Second(second) = event {
                watch(&second);
            }
        })?;
        let logs: Vec<RawLog> =
            left.into_iter().map(|(path, kind)| RawLog { path, kind, bytes: 0 }).collect();
        outcome(&RawFiles { directory, logs: &logs })
    }

    fn arguments(&self) -> Vec<String> {
        let words = [("-S", self.workload == Workload::SelectOnly), ("-C", self.reconnect)];
        words.into_iter().filter(|(_, said)| *said).map(|(word, _)| word.to_owned()).collect()
    }
}

fn outcome(files: &RawFiles<'_>) -> Result<Outcome> {
    let said = files.text(RawKind::Progress)?;
    let summary = parse::summary(&files.text(RawKind::Summary)?);
    let complaints = complaints(&said);
    if summary.is_none() && complaints.is_empty() {
        return Err(LabError::program("pgbench", said.trim_end()));
    }
    let whole = Window::whole();
    let mut tally = Tally::new(&whole, &[]);
    for path in files.of(RawKind::Transactions) {
        tally.read_transactions(&path)?;
    }
    let latency_us = tally.latency().and_then(|latency| latency.percentiles);
    let files = files.logs.iter().map(|log| log.path.clone()).collect();
    Ok(Outcome { summary, latency_us, complaints, files })
}
