//! The series as Markdown: first every bar with what was found and how sure that is, then each row with all its
//! figures. Medians over the rounds; ratios are of one round and then their median, with its 95 % interval.

use std::path::Path;

use crate::compare::table;
use crate::full::rows::{Bar, Row};
use crate::full::sample::{Figure, Sample, Unit};
use crate::full::series::{Results, Runs};
use crate::full::subjects::{BASE, EPOLL, IO_URING};
use crate::full::{Bench, Options, Sizes, json};
use lab::error::{LabError, Result};
use lab::figures::{median, or_dash, ratio, short, whole};
use lab::interval::{Interval, Limit};
use lab::machine::Machine;

/// The report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) sizes: Sizes,
    pub(super) is_quick: bool,
    pub(super) results: Vec<Results>,
}

/// A figure over the rounds, or its ratio to the base's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) middle: Option<f64>,
    pub(super) interval: Option<Interval>,
}

impl Found {
    fn of(values: &[f64]) -> Self {
        Self { middle: median(values), interval: Interval::of(values) }
    }

    /// A subject's figure.
    pub(super) fn figure(runs: &Runs, figure: Figure, unit: Unit) -> Self {
        let values: Vec<f64> = runs.samples.iter().filter_map(|run| figure.of(run, unit)).collect();
        Self::of(&values)
    }

    /// A subject's figure over the base's in the same round.
    pub(super) fn ratio(runs: &Runs, base: Option<&Runs>, figure: Figure, unit: Unit) -> Self {
        let Some(base) = base.filter(|base| base.name != runs.name) else { return Self::default() };
        let one = |run: &Sample, base: &Sample| ratio(figure.of(run, unit), figure.of(base, unit));
        let pairs = runs.samples.iter().zip(&base.samples);
        Self::of(&pairs.filter_map(|(run, base)| one(run, base)).collect::<Vec<f64>>())
    }

    /// `0.57 [0.55, 0.60]`, and whether a ratio is a tie.
    fn text(self, is_ratio: bool) -> String {
        let middle = or_dash(self.middle, hundredths);
        let Some(interval) = self.interval else { return middle };
        let tie = if is_ratio && interval.is_tie() { " tie" } else { "" };
        format!("{middle} [{}, {}]{tie}", hundredths(interval.low), hundredths(interval.high))
    }
}

impl Results {
    /// The subject that ratios are taken to.
    pub(super) fn base(&self) -> Option<&Runs> {
        self.subject(BASE)
    }

    fn subject(&self, name: &str) -> Option<&Runs> {
        self.subjects.iter().find(|runs| runs.name == name)
    }

    /// What a subject with a bar has reached.
    pub(super) fn held_to(&self, bar: &Bar, name: &str) -> Found {
        let Some(runs) = self.subject(name) else { return Found::default() };
        if bar.is_absolute {
            Found::figure(runs, bar.figure, self.row.unit)
        } else {
            Found::ratio(runs, self.base(), bar.figure, self.row.unit)
        }
    }
}

impl Report {
    /// An empty one.
    pub(super) fn new(bench: &Bench<'_>, options: &Options) -> Self {
        let machine = bench.lab.machine.clone();
        Self { machine, sizes: bench.sizes, is_quick: options.quick, results: Vec::new() }
    }

    /// The whole report.
    pub(super) fn markdown(&self) -> String {
        let quick = if self.is_quick {
            "\n\n**A quick run: it shows that the harness works, its figures say nothing.**"
        } else {
            ""
        };
        let mut text = format!(
            "# The full table\n\n{}{quick}\n\npgbench scale {}, {} s a run, {} interleaved rounds, fsync on; generator, \
             PostgreSQL and pooler share the machine.\nMedians of the rounds; in brackets the 95 % bootstrap interval. \
             Ratios are to {BASE} in the same round. A bar is reached or not\nonly when the whole interval says so; a \
             ratio whose interval holds 1 is a tie. CPU time is of all threads and processes of the pooler.\n\n",
            self.machine.sentence(),
            self.sizes.scale,
            self.sizes.seconds,
            self.sizes.rounds,
        );
        text.push_str(&format!(
            "Large results: {} MB. Pools: {}. Idle clients: slope from {} to {}. Crowd: {} idle, {} active.\n\n",
            whole(self.sizes.bulk_bytes as f64 / 1e6),
            self.sizes.pools,
            whole(self.sizes.idle.0.into()),
            whole(self.sizes.idle.1.into()),
            whole(self.sizes.crowd.0.into()),
            self.sizes.crowd.1,
        ));
        for (name, version) in self.versions() {
            text.push_str(&format!("- {name}: {version}\n"));
        }
        text.push_str(&format!("\n## The bars\n\n{}", self.bars()));
        for results in &self.results {
            text.push_str(&format!("\n## {}\n\n{}", results.row.title, details(results)));
        }
        text
    }

    /// Writes `result.md` and `result.json` into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let doing = || LabError::system(format!("writing to {}", directory.display()));
        std::fs::write(directory.join("result.md"), self.markdown()).map_err(doing())?;
        std::fs::write(directory.join("result.json"), format!("{:#}\n", json::of(self))).map_err(doing())
    }

    /// Each subject's first words about itself.
    pub(super) fn versions(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for runs in self.results.iter().flat_map(|results| &results.subjects) {
            if !runs.version.is_empty() && !found.iter().any(|(name, _)| *name == runs.name) {
                found.push((runs.name.clone(), runs.version.clone()));
            }
        }
        found
    }

    fn bars(&self) -> String {
        let head = ["", "", "io_uring", "bar", "", "epoll", "bar", ""];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for results in &self.results {
            for bar in results.row.bars {
                let mut row =
                    vec![results.row.title.to_owned(), bar.figure.title(results.row.unit).to_owned()];
                row.extend(judged(results, bar, IO_URING, bar.io_uring));
                row.extend(judged(results, bar, EPOLL, bar.epoll));
                rows.push(row);
            }
        }
        table(&rows)
    }
}

fn judged(results: &Results, bar: &Bar, name: &str, limit: Limit) -> [String; 3] {
    let found = results.held_to(bar, name);
    [found.text(!bar.is_absolute), limit.text(), limit.judge(found.interval).text().to_owned()]
}

/// One row's table: figures, and the ratio behind each.
fn details(results: &Results) -> String {
    let Row { work, unit, .. } = results.row;
    let columns = work.columns();
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(|figure| figure.title(unit).to_owned()));
    let mut rows = vec![head];
    let mut notes = String::new();
    for runs in &results.subjects {
        notes.push_str(&remarks(runs));
        if runs.left_out.is_some() {
            continue;
        }
        let mut row = vec![runs.name.clone()];
        for &figure in columns {
            let found = Found::figure(runs, figure, unit);
            let ratio = Found::ratio(runs, results.base(), figure, unit);
            let ratio = ratio.middle.map(|_| format!(" ({})", ratio.text(true))).unwrap_or_default();
            row.push(format!("{}{ratio}", or_dash(found.middle, short)));
        }
        rows.push(row);
    }
    format!("{}{notes}", table(&rows))
}

/// What a reader of the table must know about one subject.
fn remarks(runs: &Runs) -> String {
    let mut text = String::new();
    if let Some(reason) = &runs.left_out {
        text.push_str(&format!("\n{} is left out: {reason}\n", runs.name));
    }
    let odd = runs.samples.iter().filter(|run| !run.complaints.is_empty()).count();
    if let Some(line) = runs.samples.iter().flat_map(|run| &run.complaints).next() {
        text.push_str(&format!(
            "\n{}: {odd} of {} runs with errors: {line}\n",
            runs.name,
            runs.samples.len()
        ));
    }
    if let Some(calls) = &runs.calls {
        let total: f64 = calls.each.values().sum();
        let mut each: Vec<(&String, &f64)> = calls.each.iter().filter(|(_, count)| **count >= 0.01).collect();
        each.sort_by(|one, other| other.1.total_cmp(one.1));
        let each: Vec<String> =
            each.iter().map(|(name, count)| format!("{name} {}", short(**count))).collect();
        text.push_str(&format!(
            "\n{}: {} system calls each ({}; counted by {} in a run of their own)\n",
            runs.name,
            short(total),
            each.join(", "),
            calls.counter
        ));
    }
    text
}

fn hundredths(value: f64) -> String {
    if value.abs() >= 100.0 { short(value) } else { format!("{value:.2}") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::full::account::Cost;
    use crate::full::rows::ROWS;
    use lab::cpu::Spent;

    fn sample(rate: f64, cpu_us: f64) -> Sample {
        let pooler = Some(Spent { user_us: cpu_us * 100.0, system_us: cpu_us * 900.0 });
        let cost = Cost { pooler, machine_us: 80_000.0, ..Cost::default() };
        Sample { units: 1000.0, rate: Some(rate), cost, ..Sample::default() }
    }

    fn runs(name: &str, samples: Vec<Sample>) -> Runs {
        Runs { name: name.to_owned(), version: "1.0".to_owned(), samples, ..Runs::default() }
    }

    pub(in crate::full) fn report() -> Report {
        let Some(row) = ROWS.iter().find(|row| row.name == "simple-50") else { panic!("no such row") };
        let subjects = vec![
            runs(IO_URING, vec![sample(24.0, 5.0), sample(26.0, 5.0), sample(25.0, 5.5)]),
            runs(EPOLL, vec![sample(20.0, 9.0), sample(18.0, 8.0), sample(21.0, 9.5)]),
            runs(BASE, vec![sample(20.0, 10.0); 3]),
            Runs { left_out: Some("it is broken".to_owned()), ..runs("pgpool", Vec::new()) },
        ];
        let sizes = Sizes {
            rounds: 3,
            seconds: 5,
            warm_up_seconds: 2,
            scale: 50,
            most_clients: 1,
            bulk_bytes: 1,
            pools: 1,
            idle: (1, 2),
            crowd: (1, 1),
        };
        let results = vec![Results { row: *row, subjects }];
        Report { machine: Machine::default(), sizes, is_quick: false, results }
    }

    #[test]
    fn each_bar_has_its_interval_and_its_verdict() {
        let text = report().markdown();
        let line = |name: &str| {
            let found = text.lines().find(|line| line.contains("50 clients |") && line.contains(name));
            found.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(line("pooler µs").contains("0.50 [0.50, 0.55] | ≤ 0.57 | reached"), "{text}");
        assert!(line("pooler µs").contains("0.90 [0.80, 0.95] | ≤ 0.9 | can't tell"), "{text}");
        assert!(line("TPS").contains("1.25 [1.20, 1.30] | ≥ 1.18 | reached"), "{text}");
        assert!(line("TPS").contains("1.00 [0.90, 1.05] tie | ≥ 1 | can't tell"), "{text}");
        assert!(line("machine").contains("1.00 [1.00, 1.00] tie | < 1 | NOT reached"), "{text}");
    }

    #[test]
    fn who_was_left_out_is_named() {
        let text = report().markdown();
        assert!(text.contains("\npgpool is left out: it is broken\n"), "{text}");
        assert!(!text.contains("| pgpool"), "{text}");
    }
}
