//! Many seeds, on one thread or several, for as long as was asked: which fail, and what it cost.
//!
//! Owns the real clock and threads; a seed is run by one thread alone, and knows nothing of others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_sim::{HostEvents, Length, Report, has_cluster, run, run_direct};

/// Between two lines of progress of a long run.
const PROGRESS: Duration = Duration::from_secs(60);
/// How often it is looked whether such a line is due.
const LOOK: Duration = Duration::from_millis(200);

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    /// The first seed.
    pub(crate) start: u64,
    /// How many.
    pub(crate) seeds: u64,
    /// For how long at most.
    pub(crate) limit: Option<Duration>,
    /// Stop at the first seed that fails.
    pub(crate) first: bool,
    /// Only seeds with a primary and standbys.
    pub(crate) clusters: bool,
    /// How much work each has.
    pub(crate) length: Length,
    /// A plain relay in place of the shards.
    pub(crate) direct: bool,
    /// Threads.
    pub(crate) jobs: usize,
    /// Tell every minute how far it has come.
    pub(crate) progress: bool,
}

/// What came of it so far.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    passed: u64,
    failed: u64,
    statements: u64,
    transactions: u64,
    standby_reads: u64,
    clusters: ClusterRuns,
}

/// Runs with a cluster in which something of a kind has happened at least once.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterRuns {
    standby_reads: u64,
    promotions: u64,
    split_brains: u64,
    partitions: u64,
    stalls: u64,
    restarts: u64,
    silent_primaries: u64,
    silent_ended: u64,
    half_open: u64,
}

impl Campaign {
    /// Runs it; true if no seed failed.
    pub(crate) fn run(&self) -> bool {
        let begun = Instant::now();
        let (next, totals) = (AtomicU64::new(self.start), Mutex::new(Totals::default()));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.jobs.max(1)).map(|_| scope.spawn(|| self.work(begun, &next, &totals))).collect();
            if self.progress {
                scope.spawn(|| tell_progress(begun, &over, &totals));
            }
            workers.into_iter().for_each(|worker| drop(worker.join()));
            over.store(true, Ordering::Relaxed);
        });
        let totals = *lock(&totals);
        println!("{}", totals.in_words(begun));
        if let Some(words) = totals.clusters.in_words() {
            println!("{words}");
        }
        println!("{} passed, {} failed", totals.passed, totals.failed);
        totals.failed == 0 && totals.passed > 0
    }

    fn work(&self, begun: Instant, next: &AtomicU64, totals: &Mutex<Totals>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_late = self.limit.is_some_and(|limit| begun.elapsed() >= limit);
            let is_enough = self.first && lock(totals).failed > 0;
            if seed >= self.start.saturating_add(self.seeds) || is_late || is_enough {
                return;
            }
            if self.clusters && !has_cluster(seed) {
                continue;
            }
            let report = self.seed(seed);
            let fault = self.fault_of(&report);
            let mut totals = lock(totals);
            totals.statements += report.statements;
            totals.transactions += report.transactions;
            totals.standby_reads += report.standby_reads;
            totals.clusters.count(&report);
            match fault {
                Some(text) => {
                    totals.failed += 1;
                    let direct = if self.direct { " --direct" } else { "" };
                    let short = if self.length == Length::Short { " --short" } else { "" };
                    println!("seed {seed} failed: {text}");
                    println!(
                        "    replay: cargo run --release -p weir-sim -- --seed {seed} --trace{short}{direct}"
                    );
                }
                None => totals.passed += 1,
            }
        }
    }

    fn seed(&self, seed: u64) -> Report {
        if self.direct { run_direct(seed, self.length, false) } else { run(seed, self.length, false) }
    }

    /// What is wrong with a run, if anything; one in a hundred must repeat itself.
    fn fault_of(&self, report: &Report) -> Option<String> {
        if let Some(violation) = &report.violation {
            return Some(violation.to_string());
        }
        let again = report.seed.is_multiple_of(100).then(|| self.seed(report.seed).hash);
        let differs = again.is_some_and(|hash| hash != report.hash);
        differs.then(|| "two runs of it differ".to_owned())
    }
}

impl Totals {
    fn in_words(&self, begun: Instant) -> String {
        let Totals { passed, failed, statements, transactions, standby_reads, .. } = *self;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds());
        let rate = transactions as f64 / cpu.max(0.01);
        format!(
            "{} seeds, {failed} failed, {transactions} transactions, {statements} statements, {standby_reads} reads on standbys in {seconds:.0} s ({cpu:.0} CPU seconds), {rate:.0} transactions a CPU second",
            passed + failed
        )
    }
}

impl ClusterRuns {
    fn count(&mut self, report: &Report) {
        let HostEvents {
            promotions,
            split_brains,
            partitions,
            stalls,
            restarts,
            silent_primaries,
            silent_ended,
            half_open,
        } = report.host_events;
        for (runs, times) in [
            (&mut self.standby_reads, report.standby_reads),
            (&mut self.promotions, promotions),
            (&mut self.split_brains, split_brains),
            (&mut self.partitions, partitions),
            (&mut self.stalls, stalls),
            (&mut self.restarts, restarts),
            (&mut self.silent_primaries, silent_primaries),
            (&mut self.silent_ended, silent_ended),
            (&mut self.half_open, half_open),
        ] {
            *runs += u64::from(times > 0);
        }
    }

    /// None if no run had a cluster to which something has happened.
    fn in_words(self) -> Option<String> {
        let ClusterRuns {
            standby_reads,
            promotions,
            split_brains,
            partitions,
            stalls,
            restarts,
            silent_primaries,
            silent_ended,
            half_open,
        } = self;
        (standby_reads + promotions + partitions + stalls + restarts + half_open > 0).then(|| {
            format!(
                "runs with reads on standbys: {standby_reads}, promotions: {promotions}, split brains: {split_brains}, hosts cut off: {partitions}, standbys standing still: {stalls}, hosts started again: {restarts}, primaries replaced while silent: {silent_primaries} (with requests that these owed: {silent_ended}), standbys that crashed behind connections: {half_open}"
            )
        })
    }
}

fn tell_progress(begun: Instant, over: &AtomicBool, totals: &Mutex<Totals>) {
    let mut told = Instant::now();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let totals = *lock(totals);
            println!("{}", totals.in_words(begun));
        }
    }
}

/// What the process has used so far; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
