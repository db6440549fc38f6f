//! `weir-bench report`: a saved result read again. Every figure is computed anew from its raw logs, which must be there
//! in full; what they say must be what the record says. Runs nothing and changes nothing but the report.

use std::path::Path;

use super::{findings, rounds};
use crate::error::{LabError, Result};
use crate::generator;
use crate::load::RawFiles;
use crate::options::ResultForm;
use crate::record::{Ended, Experiment, FILE, Run};
use crate::report as paper;
use programs::Status;

/// Reads `directory`, writes its report anew and prints it.
///
/// # Errors
/// [`LabError::Record`] with the name of a file that is gone, cut, changed or does not agree with the record.
pub fn report(directory: &Path, form: ResultForm) -> Result<Status> {
    let mut experiment = Experiment::load(directory)?;
    for index in 0..experiment.points.len() {
        for number in 0..experiment.points[index].runs.len() {
            let run = again(directory, &experiment, index, number)?;
            experiment.points[index].runs[number] = run;
        }
    }
    experiment.warnings.retain(|warning| warning.kind == crate::record::WarningKind::Interrupted);
    findings::add(&mut experiment);
    super::publish(&experiment, directory)?;
    let status = if experiment.complete { super::verdict(&experiment) } else { Status::Done };
    match form {
        ResultForm::Text(paint) => println!("{}", paper::terminal(&experiment, paint)),
        ResultForm::Json => super::progress::print_result(&experiment, directory, status),
    }
    Ok(status)
}

/// The run with its figures from its raw logs.
fn again(directory: &Path, experiment: &Experiment, index: usize, number: usize) -> Result<Run> {
    let point = &experiment.points[index];
    let saved = &point.runs[number];
    let mut run = saved.clone();
    let files = RawFiles { directory, logs: &saved.raw };
    files.check()?;
    if saved.ended == Ended::Interrupted {
        return Ok(run);
    }
    let workload = experiment.workload(&point.workload).cloned().unwrap_or_default();
    let asked = rounds::asked(&experiment.plan, &workload, saved, point.clients);
    generator::figures(&experiment.generator.name, &files, &asked)?.fill(&mut run);
    // Clients that were known to be refused were not tried again in this run.
    run.refused = run.refused.max(saved.refused);
    if agrees(saved, &run) {
        return Ok(run);
    }
    let path = saved.raw.first().map(|log| log.path.clone()).unwrap_or_default();
    let fault = format!(
        "does not agree with the raw logs of run {} ({path}): it says {} transactions, they {}",
        saved.order, saved.transactions, run.transactions
    );
    Err(LabError::Record { path: directory.join(FILE), fault })
}

/// Whether the figures that reports are made of are the same, but for the rounding of numbers in text.
fn agrees(saved: &Run, found: &Run) -> bool {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0);
    let p99 = |run: &Run| {
        run.latency_us.as_ref().and_then(|latency| latency.percentiles).map_or(0.0, |found| found.p99)
    };
    let mean = |run: &Run| run.latency_us.as_ref().map_or(0.0, |latency| latency.mean);
    saved.transactions == found.transactions
        && saved.failed == found.failed
        && saved.ended == found.ended
        && near(saved.tps, found.tps)
        && near(p99(saved), p99(found))
        && near(mean(saved), mean(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_edited_does_not_agree() {
        let saved = Run { tps: 10.0 / 3.0, transactions: 10, ..Run::default() };
        assert!(agrees(&saved, &Run { tps: 3.333_333_333, ..saved.clone() }));
        assert!(!agrees(&saved, &Run { tps: 4.0, ..saved.clone() }));
        assert!(!agrees(&saved, &Run { transactions: 11, ..saved.clone() }));
    }
}
