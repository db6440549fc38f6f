//! `weir-fleetsim`: runs seeds and says which fail. Owns the command line and the real clock; never anything that a seed decides.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_fleetsim::{Report, run};

const HELP: &str = "\
weir-fleetsim [--seeds A..B] [--seconds S] [--jobs J] [--first] [--bug NAME]
weir-fleetsim --seed N [--trace] [--bug NAME]

Runs the seeds A to B, without B (0..10000 unless given), for at most S seconds, on J threads (1 unless given). One seed in a hundred is run twice, and
both runs must be the same. --first stops at the first that fails. --seed runs one; --trace shows all that happens in it. --bug switches a planted bug on, in a build that
has them (crates/fleetsim/canaries.sh).";

fn main() -> ExitCode {
    match Order::read(std::env::args().skip(1)) {
        Ok(order) => order.carry_out(),
        Err(text) => {
            eprintln!("{text}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// What the command line asks for.
#[derive(Debug)]
struct Order {
    from: u64,
    to: u64,
    seconds: u64,
    jobs: u64,
    first: bool,
    only: Option<u64>,
    trace: bool,
    bug: Option<String>,
}

/// Sums over seeds.
#[derive(Debug, Default)]
struct Totals {
    seeds: AtomicU64,
    failed: AtomicU64,
    actions: AtomicU64,
    writes: AtomicU64,
    seconds: AtomicU64,
}

impl Order {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Order, String> {
        let mut order = Order {
            from: 0,
            to: 10_000,
            seconds: u64::MAX,
            jobs: 1,
            first: false,
            only: None,
            trace: false,
            bug: None,
        };
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().unwrap_or_default();
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{text}`"))
            };
            match word.as_str() {
                "--seeds" => {
                    let text = words.next().unwrap_or_default();
                    let ends = text
                        .split_once("..")
                        .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
                    (order.from, order.to) =
                        ends.ok_or_else(|| format!("--seeds needs A..B, not `{text}`"))?;
                }
                "--seconds" => order.seconds = number()?,
                "--jobs" => order.jobs = number()?.max(1),
                "--seed" => order.only = Some(number()?),
                "--first" => order.first = true,
                "--trace" => order.trace = true,
                "--bug" => order.bug = words.next(),
                "--help" | "-h" => return Err(String::new()),
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(order)
    }

    fn carry_out(&self) -> ExitCode {
        if let Some(bug) = self.bug.as_ref().filter(|bug| !planted::switch_on(bug)) {
            eprintln!("no bug {bug} is planted in this build");
            return ExitCode::from(2);
        }
        match self.only {
            Some(seed) => self.run_one(seed),
            None => self.run_many(),
        }
    }

    fn run_one(&self, seed: u64) -> ExitCode {
        let report = run(seed, self.trace);
        let mut out = std::io::stdout().lock();
        // A reader of only the beginning closes the pipe; that is no failure.
        let _ = report.lines.iter().try_for_each(|line| writeln!(out, "{line}"));
        let Report { hash, actions, writes, took_us, .. } = report;
        let _ =
            writeln!(out, "seed {seed}: hash {hash:016x}, {actions} actions, {writes} writes, {took_us} us");
        match report.violation {
            Some(violation) => {
                let _ = writeln!(out, "seed {seed} failed: {violation}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        }
    }

    fn run_many(&self) -> ExitCode {
        let begun = Instant::now();
        let (next, totals) = (AtomicU64::new(self.from), Totals::default());
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| self.work(begun, &next, &totals));
            }
        });
        let [seeds, failed, actions, writes, seconds] =
            [&totals.seeds, &totals.failed, &totals.actions, &totals.writes, &totals.seconds]
                .map(|total| total.load(Ordering::Relaxed));
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds());
        println!(
            "{seeds} seeds, {failed} failed, {actions} actions, {writes} writes, {} hours simulated in {took:.1} s ({cpu:.0} CPU seconds), {:.0} seeds a CPU second",
            seconds / 3_600,
            seeds as f64 / cpu.max(0.01)
        );
        if failed == 0 && seeds > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn work(&self, begun: Instant, next: &AtomicU64, totals: &Totals) {
        let limit = Duration::from_secs(self.seconds);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_enough = self.first && totals.failed.load(Ordering::Relaxed) > 0;
            if seed >= self.to || is_enough || seed.is_multiple_of(64) && begun.elapsed() >= limit {
                return;
            }
            let report = run(seed, false);
            totals.seeds.fetch_add(1, Ordering::Relaxed);
            totals.actions.fetch_add(report.actions, Ordering::Relaxed);
            totals.writes.fetch_add(report.writes, Ordering::Relaxed);
            totals.seconds.fetch_add(report.took_us / 1_000_000, Ordering::Relaxed);
            if let Some(text) = fault_of(&report) {
                totals.failed.fetch_add(1, Ordering::Relaxed);
                println!("seed {seed} failed: {text}");
            }
        }
    }
}

/// What is wrong with a run, if anything; one in a hundred must repeat itself.
fn fault_of(report: &Report) -> Option<String> {
    if let Some(violation) = &report.violation {
        return Some(violation.to_string());
    }
    let again = report.seed.is_multiple_of(100).then(|| run(report.seed, false).hash);
    again.filter(|hash| *hash != report.hash).map(|_| "two runs of it differ".to_owned())
}

/// What the process has used so far; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}
