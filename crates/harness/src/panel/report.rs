//! What the pairs say: the difference that the requests make to the data path's p99, how far p99 moves by itself, and whether
//! the one is less than the other. Markdown and JSON. Never measures anything.

use std::path::Path;

use serde_json::{Value, json};

use crate::compare::table;
use crate::panel::{Options, Pair};
use crate::series::write;
use lab::error::Result;
use lab::figures::{median, or_dash, short, whole};
use lab::interval::{Comparison, Interval, Limit};
use lab::laboratory::Measured;
use lab::machine::Machine;

/// The report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) options: Options,
    /// Name and version of Weir.
    pub(super) subject: (String, String),
    /// Transactions per second without a fixed rate.
    pub(super) peak: f64,
    pub(super) pairs: Vec<Pair>,
}

/// A figure with and without the requests.
struct Moved {
    with: Option<f64>,
    without: Option<f64>,
    /// The median of the pairs' own differences, and how sure it is.
    by: Option<f64>,
    interval: Option<Interval>,
}

/// A figure of one run, where it could be measured.
type Figure = fn(&Measured) -> Option<f64>;

const FIGURES: [(&str, Figure); 5] = [
    ("p50 ms", |run| Some(run.outcome.latency_us?.p50 / 1000.0)),
    ("p99 ms", p99_ms),
    ("TPS", Measured::tps),
    ("pooler µs a transaction", Measured::pooler_us),
    ("machine µs a transaction", Measured::machine_us),
];

/// The data path's 99th percentile, from pgbench's log.
pub(super) fn p99_ms(run: &Measured) -> Option<f64> {
    Some(run.outcome.latency_us?.p99 / 1000.0)
}

impl Moved {
    fn of(pairs: &[Pair], figure: Figure) -> Self {
        let both = |pair: &Pair| Some((figure(&pair.with)?, figure(&pair.without)?));
        let both: Vec<(f64, f64)> = pairs.iter().filter_map(both).collect();
        let all = |part: fn(&(f64, f64)) -> f64| both.iter().map(part).collect::<Vec<f64>>();
        let differences = all(|(with, without)| with - without);
        Self {
            with: median(&all(|pair| pair.0)),
            without: median(&all(|pair| pair.1)),
            by: median(&differences),
            interval: Interval::of(&differences),
        }
    }
}

/// How far p99 moves from one run without requests to the next, at the median.
fn noise_ms(pairs: &[Pair]) -> Option<f64> {
    let runs: Vec<f64> = pairs.iter().filter_map(|pair| p99_ms(&pair.without)).collect();
    median(&runs.windows(2).map(|next| (next[1] - next[0]).abs()).collect::<Vec<f64>>())
}

impl Report {
    fn verdict(&self) -> Comparison {
        let moved = Moved::of(&self.pairs, p99_ms);
        noise_ms(&self.pairs)
            .map_or(Comparison::CannotTell, |noise| Limit::Below(noise).judge(moved.interval))
    }

    /// In a sentence.
    fn conclusion(&self) -> String {
        let moved = Moved::of(&self.pairs, p99_ms);
        let said = match self.verdict() {
            Comparison::Reached => "less than the noise",
            Comparison::NotReached => "MORE than the noise",
            Comparison::CannotTell => "can't tell",
        };
        format!(
            "p99 moves by {} ms {}; by itself, from one run without requests to the next, by {} ms: {said}.",
            or_dash(moved.by, short),
            interval(moved.interval),
            or_dash(noise_ms(&self.pairs), short)
        )
    }

    /// The whole report.
    pub(super) fn markdown(&self) -> String {
        let options = &self.options;
        let mut rows = vec![["", "with requests", "without", "difference"].map(str::to_owned).to_vec()];
        for (name, figure) in FIGURES {
            let moved = Moved::of(&self.pairs, figure);
            let by = format!("{} {}", or_dash(moved.by, short), interval(moved.interval));
            rows.push(vec![name.to_owned(), or_dash(moved.with, short), or_dash(moved.without, short), by]);
        }
        format!(
            "# The data path beside requests to the panel\n\n{}\n\n{}: {}; pgbench, select-only, {} clients at {} % of a peak of {} TPS, \
             scale {}, {} pairs\nof runs of {} s, in random order within a pair; {} requests a second to the API. Medians; differences \
             pair by pair,\nwith 95 % intervals. Who asks, pgbench, PostgreSQL and Weir share the machine.\n\n{}\n{}\n\n{}\n",
            self.machine.sentence(),
            self.subject.0,
            self.subject.1,
            options.clients,
            short(options.part_of_peak * 100.0),
            whole(self.peak),
            options.common.scale,
            self.pairs.len(),
            options.seconds,
            options.requests,
            table(&rows),
            self.requests(),
            self.conclusion()
        )
    }

    fn requests(&self) -> String {
        let sum = |count: fn(&Pair) -> u64| self.pairs.iter().map(count).sum::<u64>() as f64;
        let times: Vec<f64> = self.pairs.iter().flat_map(|pair| pair.told.times_ms.iter().copied()).collect();
        format!(
            "Requests: {} answered (half of them within {} ms), {} refused (503), {} broken.",
            whole(sum(|pair| pair.told.answered)),
            or_dash(median(&times), short),
            whole(sum(|pair| pair.told.refused)),
            whole(sum(|pair| pair.told.broken))
        )
    }

    /// Writes `result.md` and `result.json` into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        write(directory, &self.markdown(), &self.json())
    }

    fn json(&self) -> Value {
        let figures = |run: &Measured| {
            let pairs = FIGURES.iter().map(|(name, figure)| ((*name).to_owned(), json!(figure(run))));
            Value::Object(pairs.collect())
        };
        let pairs = self.pairs.iter().map(|pair| {
            let told = &pair.told;
            json!({ "with": figures(&pair.with), "without": figures(&pair.without),
                    "requests": { "answered": told.answered, "refused": told.refused, "broken": told.broken,
                                  "median_ms": median(&told.times_ms) } })
        });
        let moved = Moved::of(&self.pairs, p99_ms);
        let found = moved.interval.map(|interval| [interval.low, interval.high]);
        json!({ "machine": self.machine.json(), "subject": self.subject.0, "version": self.subject.1, "peak_tps": self.peak,
                "part_of_peak": self.options.part_of_peak, "clients": self.options.clients, "seconds": self.options.seconds,
                "scale": self.options.common.scale, "requests_per_second": self.options.requests,
                "p99_ms": { "moved_by": moved.by, "interval": found, "noise": noise_ms(&self.pairs),
                            "verdict": self.verdict().text() },
                "pairs": pairs.collect::<Vec<Value>>() })
    }
}

fn interval(found: Option<Interval>) -> String {
    found.map_or_else(String::new, |found| format!("[{}, {}]", short(found.low), short(found.high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::pgbench::Outcome;
    use lab::record::Percentiles;

    fn run(p99_ms: f64) -> Measured {
        let latency_us = Some(Percentiles { p99: p99_ms * 1000.0, ..Percentiles::default() });
        Measured { outcome: Outcome { latency_us, ..Outcome::default() }, ..Measured::default() }
    }

    fn pairs(all: &[(f64, f64)]) -> Vec<Pair> {
        let pair = |(with, without): &(f64, f64)| Pair {
            with: run(*with),
            without: run(*without),
            told: super::super::Responses::default(),
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn differences_are_taken_within_a_pair() {
        let drifting: Vec<(f64, f64)> = (0..10).map(|at| (f64::from(at) + 0.25, f64::from(at))).collect();
        let moved = Moved::of(&pairs(&drifting), p99_ms);
        assert_eq!(moved.by, Some(0.25));
        assert_eq!(moved.interval, Some(Interval { low: 0.25, high: 0.25 }));
        assert_eq!(noise_ms(&pairs(&drifting)), Some(1.0));
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let moved = Moved::of(&pairs(&[(2.0, 1.0)]), p99_ms);
        assert_eq!((moved.by, moved.interval, noise_ms(&pairs(&[(2.0, 1.0)]))), (Some(1.0), None, None));
    }
}
