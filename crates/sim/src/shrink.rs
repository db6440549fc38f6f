//! A seed that fails, shrunk to what it takes: a simpler world, other random numbers, and as few steps as will do.
//!
//! Owns the search; `cut` has what may be left out. A smaller run counts if it breaks the same invariant; it need not be by the same
//! bytes. Delta debugging (Zeller, Hildebrandt 2002). Never looks into a run.

use std::time::{Duration, Instant};

use crate::cut::{Cut, SIMPLER};
use crate::run::{Report, run_cut};
use crate::swarm::Length;

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
pub fn shrink(seed: u64, length: Length, limit: Duration) -> Option<Shrunk> {
    let report = run_cut(seed, length, &Cut::default(), false);
    let invariant = report.violation.as_ref()?.invariant;
    let until = Instant::now() + limit;
    let (best, cost) = (Cut::default(), cost(&report));
    let mut search = Search { seed, length, invariant, until, runs: 1, best, cost };
    search.simplify();
    search.reseed(until.checked_sub(limit / 2).unwrap_or(until));
    search.simplify();
    search.drop_steps();
    search.simplify();
    search.drop_steps();
    let report = run_cut(seed, length, &search.best, true);
    Some(Shrunk { cut: search.best, report, runs: search.runs })
}

/// Less is better.
fn cost(report: &Report) -> (u64, u64) {
    (report.steps_taken, report.events)
}

struct Search {
    seed: u64,
    length: Length,
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
        let report = run_cut(self.seed, self.length, cut, false);
        let fails = report.violation.as_ref().is_some_and(|violation| violation.invariant == self.invariant);
        fails.then(|| cost(&report))
    }

    /// Takes it for the best if it fails in the same way, and costs no more than this many steps.
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
        let whole = run_cut(3, Length::Long, &Cut::default(), false);
        assert_eq!(whole.steps_met, whole.steps_taken);
        assert_eq!(whole.hash, run_cut(3, Length::Long, &"0:".parse().unwrap(), false).hash);
        let part = run_cut(3, Length::Long, &"0::0,1,2,3".parse().unwrap(), false);
        assert!(part.steps_taken <= 4 && part.steps_met > part.steps_taken, "{part:?}");
        assert_eq!(part.steps.len() as u64, part.steps_taken, "{:?}", part.steps);
    }

    #[test]
    fn what_passes_cannot_be_shrunk() {
        assert!(shrink(3, Length::Long, Duration::from_secs(5)).is_none());
    }
}
