//! Throughput against the number of clients: what a comparison is about. A line for each target and pool size, with its
//! interval where there were rounds enough for one.

use std::collections::BTreeSet;

use crate::record::{Experiment, ExperimentKind, Point};
use crate::report::picture::chart::{Chart, Line};
use crate::report::picture::size::MEASURED;

/// The picture of a workload; `None` of a sweep, and where there is one number of clients only.
pub(super) fn throughput(experiment: &Experiment, workload: &str) -> Option<Chart> {
    let is_meant = |point: &&Point| point.offered.is_none() && point.workload == workload;
    let points: Vec<&Point> = experiment.points.iter().filter(is_meant).collect();
    let clients: BTreeSet<u32> = points.iter().map(|point| point.clients).collect();
    if experiment.question == ExperimentKind::Sweep || clients.len() < 2 {
        return None;
    }
    let mut lines = Vec::new();
    for target in &experiment.targets {
        let own: Vec<&Point> = points.iter().copied().filter(|point| point.target == target.name).collect();
        let sizes: BTreeSet<Option<u32>> = own.iter().map(|point| point.pool_size).collect();
        lines.extend(sizes.into_iter().map(|size| line(&target.name, size, &own)));
    }
    lines.retain(|line| !line.points.is_empty());
    (!lines.is_empty()).then(|| Chart {
        sort: "clients",
        title: format!("{workload}: throughput against clients"),
        unit: MEASURED,
        along: "clients",
        ticks: clients.into_iter().map(|count| (f64::from(count), count.to_string())).collect(),
        lines,
        ..Chart::default()
    })
}

fn line(target: &str, size: Option<u32>, points: &[&Point]) -> Line {
    let pool = size.map(|size| format!(", pool {size}")).unwrap_or_default();
    let mut line = Line { label: format!("{target}{pool}"), ..Line::default() };
    let mut points: Vec<&&Point> = points.iter().filter(|point| point.pool_size == size).collect();
    points.sort_by_key(|point| point.clients);
    for point in points {
        let Some(tps) = point.tps() else { continue };
        line.points.push((f64::from(point.clients), tps.median));
        line.band.extend(tps.interval.map(|found| (f64::from(point.clients), found.low, found.high)));
    }
    line
}
