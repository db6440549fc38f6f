//! One run of one row against one subject: what is started, what is counted, what it cost. One file for each kind
//! of load that pgbench cannot make.

mod bulk;
mod idle;
mod loads;
mod many_clients;
mod pools;

pub(super) use loads::{Pace, pgbench};

use std::path::PathBuf;

use crate::full::Bench;
use crate::full::rows::{Row, Work};
use crate::full::sample::Sample;
use crate::full::subjects::Contender;
use lab::error::{LabError, Result};
use lab::screen::Screen;

/// Names a run's files: row, round and subject.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) row: &'static str,
    pub(super) round: u32,
    pub(super) subject: String,
}

impl Label {
    /// A file of this run below the result's directory.
    pub(super) fn file(&self, what: &str) -> PathBuf {
        PathBuf::from("raw").join(format!("{}.{:02}.{}.{what}", self.row, self.round, self.subject))
    }
}

impl Bench<'_> {
    /// Keeps a raw log, and gives the name by which the report calls it.
    fn keep(&self, label: &Label, what: &str, text: &str) -> Result<PathBuf> {
        let name = label.file(what);
        let path = self.out.join(&name);
        std::fs::write(&path, text).map_err(LabError::system(format!("writing {}", path.display())))?;
        Ok(name)
    }
}

/// Runs `row` once; `peak` is what the base can at most, for rows at a part of it.
pub(super) fn run(
    bench: &Bench<'_>,
    row: &Row,
    contender: &Contender,
    label: &Label,
    peak: Option<f64>,
    screen: &mut Screen,
) -> Result<Sample> {
    match row.work {
        Work::Pgbench(_) | Work::Rate { .. } => {
            let pace = Pace { seconds: bench.sizes.seconds, is_warm_up: false, peak, is_kept: true };
            pgbench(bench, row, contender, &pace, label, screen)
        }
        Work::Select => bulk::select(bench, contender, label),
        Work::CopyIn => bulk::copy_in(bench, contender, label),
        Work::Pools => pools::run(bench, contender, label, bench.sizes.seconds),
        Work::Idle => idle::run(bench, row.variant, contender, label, screen),
        Work::Crowd => many_clients::run(bench, contender, label, screen),
    }
}

/// Runs the row's load shortly, so that server connections are there and caches are warm.
pub(super) fn warm_up(
    bench: &Bench<'_>,
    row: &Row,
    contender: &Contender,
    peak: Option<f64>,
    screen: &mut Screen,
) -> Result<()> {
    let seconds = bench.sizes.warm_up_seconds;
    let label = Label { row: row.name, round: 0, subject: contender.name.clone() };
    match row.work {
        Work::Pools => pools::run(bench, contender, &label, seconds).map(drop),
        Work::Idle => Ok(()),
        Work::Crowd => many_clients::warm_up(bench, contender, screen),
        Work::Select | Work::CopyIn => bulk::warm_up(bench, contender),
        _ => {
            let pace = Pace { seconds, is_warm_up: true, peak, is_kept: false };
            pgbench(bench, row, contender, &pace, &label, screen).map(drop)
        }
    }
}
