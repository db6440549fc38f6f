//! THE record of an experiment: all that was asked, found and measured, as `result.json` beside the raw logs.
//! Tables, pages, the advisor and the panel read this and nothing else; only the execution writes it.
//!
//! Shape: an [`Experiment`] has [`Point`]s (one target, workload, pool size and number of clients), a point has
//! [`Run`]s (one per round), a run names its raw logs. Never holds a password, never a figure without its raw log.

mod environment;
mod paired;
mod placement;
mod run;
mod store;

pub use environment::{
    Database, Generator, MachineRecord, Plan, Script, ServerRecord, TargetKind, TargetRecord, Warning,
    WarningKind, WorkloadRecord,
};
pub use paired::Excluded;
pub use placement::Placement;
pub use run::{
    Connecting, Ended, Figure, Lag, Latency, Offered, Percentiles, Point, RawKind, RawLog, Run, Second,
    Spending,
};
pub use store::{FILE, RAW};

use serde::{Deserialize, Serialize};

/// The number of this shape; it grows when a reader of the old one would go wrong.
pub const FORMAT: u32 = 1;

/// Which question an experiment was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExperimentKind {
    /// Direct against pooled, at several numbers of clients.
    #[default]
    Compare,
    /// Throughput and latency over pool sizes: how large should the pool be?
    Sweep,
    /// The user's own workload file against the targets.
    Replay,
}

/// One experiment, from the command line to the last run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// What was to be found out.
    pub question: ExperimentKind,
    /// The one command that repeats it, word by word; passwords are left out.
    pub command: Vec<String>,
    /// Weir's version.
    pub weir: String,
    /// When it began, UTC, as `2026-11-21T21:30:00Z`.
    pub began: String,
    /// How long it took so far, in seconds, setting up included.
    pub took_s: f64,
    /// Where the load was made, which is also where an embedded server and started poolers ran.
    pub machine: MachineRecord,
    /// The PostgreSQL at the end of every target.
    pub server: ServerRecord,
    /// What was compared, in the order in which reports name them; `direct` comes first where it is there.
    pub targets: Vec<TargetRecord>,
    /// What the clients did.
    pub workloads: Vec<WorkloadRecord>,
    /// What made the load.
    pub generator: Generator,
    /// How it was measured.
    pub plan: Plan,
    /// What was measured: closed loop first, then open loop (`offered`).
    pub points: Vec<Point>,
    /// What a reader must know before believing a figure.
    pub warnings: Vec<Warning>,
    /// Whether every planned run was made; false after Ctrl-C, which keeps what was measured before.
    pub complete: bool,
}

/// What a program says of its version, as reports show it: Weir by its own name, not by that of the program whose place it
/// takes (`PgBouncer 1.25.2 (Weir 0.1.0)`).
#[must_use]
pub fn shown_version(told: &str) -> String {
    let told = told.trim();
    match told.split_once("(Weir ").and_then(|(_, rest)| rest.split_once(')')) {
        Some((version, _)) => format!("Weir {version}"),
        None => told.to_owned(),
    }
}

impl Experiment {
    /// The target of this name.
    #[must_use]
    pub fn target(&self, name: &str) -> Option<&TargetRecord> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The workload of this name.
    #[must_use]
    pub fn workload(&self, name: &str) -> Option<&WorkloadRecord> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// The closed-loop points of a target and a workload, in the order of the record.
    pub fn closed<'a>(&'a self, target: &'a str, workload: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| {
            point.offered.is_none() && point.target == target && point.workload == workload
        })
    }

    /// The open-loop points of a target and a workload, in the order of the record.
    pub fn open<'a>(&'a self, target: &'a str, workload: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| {
            point.offered.is_some() && point.target == target && point.workload == workload
        })
    }

    /// Adds a warning unless the very same is there.
    pub fn warn(&mut self, kind: WarningKind, text: impl Into<String>) {
        let warning = Warning { kind, text: text.into() };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_is_called_by_its_own_name() {
        assert_eq!(shown_version("PgBouncer 1.25.2 (Weir 0.1.0)"), "Weir 0.1.0");
        assert_eq!(shown_version("PgBouncer 1.26.1"), "PgBouncer 1.26.1");
        assert_eq!(shown_version("pgpool-II 4.3.5"), "pgpool-II 4.3.5");
    }
}
