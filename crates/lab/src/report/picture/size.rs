//! Against pool size: throughput with its interval, the law through it and the advised size; latency by percentiles.

use crate::advisor::{Advice, Series, Verdict};
use crate::record::{Experiment, Percentiles};
use crate::report::picture::chart::{Chart, Line};

/// From this ratio of the largest to the smallest size on, each doubling takes as much room as the one before.
const DOUBLINGS_FROM: f64 = 12.0;

/// Dashes of the law's line, twice.
const STEPS: u32 = 120;

const ALONG: &str = "pool size (server connections)";

/// How sizes are laid out.
struct Layout {
    doublings: bool,
}

impl Layout {
    fn of(series: &[&Series]) -> Self {
        let sizes =
            || series.iter().flat_map(|series| &series.curve.sizes).map(|found| f64::from(found.connections));
        let (low, high) = (sizes().fold(f64::MAX, f64::min), sizes().fold(1.0, f64::max));
        Self { doublings: high / low >= DOUBLINGS_FROM }
    }

    fn place(&self, size: f64) -> f64 {
        if self.doublings { size.max(0.5).log2() } else { size }
    }

    fn size(&self, place: f64) -> f64 {
        if self.doublings { place.exp2() } else { place }
    }

    fn ticks(&self, series: &[&Series]) -> Vec<(f64, String)> {
        let mut sizes: Vec<u32> =
            series.iter().flat_map(|series| &series.curve.sizes).map(|found| found.connections).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().map(|size| (self.place(f64::from(size)), size.to_string())).collect()
    }
}

/// Throughput: a picture for each number of clients, a line for each target.
pub(super) fn throughput(advice: &Advice, workload: &str) -> Vec<Chart> {
    by_clients(advice, workload).into_iter().map(|series| throughput_of(workload, &series)).collect()
}

fn throughput_of(workload: &str, series: &[&Series]) -> Chart {
    let layout = Layout::of(series);
    let mut lines: Vec<Line> = series.iter().map(|series| line(series, &layout)).collect();
    if let [only] = series {
        lines.extend(law(only, &layout));
    }
    let clients = series.first().map_or(0, |series| series.clients);
    Chart {
        sort: "size",
        title: format!("{workload}, {clients} clients: throughput against pool size"),
        unit: "transactions per second",
        along: ALONG,
        ticks: layout.ticks(series),
        lines,
        marks: marks(series, &layout),
        shades: Vec::new(),
    }
}

fn line(series: &Series, layout: &Layout) -> Line {
    let sizes =
        || series.curve.sizes.iter().map(|found| (layout.place(f64::from(found.connections)), found.tps));
    Line {
        label: format!("{} (band: 95 % interval)", series.target),
        points: sizes().map(|(place, tps)| (place, tps.middle)).collect(),
        band: sizes().map(|(place, tps)| (place, tps.low, tps.high)).collect(),
        ..Line::default()
    }
}

/// The law as a dashed line, where the advice rests on it or might have.
fn law(series: &Series, layout: &Layout) -> Option<Line> {
    let law = series.curve.fit.as_ref()?.law;
    let (first, last) =
        (series.curve.sizes.first()?.connections, series.curve.sizes.last()?.connections.min(series.clients));
    let (from, to) = (layout.place(f64::from(first)), layout.place(f64::from(last)));
    let at = |step: u32| from + (to - from) * f64::from(step) / f64::from(STEPS - 1);
    let points = (0..STEPS).map(|step| (at(step), law.tps(layout.size(at(step))))).collect();
    Some(Line { label: "scalability law".to_owned(), points, is_thought: true, ..Line::default() })
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
    let layout = Layout::of(&[series]);
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
        ticks: layout.ticks(&[series]),
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
