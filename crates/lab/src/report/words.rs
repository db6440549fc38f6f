//! What the figures say, for terminal and page alike: warnings, comparisons (ties called ties), troubles. Plain text;
//! the page escapes it.

use crate::advisor::Advice;
use crate::record::{Excluded, Experiment, ExperimentKind, Point, WarningKind};
use crate::report::{compared, self_sized};

/// What a reader must know before believing a figure.
pub(super) fn warnings(experiment: &Experiment) -> Vec<String> {
    let told = experiment.warnings.iter().filter(|warning| warning.kind != WarningKind::Interrupted);
    let mut warnings: Vec<String> = told.map(|warning| warning.text.clone()).collect();
    if !experiment.complete {
        let made: usize = experiment.points.iter().map(|point| point.runs.len()).sum();
        let interrupted = experiment.warnings.iter().any(|warning| warning.kind == WarningKind::Interrupted);
        let why = if interrupted { ", then it was interrupted" } else { "" };
        let planned = experiment.plan.runs;
        warnings.insert(0, format!("Not complete: {made} of {planned} planned runs were made{why}."));
    }
    warnings
}

/// The rounds that count for no figure.
pub(super) fn left_out(left_out: &[Excluded]) -> Vec<String> {
    let sentence = |one: &Excluded| {
        let rounds: Vec<String> = one.rounds.iter().map(|round| (round + 1).to_string()).collect();
        let (word, verb) = if rounds.len() == 1 { ("round", "counts") } else { ("rounds", "count") };
        format!(
            "{}, {} clients: {word} {} {verb} for no figure: not everything that is compared was measured in it.",
            one.workload,
            one.clients,
            rounds.join(", ")
        )
    };
    left_out.iter().map(sentence).collect()
}

/// What a comparison comes to, before its figures.
pub(super) fn headlines(experiment: &Experiment) -> Vec<String> {
    let compares = experiment.question == ExperimentKind::Compare;
    if compares { compared::headlines(experiment) } else { Vec::new() }
}

/// Comparisons and troubles.
pub(super) fn findings(experiment: &Experiment, advice: &Advice) -> Vec<String> {
    let is_advised = |point: &Point| {
        let series = advice.of(&point.target, &point.workload, point.clients);
        series.is_some_and(|series| series.connections() == point.pool_size)
    };
    let shows_all = experiment.question != ExperimentKind::Sweep;
    let mut findings = compared::sentences(experiment, |point| shows_all || is_advised(point));
    findings.extend(shows_all.then(|| compared::reason(experiment)).flatten());
    findings.extend(self_sized::sentences(experiment));
    findings.extend(compared::troubles(experiment));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;

    #[test]
    fn an_interrupted_experiment_says_so_first() {
        let mut experiment = sample::experiment();
        experiment.complete = false;
        experiment.plan.runs = 100;
        experiment.warn(WarningKind::Interrupted, "it is told with the count of runs");
        assert_eq!(
            warnings(&experiment)[0],
            "Not complete: 121 of 100 planned runs were made, then it was interrupted."
        );
        assert_eq!(warnings(&experiment).len(), 2);
    }
}
