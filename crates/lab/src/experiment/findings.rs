//! What a reader must know before believing a figure, found in the record itself: a server that does not wait for its
//! disk, a load generator at its own limit, clients that were refused. Judges no target.

use crate::record::{Ended, Experiment, Point, Run, WarningKind};

/// From this part of its threads' time on, the load generator is the bottleneck.
const GENERATOR_FULL: f64 = 0.9;

/// The part of the cores that other programs may take before figures are doubtful.
const BUSY_SHARE: f64 = 0.5;

/// An open loop that did less than this part of its load was not offered what its name says.
const RATE_KEPT: f64 = 0.95;

/// A workload that only reads and is served by standbys less often than this is not what it was made to measure.
const READS_ON_STANDBYS: f64 = 0.9;

/// Fewer rounds than this give no interval.
const FEWEST_ROUNDS: u32 = 3;

/// Adds every warning that the record calls for.
pub(super) fn add(experiment: &mut Experiment) {
    add_scene(experiment);
    let points = std::mem::take(&mut experiment.points);
    for point in &points {
        add_point(experiment, point);
    }
    experiment.points = points;
}

fn add_scene(experiment: &mut Experiment) {
    let server = &experiment.server;
    if server.settings.get("fsync").is_some_and(|value| value == "off") {
        let text = "fsync is off: the server does not wait for its disk, and no server that keeps its data is as \
                    quick at writing";
        experiment.warn(WarningKind::FsyncOff, text);
    }
    let machine = &experiment.machine;
    if machine.load_before > f64::from(machine.cores) * BUSY_SHARE {
        let text = format!(
            "the machine was busy with other things: its load was {:.1} on {} cores before the first run",
            machine.load_before, machine.cores
        );
        experiment.warn(WarningKind::BusyMachine, text);
    }
    if experiment.server.same_machine {
        let text = format!(
            "load generator, server and pooler shared the {} cores of one machine: what one of them uses, the \
             others lack",
            experiment.machine.cores
        );
        experiment.warn(WarningKind::SharedMachine, text);
    }
    if experiment.plan.rounds < FEWEST_ROUNDS {
        let text = format!("fewer than {FEWEST_ROUNDS} rounds: the figures have no intervals");
        experiment.warn(WarningKind::FewRounds, text);
    }
}

/// A workload that does not write should be served by standbys, if there are any.
fn add_placement(experiment: &mut Experiment, point: &Point, name: &str) {
    let writes = experiment.workload(&point.workload).is_some_and(|workload| workload.writes);
    let share = point.figure(|run| run.placement.as_ref()?.share()).map(|share| share.median);
    if let Some(share) = share.filter(|share| !writes && *share < READS_ON_STANDBYS) {
        let text = format!(
            "{name}: only {:.0} % of the requests were served by standbys; the primary serves what is not known to read, and reads \
             that no standby may serve",
            share * 100.0
        );
        experiment.warn(WarningKind::FewReadsOnStandbys, text);
    }
}

fn add_point(experiment: &mut Experiment, point: &Point) {
    let name = name(point);
    add_placement(experiment, point, &name);
    let refused = point.runs.iter().map(|run| run.refused).max().unwrap_or_default();
    if refused > 0 && point.offered.is_none() {
        let words = point.runs.iter().find_map(|run| match &run.ended {
            Ended::Refused(words) => Some(format!(": {words}")),
            _ => None,
        });
        let text = format!(
            "{name}: {refused} of {} clients were refused{}",
            point.clients,
            words.unwrap_or_default()
        );
        experiment.warn(WarningKind::Refused, text);
    }
    let failed: u64 = point.runs.iter().map(|run| run.failed).sum();
    if failed > 0 {
        experiment.warn(WarningKind::Failed, format!("{name}: {failed} transactions failed"));
    }
    let lost = point.runs.iter().find_map(|run| match &run.ended {
        Ended::Failed(words) => Some(words),
        _ => None,
    });
    if let Some(words) = lost {
        experiment.warn(WarningKind::Failed, format!("{name}: a run failed and does not count: {words}"));
    }
    // Where nothing is said, there is a thread for each client.
    let threads = Some(experiment.generator.threads).filter(|threads| *threads > 0).unwrap_or(point.clients);
    let threads = threads.min(point.clients).min(experiment.machine.cores.max(1));
    if point.whole().any(|run| generator_share(run, threads) > GENERATOR_FULL) {
        let text = format!(
            "{name}: the load generator used all of its {threads} threads' time; the figures are its limit. Give it \
             more threads (--threads) or another machine"
        );
        experiment.warn(WarningKind::GeneratorBound, text);
    }
    if let Some(load) = point.offered
        && let Some(done) = point.tps()
        && done.median < load.tps * RATE_KEPT
    {
        let text = format!(
            "{name}: {:.0} transactions a second were offered and {:.0} done: the others waited in a growing queue",
            load.tps, done.median
        );
        experiment.warn(WarningKind::RateMissed, text);
    }
}

/// As a warning names a point.
fn name(point: &Point) -> String {
    let size = point.pool_size.map(|size| format!(", pool size {size}")).unwrap_or_default();
    let load = point.offered.map(|load| format!(", {:.0} % of the peak", load.percent_of_peak));
    let (target, workload, clients) = (&point.target, &point.workload, point.clients);
    format!("{target}{size}, {workload}, {clients} clients{}", load.unwrap_or_default())
}

/// The part of its threads' time that the generator used.
fn generator_share(run: &Run, threads: u32) -> f64 {
    let available_us = run.seconds * 1e6 * f64::from(threads.max(1));
    run.cpu_us.generator.map_or(0.0, |used_us| used_us / available_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Generator, Offered, Spending};

    #[test]
    fn what_a_reader_must_know_is_said_once() {
        let run = Run {
            seconds: 10.0,
            tps: 80.0,
            refused: 53,
            failed: 2,
            cpu_us: Spending { generator: Some(19e6), ..Spending::default() },
            ..Run::default()
        };
        let refused = Run { ended: Ended::Refused("too many clients".into()), ..Run::default() };
        let offered = Some(Offered { tps: 100.0, percent_of_peak: 90.0 });
        let closed = Point { clients: 150, runs: vec![refused, run.clone()], ..Point::default() };
        let open = Point { clients: 150, runs: vec![run], offered, ..Point::default() };
        let mut experiment = Experiment { points: vec![closed, open], ..Experiment::default() };
        experiment.generator = Generator { threads: 2, ..Generator::default() };
        experiment.machine.cores = 2;
        experiment.machine.load_before = 3.0;
        experiment.server.settings.insert("fsync".into(), "off".into());
        add(&mut experiment);
        add(&mut experiment);
        let kinds: Vec<WarningKind> = experiment.warnings.iter().map(|warning| warning.kind).collect();
        assert_eq!(
            kinds,
            [
                WarningKind::FsyncOff,
                WarningKind::BusyMachine,
                WarningKind::FewRounds,
                WarningKind::Refused,
                WarningKind::Failed,
                WarningKind::GeneratorBound,
                WarningKind::Failed,
                WarningKind::GeneratorBound,
                WarningKind::RateMissed,
            ]
        );
        let text =
            |kind| experiment.warnings.iter().find(|warning| warning.kind == kind).map(|it| it.text.as_str());
        assert!(
            text(WarningKind::Refused)
                .is_some_and(|text| text.contains("53 of 150") && text.contains("too many"))
        );
    }
}
