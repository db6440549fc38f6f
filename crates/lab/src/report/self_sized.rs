//! A pool that sizes itself beside the sizes of the sweep: what it has found, and what it makes of the best of them, round by round.

use crate::advisor::words::percent;
use crate::figures::{median, whole};
use crate::interval::Interval;
use crate::record::{Experiment, Point, TargetKind};

/// The same program with fixed sizes.
const WEIR: &str = "weir";

/// A sentence for each point of a pool that sizes itself.
pub(super) fn sentences(experiment: &Experiment) -> Vec<String> {
    let is_own = |point: &&Point| {
        let mut targets = experiment.targets.iter();
        point.offered.is_none()
            && targets.any(|target| target.kind == TargetKind::SelfSized && target.name == point.target)
    };
    experiment.points.iter().filter(is_own).filter_map(|point| sentence(experiment, point)).collect()
}

/// The sizes that it has found, as `8` or `6 to 8`.
pub(super) fn found(point: &Point) -> Option<String> {
    let sizes = || point.whole().filter_map(|run| run.found_size);
    let (least, most) = (sizes().min()?, sizes().max()?);
    Some(if least == most { least.to_string() } else { format!("{least} to {most}") })
}

fn sentence(experiment: &Experiment, point: &Point) -> Option<String> {
    let tps = |point: &Point| point.tps().map(|figure| figure.median);
    let swept = experiment.points.iter().filter(|other| {
        other.offered.is_none()
            && other.pool_size.is_some()
            && (&other.workload, other.clients) == (&point.workload, point.clients)
            && other.target == WEIR
    });
    let best = swept
        .filter(|other| tps(other).is_some())
        .max_by(|one, other| tps(one).unwrap_or_default().total_cmp(&tps(other).unwrap_or_default()))?;
    let ratios: Vec<f64> = (point.whole())
        .filter_map(|run| {
            let same = best.whole().find(|other| other.round == run.round)?;
            Some(run.tps / same.tps).filter(|ratio| ratio.is_finite())
        })
        .collect();
    let bounds = Interval::of(&ratios).map_or_else(
        || "too few rounds for an interval".to_owned(),
        |interval| format!("95 % interval {} to {}", percent(interval.low), percent(interval.high)),
    );
    Some(format!(
        "{}, {} clients: the pool that sizes itself has found {} and makes {} TPS, {} of the best size of the sweep ({}: {} TPS; {bounds}).",
        point.workload,
        point.clients,
        found(point)?,
        whole(tps(point)?),
        percent(median(&ratios)?),
        best.pool_size?,
        whole(tps(best)?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;
    use crate::record::TargetRecord;

    #[test]
    fn it_is_compared_with_the_best_size_in_the_same_rounds() {
        let mut experiment = sample::experiment();
        assert!(sentences(&experiment).is_empty());
        let best = (experiment.points.iter())
            .filter(|point| point.offered.is_none() && point.pool_size.is_some())
            .max_by(|one, other| {
                let tps = |point: &Point| point.tps().map_or(0.0, |figure| figure.median);
                tps(one).total_cmp(&tps(other))
            })
            .cloned()
            .expect("a size");
        let mut own = Point { target: "weir-auto".into(), pool_size: None, ..best };
        for (round, run) in own.runs.iter_mut().enumerate() {
            (run.tps, run.found_size) = (run.tps * 0.9, Some(if round == 0 { 6 } else { 8 }));
        }
        experiment.points.push(own);
        experiment.targets.push(TargetRecord {
            name: "weir-auto".into(),
            kind: TargetKind::SelfSized,
            ..TargetRecord::default()
        });
        let said = sentences(&experiment);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("has found 6 to 8") && said[0].contains("90 % of the best size"),
            "{}",
            said[0]
        );
    }
}
