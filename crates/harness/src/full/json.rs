//! The series as JSON: every run with every figure and the names of its raw logs, so that nothing in the Markdown
//! has to be believed.

use serde_json::{Map, Value, json};

use crate::full::report::{Found, Report};
use crate::full::sample::{Figure, Sample, Unit};
use crate::full::series::{Results, Runs};
use crate::full::subjects::{EPOLL, IO_URING};
use lab::interval::Interval;

/// Every figure.
const FIGURES: [Figure; 17] = [
    Figure::Rate,
    Figure::Cpu,
    Figure::CpuUser,
    Figure::CpuSystem,
    Figure::Machine,
    Figure::Mean,
    Figure::P50,
    Figure::P99,
    Figure::Voluntary,
    Figure::Involuntary,
    Figure::Resident,
    Figure::Proportional,
    Figure::AloneP99,
    Figure::Crowding,
    Figure::FewKib,
    Figure::ManyKib,
    Figure::ClientKib,
];

/// The report as an object.
pub(super) fn of(report: &Report) -> Value {
    let sizes = report.sizes;
    let results: Vec<Value> = report.results.iter().map(row).collect();
    json!({
        "machine": report.machine.json(),
        "setting": { "rounds": sizes.rounds, "seconds": sizes.seconds, "scale": sizes.scale, "quick": report.is_quick,
                     "bulk_bytes": sizes.bulk_bytes, "pools": sizes.pools, "idle_clients": [sizes.idle.0, sizes.idle.1],
                     "crowd": { "idle": sizes.crowd.0, "active": sizes.crowd.1 } },
        "subjects": report.versions(),
        "rows": results,
    })
}

fn row(results: &Results) -> Value {
    let row = results.row;
    let bars: Vec<Value> = row.bars.iter().map(|bar| {
        let held = |name: &str, limit: lab::interval::Limit| {
            let found = results.held_to(bar, name);
            json!({ "bar": limit.text(), "found": found_json(found), "verdict": limit.judge(found.interval).text() })
        };
        json!({ "figure": bar.figure.key(), "absolute": bar.is_absolute,
                "io_uring": held(IO_URING, bar.io_uring), "epoll": held(EPOLL, bar.epoll) })
    }).collect();
    let subjects: Vec<Value> = results.subjects.iter().map(|runs| subject(results, runs)).collect();
    json!({ "name": row.name, "title": row.title, "configuration": row.variant.name(), "unit": format!("{:?}", row.unit),
            "bars": bars, "subjects": subjects })
}

fn subject(results: &Results, runs: &Runs) -> Value {
    let unit = results.row.unit;
    let mut medians = Map::new();
    let mut ratios = Map::new();
    for figure in FIGURES {
        let found = Found::figure(runs, figure, unit);
        if found.middle.is_some() {
            medians.insert(figure.key().to_owned(), found_json(found));
        }
        let ratio = Found::ratio(runs, results.base(), figure, unit);
        if ratio.middle.is_some() {
            ratios.insert(figure.key().to_owned(), found_json(ratio));
        }
    }
    let calls = runs.calls.as_ref().map(|calls| json!({ "counted_by": calls.counter, "log": calls.log.display().to_string(), "each": calls.each }));
    json!({ "name": runs.name, "version": runs.version, "left_out": runs.left_out, "medians": medians,
            "ratios": ratios, "system_calls": calls,
            "runs": runs.samples.iter().map(|sample| run(sample, unit)).collect::<Vec<_>>() })
}

fn run(sample: &Sample, unit: Unit) -> Value {
    let mut object = Map::new();
    object.insert("units".to_owned(), json!(sample.units));
    for figure in FIGURES {
        if let Some(value) = figure.of(sample, unit) {
            object.insert(figure.key().to_owned(), json!(value));
        }
    }
    object.insert("complaints".to_owned(), json!(sample.complaints));
    let logs: Vec<String> = sample.logs.iter().map(|log| log.display().to_string()).collect();
    object.insert("logs".to_owned(), json!(logs));
    Value::Object(object)
}

fn found_json(found: Found) -> Value {
    let interval = found.interval.map(|Interval { low, high }| [low, high]);
    json!({ "median": found.middle, "interval_95": interval })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full::report::tests::report;

    #[test]
    fn every_run_and_every_bar_is_there() {
        let json = of(&report());
        let first = &json["rows"][0];
        assert_eq!(first["subjects"][0]["runs"].as_array().map(Vec::len), Some(3));
        assert_eq!(first["subjects"][0]["ratios"]["pooler_cpu"]["median"], 0.5);
        assert_eq!(first["bars"][0]["io_uring"]["verdict"], "reached");
        assert_eq!(first["subjects"][3]["left_out"], "it is broken");
    }
}
