//! Against pool size: throughput as it was measured (medians of the rounds with their intervals), what there is without a pool
//! beside it, the law only where the advice rests on it and named a model, the advised size; latency by percentiles.

use std::collections::BTreeSet;

use crate::advisor::{Advice, POOR_FIT, Series, Verdict};
use crate::record::{Experiment, Percentiles, Point};
use crate::report::picture::chart::{Chart, Line};

/// From this ratio of the largest to the smallest size on, each doubling takes as much room as the one before.
const DOUBLINGS_FROM: f64 = 12.0;

/// Dashes of the law's line, twice.
const STEPS: u32 = 120;

const ALONG: &str = "pool size (server connections)";

/// What the lines of measured throughput are.
pub(super) const MEASURED: &str = "TPS, median of the rounds and 95 % interval";

/// How sizes are laid out.
struct Layout {
    doublings: bool,
    sizes: BTreeSet<u32>,
}

impl Layout {
    fn of<'a>(points: impl IntoIterator<Item = &'a Point>) -> Self {
        let sizes: BTreeSet<u32> = points.into_iter().filter_map(|point| point.pool_size).collect();
        let end = |size: Option<&u32>| size.copied().map_or(1.0, f64::from);
        Self { doublings: end(sizes.last()) / end(sizes.first()) >= DOUBLINGS_FROM, sizes }
    }

    fn place(&self, size: f64) -> f64 {
        if self.doublings { size.max(0.5).log2() } else { size }
    }

    fn size(&self, place: f64) -> f64 {
        if self.doublings { place.exp2() } else { place }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        self.sizes.iter().map(|size| (self.place(f64::from(*size)), size.to_string())).collect()
    }

    /// From the smallest to the largest size.
    fn ends(&self) -> Option<(f64, f64)> {
        let end = |size: &u32| self.place(f64::from(*size));
        Some((end(self.sizes.first()?), end(self.sizes.last()?)))
    }
}

/// Throughput: a picture for each number of clients with a line for each target, and where there are several numbers of
/// clients, one for each target with a line for each of them.
pub(super) fn throughput(experiment: &Experiment, advice: &Advice, workload: &str) -> Vec<Chart> {
    let groups = by_clients(advice, workload);
    let mut charts: Vec<Chart> =
        groups.iter().map(|series| throughput_of(experiment, workload, series)).collect();
    if groups.len() > 1 {
        let targets = experiment.targets.iter();
        charts
            .extend(targets.filter_map(|target| of_all_clients(experiment, advice, workload, &target.name)));
    }
    charts
}

fn throughput_of(experiment: &Experiment, workload: &str, series: &[&Series]) -> Chart {
    let clients = series.first().map_or(0, |series| series.clients);
    let is_member =
        |point: &&Point| point.offered.is_none() && point.workload == workload && point.clients == clients;
    let points: Vec<&Point> = experiment.points.iter().filter(is_member).collect();
    let layout = Layout::of(points.iter().copied());
    let own =
        |name: &str| -> Vec<&Point> { points.iter().copied().filter(|point| point.target == name).collect() };
    let mut lines: Vec<Line> =
        experiment.targets.iter().map(|target| measured(&target.name, &own(&target.name), &layout)).collect();
    lines.retain(|line| !line.points.is_empty());
    if let [only] = series {
        lines.extend(law(only, &layout));
    }
    Chart {
        sort: "size",
        title: format!("{workload}, {clients} clients: throughput against pool size"),
        unit: MEASURED,
        along: ALONG,
        ticks: layout.ticks(),
        lines,
        marks: marks(series, &layout),
        shades: Vec::new(),
    }
}

fn of_all_clients(experiment: &Experiment, advice: &Advice, workload: &str, target: &str) -> Option<Chart> {
    let points: Vec<&Point> =
        experiment.closed(target, workload).filter(|point| point.pool_size.is_some()).collect();
    let layout = Layout::of(points.iter().copied());
    let clients: BTreeSet<u32> = points.iter().map(|point| point.clients).collect();
    let line = |clients: u32| {
        let own: Vec<&Point> = points.iter().copied().filter(|point| point.clients == clients).collect();
        measured(&format!("{clients} clients"), &own, &layout)
    };
    let lines: Vec<Line> = clients.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    let overall = advice.overall.iter().find(|overall| overall.target == target);
    let size = overall.and_then(|overall| overall.connections);
    (lines.len() > 1).then(|| Chart {
        sort: "sizes-by-clients",
        title: format!("{workload} through {target}: throughput against pool size, by clients"),
        unit: MEASURED,
        along: ALONG,
        ticks: layout.ticks(),
        lines,
        marks: size
            .map(|size| (layout.place(f64::from(size)), format!("advised for all: {size}")))
            .into_iter()
            .collect(),
        shades: Vec::new(),
    })
}

/// A target's medians with their intervals: size by size, or one level over all sizes for what has no size of the lab's.
fn measured(label: &str, points: &[&Point], layout: &Layout) -> Line {
    let mut line = Line { label: label.to_owned(), ..Line::default() };
    let mut points = points.to_vec();
    points.sort_by_key(|point| point.pool_size);
    for point in points {
        let (Some(tps), Some(ends)) = (point.tps(), layout.ends()) else { continue };
        let places = match point.pool_size {
            Some(size) => vec![layout.place(f64::from(size))],
            None => vec![ends.0, ends.1],
        };
        line.is_level = point.pool_size.is_none();
        line.points.extend(places.iter().map(|place| (*place, tps.median)));
        let interval = tps.interval.into_iter();
        line.band.extend(
            interval.flat_map(|found| places.iter().map(move |place| (*place, found.low, found.high))),
        );
    }
    line
}

/// The law as a dashed line, where the advice rests on it: a poor fit is not drawn.
fn law(series: &Series, layout: &Layout) -> Option<Line> {
    let law = series.curve.fit.as_ref().filter(|fit| fit.error <= POOR_FIT)?.law;
    let (first, last) =
        (series.curve.sizes.first()?.connections, series.curve.sizes.last()?.connections.min(series.clients));
    let (from, to) = (layout.place(f64::from(first)), layout.place(f64::from(last)));
    let at = |step: u32| from + (to - from) * f64::from(step) / f64::from(STEPS - 1);
    let points = (0..STEPS).map(|step| (at(step), law.tps(layout.size(at(step))))).collect();
    Some(Line { label: "model: scalability law".to_owned(), points, is_thought: true, ..Line::default() })
}

fn marks(series: &[&Series], layout: &Layout) -> Vec<(f64, String)> {
    let mark = |series: &&Series| match &series.verdict {
        Verdict::Size(found) => {
            let of = if found.connections == 1 { "connection" } else { "connections" };
            Some((layout.place(f64::from(found.connections)), format!("advised: {} {of}", found.connections)))
        }
        Verdict::CannotTell(_) => None,
    };
    match series {
        [only] => mark(only).into_iter().collect(),
        several => several
            .iter()
            .filter_map(|series| Some((series, series.connections()?)))
            .map(|(series, size)| (layout.place(f64::from(size)), format!("{}: {size}", series.target)))
            .collect(),
    }
}

/// Latency: a picture for each target and number of clients, a line for each percentile.
pub(super) fn latency(experiment: &Experiment, advice: &Advice, workload: &str) -> Vec<Chart> {
    let series = advice.series.iter().filter(|series| series.workload == workload);
    series.filter_map(|series| latency_of(experiment, series)).collect()
}

fn latency_of(experiment: &Experiment, series: &Series) -> Option<Chart> {
    let layout = Layout::of(experiment.closed(&series.target, &series.workload));
    let mut lines: Vec<Line> =
        percentiles().map(|(label, _)| Line { label: label.to_owned(), ..Line::default() }).into();
    let mut points: Vec<_> = experiment
        .closed(&series.target, &series.workload)
        .filter(|point| point.clients == series.clients)
        .collect();
    points.sort_by_key(|point| point.pool_size);
    for point in points {
        let Some(size) = point.pool_size else { continue };
        for (line, (_, of)) in lines.iter_mut().zip(percentiles()) {
            let figure = point.percentile(of);
            line.points.extend(figure.map(|figure| (layout.place(f64::from(size)), figure.median / 1000.0)));
        }
    }
    lines.retain(|line| line.points.len() > 1);
    (!lines.is_empty()).then(|| Chart {
        sort: "latency",
        title: format!(
            "{}, {} clients through {}: latency against pool size",
            series.workload, series.clients, series.target
        ),
        unit: "milliseconds",
        along: ALONG,
        ticks: layout.ticks(),
        lines,
        marks: marks(&[series], &layout),
        shades: Vec::new(),
    })
}

/// A percentile and what it is called.
type Named = (&'static str, fn(&Percentiles) -> f64);

/// The percentiles that pictures show.
pub(super) fn percentiles() -> [Named; 3] {
    [
        ("median", |found| found.p50),
        ("95th percentile", |found| found.p95),
        ("99th percentile", |found| found.p99),
    ]
}

fn by_clients<'a>(advice: &'a Advice, workload: &str) -> Vec<Vec<&'a Series>> {
    let mut groups: Vec<Vec<&Series>> = Vec::new();
    let shown = |series: &&Series| series.workload == workload && !series.curve.sizes.is_empty();
    for series in advice.series.iter().filter(shown) {
        match groups.iter_mut().find(|group| group.iter().all(|other| other.clients == series.clients)) {
            Some(group) => group.push(series),
            None => groups.push(vec![series]),
        }
    }
    groups
}
