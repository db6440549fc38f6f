//! A seed that fails, shrunk to what it takes: a simpler world, other random numbers, and as few steps as will do.
//!
//! Owns what may be simplified and the search. A smaller run counts if it breaks the same invariant; it need not be by the same
//! bytes. Delta debugging (Zeller, Hildebrandt 2002). Never looks into a run.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use settings::{AuthType, PoolMode};

use crate::prng::Prng;
use crate::run::{Report, run_cut};
use crate::steps::Steps;
use crate::swarm::{Reloads, Swarm};

/// A way to make a world simpler.
struct Simpler {
    name: &'static str,
    apply: fn(&mut Swarm),
}

const fn simpler(name: &'static str, apply: fn(&mut Swarm)) -> Simpler {
    Simpler { name, apply }
}

/// All of them, those that save most first.
const SIMPLER: &[Simpler] = &[
    simpler("faultless", |world| world.faults.clear()),
    simpler("without-operator", |world| world.faults.retain(|(fault, _)| !fault.is_of_a_pooler())),
    simpler("two-clients", |world| world.client_mix.slots = world.client_mix.slots.min(2)),
    simpler("three-clients", |world| world.client_mix.slots = world.client_mix.slots.min(3)),
    simpler("few-requests", |world| world.client_mix.requests = world.client_mix.requests.min(4)),
    simpler("short", |world| world.chaos_us = world.chaos_us.min(20_000)),
    simpler("shorter", |world| world.chaos_us /= 4),
    simpler("one-thread", |world| world.pooling.shards = 1),
    simpler("one-database", |world| world.pooling.databases = 1),
    simpler("one-user", |world| (world.pooling.users, world.pooling.looks_up) = (1, false)),
    simpler("one-server", |world| (world.pooling.pool_size, world.pooling.reserve_pool_size) = (1, 0)),
    simpler("unlimited", |world| world.pooling.max_db_connections = 0),
    simpler("patient", |world| world.pooling.tight_timeouts = false),
    simpler("lasting", |world| world.pooling.server_lifetime_ms = 3_600_000),
    simpler("unchecked", |world| world.pooling.checks = false),
    simpler("trusting", |world| world.pooling.auth_type = AuthType::Trust),
    simpler("transactions", |world| world.pooling.pool_mode = PoolMode::Transaction),
    simpler("unreloaded", |world| world.pooling.reloads = Reloads::default()),
    simpler("whole-packets", |world| world.network_conditions.split_per_million = 0),
    simpler("wide-pipes", |world| {
        (world.network_conditions.capacity_least, world.network_conditions.capacity_most) = (65_536, 65_536);
    }),
    simpler("steady", |world| {
        (world.network_conditions.latency_us, world.network_conditions.jitter_us) = (100, 1)
    }),
    simpler("quiet", |world| world.servers.chatter_per_million = 0),
    simpler("without-ddl", |world| world.servers.ddl_per_million = 0),
    simpler("roomy", |world| world.servers.max_connections = 1_000),
    simpler("quick", |world| world.servers.work_us = 1),
    simpler("whole-reads", |world| (world.driving.read_most, world.driving.clog_bytes) = (65_536, 65_536)),
    simpler("prompt", |world| {
        (world.driving.completion_us, world.driving.late_read_per_million) = (0, 0);
        (world.driving.tick_late_us, world.driving.letter_us) = (1, 1);
    }),
    simpler("idle-threads", |world| world.driving.busy_percent = 0),
    simpler("polite", |world| {
        (world.client_mix.garbage_per_million, world.client_mix.stranger_per_million) = (0, 0)
    }),
    simpler("tame", |world| world.client_mix.wild_per_million = 0),
    simpler("immortal", |world| {
        (world.client_mix.die_per_million, world.client_mix.slow_per_million) = (0, 0)
    }),
    simpler("listening", |world| {
        (world.client_mix.deaf_per_million, world.client_mix.long_idle_per_million) = (0, 0)
    }),
    simpler("patient-clients", |world| world.client_mix.cancel_per_million = 0),
    simpler("without-copy", |world| world.client_mix.copy_per_million = 0),
    simpler("without-replication", |world| world.client_mix.replicate_per_million = 0),
    simpler("without-set", |world| world.client_mix.set_per_million = 0),
    simpler("without-blocks", |world| world.client_mix.transaction_per_million = 0),
    simpler("without-errors", |world| world.client_mix.fail_per_million = 0),
    simpler("one-row", |world| world.client_mix.rows_most = 1),
    simpler("without-tls", |world| world.client_mix.ask_for_tls = false),
    simpler("one-ahead", |world| world.client_mix.depth_most = 1),
];

/// What is left of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Its random numbers are others; 0: its own.
    streams: u64,
    /// How its world is simpler: indices into the table.
    simpler: BTreeSet<usize>,
    /// The steps that are taken; None: all.
    only: Option<BTreeSet<u64>>,
}

impl Cut {
    pub(crate) fn simplify(&self, swarm: &mut Swarm) {
        self.simpler.iter().filter_map(|index| SIMPLER.get(*index)).for_each(|way| (way.apply)(swarm));
    }

    pub(crate) fn streams(&self, prng: Prng) -> Prng {
        if self.streams == 0 { prng } else { prng.split(self.streams) }
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps::new(self.only.clone())
    }
}

/// `STREAMS:SIMPLER,…:STEP,…`, a word for a shell; without a third part all steps are taken.
impl fmt::Display for Cut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.simpler.iter().map(|index| SIMPLER[*index].name).collect();
        write!(formatter, "{}:{}", self.streams, names.join(","))?;
        let Some(only) = &self.only else { return Ok(()) };
        let numbers: Vec<String> = only.iter().map(u64::to_string).collect();
        write!(formatter, ":{}", numbers.join(","))
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let mut parts = text.split(':');
        let mut words = || parts.next().map(|part| part.split(',').filter(|word| !word.is_empty()));
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("`{word}` is no number"));
        let streams = words().and_then(|mut words| words.next()).map_or(Ok(0), number)?;
        let index = |word: &str| SIMPLER.iter().position(|way| way.name == word);
        let simpler =
            words().into_iter().flatten().map(|word| index(word).ok_or(format!("what is `{word}`?")));
        let simpler = simpler.collect::<Result<_, _>>()?;
        let only = words().map(|words| words.map(number).collect::<Result<_, _>>()).transpose()?;
        Ok(Cut { streams, simpler, only })
    }
}

/// What came of shrinking.
#[derive(Debug)]
pub struct Shrunk {
    /// What is left.
    pub cut: Cut,
    /// Its run.
    pub report: Report,
    /// Runs that it took.
    pub runs: u64,
}

/// Shrinks a seed that fails, for so long at most; None if it does not fail.
#[must_use]
pub fn shrink(seed: u64, limit: Duration) -> Option<Shrunk> {
    let report = run_cut(seed, &Cut::default(), false);
    let invariant = report.violation.as_ref()?.invariant;
    let until = Instant::now() + limit;
    let mut search = Search { seed, invariant, until, runs: 1, best: Cut::default(), cost: cost(&report) };
    search.simplify();
    search.reseed(until.checked_sub(limit / 2).unwrap_or(until));
    search.simplify();
    search.drop_steps();
    search.simplify();
    search.drop_steps();
    let report = run_cut(seed, &search.best, true);
    Some(Shrunk { cut: search.best, report, runs: search.runs })
}

/// Less is better.
fn cost(report: &Report) -> (u64, u64) {
    (report.steps_taken, report.events)
}

struct Search {
    seed: u64,
    invariant: &'static str,
    until: Instant,
    runs: u64,
    best: Cut,
    cost: (u64, u64),
}

impl Search {
    /// What it costs, if it fails in the same way.
    fn price(&mut self, cut: &Cut) -> Option<(u64, u64)> {
        self.runs += 1;
        let report = run_cut(self.seed, cut, false);
        let fails = report.violation.as_ref().is_some_and(|violation| violation.invariant == self.invariant);
        fails.then(|| cost(&report))
    }

    /// Takes it for the best if it fails in the same way, and costs no more than so many steps.
    fn accept(&mut self, cut: Cut, most: u64) -> bool {
        match self.price(&cut).filter(|price| price.0 <= most) {
            Some(price) => {
                (self.best, self.cost) = (cut, price);
                true
            }
            None => false,
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Makes the world simpler wherever it fails all the same.
    fn simplify(&mut self) {
        // With all steps any smaller world is welcome; once they are chosen, none may be added.
        let most = if self.best.only.is_some() { self.cost.0 } else { u64::MAX };
        for index in 0..SIMPLER.len() {
            if self.is_late() {
                return;
            }
            let mut cut = self.best.clone();
            if cut.simpler.insert(index) && !self.accept(cut.clone(), most) && cut.only.is_none() {
                self.try_other_numbers(&cut);
            }
        }
    }

    /// A simpler world may fail by other random numbers only.
    fn try_other_numbers(&mut self, cut: &Cut) {
        const TRIES: u64 = 12;
        for streams in 1..=TRIES {
            let cut = Cut { streams: self.best.streams + streams, ..cut.clone() };
            if self.is_late() || self.accept(cut, self.cost.0) {
                return;
            }
        }
    }

    /// Looks for the random numbers by which it fails soonest.
    fn reseed(&mut self, until: Instant) {
        const TRIES: u64 = 3_000;
        for streams in 1..=TRIES {
            if Instant::now() >= until {
                return;
            }
            let cut = Cut { streams, ..self.best.clone() };
            self.accept(cut, self.cost.0.saturating_sub(1));
        }
    }

    /// Leaves out steps: halves of them first, then ever smaller parts, until none can be spared.
    fn drop_steps(&mut self) {
        let mut kept: Vec<u64> = match &self.best.only {
            Some(only) => only.iter().copied().collect(),
            None => (0..self.cost.0).collect(),
        };
        let mut part = kept.len().div_ceil(2);
        while part > 0 && !self.is_late() {
            let mut at = 0;
            let before = kept.len();
            while at < kept.len() && !self.is_late() {
                let rest: Vec<u64> = kept[..at].iter().chain(kept.iter().skip(at + part)).copied().collect();
                let cut = Cut { only: Some(rest.iter().copied().collect()), ..self.best.clone() };
                if self.accept(cut, u64::MAX) {
                    kept = rest;
                } else {
                    at += part;
                }
            }
            part = if kept.len() < before && part == 1 { 1 } else { part / 2 };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_cut_is_read_as_it_is_written() {
        let words = ["0:", "3:faultless,one-row", "17:short:0,3,9", "0::"];
        for word in words {
            assert_eq!(word.parse::<Cut>().unwrap().to_string(), word);
        }
        assert!("0:nothing-known".parse::<Cut>().is_err() && "x:".parse::<Cut>().is_err());
    }

    #[test]
    fn steps_are_left_out() {
        let whole = run_cut(3, &Cut::default(), false);
        assert_eq!(whole.steps_met, whole.steps_taken);
        assert_eq!(whole.hash, run_cut(3, &"0:".parse().unwrap(), false).hash);
        let part = run_cut(3, &"0::0,1,2,3".parse().unwrap(), false);
        assert!(part.steps_taken <= 4 && part.steps_met > part.steps_taken, "{part:?}");
        assert_eq!(part.steps.len() as u64, part.steps_taken, "{:?}", part.steps);
    }

    #[test]
    fn what_passes_cannot_be_shrunk() {
        assert!(shrink(3, Duration::from_secs(5)).is_none());
    }
}
