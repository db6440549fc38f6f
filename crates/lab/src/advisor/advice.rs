//! The advice on a whole experiment: for each target, workload and number of clients a verdict of its own, and one size
//! for all workloads of a target. Reads the record only; closed-loop points with a pool size are what it judges.

use std::collections::BTreeSet;

use crate::advisor::curve::{Curve, Round, Size, curve};
use crate::advisor::judge::{AdviceOptions, Doubt, ENOUGH, Verdict, judge};
use crate::advisor::reference::{Budget, LittlesLaw, Prior};
use crate::figures::median;
use crate::record::{self, Ended, Experiment, Point};

/// What an experiment says about pool sizes.
#[derive(Clone, Debug)]
pub struct Advice {
    /// In the order of the record.
    pub series: Vec<Series>,
    /// One size for each target; in the order of the record.
    pub overall: Vec<Overall>,
    /// The rule of thumb, where the server's cores are known.
    pub prior: Option<Prior>,
    /// What the server can give, where it has said so.
    pub budget: Option<Budget>,
}

/// The verdict on one target, workload and number of clients.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the target.
    pub target: String,
    /// Name of the workload.
    pub workload: String,
    /// Clients.
    pub clients: u32,
    /// What was measured, and the law through it.
    pub curve: Curve,
    /// What follows.
    pub verdict: Verdict,
    /// Little's law, where the pool was full at its smallest size.
    pub little: Option<LittlesLaw>,
    /// Which servers it was measured on, where reads go to standbys.
    pub side: Option<ServedBy>,
}

/// Which servers have served a workload whose reads go to standbys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedBy {
    /// The part of the requests that standbys have served.
    pub share: f64,
    /// How many standbys there are.
    pub standbys: usize,
    /// Whose size it says something about.
    pub side: Side,
}

/// Whose pool size a workload says something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The primary's: hardly anything was served elsewhere.
    Primary,
    /// That of each standby.
    Standbys,
    /// Both, and neither alone.
    Both,
}

/// From this part of the requests on, the others say nothing about the size.
const NEARLY_ALL: f64 = 0.9;

impl Side {
    /// For programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Standbys => "standby",
            Self::Both => "both",
        }
    }
}

impl ServedBy {
    /// By the median of the whole runs of these points; `None` where no standby was asked.
    fn of(points: &[&Point], standbys: usize) -> Option<Self> {
        let shares = points.iter().flat_map(|point| point.whole());
        let shares: Vec<f64> = shares.filter_map(|run| run.placement.as_ref()?.share()).collect();
        let share = median(&shares)?;
        let side = match share {
            share if share >= NEARLY_ALL => Side::Standbys,
            share if share <= 1.0 - NEARLY_ALL => Side::Primary,
            _ => Side::Both,
        };
        Some(Self { share, standbys, side })
    }
}

/// One size for all that was measured through one target.
#[derive(Clone, Debug)]
pub struct Overall {
    /// Name of the target.
    pub target: String,
    /// The size; `None` when one of its series cannot tell.
    pub connections: Option<u32>,
    /// What each series loses by it, in the order of [`Advice::series`]: its part of that series' best throughput.
    pub shares: Vec<f64>,
    /// The size for each side, where reads go to standbys.
    pub sides: Vec<SideSize>,
}

/// The size that the workloads of one side ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct SideSize {
    /// The primary's, or that of each standby.
    pub side: Side,
    /// How many standbys there are.
    pub standbys: usize,
    /// The workloads that were served there.
    pub workloads: Vec<String>,
    /// `None` when one of them cannot tell.
    pub connections: Option<u32>,
}

impl Advice {
    /// Whether there is a size for every target.
    #[must_use]
    pub fn can_tell(&self) -> bool {
        !self.overall.is_empty() && self.overall.iter().all(|overall| overall.connections.is_some())
    }

    /// The verdict on this target, workload and number of clients.
    #[must_use]
    pub fn of(&self, target: &str, workload: &str, clients: u32) -> Option<&Series> {
        self.series.iter().find(|series| {
            series.target == target && series.workload == workload && series.clients == clients
        })
    }
}

/// The advice on an experiment. A comparison, and whatever swept no pool size, gives none: `series` is empty then.
#[must_use]
pub fn advise(experiment: &Experiment) -> Advice {
    let budget = Budget::of(experiment);
    let question = AdviceOptions {
        clients: 0,
        p99_target_us: experiment.plan.p99_target_ms.map(|target| target * 1000.0),
        ceiling: budget.map(Budget::available).filter(|available| *available > 0),
        insists: experiment.server.embedded,
    };
    let mut series = Vec::new();
    for target in &experiment.targets {
        for workload in &experiment.workloads {
            let points: Vec<&Point> = swept(experiment, &target.name, &workload.name).collect();
            let clients: BTreeSet<u32> = points.iter().map(|point| point.clients).collect();
            for clients in clients {
                let sizes: Vec<Size> = points
                    .iter()
                    .filter(|point| point.clients == clients)
                    .filter_map(|point| size(point))
                    .collect();
                let measured: Vec<&Point> =
                    points.iter().copied().filter(|point| point.clients == clients).collect();
                let side = ServedBy::of(&measured, experiment.server.standbys.len());
                let options = AdviceOptions { clients, ..question };
                series.push(Series { side, ..one(&target.name, &workload.name, &sizes, options) });
            }
        }
    }
    let of_target = |target: &record::TargetRecord| {
        let own: Vec<&Series> = series.iter().filter(|series| series.target == target.name).collect();
        let all = overall(&target.name, &own)?;
        Some(Overall { sides: sides(&target.name, &own), ..all })
    };
    let overall = experiment.targets.iter().filter_map(of_target).collect();
    Advice { overall, series, prior: Prior::of(experiment), budget }
}

/// The closed-loop points with a pool size, if there are several sizes and they are the question.
fn swept<'a>(
    experiment: &'a Experiment,
    target: &'a str,
    workload: &'a str,
) -> impl Iterator<Item = &'a Point> {
    let sizes: BTreeSet<u32> =
        experiment.closed(target, workload).filter_map(|point| point.pool_size).collect();
    let are_swept = sizes.len() > 1 && experiment.question != record::ExperimentKind::Compare;
    experiment.closed(target, workload).filter(move |point| are_swept && point.pool_size.is_some())
}

/// A point as the curve wants it: its whole runs, each in the place of its round.
fn size(point: &Point) -> Option<Size> {
    let rounds = point.runs.iter().map(|run| run.round).max().map_or(0, |last| last as usize + 1);
    let mut size = Size { connections: point.pool_size?, rounds: vec![None; rounds] };
    for run in point.runs.iter().filter(|run| run.ended == Ended::Whole) {
        let p99_us = run.latency_us.as_ref().and_then(|latency| latency.percentiles).map(|found| found.p99);
        size.rounds[run.round as usize] = Some(Round { tps: run.tps, p99_us });
    }
    Some(size)
}

fn one(target: &str, workload: &str, sizes: &[Size], question: AdviceOptions) -> Series {
    let within = |size: &&Size| question.ceiling.is_none_or(|ceiling| size.connections <= ceiling);
    let allowed: Vec<Size> = sizes.iter().filter(within).cloned().collect();
    let curve = curve(if allowed.is_empty() { sizes } else { &allowed }, question.clients);
    Series {
        target: target.to_owned(),
        workload: workload.to_owned(),
        clients: question.clients,
        verdict: judge(&curve, &question),
        little: LittlesLaw::of(&curve, question.clients),
        curve,
        side: None,
    }
}

/// The smallest size that is enough for every series of a target, or else the one whose worst share is best; `None`
/// for a target without series.
fn overall(target: &str, series: &[&Series]) -> Option<Overall> {
    let first = series.first()?;
    let advised: Option<Vec<u32>> = series.iter().map(|series| series.connections()).collect();
    let Some(least) = advised.and_then(|advised| advised.into_iter().max()) else {
        let (connections, shares, sides) = (None, Vec::new(), Vec::new());
        return Some(Overall { target: target.to_owned(), connections, shares, sides });
    };
    let shares = |size: u32| -> Option<Vec<f64>> { series.iter().map(|series| series.share(size)).collect() };
    let worst = |size: u32| shares(size)?.into_iter().reduce(f64::min);
    let candidates: Vec<u32> = first
        .curve
        .sizes
        .iter()
        .map(|found| found.connections)
        .filter(|size| worst(*size).is_some())
        .collect();
    let enough = candidates.iter().copied().find(|size| *size >= least && worst(*size) >= Some(ENOUGH));
    let fairest = || {
        candidates
            .iter()
            .copied()
            .max_by(|one, other| worst(*one).partial_cmp(&worst(*other)).unwrap_or(std::cmp::Ordering::Equal))
    };
    let chosen = enough.or_else(fairest);
    let shares = chosen.and_then(shares).unwrap_or_default();
    Some(Overall { target: target.to_owned(), connections: chosen, shares, sides: Vec::new() })
}

/// The size for the primary and that for each standby, by the workloads that were served there; a workload that both have served says nothing
/// about either.
fn sides(target: &str, series: &[&Series]) -> Vec<SideSize> {
    let of = |side: Side| {
        let is_its = |series: &&&Series| series.side.is_some_and(|served| served.side == side);
        let own: Vec<&Series> = series.iter().filter(is_its).copied().collect();
        let standbys = own.first()?.side?.standbys;
        let mut workloads: Vec<String> = own.iter().map(|series| series.workload.clone()).collect();
        workloads.dedup();
        Some(SideSize { side, standbys, workloads, connections: overall(target, &own)?.connections })
    };
    [Side::Primary, Side::Standbys].into_iter().filter_map(of).collect()
}

impl Series {
    /// The advised size.
    #[must_use]
    pub fn connections(&self) -> Option<u32> {
        match &self.verdict {
            Verdict::Size(found) => Some(found.connections),
            Verdict::CannotTell(_) => None,
        }
    }

    /// The part of the best throughput that a measured size gives.
    fn share(&self, connections: u32) -> Option<f64> {
        let found = self.curve.sizes.iter().find(|found| found.connections == connections);
        found.map(|found| found.share.middle)
    }

    /// Why it cannot tell; empty when it can.
    #[must_use]
    pub fn doubts(&self) -> &[Doubt] {
        match &self.verdict {
            Verdict::Size(_) => &[],
            Verdict::CannotTell(doubts) => doubts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;

    #[test]
    fn each_workload_has_its_size_and_all_have_one() {
        // Peaks: "writes" at about 11, "reads" at about 4.
        let advice = advise(&sample::experiment());
        let sizes: Vec<Option<u32>> = advice.series.iter().map(Series::connections).collect();
        assert_eq!(sizes, [Some(8), Some(4)], "{:?}", advice.series);
        assert!(advice.can_tell());
        assert_eq!(advice.overall.len(), 1, "a target without pool sizes has no advice");
        assert_eq!(advice.overall[0].connections, Some(8));
        assert_eq!(advice.overall[0].shares.len(), 2);
        assert!(advice.of("weir", "reads", 150).is_some() && advice.of("direct", "reads", 150).is_none());
    }

    /// Its writes served by the primary, this percentage of its reads by two standbys.
    fn split(percent: u64) -> Experiment {
        let mut experiment = sample::experiment();
        experiment.server.standbys = vec!["b:5432".to_owned(), "c:5432".to_owned()];
        for point in experiment.points.iter_mut().filter(|point| point.pool_size.is_some()) {
            let reads = if point.workload == "reads" { percent * 50 } else { 1 };
            let reads = ["b:5432", "c:5432"].map(|host| (host.to_owned(), reads)).into();
            let placement = record::Placement { queries: 10_000, reads };
            point.runs.iter_mut().for_each(|run| run.placement = Some(placement.clone()));
        }
        experiment
    }

    #[test]
    fn the_primary_and_each_standby_have_a_size_of_their_own() {
        let advice = advise(&split(99));
        let sides: Vec<_> =
            advice.series.iter().map(|series| series.side.map(|served| served.side)).collect();
        assert_eq!(sides, [Some(Side::Primary), Some(Side::Standbys)]);
        let found: Vec<_> =
            advice.overall[0].sides.iter().map(|side| (side.side, side.connections, side.standbys)).collect();
        assert_eq!(found, [(Side::Primary, Some(8), 2), (Side::Standbys, Some(4), 2)]);
        assert_eq!(advice.overall[0].connections, Some(8), "of an entry, which has one for all servers");
        assert!(advise(&sample::experiment()).overall[0].sides.is_empty());
    }

    #[test]
    fn what_both_have_served_says_nothing_about_either() {
        let advice = advise(&split(60));
        assert_eq!(advice.series[1].side.map(|served| served.side), Some(Side::Both));
        let sides: Vec<Side> = advice.overall[0].sides.iter().map(|side| side.side).collect();
        assert_eq!(sides, [Side::Primary]);
    }

    #[test]
    fn one_that_cannot_tell_leaves_no_size_for_all() {
        let mut experiment = sample::experiment();
        for point in experiment.points.iter_mut().filter(|point| point.workload == "reads") {
            point.runs.iter_mut().for_each(|run| run.ended = Ended::Failed("no".to_owned()));
        }
        let advice = advise(&experiment);
        assert_eq!(advice.series[1].doubts(), [Doubt::NothingMeasured]);
        assert!(!advice.can_tell());
        assert_eq!(advice.overall[0].connections, None);
    }

    #[test]
    fn what_the_server_cannot_give_is_not_advised() {
        let mut experiment = sample::experiment();
        experiment.server.settings.insert("max_connections".to_owned(), "12".to_owned());
        let advice = advise(&experiment);
        assert_eq!(advice.series[0].connections(), Some(8));
        assert!(advice.series[0].curve.sizes.iter().all(|found| found.connections <= 9));
    }

    #[test]
    fn an_experiment_without_pool_sizes_gives_no_advice() {
        let mut experiment = sample::experiment();
        experiment.points.retain(|point| point.pool_size.is_none_or(|size| size == 4));
        let advice = advise(&experiment);
        assert!(advice.series.is_empty() && advice.overall.is_empty() && !advice.can_tell());
    }
}
