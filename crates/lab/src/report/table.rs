//! Tables without a medium: the terminal and the page show the very same cells. Says what was measured, row by row, the
//! refused and the failed among it. Never decides how a cell looks.

use crate::advisor::Advice;
use crate::figures::{or_dash, short, whole};
use crate::record::{Connecting, Experiment, Percentiles, Point};
use crate::report::compared::{self, Against};
use crate::report::self_sized;

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// What is in it.
    pub(super) title: String,
    /// The workload that it belongs to.
    pub(super) workload: String,
    /// Heads of the columns; the first is flushed left, the others right.
    pub(super) heads: Vec<&'static str>,
    /// Its rows.
    pub(super) rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// As many as the table has heads.
    pub(super) cells: Vec<String>,
    /// Whether it is the advised size.
    pub(super) advised: bool,
    /// Whether clients were refused, transactions failed or a run gave up.
    pub(super) troubled: bool,
    /// Transactions per second over time, warm-up included: the mean of the rounds.
    pub(super) seconds: Vec<f64>,
}

/// One table for each workload: all its closed-loop points.
pub(super) fn closed(experiment: &Experiment, advice: &Advice) -> Vec<Table> {
    let tables = experiment.workloads.iter().map(|workload| {
        let mut points: Vec<&Point> = experiment
            .points
            .iter()
            .filter(|point| point.offered.is_none() && point.workload == workload.name)
            .collect();
        points.sort_by_key(|point| (point.clients, place(experiment, &point.target), point.pool_size));
        let against = points.iter().map(|point| compared::against(experiment, point)).collect::<Vec<_>>();
        let compares = against.iter().any(Option::is_some);
        let mut heads = vec!["target", "clients", "pool", "TPS", "95 % interval"];
        heads.extend(compares.then_some("against"));
        heads.extend(["p50 ms", "p95 ms", "p99 ms", "pooler µs", "refused", "failed"]);
        let rows = points
            .iter()
            .zip(&against)
            .map(|(point, against)| row(point, against.as_ref(), compares, advice));
        Table { title: workload.name.clone(), workload: workload.name.clone(), heads, rows: rows.collect() }
    });
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// One table for each workload: its open-loop points.
pub(super) fn open(experiment: &Experiment) -> Vec<Table> {
    let tables = experiment.workloads.iter().map(|workload| {
        let rows = (experiment.points.iter())
            .filter(|point| point.workload == workload.name)
            .filter_map(|point| Some(open_row(point, point.offered?.tps, point.offered?.percent_of_peak)));
        let heads = vec![
            "target", "clients", "pool", "offered", "of peak", "TPS", "p50 ms", "p95 ms", "p99 ms",
            "p99.9 ms", "lag ms", "skipped", "refused", "failed",
        ];
        Table {
            title: format!("{}: latency against offered load", workload.name),
            workload: workload.name.clone(),
            heads,
            rows: rows.collect(),
        }
    });
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// The heads of [`steps`], and which of its columns only several sizes fill.
const STEP_HEADS: [&str; 8] = [
    "target",
    "clients",
    "pool",
    "TPS",
    "TPS per added connection",
    "connecting ms",
    "whole run: TPS with connecting",
    "without",
];
const GAIN: usize = 4;

/// One table for each workload: what each further connection of a swept pool adds, and what connecting took.
pub(super) fn steps(experiment: &Experiment) -> Vec<Table> {
    let tables = experiment.workloads.iter().map(|workload| {
        let mut points: Vec<&Point> = experiment
            .points
            .iter()
            .filter(|point| {
                point.offered.is_none() && point.workload == workload.name && point.tps().is_some()
            })
            .collect();
        points.sort_by_key(|point| (point.clients, place(experiment, &point.target), point.pool_size));
        let rows = points.iter().enumerate().map(|(index, point)| {
            let smaller = index.checked_sub(1).map(|before| points[before]);
            step(
                point,
                smaller.filter(|other| other.target == point.target && other.clients == point.clients),
            )
        });
        let mut table = Table {
            title: format!("{}: what each connection adds, and connecting", workload.name),
            workload: workload.name.clone(),
            heads: STEP_HEADS.to_vec(),
            rows: rows.collect(),
        };
        if table.rows.iter().all(|row| row.cells[GAIN] == "-") {
            table.title = format!("{}: connecting", workload.name);
            table.heads.remove(GAIN);
            table.rows.iter_mut().for_each(|row| drop(row.cells.remove(GAIN)));
        }
        table
    });
    let says_more =
        |table: &Table| table.rows.iter().any(|row| row.cells[4..].iter().any(|cell| cell != "-"));
    tables.filter(says_more).collect()
}

/// A row of [`steps`], with the next smaller size of the same target and clients.
fn step(point: &Point, smaller: Option<&Point>) -> Row {
    let tps = |point: &Point| point.tps().map(|figure| figure.median);
    let gain = smaller.and_then(|smaller| {
        let added = f64::from(point.pool_size?.checked_sub(smaller.pool_size?).filter(|added| *added > 0)?);
        Some((tps(point)? - tps(smaller)?) / added)
    });
    let connecting =
        |of: fn(&Connecting) -> Option<f64>| median(point, move |run| of(run.connecting.as_ref()?));
    let cells = vec![
        point.target.clone(),
        point.clients.to_string(),
        pool(point),
        or_dash(tps(point), whole),
        or_dash(gain, |gain| if gain > 0.0 { format!("+{}", short(gain)) } else { short(gain) }),
        or_dash(connecting(|found| found.ms), short),
        or_dash(connecting(|found| Some(found.tps_including)), whole),
        or_dash(connecting(|found| Some(found.tps_excluding)), whole),
    ];
    Row { cells, ..Row::default() }
}

fn place(experiment: &Experiment, target: &str) -> Option<usize> {
    experiment.targets.iter().position(|known| known.name == target)
}

fn row(point: &Point, against: Option<&Against>, compares: bool, advice: &Advice) -> Row {
    let tps = point.tps();
    let interval = tps.and_then(|figure| figure.interval);
    let mut cells = vec![
        point.target.clone(),
        point.clients.to_string(),
        pool(point),
        or_dash(tps.map(|figure| figure.median), whole),
        interval
            .map_or_else(|| "-".to_owned(), |found| format!("{} to {}", whole(found.low), whole(found.high))),
    ];
    if compares {
        cells.push(against.map_or_else(|| "-".to_owned(), Against::short));
    }
    cells.extend([
        milliseconds(point, |found| found.p50),
        milliseconds(point, |found| found.p95),
        milliseconds(point, |found| found.p99),
        or_dash(median(point, |run| run.per_transaction(|part| part.pooler)), short),
    ]);
    cells.extend(bad(point));
    let advised = advice
        .of(&point.target, &point.workload, point.clients)
        .is_some_and(|series| series.connections().is_some() && series.connections() == point.pool_size);
    Row { cells, advised, troubled: is_troubled(point), seconds: seconds(point) }
}

fn open_row(point: &Point, offered: f64, percent: f64) -> Row {
    let mut cells = vec![
        point.target.clone(),
        point.clients.to_string(),
        pool(point),
        whole(offered),
        format!("{percent:.0} %"),
        or_dash(point.tps().map(|figure| figure.median), whole),
        milliseconds(point, |found| found.p50),
        milliseconds(point, |found| found.p95),
        milliseconds(point, |found| found.p99),
        milliseconds(point, |found| found.p999),
        or_dash(median(point, |run| run.lag_us.map(|lag| lag.max / 1000.0)), short),
        point.runs.iter().map(|run| run.skipped).sum::<u64>().to_string(),
    ];
    cells.extend(bad(point));
    Row { cells, advised: false, troubled: is_troubled(point), seconds: seconds(point) }
}

/// Refused clients (the most of a run, as each run asks for the same) and failed transactions (of all runs).
fn bad(point: &Point) -> [String; 2] {
    let refused = point.runs.iter().map(|run| run.refused).max().unwrap_or_default();
    let failed: u64 = point.runs.iter().map(|run| run.failed).sum();
    [refused.to_string(), failed.to_string()]
}

fn is_troubled(point: &Point) -> bool {
    point.runs.len() != point.whole().count() || bad(point).iter().any(|cell| cell != "0")
}

fn pool(point: &Point) -> String {
    match (point.pool_size, self_sized::found(point)) {
        (Some(size), _) => size.to_string(),
        (None, Some(found)) => format!("auto: {found}"),
        (None, None) => "-".to_owned(),
    }
}

fn median(point: &Point, of: impl Fn(&crate::record::Run) -> Option<f64>) -> Option<f64> {
    point.figure(of).map(|figure| figure.median)
}

fn milliseconds(point: &Point, of: impl Fn(&Percentiles) -> f64) -> String {
    or_dash(point.percentile(of).map(|figure| figure.median / 1000.0), short)
}

/// The mean of the rounds, second by second.
fn seconds(point: &Point) -> Vec<f64> {
    let longest = point.runs.iter().map(|run| run.per_second.len()).max().unwrap_or_default();
    let at = |place: usize| {
        let values: Vec<f64> =
            point.runs.iter().filter_map(|run| run.per_second.get(place)).map(|now| now.tps).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    (0..longest).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{advise, sample};

    #[test]
    fn every_point_has_its_row_and_the_advised_is_marked() {
        let experiment = sample::experiment();
        let tables = closed(&experiment, &advise(&experiment));
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].rows.len(), 9, "direct at 50 and 150 clients, seven sizes");
        assert!(tables[0].rows.iter().all(|row| row.cells.len() == tables[0].heads.len()));
        let advised: Vec<&str> =
            tables[0].rows.iter().filter(|row| row.advised).map(|row| row.cells[2].as_str()).collect();
        assert_eq!(advised, ["8"]);
    }

    #[test]
    fn the_refused_and_the_failed_are_in_the_table() {
        let experiment = sample::experiment();
        let tables = closed(&experiment, &advise(&experiment));
        let direct: Vec<&Row> = tables[0].rows.iter().filter(|row| row.cells[0] == "direct").collect();
        assert!(direct.iter().all(|row| row.troubled));
        assert_eq!(direct[0].cells.last().map(String::as_str), Some("2"));
        assert_eq!(direct[1].cells[3], "-");
        assert!(direct[1].cells.contains(&"53".to_owned()));
    }

    #[test]
    fn what_each_connection_adds_is_told_with_what_connecting_took() {
        let mut experiment = sample::experiment();
        for point in experiment.points.iter_mut().filter(|point| point.offered.is_none()) {
            let tps = match point.pool_size {
                Some(2) => 1500.0,
                Some(4) => 2600.0,
                Some(8) => 2200.0,
                _ => 1000.0,
            };
            let connecting = Some(Connecting { ms: Some(12.5), tps_including: 990.0, tps_excluding: 1000.0 });
            point.runs.iter_mut().for_each(|run| (run.tps, run.connecting) = (tps, connecting));
        }
        let tables = steps(&experiment);
        assert_eq!(tables.len(), 2);
        let of =
            |pool: &str| tables[0].rows.iter().find(|row| row.cells[2] == pool).expect("a row").cells.clone();
        assert_eq!(of("1")[4], "-", "the smallest adds to nothing");
        assert_eq!((of("2")[4].as_str(), of("4")[4].as_str(), of("8")[4].as_str()), ("+500", "+550", "-100"));
        assert_eq!(of("8")[5..], ["12.5", "990", "1,000"]);
        assert!(tables[0].rows.iter().all(|row| row.cells.len() == tables[0].heads.len()));
        experiment.points.retain(|point| point.pool_size.is_none_or(|size| size == 8));
        let single = &steps(&experiment)[0];
        assert!(single.title == "writes: connecting" && !single.heads.contains(&STEP_HEADS[GAIN]));
        assert!(single.rows.iter().all(|row| row.cells.len() == single.heads.len()));
        experiment.points.iter_mut().flat_map(|point| &mut point.runs).for_each(|run| run.connecting = None);
        assert!(steps(&experiment).is_empty(), "nothing but dashes");
    }

    #[test]
    fn open_loops_have_tables_of_their_own() {
        let tables = open(&sample::experiment());
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].rows.len(), 4);
        assert!(tables[0].rows.iter().all(|row| row.cells.len() == tables[0].heads.len()));
        assert_eq!(tables[0].rows[3].cells[4], "90 %");
        assert_eq!(tables[0].rows[0].seconds.len(), 12);
    }
}
