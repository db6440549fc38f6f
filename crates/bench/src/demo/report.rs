//! A finished demo as text, JSON and a page. Writes two files and nothing else.

use std::path::Path;

use serde_json::{Value, json};

use crate::demo::runs::{Run, Runs, Way};
use crate::demo::{MAX_CONNECTIONS, POOL, page, words};
use crate::error::{LabError, Result};
use crate::figures::{change, or_dash, short, whole};
use crate::machine::Machine;

/// All that is told about one demo.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) runs: Runs,
    pub(super) seconds: u32,
    pub(super) scale: u32,
    pub(super) pool_size: u32,
    pub(super) machine: Machine,
    /// The pooler's `-V`.
    pub(super) pooler: String,
    pub(super) io_driver: Option<String>,
    /// How to connect to the pool.
    pub(super) uri: String,
}

/// The heads of the table's columns, with the width of each; the first is flushed left.
const COLUMNS: [(&str, usize); 9] = [
    ("", 30),
    ("clients", 8),
    ("served", 7),
    ("TPS", 8),
    ("to 50 direct", 13),
    ("p50 ms", 7),
    ("p99 ms", 7),
    ("pooler µs", 10),
    ("machine µs", 11),
];

impl Report {
    /// The table for the terminal, with the sentences below it.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for sentence in [self.setting(), self.machine.sentence(), self.pooler_sentence()] {
            text.push_str(&wrap("", &sentence, 110));
        }
        text.push('\n');
        text.push_str(&line(&COLUMNS.map(|(head, _)| head.to_owned())));
        text.push_str(&"─".repeat(COLUMNS.iter().map(|(_, width)| width).sum()));
        text.push('\n');
        for (index, run) in self.runs.in_order().into_iter().enumerate() {
            if index == 4 {
                text.push_str("what the right size is worth:\n");
            }
            text.push_str(&line(&self.cells(run)));
        }
        text.push_str("(µs: CPU time for a transaction, of the pooler and of the whole machine)\n\n");
        for sentence in words::sentences(self) {
            text.push_str(&wrap("• ", &sentence, 110));
        }
        text
    }

    /// The cells of one run, as the columns have them.
    pub(super) fn cells(&self, run: &Run) -> [String; 9] {
        let measured = &run.measured;
        let base = self.runs.few_direct.measured.tps();
        let against =
            base.zip(measured.tps()).map_or_else(|| "-".to_owned(), |(base, tps)| change(base, tps));
        let latency = measured.outcome.latency;
        [
            run.name(self.pool_size),
            run.asked.to_string(),
            run.served().to_string(),
            or_dash(measured.tps(), whole),
            against,
            or_dash(latency.map(|latency| latency.p50_ms), short),
            or_dash(latency.map(|latency| latency.p99_ms), short),
            or_dash(measured.pooler_us(), short),
            or_dash(measured.machine_us(), short),
        ]
    }

    /// What was run, in a sentence.
    pub(super) fn setting(&self) -> String {
        format!(
            "pgbench (TPC-B, simple queries, 2 threads) at scale {}, {} s a run; PostgreSQL with max_connections \
             {MAX_CONNECTIONS} (3 reserved), fsync on; {POOL} in transaction mode.",
            self.scale, self.seconds
        )
    }

    /// Which pooler, in a few words.
    pub(super) fn pooler_sentence(&self) -> String {
        let driver = self.io_driver.as_deref().map(|name| format!(", io_driver {name}")).unwrap_or_default();
        format!("{}{driver}", self.pooler)
    }

    /// Writes `result.json` and `index.html` into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let doing = || LabError::system(format!("writing to {}", directory.display()));
        std::fs::create_dir_all(directory).map_err(doing())?;
        std::fs::write(directory.join("result.json"), format!("{:#}\n", self.json())).map_err(doing())?;
        std::fs::write(directory.join("index.html"), page::page(self)).map_err(doing())
    }

    fn json(&self) -> Value {
        json!({
            "setting": {
                "seconds": self.seconds, "scale": self.scale, "workload": "TPC-B", "query_mode": "simple",
                "max_connections": MAX_CONNECTIONS, "superuser_reserved_connections": 3, "fsync": true,
                "pool": POOL, "pool_size": self.pool_size, "pool_mode": "transaction",
            },
            "machine": self.machine.json(),
            "pooler": { "version": self.pooler, "io_driver": self.io_driver },
            "uri": self.uri,
            "runs": self.runs.in_order().map(run_json),
            "words": words::sentences(self),
        })
    }
}

fn run_json(run: &Run) -> Value {
    let measured = &run.measured;
    let latency = measured.outcome.latency;
    json!({
        "way": if run.way == Way::Direct { "direct" } else { "pooled" },
        "pool_size": match run.way { Way::Direct => None, Way::Pooled(size) => Some(size) },
        "clients": run.asked,
        "refused": run.refused,
        "served": run.served(),
        "refusal": run.fatal,
        "tps": measured.tps(),
        "transactions": measured.outcome.summary.as_ref().map(|summary| summary.transactions),
        "failed": measured.outcome.summary.as_ref().map(|summary| summary.failed),
        "latency_average_ms": measured.outcome.summary.as_ref().and_then(|summary| summary.latency_average_ms),
        "p50_ms": latency.map(|latency| latency.p50_ms),
        "p99_ms": latency.map(|latency| latency.p99_ms),
        "pooler_cpu_us_per_transaction": measured.pooler_us(),
        "machine_cpu_us_per_transaction": measured.machine_us(),
        "tps_by_second": measured.outcome.progress.iter().map(|now| json!([now.seconds, now.tps])).collect::<Vec<_>>(),
    })
}

/// One line of the table. Widths count characters, so that `µ` takes one place.
fn line(cells: &[String; 9]) -> String {
    let mut text = String::new();
    for (index, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        if index == 0 {
            text.push_str(&format!("{cell:<width$}"))
        } else {
            text.push_str(&format!("{cell:>width$}"))
        }
    }
    text.push('\n');
    text
}

/// A sentence after `lead`, in lines of at most `width` characters; further lines are indented as far as the lead.
fn wrap(lead: &str, sentence: &str, width: usize) -> String {
    let indent = lead.chars().count();
    let mut text = lead.to_owned();
    let mut column = indent;
    for word in sentence.split(' ') {
        let letters = word.chars().count();
        if column > indent && column + 1 + letters > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += letters;
    }
    text.push('\n');
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cpu::Spent;
    use crate::lab::Measured;
    use crate::pgbench::{Latency, Outcome, Progress, Summary};

    /// A report with these transactions per second, in the order of the runs.
    pub(in crate::demo) fn sample(tps: [f64; 5]) -> Report {
        let run = |index: usize, way, asked, refused| {
            let summary = Summary { tps: tps[index], transactions: 1000, ..Summary::default() };
            let progress = vec![
                Progress { seconds: 1.0, tps: tps[index] },
                Progress { seconds: 2.0, tps: tps[index] * 1.1 },
            ];
            let outcome = Outcome {
                summary: Some(summary),
                progress,
                latency: Some(Latency { p50_ms: 12.5, p99_ms: 60.0 }),
                complaints: Vec::new(),
            };
            let pooler = (way != Way::Direct).then_some(Spent { user_us: 10_000.0, system_us: 100_000.0 });
            let measured = Measured { outcome, pooler, machine_us: 690_000.0 };
            let fatal = (refused > 0).then(|| "FATAL:  no <slots>".to_owned());
            Run { way, asked, refused, fatal, measured }
        };
        Report {
            runs: Runs {
                few_direct: run(0, Way::Direct, 50, 0),
                many_direct: run(1, Way::Direct, 150, 53),
                many_pooled: run(2, Way::Pooled(20), 150, 0),
                few_pooled: run(3, Way::Pooled(20), 50, 0),
                many_largest: run(4, Way::Pooled(97), 150, 0),
            },
            seconds: 15,
            scale: 50,
            pool_size: 20,
            machine: Machine { cores: 2, processor: "A & B".to_owned(), ..Machine::default() },
            pooler: "Pooler <1>".to_owned(),
            io_driver: Some("io_uring".to_owned()),
            uri: "postgres://bench@127.0.0.1:6432/test-pool?sslmode=disable".to_owned(),
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_run() {
        let table = sample([3447.0, 3029.0, 2738.0, 2900.0, 2400.0]).table();
        let lines: Vec<&str> = table.lines().collect();
        let row = |name: &str| lines.iter().find(|line| line.starts_with(name)).copied().unwrap_or_default();
        let cells: Vec<&str> = row("test-pool (size 20)").split_whitespace().skip(3).collect();
        assert_eq!(cells, ["150", "150", "2,738", "-21%", "12.5", "60.0", "110", "690"]);
        assert!(row("a pool of 97").contains("2,400"), "{table}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("direct ")).count(), 2);
    }

    #[test]
    fn json_holds_what_the_table_holds() {
        let json = sample([3447.0, 3029.0, 2738.0, 2900.0, 2400.0]).json();
        assert_eq!(json["runs"].as_array().map(Vec::len), Some(5));
        assert_eq!(json["runs"][1]["refused"], 53);
        assert_eq!(json["runs"][2]["pooler_cpu_us_per_transaction"], 110.0);
        assert_eq!(json["runs"][0]["pooler_cpu_us_per_transaction"], Value::Null);
    }

    #[test]
    fn long_sentences_are_wrapped_at_words() {
        assert_eq!(wrap("• ", "one two three", 10), "• one two\n  three\n");
        assert_eq!(wrap("", "longerthanthat a", 8), "longerthanthat\na\n");
    }
}
