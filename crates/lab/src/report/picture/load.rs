//! Latency against offered load: what a transaction takes when it comes at its own time, whether or not earlier ones are
//! done. A picture for each target, pool size and number of clients.

use std::collections::BTreeSet;

use crate::figures::whole;
use crate::record::{Experiment, Point};
use crate::report::picture::chart::{Chart, Line};
use crate::report::picture::size::percentiles;

/// The pictures of a workload.
pub(super) fn latency(experiment: &Experiment, workload: &str) -> Vec<Chart> {
    let mut charts = Vec::new();
    for target in &experiment.targets {
        let points: Vec<&Point> = experiment.open(&target.name, workload).collect();
        let groups: BTreeSet<(Option<u32>, u32)> =
            points.iter().map(|point| (point.pool_size, point.clients)).collect();
        for (pool_size, clients) in groups {
            let is_member = |point: &&&Point| point.pool_size == pool_size && point.clients == clients;
            let group: Vec<&Point> = points.iter().filter(is_member).copied().collect();
            charts.extend(chart(workload, &target.name, &group));
        }
    }
    charts
}

fn chart(workload: &str, target: &str, points: &[&Point]) -> Option<Chart> {
    let mut points: Vec<(f64, f64, &Point)> = points
        .iter()
        .filter_map(|point| Some((point.offered?.tps, point.offered?.percent_of_peak, *point)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lines = percentiles().map(|(label, of)| Line {
        label: label.to_owned(),
        points: points
            .iter()
            .filter_map(|(tps, _, point)| Some((*tps, point.percentile(of)?.median / 1000.0)))
            .collect(),
        ..Line::default()
    });
    let lines: Vec<Line> = lines.into_iter().filter(|line| line.points.len() > 1).collect();
    let pool = points.first()?.2.pool_size.map(|size| format!(", pool of {size}")).unwrap_or_default();
    (!lines.is_empty()).then(|| Chart {
        sort: "load",
        title: format!("{workload} through {target}{pool}: latency against offered load"),
        unit: "milliseconds",
        along: "offered transactions per second (and its part of the peak)",
        ticks: points
            .iter()
            .map(|(tps, percent, _)| (*tps, format!("{} ({percent:.0} %)", whole(*tps))))
            .collect(),
        lines,
        ..Chart::default()
    })
}
