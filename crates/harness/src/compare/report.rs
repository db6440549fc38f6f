//! The comparison as Markdown and JSON: medians over the rounds, and ratios to PgBouncer round by round. The
//! same Markdown goes to the terminal and to a file; its tables are aligned so that both read well.

use std::path::Path;

use serde_json::{Value, json};

use crate::compare::idle::Idle;
use crate::compare::series::Cell;
use crate::compare::subjects::BASE;
use crate::series::write;
use lab::error::Result;
use lab::figures::{median, median_of, or_dash, ratio, short, whole};
use lab::laboratory::Measured;
use lab::machine::Machine;

/// The report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) seconds: u32,
    pub(super) scale: u32,
    pub(super) repeats: u32,
    pub(super) query_mode: String,
    /// Name and version of each subject.
    pub(super) subjects: Vec<(String, String)>,
    pub(super) cells: Vec<Cell>,
    pub(super) idle: Vec<Idle>,
}

/// What is measured of a run, where it could be.
type Figure = fn(&Measured) -> Option<f64>;

const TPS: Figure = Measured::tps;
const POOLER_US: Figure = Measured::pooler_us;
const USER_US: Figure = |run| run.per_transaction(run.pooler?.user_us);
const SYSTEM_US: Figure = |run| run.per_transaction(run.pooler?.system_us);
const MACHINE_US: Figure = Measured::machine_us;
const P50_MS: Figure = |run| Some(run.outcome.latency_us?.p50 / 1000.0);
const P99_MS: Figure = |run| Some(run.outcome.latency_us?.p99 / 1000.0);

/// The median of the rounds' ratios. Each round is compared with its own base, so that a machine that is faster in one
/// round than in another does not count for or against any subject.
fn ratio_to(base: &[Measured], runs: &[Measured], figure: Figure) -> Option<f64> {
    let ratios = runs.iter().zip(base).filter_map(|(run, base)| ratio(figure(run), figure(base)));
    median(&ratios.collect::<Vec<f64>>())
}

impl Report {
    /// The whole report.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "# Poolers compared\n\n{}\n\npgbench, {} queries, scale {}, {} s a run, medians of {} interleaved rounds; \
             fsync on, trust, TCP on the loopback, no TLS;\ngenerator, PostgreSQL and pooler share the machine. In \
             brackets: the ratio to {BASE}, median of the rounds' own ratios. µs: CPU time for a transaction.\n\n",
            self.machine.sentence(),
            self.query_mode,
            self.scale,
            self.seconds,
            self.repeats,
        );
        for (name, version) in &self.subjects {
            text.push_str(&format!("- {name}: {version}\n"));
        }
        for cell in &self.cells {
            text.push_str(&format!(
                "\n## {}, {} clients\n\n{}",
                cell.workload.name(),
                cell.clients,
                self.cell(cell)
            ));
        }
        if !self.idle.is_empty() {
            text.push_str(&format!("\n## Memory of idle clients\n\n{}", self.memory()));
        }
        text
    }

    /// Writes `result.md` and `result.json` into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        write(directory, &self.markdown(), &self.json())
    }

    fn cell(&self, cell: &Cell) -> String {
        let base = self.base().and_then(|at| cell.runs.get(at)).map_or(&[][..], Vec::as_slice);
        let head = ["", "TPS", "pooler µs", "user + system", "machine µs", "p50 ms", "p99 ms"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut notes = String::new();
        for (index, (name, _)) in self.subjects.iter().enumerate() {
            let runs = cell.runs.get(index).map_or(&[][..], Vec::as_slice);
            let show = |figure: Figure, text: fn(f64) -> String| {
                with_ratio(median_of(runs, figure), ratio_to(base, runs, figure), text)
            };
            let split = median_of(runs, USER_US).zip(median_of(runs, SYSTEM_US));
            let split = split.map(|(user, system)| format!("{} + {}", short(user), short(system)));
            rows.push(vec![
                name.clone(),
                show(TPS, whole),
                show(POOLER_US, short),
                split.unwrap_or_else(|| "-".to_owned()),
                show(MACHINE_US, short),
                show(P50_MS, short),
                show(P99_MS, short),
            ]);
            notes.push_str(&complaint(name, runs));
        }
        format!("{}{notes}", table(&rows))
    }

    fn memory(&self) -> String {
        let base = self.idle.iter().find(|idle| idle.name == BASE).map(Idle::slope_kib);
        let mut rows = vec![["", "1,000: KiB", "5,000: KiB", "KiB a client"].map(str::to_owned).to_vec()];
        for idle in &self.idle {
            rows.push(vec![
                idle.name.clone(),
                whole(idle.few_kib as f64),
                whole(idle.many_kib as f64),
                with_ratio(Some(idle.slope_kib()), ratio(Some(idle.slope_kib()), base), short),
            ]);
        }
        table(&rows)
    }

    fn base(&self) -> Option<usize> {
        self.subjects.iter().position(|(name, _)| name == BASE)
    }

    fn json(&self) -> Value {
        let base = self.base();
        let cells = self.cells.iter().map(|cell| {
            let base = base.and_then(|at| cell.runs.get(at)).map_or(&[][..], Vec::as_slice);
            let subjects = self.subjects.iter().zip(&cell.runs);
            let runs: Vec<Value> = subjects.map(|((name, _), runs)| subject_json(name, runs, base)).collect();
            json!({ "workload": cell.workload.name(), "clients": cell.clients, "subjects": runs })
        });
        let idle = self.idle.iter().map(|idle| {
            json!({ "name": idle.name, "kib_at_1000": idle.few_kib, "kib_at_5000": idle.many_kib,
                    "kib_per_client": idle.slope_kib() })
        });
        json!({
            "machine": self.machine.json(),
            "setting": { "seconds": self.seconds, "scale": self.scale, "repeats": self.repeats,
                         "query_mode": self.query_mode, "pool_size": 20, "pool_mode": "transaction", "fsync": true },
            "subjects": self.subjects.iter().map(|(name, version)| json!([name, version])).collect::<Vec<_>>(),
            "cells": cells.collect::<Vec<_>>(),
            "idle_clients": idle.collect::<Vec<_>>(),
        })
    }
}

fn subject_json(name: &str, runs: &[Measured], base: &[Measured]) -> Value {
    let each: Vec<Value> = (runs.iter())
        .map(|run| {
            json!({ "tps": TPS(run), "pooler_us": POOLER_US(run), "machine_us": MACHINE_US(run),
                    "p50_ms": P50_MS(run), "p99_ms": P99_MS(run), "complaints": run.outcome.complaints })
        })
        .collect();
    let median = |figure: Figure| median_of(runs, figure);
    let ratio = |figure: Figure| ratio_to(base, runs, figure);
    json!({
        "name": name,
        "medians": { "tps": median(TPS), "pooler_us": median(POOLER_US), "user_us": median(USER_US),
                     "system_us": median(SYSTEM_US), "machine_us": median(MACHINE_US), "p50_ms": median(P50_MS),
                     "p99_ms": median(P99_MS) },
        "ratios": { "tps": ratio(TPS), "pooler_us": ratio(POOLER_US), "machine_us": ratio(MACHINE_US),
                    "p50_ms": ratio(P50_MS), "p99_ms": ratio(P99_MS) },
        "runs": each,
    })
}

/// A note when runs of a subject failed or complained: such figures are not to be trusted.
fn complaint(name: &str, runs: &[Measured]) -> String {
    let odd = runs.iter().filter(|run| !run.outcome.complaints.is_empty() || run.tps().is_none()).count();
    let first = runs.iter().flat_map(|run| &run.outcome.complaints).next();
    first
        .map(|line| format!("\n{name}: {odd} of {} runs with errors: {line}\n", runs.len()))
        .unwrap_or_default()
}

fn with_ratio(value: Option<f64>, ratio: Option<f64>, show: impl Fn(f64) -> String) -> String {
    let ratio = ratio.map(|ratio| format!(" ({ratio:.2})")).unwrap_or_default();
    format!("{}{ratio}", or_dash(value, show))
}

/// A Markdown table whose columns are as wide as their widest cell; all but the first are flushed right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let letters = |text: &String| text.chars().count();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| letters(&row[column])).max().unwrap_or(0).max(3))
        .collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let padded = if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            text.push_str(&format!("| {padded} "));
        }
        text.push_str("|\n");
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                let (rule, end) =
                    if column == 0 { ("-".repeat(width + 2), "") } else { ("-".repeat(width + 1), ":") };
                text.push_str(&format!("|{rule}{end}"));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::cpu::Spent;
    use lab::pgbench::{Outcome, Summary, Workload};
    use lab::record::Percentiles;

    fn run(tps: f64, pooler_us: f64) -> Measured {
        let summary = Summary { tps, transactions: 1000, ..Summary::default() };
        let latency_us = Some(Percentiles { p50: 1000.0, p99: 2000.0, ..Percentiles::default() });
        let outcome = Outcome { summary: Some(summary), latency_us, ..Outcome::default() };
        let user_us = pooler_us * 100.0;
        let pooler = (pooler_us > 0.0).then_some(Spent { user_us, system_us: pooler_us * 900.0 });
        Measured { outcome, pooler, machine_us: 80_000.0 }
    }

    fn sample() -> Report {
        let subjects =
            ["weir-io_uring", "pgbouncer", "direct"].map(|name| (name.to_owned(), "1.0".to_owned()));
        let runs = vec![
            vec![run(26_000.0, 10.0), run(27_000.0, 11.0), run(1.0, 500.0)],
            vec![run(20_000.0, 20.0), run(20_000.0, 20.0), run(20_000.0, 20.0)],
            vec![run(30_000.0, 0.0)],
        ];
        Report {
            machine: Machine::default(),
            seconds: 8,
            scale: 50,
            repeats: 3,
            query_mode: "simple".to_owned(),
            subjects: subjects.to_vec(),
            cells: vec![Cell { workload: Workload::SelectOnly, clients: 50, runs }],
            idle: vec![Idle { name: "pgbouncer".to_owned(), few_kib: 5_000, many_kib: 9_000 }],
        }
    }

    #[test]
    fn medians_and_ratios_stand_in_the_table() {
        let text = sample().markdown();
        assert!(text.contains("| 26,000 (1.30) | 11.0 (0.55) |   1.10 + 9.90 | 80.0 (1.00) |"), "{text}");
        assert!(text.contains("| direct        | 30,000 (1.50) |           - |"), "{text}");
        assert!(text.contains("1.00 (1.00)"), "{text}");
    }

    #[test]
    fn a_round_is_compared_with_itself() {
        let slow_and_fast = [run(10.0, 40.0), run(20.0, 20.0), run(30.0, 10.0)];
        let base = [run(10.0, 80.0), run(40.0, 10.0), run(60.0, 20.0)];
        assert_eq!(ratio_to(&base, &slow_and_fast, TPS), Some(0.5));
        assert_eq!(ratio_to(&base, &slow_and_fast, POOLER_US), Some(0.5));
        assert_eq!(ratio_to(&[], &slow_and_fast, TPS), None);
    }

    #[test]
    fn runs_with_errors_are_named() {
        let mut report = sample();
        report.cells[0].runs[0][1].outcome.complaints.push("error: broken".to_owned());
        assert!(report.markdown().contains("weir-io_uring: 1 of 3 runs with errors: error: broken"));
    }

    #[test]
    fn json_keeps_every_run() {
        let json = sample().json();
        assert_eq!(json["cells"][0]["subjects"][0]["runs"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["cells"][0]["subjects"][1]["medians"]["tps"], 20_000.0);
        assert_eq!(json["idle_clients"][0]["kib_per_client"], 1.0);
    }
}
