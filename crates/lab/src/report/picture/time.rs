//! Throughput over time: the mean of the rounds, second by second, the warm-up shaded. Of a sweep the advised size beside
//! the largest one; of a comparison every target and size; both at the largest number of clients.

use crate::advisor::Advice;
use crate::record::{Experiment, ExperimentKind, Point};
use crate::report::picture::chart::{Chart, Line};

/// More lines than this are not told apart.
const LINES: usize = 5;

/// The picture of a workload; `None` without seconds.
pub(super) fn throughput(experiment: &Experiment, advice: &Advice, workload: &str) -> Option<Chart> {
    let lines: Vec<Line> = chosen(experiment, advice, workload).into_iter().map(line).collect();
    let lines: Vec<Line> = lines.into_iter().filter(|line| line.points.len() > 1).take(LINES).collect();
    let last = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
    let warm_up = f64::from(experiment.plan.warm_up_s);
    let shade = (warm_up > 0.0).then(|| (0.0, warm_up, "warm-up, not counted".to_owned()));
    (!lines.is_empty()).then(|| Chart {
        sort: "time",
        title: format!("{workload}: throughput over time, mean of the rounds"),
        unit: "transactions per second",
        along: "seconds since the run began",
        ticks: ticks(last),
        lines,
        marks: Vec::new(),
        shades: shade.into_iter().collect(),
    })
}

fn chosen<'a>(experiment: &'a Experiment, advice: &Advice, workload: &str) -> Vec<&'a Point> {
    let mut chosen = Vec::new();
    for target in &experiment.targets {
        let points: Vec<&Point> = experiment
            .points
            .iter()
            .filter(|point| {
                point.offered.is_none() && point.target == target.name && point.workload == workload
            })
            .filter(|point| point.whole().count() > 0)
            .collect();
        let most = points.iter().map(|point| point.clients).max();
        let crowded = || points.iter().filter(|point| Some(point.clients) == most);
        if experiment.question == ExperimentKind::Compare {
            chosen.extend(crowded());
            continue;
        }
        let advised = most
            .and_then(|most| advice.of(&target.name, workload, most))
            .and_then(|series| series.connections());
        chosen.extend(crowded().find(|point| advised.is_some() && point.pool_size == advised));
        let largest = crowded().max_by_key(|point| point.pool_size);
        chosen.extend(largest.filter(|point| point.pool_size.is_none() || point.pool_size != advised));
    }
    chosen
}

fn line(point: &Point) -> Line {
    let pool = point.pool_size.map(|size| format!(", pool {size}")).unwrap_or_default();
    let longest = point.whole().map(|run| run.per_second.len()).max().unwrap_or_default();
    let second = |place: usize| {
        let seconds: Vec<_> = point.whole().filter_map(|run| run.per_second.get(place)).collect();
        let mean = |of: fn(&crate::record::Second) -> f64| {
            seconds.iter().map(|second| of(second)).sum::<f64>() / seconds.len().max(1) as f64
        };
        (mean(|second| second.at_s), mean(|second| second.tps))
    };
    Line {
        label: format!("{}{pool}, {} clients", point.target, point.clients),
        points: (0..longest).map(second).collect(),
        is_dense: longest > 40,
        ..Line::default()
    }
}

/// About eight round seconds.
fn ticks(last: f64) -> Vec<(f64, String)> {
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0]
        .into_iter()
        .find(|step| last / step <= 10.0)
        .unwrap_or(3600.0);
    let count = (0_u32..200).map(f64::from).take_while(|count| count * step <= last);
    count.map(|count| (count * step, format!("{}", count * step))).collect()
}
