//! What is shown while an experiment runs: a table that grows with a bar below it, plain lines, or JSON lines for a
//! program that started the lab. Results go to standard output, everything else to standard error; with JSON all of it
//! goes to standard output, a line for each event.

mod board;
mod words;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use board::Board;
use words::{bar, clock, name, outcome};

use crate::figures::whole;
use crate::options::{ProgressKind, ResultForm};
use crate::record::{Ended, Experiment, Point, Run, Second};
use crate::report::{self, sparkline};
use programs::Status;

/// Seconds of a run that its sparkline shows.
const SPARK_CELLS: usize = 24;

/// The listener.
#[derive(Debug)]
enum Listener {
    Terminal,
    Lines,
    Program,
    Nobody,
}

/// The progress, and its listener.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    listener: Listener,
    form: ResultForm,
    runs: u32,
    done: u32,
    first_run: Option<Instant>,
    /// What the present run is called, and its seconds.
    running: String,
    seconds: Vec<f64>,
    /// What a terminal shows of the runs so far, and how many of its lines stand above the cursor.
    board: Board,
    open: Option<usize>,
    /// The last quarter of a step that lines told.
    quarter: u32,
}

impl ProgressReporter {
    /// Nothing told yet.
    pub(super) fn new(kind: ProgressKind, form: ResultForm) -> Self {
        let listener = match kind {
            ProgressKind::Auto if std::io::stderr().is_terminal() => Listener::Terminal,
            ProgressKind::Auto | ProgressKind::Plain => Listener::Lines,
            ProgressKind::Json => Listener::Program,
            ProgressKind::None => Listener::Nobody,
        };
        Self {
            listener,
            form,
            runs: 0,
            done: 0,
            first_run: None,
            running: String::new(),
            seconds: Vec::new(),
            board: Board::default(),
            open: None,
            quarter: 0,
        }
    }

    /// A step of the setting up.
    pub(super) fn step(&mut self, text: &str) {
        self.quarter = 0;
        match self.listener {
            Listener::Terminal | Listener::Lines => self.line(&format!("▸ {text}")),
            Listener::Program => event(json!({ "event": "step", "text": text })),
            Listener::Nobody => {}
        }
    }

    /// Something about it.
    pub(super) fn remark(&mut self, text: &str) {
        match self.listener {
            Listener::Terminal | Listener::Lines => self.line(&format!("  {text}")),
            Listener::Program => event(json!({ "event": "remark", "text": text })),
            Listener::Nobody => {}
        }
    }

    /// How far a step is, between 0 and 1.
    pub(super) fn bar(&mut self, done: f64, text: &str) {
        let quarter = (1..=4).take_while(|quarter| done * 4.0 >= f64::from(*quarter)).count();
        let quarter = u32::try_from(quarter).unwrap_or_default();
        match self.listener {
            Listener::Terminal => self.redraw(&[format!("{} {text}", bar(done))]),
            Listener::Lines if quarter > self.quarter => self.line(&format!("  {} {text}", bar(done))),
            Listener::Program => event(json!({ "event": "filling", "done": done })),
            Listener::Lines | Listener::Nobody => {}
        }
        self.quarter = quarter;
    }

    /// The runs begin.
    pub(super) fn begin(&mut self, directory: &Path, runs: u32) {
        self.runs = runs;
        self.first_run = Some(Instant::now());
        match self.listener {
            Listener::Terminal | Listener::Lines => {
                self.line(&format!("▸ {runs} runs; what is measured is kept in {}", directory.display()));
            }
            Listener::Program => {
                event(
                    json!({ "event": "begin", "runs": runs, "directory": directory.display().to_string() }),
                );
            }
            Listener::Nobody => {}
        }
    }

    /// The number of runs is reduced, and why.
    pub(super) fn shorten(&mut self, runs: u32, why: &str) {
        self.runs = runs;
        self.remark(why);
    }

    /// A run begins.
    pub(super) fn running(&mut self, point: &Point, round: u32, order: u32) {
        self.running = name(point);
        self.seconds.clear();
        match self.listener {
            Listener::Program => {
                let left_s = self.left().map(|left| left.as_secs());
                event(
                    json!({ "event": "run", "round": round, "order": order, "left_s": left_s, "point": key(point) }),
                );
            }
            Listener::Terminal => self.draw(None),
            Listener::Lines | Listener::Nobody => {}
        }
    }

    /// A second of it is over.
    pub(super) fn second(&mut self, second: &Second) {
        self.seconds.push(second.tps);
        match self.listener {
            Listener::Program => event(json!({ "event": "second", "second": second })),
            Listener::Terminal => self.draw(Some(second.tps)),
            Listener::Lines | Listener::Nobody => {}
        }
    }

    /// A run is over.
    pub(super) fn ran(&mut self, point: &Point, run: &Run) {
        // Whoever is refused runs again, as many as are let in.
        self.done += u32::from(!matches!(run.ended, Ended::Refused(_)));
        match self.listener {
            Listener::Program => {
                event(
                    json!({ "event": "ran", "done": self.done, "runs": self.runs, "point": key(point), "run": run }),
                );
            }
            Listener::Terminal if self.board.fits() => {
                self.board.add(point, run);
                self.draw(None);
            }
            Listener::Terminal | Listener::Lines => {
                let counting: Vec<f64> =
                    run.per_second.iter().filter(|second| !second.warm_up).map(|second| second.tps).collect();
                let text = format!(
                    "  {:>3}/{}  round {}  {:<44} {}  {}",
                    self.done,
                    self.runs,
                    run.round + 1,
                    name(point),
                    outcome(run),
                    sparkline(&counting, SPARK_CELLS)
                );
                self.line(text.trim_end());
            }
            Listener::Nobody => {}
        }
    }

    /// The end: the result, its path, and its conclusion.
    pub(super) fn end(
        &mut self,
        experiment: &Experiment,
        directory: &Path,
        has_report: bool,
        status: Status,
    ) {
        self.close();
        if let Listener::Program = self.listener {
            event(ended(experiment, directory, has_report, status));
            return;
        }
        let ResultForm::Text(paint) = self.form else {
            return print_result(experiment, directory, status);
        };
        if has_report {
            println!("{}", report::terminal(experiment, paint));
        } else {
            println!("No run ended well: there is nothing to report.");
        }
        println!(
            "Everything is in {}: index.html, pictures/, report.txt, result.json, raw/",
            directory.display()
        );
    }

    fn draw(&mut self, tps: Option<f64>) {
        let done = f64::from(self.done) / f64::from(self.runs.max(1));
        let left = self.left().map(|left| format!("  {} left", clock(left))).unwrap_or_default();
        let now = tps.map(|tps| format!("  {} TPS", whole(tps))).unwrap_or_default();
        let spark = sparkline(&self.seconds, SPARK_CELLS);
        let text = format!("{}{left}  {}  {spark}{now}", bar(done), self.running);
        let mut lines = self.board.lines();
        lines.push(text);
        self.redraw(&lines);
    }

    /// By the runs so far; `None` before the first is over.
    fn left(&self) -> Option<Duration> {
        let elapsed = self.first_run.filter(|_| self.done > 0)?.elapsed();
        Some(elapsed / self.done * self.runs.saturating_sub(self.done))
    }

    fn line(&mut self, text: &str) {
        self.close();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Puts `lines` where the last ones stand; each is cut to the terminal's width, or they would not be as many.
    fn redraw(&mut self, lines: &[String]) {
        self.close();
        let columns = board::terminal().map_or(80, |(columns, _)| columns);
        let cut = |line: &String| line.chars().take(columns.saturating_sub(1)).collect::<String>();
        let text = lines.iter().map(cut).collect::<Vec<_>>().join("\n");
        let _ = write!(std::io::stderr(), "{text}");
        let _ = std::io::stderr().flush();
        self.open = Some(lines.len().saturating_sub(1));
    }

    /// Removes what `redraw` wrote.
    fn close(&mut self) {
        if let Some(above) = self.open.take() {
            let up = if above > 0 { format!("\x1b[{above}A") } else { String::new() };
            let _ = write!(std::io::stderr(), "\r{up}\x1b[J");
        }
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The result as one JSON object: what `end` says, and the whole record.
pub(super) fn print_result(experiment: &Experiment, directory: &Path, status: Status) {
    let has_report = experiment.points.iter().any(|point| point.whole().next().is_some());
    let mut result = ended(experiment, directory, has_report, status);
    if let Value::Object(fields) = &mut result {
        fields.remove("event");
        fields.insert("record".to_owned(), json!(experiment));
    }
    event(result);
}

/// How an experiment has ended, for programs.
fn ended(experiment: &Experiment, directory: &Path, has_report: bool, status: Status) -> Value {
    json!({
        "event": "end", "directory": directory.display().to_string(), "complete": experiment.complete,
        "report": has_report, "status": status.code(), "warnings": experiment.warnings,
        "advice": words::advice(experiment),
    })
}

fn event(value: Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}

fn key(point: &Point) -> Value {
    json!({
        "target": point.target, "workload": point.workload, "pool_size": point.pool_size,
        "clients": point.clients, "offered": point.offered,
    })
}
