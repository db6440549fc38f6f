//! The open loop: the load comes whether or not earlier work is done, at parts of the peak that the closed loop found,
//! and a transaction's time counts from when it was due. So a server that stalls cannot hide it by slowing the load.

use super::ExperimentOptions;
use super::cells::OPEN_LOOP_PERCENTS;
use crate::advisor;
use crate::record::{Experiment, ExperimentKind, Offered, Point};

/// The points of the open loop: for each workload and target the best or advised size, at the most clients whose runs
/// ended well.
pub(super) fn points(wish: &ExperimentOptions, experiment: &Experiment) -> Vec<Point> {
    let mut points = Vec::new();
    for workload in &experiment.workloads {
        for target in &experiment.targets {
            let closed: Vec<&Point> = experiment.closed(&target.name, &workload.name).collect();
            if wish.question == ExperimentKind::Sweep && closed.iter().all(|point| point.pool_size.is_none())
            {
                continue;
            }
            let Some((point, peak_tps)) = base(experiment, &closed) else { continue };
            points.extend(OPEN_LOOP_PERCENTS.map(|percent_of_peak| {
                let tps = (peak_tps * percent_of_peak / 100.0 * 1000.0).round() / 1000.0;
                Point { offered: Some(Offered { tps, percent_of_peak }), runs: Vec::new(), ..point.clone() }
            }));
        }
    }
    points
}

/// The closed point that an open loop is made from, and the peak of its target, workload and clients.
fn base<'a>(experiment: &Experiment, closed: &[&'a Point]) -> Option<(&'a Point, f64)> {
    let tps = |point: &Point| point.tps().map_or(0.0, |figure| figure.median);
    let clients = closed.iter().filter(|point| tps(point) > 0.0).map(|point| point.clients).max()?;
    let of_clients: Vec<&&Point> = closed.iter().filter(|point| point.clients == clients).collect();
    let best = of_clients.iter().max_by(|one, other| tps(one).total_cmp(&tps(other)))?;
    let advice = advisor::advise(experiment);
    let advised = advice.of(&best.target, &best.workload, clients).and_then(|series| series.connections());
    let chosen = of_clients.iter().find(|point| advised.is_some() && point.pool_size == advised);
    let chosen: &'a Point = chosen.unwrap_or(best);
    Some((chosen, tps(best))).filter(|(_, peak_tps)| *peak_tps >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Run, TargetRecord, WorkloadRecord};

    fn point(target: &str, clients: u32, tps: f64) -> Point {
        let run = Run { tps, ..Run::default() };
        Point { target: target.into(), workload: "w".into(), clients, runs: vec![run], ..Point::default() }
    }

    #[test]
    fn an_open_loop_is_run_below_the_peak_of_its_own_target() {
        let target = |name: &str| TargetRecord { name: name.into(), ..TargetRecord::default() };
        let experiment = Experiment {
            targets: vec![target("direct"), target("weir"), target("idle")],
            workloads: vec![WorkloadRecord { name: "w".into(), ..WorkloadRecord::default() }],
            points: vec![
                point("direct", 50, 1000.0),
                point("weir", 50, 900.0),
                point("weir", 150, 800.0),
                point("idle", 50, 0.0),
            ],
            ..Experiment::default()
        };
        let open = points(&ExperimentOptions::default(), &experiment);
        let loads: Vec<(&str, u32, f64)> = open
            .iter()
            .map(|point| (point.target.as_str(), point.clients, point.offered.map_or(0.0, |load| load.tps)))
            .collect();
        assert_eq!(loads[..2], [("direct", 50, 500.0), ("direct", 50, 700.0)]);
        assert_eq!(
            loads[4..],
            [("weir", 150, 400.0), ("weir", 150, 560.0), ("weir", 150, 640.0), ("weir", 150, 720.0)]
        );
        assert!(open.iter().all(|point| point.runs.is_empty()));
    }
}
