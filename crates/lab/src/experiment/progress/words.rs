//! The words of the news: what a run is called, what came of it, how far it is, how long it takes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::advisor::{self, Overall, Series};
use crate::figures::{short, whole};
use crate::record::{Ended, Experiment, Point, Run};

const BAR_CELLS: usize = 20;

/// The advice for each target that was swept, in one sentence and as the line to paste; both size and line are null
/// where nothing can be told.
pub(super) fn advice(experiment: &Experiment) -> Vec<Value> {
    let advice = advisor::advise(experiment);
    let of_target = |overall: &Overall| {
        let mut series = advice.series.iter().filter(|series| series.target == overall.target);
        let verdict = match (series.next(), series.next()) {
            (Some(only), None) => only.headline(),
            _ => overall.headline(),
        };
        let line = overall.connections.map(|size| format!("default_pool_size = {size}"));
        let of_series = advice.series.iter().filter(|series| series.target == overall.target);
        let mut doubts: Vec<String> = of_series.flat_map(Series::doubts_in_words).collect();
        let mut told = BTreeSet::new();
        doubts.retain(|doubt| told.insert(doubt.clone()));
        let sides: serde_json::Map<String, Value> =
            overall.sides.iter().map(|side| (side.side.word().to_owned(), json!(side.connections))).collect();
        json!({ "target": overall.target, "sides": sides, "size": overall.connections, "verdict": verdict, "doubts": doubts, "line": line })
    };
    advice.overall.iter().map(of_target).collect()
}

/// What a run is called.
pub(super) fn name(point: &Point) -> String {
    let size = point.pool_size.map(|size| format!(" size {size}")).unwrap_or_default();
    let load =
        point.offered.map(|load| format!(", {:.0} % of peak", load.percent_of_peak)).unwrap_or_default();
    format!("{}{size}, {}, {} clients{load}", point.target, point.workload, point.clients)
}

/// What came of it.
pub(super) fn outcome(run: &Run) -> String {
    let p99 = run.latency_us.as_ref().and_then(|latency| latency.percentiles).map(|found| found.p99 / 1000.0);
    let p99 = p99.map(|p99_ms| format!("  p99 {:>6} ms", short(p99_ms))).unwrap_or_default();
    let refused = if run.refused > 0 { format!("  {} refused", run.refused) } else { String::new() };
    let failed = if run.failed > 0 { format!("  {} failed", run.failed) } else { String::new() };
    match &run.ended {
        Ended::Whole => format!("{:>8} TPS{p99}{refused}{failed}", whole(run.tps)),
        Ended::Refused(words) => format!("refused: {words}"),
        Ended::Failed(words) => format!("failed: {words}"),
        Ended::Interrupted => "interrupted".to_owned(),
    }
}

/// How far something is.
pub(super) fn bar(done: f64) -> String {
    let full = (1..=BAR_CELLS).take_while(|cell| done * BAR_CELLS as f64 + 1e-9 >= *cell as f64).count();
    format!("[{}{}] {:3.0} %", "█".repeat(full), "·".repeat(BAR_CELLS - full), done.clamp(0.0, 1.0) * 100.0)
}

/// Minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Latency, Offered, Percentiles};

    #[test]
    fn a_run_is_told_in_one_line() {
        let percentiles = Some(Percentiles { p99: 12_345.0, ..Percentiles::default() });
        let latency_us = Some(Latency { percentiles, ..Latency::default() });
        let run = Run { tps: 2431.4, latency_us, refused: 3, ..Run::default() };
        assert_eq!(outcome(&run), "   2,431 TPS  p99   12.3 ms  3 refused");
        let refused = Run { ended: Ended::Refused("too many".into()), ..Run::default() };
        assert_eq!(outcome(&refused), "refused: too many");
        let offered = Some(Offered { tps: 10.0, percent_of_peak: 70.0 });
        let point = Point {
            target: "weir".into(),
            workload: "w".into(),
            pool_size: Some(4),
            clients: 9,
            offered,
            ..Point::default()
        };
        assert_eq!(name(&point), "weir size 4, w, 9 clients, 70 % of peak");
    }

    #[test]
    fn a_program_is_told_the_advice() {
        let mut experiment = advisor::sample::experiment();
        let told = advice(&experiment);
        assert_eq!((&told[0]["target"], &told[0]["size"]), (&json!("weir"), &json!(8)));
        assert_eq!(told[0]["line"], json!("default_pool_size = 8"));
        experiment.points.iter_mut().for_each(|point| point.runs.clear());
        let told = advice(&experiment);
        assert!(told[0]["size"].is_null() && told[0]["line"].is_null() && told[0]["verdict"].is_string());
        assert_eq!(
            told[0]["doubts"],
            json!(["No run through a pool ended well."]),
            "once, though two workloads say so"
        );
    }

    #[test]
    fn bars_and_clocks_stay_in_their_bounds() {
        assert!(bar(f64::NAN).starts_with("[····") && bar(2.0).ends_with("100 %"));
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}
