//! `weir-sim`: runs seeds and says which fail. `weir-sim --help` tells how.
//! Owns the command line and the real clock; never anything that a seed decides.
#![forbid(unsafe_code)]

mod campaign;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use campaign::Campaign;
use weir_sim::{Cut, Length, Report, record, record_random, run_cut, run_direct, shrink};

const HELP: &str = "\
weir-sim [--seeds N] [--start S] [--seconds T | --hours H] [--jobs J] [--first] [--clusters] [--short] [--direct] [--bug NAME]
weir-sim --seed X [--short] [--shrink | --cut CUT] [--trace] [--direct] [--bug NAME]
weir-sim --bugs
weir-sim --invariants
weir-sim record --postgres HOST:PORT --corpus DIRECTORY [--scripts N]

Runs N seeds (2000 unless given), S and those that follow (0 unless given), for at most T seconds, on J threads (1 unless given;
0: as many as there are cores). --hours runs for H hours whatever N is, and tells every minute how far it is. One seed in a hundred is
run twice, and both runs must be the same. --first stops at the first that fails; --clusters runs only the seeds with a primary and
standbys, one in six. --short leaves a few dozen transactions of each run, beside the same faults: for very many runs. What fails
in it is repeated with it. With --seed, runs that one; --trace shows all that happens in it. --direct puts
a plain relay in the shard's place: what fails then is the simulator's own fault. --shrink looks for a minute, or T seconds, for
the smallest run that breaks the same invariant, lists its steps, and names the CUT by which --cut runs it again. --bug NAME switches a planted bug on, in a
build that has them (crates/sim/canaries.sh); --bugs lists their names. --invariants prints what is checked.

record asks a real PostgreSQL what the corpus asks the model, and writes its answers into the corpus; with --scripts, what so
many random scripts ask, of whose answers it writes the hashes (random.hashes) and tells where the model differs.";

fn main() -> ExitCode {
    match Order::read(std::env::args().skip(1)) {
        Ok(order) => order.obey(),
        Err(text) => {
            eprintln!("{text}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// What was asked for.
#[derive(Debug, Default)]
struct Order {
    seeds: u64,
    start: u64,
    seconds: Option<u64>,
    hours: Option<u64>,
    jobs: usize,
    invariants: bool,
    only: Option<u64>,
    shrink: bool,
    cut: Cut,
    trace: bool,
    direct: bool,
    first: bool,
    clusters: bool,
    length: Length,
    bugs: bool,
    bug: Option<String>,
    scripts: Option<u64>,
    postgres: Option<String>,
    corpus: PathBuf,
}

impl Order {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Order, String> {
        let mut order = Order { seeds: 2_000, jobs: 1, ..Order::default() };
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().unwrap_or_default();
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{text}`"))
            };
            match word.as_str() {
                "--seeds" => order.seeds = number()?,
                "--start" => order.start = number()?,
                "--scripts" => order.scripts = Some(number()?),
                "--seconds" => order.seconds = Some(number()?),
                "--hours" => order.hours = Some(number()?),
                "--jobs" => order.jobs = cores_if_zero(number()?),
                "--invariants" => order.invariants = true,
                "--seed" => order.only = Some(number()?),
                "--shrink" => order.shrink = true,
                "--cut" => order.cut = words.next().unwrap_or_default().parse()?,
                "--trace" => order.trace = true,
                "--direct" => order.direct = true,
                "record" => (),
                "--postgres" => order.postgres = words.next(),
                "--corpus" => order.corpus = words.next().unwrap_or_default().into(),
                "--first" => order.first = true,
                "--clusters" => order.clusters = true,
                "--short" => order.length = Length::Short,
                "--bugs" => order.bugs = true,
                "--bug" => order.bug = words.next(),
                "--help" | "-h" => return Err(String::new()),
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(order)
    }

    fn obey(&self) -> ExitCode {
        if self.bugs {
            let mut out = std::io::stdout().lock();
            // The simulator has no event loop and no fleet.
            let is_own = |bug: &&&str| !bug.starts_with("loop_") && !bug.starts_with("fleet_");
            let mut own = planted::BUGS.iter().filter(is_own);
            let _ = own.try_for_each(|bug| writeln!(out, "{bug}"));
            return ExitCode::SUCCESS;
        }
        if self.invariants {
            print!("{}", weir_sim::markdown());
            return ExitCode::SUCCESS;
        }
        if let Some(bug) = self.bug.as_ref().filter(|bug| !planted::switch_on(bug)) {
            eprintln!("no bug {bug} is planted in this build");
            return ExitCode::from(2);
        }
        match (&self.postgres, self.only) {
            (Some(address), _) => self.record(address),
            (None, Some(seed)) if self.shrink => self.shrink(seed),
            (None, Some(seed)) => self.run_one(seed),
            (None, None) => self.run_many(),
        }
    }

    fn record(&self, address: &str) -> ExitCode {
        if let Some(scripts) = self.scripts {
            return match record_random(address, &self.corpus, scripts) {
                Ok(different) => {
                    println!(
                        "{scripts} scripts recorded, to {different} of them the model answers otherwise"
                    );
                    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
                }
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            };
        }
        match record(address, &self.corpus) {
            Ok(files) => {
                println!("{files} files recorded");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(&self, seed: u64, keep_lines: bool) -> Report {
        if self.direct {
            run_direct(seed, self.length, keep_lines)
        } else {
            run_cut(seed, self.length, &self.cut, keep_lines)
        }
    }

    fn run_one(&self, seed: u64) -> ExitCode {
        let report = self.run(seed, self.trace);
        let mut out = std::io::stdout().lock();
        // Whoever reads only the beginning closes the pipe; that is no failure.
        let _ = report.lines.iter().try_for_each(|line| writeln!(out, "{line}"));
        let Report { hash, statements, events, sessions, .. } = report;
        println!(
            "seed {seed}: hash {hash:016x}, {sessions} sessions, {statements} statements, {events} events"
        );
        match report.violation {
            Some(violation) => {
                println!("seed {seed} failed: {violation}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        }
    }

    fn shrink(&self, seed: u64) -> ExitCode {
        const USUAL_SECONDS: u64 = 60;
        let limit = Duration::from_secs(self.seconds.unwrap_or(USUAL_SECONDS));
        let Some(shrunk) = shrink(seed, self.length, limit) else {
            println!("seed {seed} does not fail");
            return ExitCode::SUCCESS;
        };
        let report = &shrunk.report;
        let lines = if self.trace { &report.lines } else { &report.steps };
        let mut out = std::io::stdout().lock();
        let _ = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
        println!(
            "{} runs, {} steps are left of it, {} events",
            shrunk.runs, report.steps_taken, report.events
        );
        if let Some(violation) = &report.violation {
            println!("seed {seed} failed: {violation}");
        }
        let short = if self.length == Length::Short { " --short" } else { "" };
        println!(
            "    replay: cargo run --release -p weir-sim -- --seed {seed}{short} --trace --cut {}",
            shrunk.cut
        );
        ExitCode::FAILURE
    }

    fn run_many(&self) -> ExitCode {
        let hours = self.hours.map(|hours| Duration::from_secs(hours * 3_600));
        let campaign = Campaign {
            start: self.start,
            seeds: if hours.is_some() { u64::MAX } else { self.seeds },
            limit: hours.or(self.seconds.map(Duration::from_secs)),
            first: self.first,
            direct: self.direct,
            clusters: self.clusters,
            length: self.length,
            jobs: self.jobs,
            progress: hours.is_some(),
        };
        if campaign.run() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn cores_if_zero(jobs: u64) -> usize {
    match usize::try_from(jobs) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        Ok(jobs) => jobs,
    }
}
