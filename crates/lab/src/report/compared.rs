//! One target against the first one, round by round: what the machine did in a round is in both and goes out of the
//! ratio. A tie is reported as a tie, a loss like a gain.

use crate::advisor::words::percent;
use crate::figures::{change, median, or_dash, short, whole};
use crate::interval::Interval;
use crate::record::{Ended, Experiment, Point, Spending};

/// Below this, a difference is none: runs of the same program differ by as much.
const EVEN: f64 = 0.03;

/// How a point stands against its base.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Against {
    /// The base's target.
    base: String,
    /// Throughput over the base's: the median of the rounds.
    ratio: f64,
    /// `None` of fewer than three rounds.
    interval: Option<Interval>,
}

/// What can be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Faster,
    Slower,
    Tie,
    /// Too few rounds to say.
    Unknown,
}

/// Against the point of the experiment's first target with the same workload, clients and (where that target has one)
/// pool size. `None` for the base itself, and where one of the two has no figure.
pub(super) fn against(experiment: &Experiment, point: &Point) -> Option<Against> {
    let first = experiment.targets.first().filter(|target| target.name != point.target)?;
    let base = experiment
        .closed(&first.name, &point.workload)
        .filter(|base| base.clients == point.clients)
        .find(|base| base.pool_size.is_none() || base.pool_size == point.pool_size)?;
    // The medians beside the ratio are of the same rounds: `Experiment::pair_rounds` has left the others out.
    if point.rounds() != base.rounds() {
        return None;
    }
    let ratios: Vec<f64> = (point.whole())
        .filter_map(|run| {
            let same = base.whole().find(|other| other.round == run.round)?;
            Some(run.tps / same.tps).filter(|ratio| ratio.is_finite())
        })
        .collect();
    Some(Against { base: first.name.clone(), ratio: median(&ratios)?, interval: Interval::of(&ratios) })
}

impl Against {
    /// Whether it is faster by its interval and by enough to matter.
    pub(super) fn outcome(&self) -> Outcome {
        match self.interval {
            None => Outcome::Unknown,
            Some(interval) if interval.is_tie() || (self.ratio - 1.0).abs() < EVEN => Outcome::Tie,
            Some(_) if self.ratio > 1.0 => Outcome::Faster,
            Some(_) => Outcome::Slower,
        }
    }

    /// For a cell: `direct +12%`, `direct tie`.
    pub(super) fn short(&self) -> String {
        match self.outcome() {
            Outcome::Tie => format!("{}: tie", self.base),
            Outcome::Unknown => format!("{}: {}?", self.base, change(1.0, self.ratio)),
            Outcome::Faster | Outcome::Slower => format!("{}: {}", self.base, change(1.0, self.ratio)),
        }
    }

    /// In words.
    fn words(&self) -> String {
        let bounds = self.interval.map_or_else(
            || "; too few rounds for an interval".to_owned(),
            |found| format!(", 95 % interval {} to {}", percent(found.low), percent(found.high)),
        );
        let ratio = percent(self.ratio);
        match self.outcome() {
            Outcome::Tie => format!("a tie with {} ({ratio} of it{bounds})", self.base),
            Outcome::Faster => format!("faster than {} ({ratio} of it{bounds})", self.base),
            Outcome::Slower => format!("slower than {} ({ratio} of it{bounds})", self.base),
            Outcome::Unknown => format!("{ratio} of {}{bounds}", self.base),
        }
    }
}

/// A sentence for each comparison; of a sweep only those at the advised sizes, which `is_shown` picks.
pub(super) fn sentences(experiment: &Experiment, is_shown: impl Fn(&Point) -> bool) -> Vec<String> {
    let shown = experiment.points.iter().filter(|point| point.offered.is_none() && is_shown(point));
    shown
        .filter_map(|point| {
            let against = against(experiment, point)?;
            let pool = point.pool_size.map(|size| format!(" with a pool of {size}")).unwrap_or_default();
            Some(format!(
                "{}, {} clients: {}{pool} makes {} TPS, {}.",
                point.workload,
                point.clients,
                point.target,
                whole(point.tps()?.median),
                against.words()
            ))
        })
        .collect()
}

/// What a comparison shows where the crowd is largest, for each pool beside the first target: who is refused, how long
/// transactions take, how many server connections are used, throughput.
pub(super) fn headlines(experiment: &Experiment) -> Vec<String> {
    let Some(base_name) = experiment.targets.first().map(|target| target.name.as_str()) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for workload in &experiment.workloads {
        let all = experiment.points.iter().filter(|point| point.workload == workload.name);
        let Some(most) = all.map(|point| point.clients).max() else { continue };
        let base =
            experiment.points.iter().find(|point| point.is_closed(base_name, &workload.name, None, most));
        let Some(base) = base else { continue };
        for target in experiment.targets.iter().skip(1) {
            let pools = experiment.closed(&target.name, &workload.name).filter(|point| point.clients == most);
            lines.extend(pools.filter_map(|point| headline(point, base)));
        }
    }
    lines
}

/// One pool beside `base`, which has none.
fn headline(point: &Point, base: &Point) -> Option<String> {
    let (size, tps) = (point.pool_size?, point.tps()?.median);
    let refused = |point: &Point| point.runs.iter().map(|run| run.refused).max().unwrap_or_default();
    let (here, there) = (refused(point), refused(base));
    let refusals = match (here, there) {
        (0, 0) => "neither refuses a client".to_owned(),
        (0, _) => format!("no client is refused ({} refuses {there})", base.target),
        _ => format!("{here} clients are refused ({} refuses {there})", base.target),
    };
    let let_in = base.clients - there.min(base.clients);
    let p99 = |point: &Point| point.percentile(|found| found.p99).map(|figure| figure.median / 1000.0);
    let of_those = if there > 0 { format!(" for the {let_in} that it lets in") } else { String::new() };
    let latency = p99(point).zip(p99(base)).map(|(here, there)| {
        format!("99th percentile {} ms ({} {} ms{of_those}), ", short(here), base.target, short(there))
    });
    let base_tps = base.tps().map(|figure| format!(" ({} {})", base.target, whole(figure.median)));
    Some(format!(
        "{}, {} clients through {} with a pool of {size}: {refusals}, {}at most {size} server connections ({} {let_in}), {} TPS{}.",
        point.workload,
        point.clients,
        point.target,
        latency.unwrap_or_default(),
        base.target,
        whole(tps),
        base_tps.unwrap_or_default()
    ))
}

/// Why a pool can lose where everything is on one machine; `None` where none did.
pub(super) fn reason(experiment: &Experiment) -> Option<String> {
    let lost = |point: &&Point| {
        point.pool_size.is_some()
            && against(experiment, point)
                .is_some_and(|against| against.ratio < 1.0 - EVEN && against.base == "direct")
    };
    let point = experiment.points.iter().filter(|point| point.offered.is_none()).find(lost)?;
    let cpu_us = |part: fn(&Spending) -> Option<f64>| {
        or_dash(point.figure(|run| run.per_transaction(part)).map(|figure| figure.median), short)
    };
    experiment.server.same_machine.then(|| {
        format!(
            "Why a pool can lose here: load generator, server and pooler share the {} cores of one machine, so every \
             transaction also pays for the pooler's own CPU time ({} of the machine's {} µs for a transaction of {}, {} \
             clients), and there is no network between them whose waiting a pool could fill. With clients on other \
             machines neither holds.",
            experiment.machine.cores,
            cpu_us(|part| part.pooler),
            cpu_us(|part| part.machine),
            point.target,
            point.clients,
        )
    })
}

/// A sentence for each point of which a run did not end well or something was refused, failed or skipped.
pub(super) fn troubles(experiment: &Experiment) -> Vec<String> {
    experiment.points.iter().filter_map(trouble).collect()
}

fn trouble(point: &Point) -> Option<String> {
    let mut parts = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let (mut refused, mut failed, mut cut) = (0, 0, 0);
    for run in &point.runs {
        match &run.ended {
            Ended::Whole => continue,
            Ended::Refused(said) => (refused, words) = (refused + 1, [words, vec![said.as_str()]].concat()),
            Ended::Failed(said) => (failed, words) = (failed + 1, [words, vec![said.as_str()]].concat()),
            Ended::Interrupted => cut += 1,
        }
    }
    let runs = point.runs.len();
    parts.extend((refused > 0).then(|| format!("{refused} of {runs} runs gave up as clients were refused")));
    parts.extend((failed > 0).then(|| format!("{failed} of {runs} runs failed")));
    parts.extend((cut > 0).then(|| format!("{cut} of {runs} runs were interrupted")));
    let clients = point.runs.iter().map(|run| run.refused).max().unwrap_or_default();
    parts.extend((clients > 0).then(|| format!("{clients} of {} clients got no connection", point.clients)));
    let transactions: u64 = point.runs.iter().map(|run| run.failed).sum();
    parts.extend((transactions > 0).then(|| format!("{transactions} transactions failed")));
    let skipped: u64 = point.runs.iter().map(|run| run.skipped).sum();
    parts.extend((skipped > 0).then(|| format!("{skipped} transactions were skipped")));
    words.sort_unstable();
    words.dedup();
    parts.extend(words.iter().map(|said| format!("“{said}”")));
    for (said, times) in point.runs.iter().flat_map(|run| &run.errors) {
        parts.push(format!("{times} × “{said}”"));
    }
    let pool = point.pool_size.map(|size| format!(", pool of {size}")).unwrap_or_default();
    let offered =
        point.offered.map(|offered| format!(", {} TPS offered", whole(offered.tps))).unwrap_or_default();
    let place = format!("{}, {}, {} clients{pool}{offered}", point.workload, point.target, point.clients);
    (!parts.is_empty()).then(|| format!("{place}: {}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;
    use crate::record::{Latency, Percentiles, Run};

    fn pair(base: &[f64], other: &[f64]) -> Experiment {
        let mut experiment = sample::experiment();
        let runs = |values: &[f64]| {
            let run = |(round, tps): (usize, &f64)| Run {
                round: u32::try_from(round).unwrap_or(0),
                tps: *tps,
                ..Run::default()
            };
            values.iter().enumerate().map(run).collect()
        };
        experiment.points.truncate(1);
        let point = Point { workload: "writes".into(), clients: 50, ..Point::default() };
        experiment.points = vec![
            Point { target: "direct".into(), runs: runs(base), ..point.clone() },
            Point { target: "weir".into(), pool_size: Some(8), runs: runs(other), ..point },
        ];
        experiment
    }

    fn said(base: &[f64], other: &[f64]) -> (Outcome, String) {
        let experiment = pair(base, other);
        let against = against(&experiment, &experiment.points[1]).expect("both have figures");
        (against.outcome(), sentences(&experiment, |_| true).join("\n"))
    }

    #[test]
    fn a_tie_is_called_a_tie_and_a_loss_a_loss() {
        let (outcome, words) = said(&[100.0, 200.0, 100.0], &[101.0, 204.0, 100.5]);
        assert!(outcome == Outcome::Tie && words.contains("a tie with direct"), "{words}");
        let (outcome, words) = said(&[100.0, 200.0, 100.0], &[120.0, 236.0, 121.0]);
        assert!(outcome == Outcome::Faster && words.contains("faster than direct (120 % of it"), "{words}");
        let (outcome, words) = said(&[100.0, 200.0, 100.0], &[80.0, 166.0, 81.0]);
        assert!(
            outcome == Outcome::Slower && words.contains("with a pool of 8 makes 81 TPS, slower"),
            "{words}"
        );
        let (outcome, words) = said(&[100.0, 100.0], &[80.0, 81.0]);
        assert!(outcome == Outcome::Unknown && words.contains("too few rounds"), "{words}");
    }

    #[test]
    fn the_headline_says_who_is_refused_and_what_is_used() {
        let mut experiment = pair(&[1000.0], &[900.0]);
        assert_eq!(
            headlines(&experiment),
            [
                "writes, 50 clients through weir with a pool of 8: neither refuses a client, at most 8 server connections \
              (direct 50), 900 TPS (direct 1,000)."
            ]
        );
        for (point, p99) in experiment.points.iter_mut().zip([250_000.0, 210_000.0]) {
            let percentiles = Some(Percentiles { p99, ..Percentiles::default() });
            point.runs[0].latency_us = Some(Latency { percentiles, ..Latency::default() });
        }
        experiment.points[0].runs[0].refused = 12;
        assert_eq!(
            headlines(&experiment),
            [
                "writes, 50 clients through weir with a pool of 8: no client is refused (direct refuses 12), 99th percentile \
              210 ms (direct 250 ms for the 38 that it lets in), at most 8 server connections (direct 38), 900 TPS (direct 1,000)."
            ]
        );
    }

    #[test]
    fn a_pool_that_lost_on_one_machine_gets_its_reason() {
        let why = |other: &[f64], same_machine| {
            let mut experiment = pair(&[100.0], other);
            experiment.server.same_machine = same_machine;
            reason(&experiment)
        };
        assert!(why(&[80.0], true).is_some_and(|words| words.contains("share the 2 cores")));
        assert_eq!((why(&[120.0], true), why(&[98.0], true), why(&[80.0], false)), (None, None, None));
    }

    #[test]
    fn the_first_target_has_nothing_to_stand_against() {
        let experiment = pair(&[1.0], &[1.0]);
        assert_eq!(against(&experiment, &experiment.points[0]), None);
        let refused = sample::experiment();
        let pooled = refused.points.iter().find(|point| point.pool_size == Some(8)).expect("a pool of 8");
        assert_eq!(against(&refused, pooled), None, "direct was refused: there is no base");
    }

    #[test]
    fn troubles_are_told_in_the_words_of_who_had_them() {
        let troubles = troubles(&sample::experiment()).join("\n");
        assert!(
            troubles.contains(
                "writes, direct, 150 clients: 5 of 5 runs gave up as clients were refused; 53 of 150"
            )
        );
        assert!(troubles.contains("“FATAL:  sorry, too many <clients> already”"), "{troubles}");
        assert!(troubles.contains("2 × “server closed the <connection>”"), "{troubles}");
    }
}
