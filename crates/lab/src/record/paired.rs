//! Which rounds count for what is compared: those in which each of the compared points has a whole run. So a median and a
//! ratio beside it are of the same rounds, also after Ctrl-C in the middle of one. Judges no figure.

use std::collections::BTreeSet;

use super::{Ended, Experiment, Point};

/// Rounds that do not count for the points of one workload and number of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// Name of the workload.
    pub workload: String,
    /// Clients.
    pub clients: u32,
    /// From 0.
    pub rounds: BTreeSet<u32>,
}

impl Experiment {
    /// Marks every run whose round is not whole among the points that it is compared with, and names those rounds.
    ///
    /// A point that has whole runs in less than half of the rounds does not keep those of the others from counting; it has no ratio then.
    pub fn pair_rounds(&mut self) -> Vec<Excluded> {
        let groups: Vec<Group> = self.points.iter().map(Group::of).collect();
        let mut left_out: Vec<Excluded> = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            if groups[..place].contains(group) {
                continue;
            }
            let members: Vec<usize> = (0..groups.len()).filter(|other| groups[*other] == *group).collect();
            let common = common(members.iter().map(|member| self.points[*member].rounds()).collect());
            let mut rounds = BTreeSet::new();
            for member in members {
                let runs = self.points[member].runs.iter_mut().filter(|run| run.ended == Ended::Whole);
                for run in runs.filter(|run| !common.contains(&run.round)) {
                    run.unpaired = true;
                    rounds.insert(run.round);
                }
            }
            if !rounds.is_empty() {
                left_out.push(Excluded { workload: group.workload.clone(), clients: group.clients, rounds });
            }
        }
        left_out
    }
}

/// What is compared with each other: a workload, a number of clients, and of an open loop the part of the peak.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    workload: String,
    clients: u32,
    percent_of_peak: Option<f64>,
}

impl Group {
    fn of(point: &Point) -> Self {
        Self {
            workload: point.workload.clone(),
            clients: point.clients,
            percent_of_peak: point.offered.map(|offered| offered.percent_of_peak),
        }
    }
}

/// The rounds that all have who have at least half of the most; all rounds where that leaves none.
fn common(rounds: Vec<BTreeSet<u32>>) -> BTreeSet<u32> {
    let all: BTreeSet<u32> = rounds.iter().flatten().copied().collect();
    let most = rounds.iter().map(BTreeSet::len).max().unwrap_or_default();
    let takes_part = |own: &&BTreeSet<u32>| !own.is_empty() && own.len() * 2 >= most;
    let shared = rounds.iter().filter(takes_part).fold(all.clone(), |shared, own| &shared & own);
    if shared.is_empty() { all } else { shared }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;

    fn point(target: &str, rounds: &[(u32, f64)]) -> Point {
        let run = |(round, tps): &(u32, f64)| Run { round: *round, tps: *tps, ..Run::default() };
        Point {
            target: target.into(),
            clients: 5,
            runs: rounds.iter().map(run).collect(),
            ..Point::default()
        }
    }

    fn medians(points: Vec<Point>) -> (Vec<Option<f64>>, Vec<Excluded>) {
        let mut experiment = Experiment { points, ..Experiment::default() };
        let left_out = experiment.pair_rounds();
        (experiment.points.iter().map(|point| point.tps().map(|figure| figure.median)).collect(), left_out)
    }

    #[test]
    fn a_round_that_was_cut_off_counts_for_no_point() {
        let direct = point("direct", &[(0, 100.0), (1, 2000.0)]);
        let (found, left_out) = medians(vec![direct, point("weir", &[(0, 108.0)])]);
        assert_eq!(found, [Some(100.0), Some(108.0)]);
        assert_eq!(left_out.len(), 1);
        assert_eq!(left_out[0].rounds, BTreeSet::from([1]));
    }

    #[test]
    fn a_point_that_mostly_fails_does_not_spoil_the_others() {
        let whole = point("weir", &[(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 5.0)]);
        let (found, left_out) = medians(vec![whole, point("odd", &[(3, 9.0)]), point("refused", &[])]);
        assert_eq!((found, left_out), (vec![Some(3.0), Some(9.0), None], vec![]));
    }

    #[test]
    fn other_clients_and_loads_are_other_comparisons() {
        let crowd = Point { clients: 150, ..point("direct", &[(0, 7.0), (1, 8.0)]) };
        let (found, left_out) = medians(vec![crowd, point("weir", &[(0, 5.0)])]);
        assert_eq!((found, left_out), (vec![Some(7.5), Some(5.0)], vec![]));
        let (found, _) = medians(vec![point("a", &[(0, 1.0)]), point("b", &[(1, 2.0)])]);
        assert_eq!(
            found,
            [Some(1.0), Some(2.0)],
            "without a common round there is no ratio, but each has its figures"
        );
    }
}
