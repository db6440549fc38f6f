//! Which combinations are measured, and in which order: pure arithmetic over the wish. Each round has every
//! combination once, in an order of its own from the seed, so that drift of the machine meets all alike.

use std::collections::BTreeSet;

use super::ExperimentOptions;
use super::contender::Contender;
use super::environment::Environment;
use crate::advisor::{FEWEST_ROUNDS, FEWEST_SIZES};
use crate::interval::SplitMix;
use crate::record::{ExperimentKind, Point};

/// The parts of the peak at which an open loop is run, in percent.
pub(super) const OPEN_LOOP_PERCENTS: [f64; 4] = [50.0, 70.0, 80.0, 90.0];

/// The most rounds of an open loop.
const OPEN_LOOP_ROUNDS: u32 = 3;

/// The pool sizes of a sweep unless given.
const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The closed-loop combinations, in the order of the record.
pub(super) fn closed(wish: &ExperimentOptions, room: Option<u32>, contenders: &[Contender]) -> Vec<Point> {
    let mut points = Vec::new();
    for workload in &wish.workloads {
        for &clients in &wish.clients {
            for contender in contenders {
                let sizes: Vec<Option<u32>> = if contender.is_swept() {
                    sizes(wish, room, clients).into_iter().map(Some).collect()
                } else {
                    vec![None]
                };
                points.extend(sizes.into_iter().map(|pool_size| Point {
                    target: contender.name.clone(),
                    workload: workload.name.clone(),
                    pool_size,
                    clients,
                    ..Point::default()
                }));
            }
        }
    }
    points
}

/// Pool sizes for a number of clients. Those that the user named are all tried; the usual ones where they make sense: not
/// more than clients, not more than the server has room for.
fn sizes(wish: &ExperimentOptions, room: Option<u32>, clients: u32) -> Vec<u32> {
    if !wish.pool_sizes.is_empty() {
        return wish.pool_sizes.clone();
    }
    let most = room.unwrap_or(u32::MAX).min(clients).max(1);
    SIZES.iter().copied().filter(|size| *size <= most).collect()
}

/// The smallest and the largest of them, between which a pool that sizes itself stays.
pub(super) fn bounds(wish: &ExperimentOptions, room: Option<u32>, clients: u32) -> (u32, u32) {
    let sizes = sizes(wish, room, clients);
    (sizes.iter().copied().min().unwrap_or(1), sizes.iter().copied().max().unwrap_or(1))
}

/// Why a sweep of these sizes and rounds could only end with "can't tell", whatever is measured; `None` of other
/// questions. Without a `room` what the server can give is not known yet.
pub(super) fn shortage(wish: &ExperimentOptions, room: Option<u32>) -> Option<String> {
    if wish.question != ExperimentKind::Sweep {
        return None;
    }
    if wish.started.is_empty() {
        return Some("a sweep needs a pooler that is started with each size: Weir, or --pooler".to_owned());
    }
    if wish.rounds < FEWEST_ROUNDS {
        return Some(format!(
            "a sweep of one round cannot tell how far runs scatter: --rounds {FEWEST_ROUNDS} or more"
        ));
    }
    // Connections beyond the clients cannot be in use, so that such a size counts as one for each client.
    let distinct = |clients: u32| {
        let used = sizes(wish, room, clients).into_iter().map(|size| size.min(clients));
        used.collect::<BTreeSet<u32>>().len()
    };
    let (clients, count) =
        wish.clients.iter().map(|clients| (*clients, distinct(*clients))).min_by_key(|it| it.1)?;
    (count < FEWEST_SIZES).then(|| {
        format!(
            "a sweep needs {FEWEST_SIZES} different pool sizes up to its {clients} clients to see a curve, and has {count}; \
             `compare --pool-size` measures single sizes"
        )
    })
}

/// Every size that is tried.
pub(super) fn all_sizes(points: &[Point]) -> Vec<u32> {
    let mut sizes: Vec<u32> = points.iter().filter_map(|point| point.pool_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The runs in their order: round, and which of `count` combinations.
pub(super) fn order(count: usize, rounds: u32, seed: u64) -> Vec<(u32, usize)> {
    let mut random = SplitMix(seed);
    let mut order = Vec::new();
    for round in 0..rounds {
        let mut indices: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            indices.swap(last, random.below(last + 1));
        }
        order.extend(indices.into_iter().map(|index| (round, index)));
    }
    order
}

/// Rounds of the open loop.
pub(super) fn open_rounds(wish: &ExperimentOptions) -> u32 {
    if wish.quick { 1 } else { wish.rounds.min(OPEN_LOOP_ROUNDS) }
}

/// How many runs are planned, open loop included.
pub(super) fn runs(wish: &ExperimentOptions, environment: &Environment, contenders: &[Contender]) -> u32 {
    let closed = count(closed(wish, environment.room(), contenders).len());
    closed.saturating_mul(wish.rounds).saturating_add(open_runs(wish, contenders))
}

/// How many of them are the open loop's.
pub(super) fn open_runs(wish: &ExperimentOptions, contenders: &[Contender]) -> u32 {
    let open = if wish.open_loop { open_series(wish, contenders) * OPEN_LOOP_PERCENTS.len() } else { 0 };
    count(open).saturating_mul(open_rounds(wish))
}

fn count(runs: usize) -> u32 {
    u32::try_from(runs).unwrap_or(u32::MAX)
}

/// How many series of open-loop runs there are: one for each workload and target, at one number of clients and, in a
/// sweep, only through what was swept.
fn open_series(wish: &ExperimentOptions, contenders: &[Contender]) -> usize {
    let counts = |contender: &&Contender| wish.question != ExperimentKind::Sweep || contender.is_swept();
    wish.workloads.len() * contenders.iter().filter(counts).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_combination_once() {
        let order = order(7, 3, 42);
        assert_eq!(order.len(), 21);
        for round in 0..3 {
            let mut seen: Vec<usize> =
                order.iter().filter(|(of, _)| *of == round).map(|(_, index)| *index).collect();
            assert_ne!(seen, [0, 1, 2, 3, 4, 5, 6], "in an order of its own");
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        }
        assert_eq!(order, super::order(7, 3, 42), "the seed repeats it");
        assert!(super::order(0, 3, 1).is_empty());
    }

    #[test]
    fn usual_sizes_are_those_that_make_sense() {
        let wish = ExperimentOptions::default();
        assert_eq!(sizes(&wish, Some(97), 80), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(sizes(&wish, Some(10), 80), [1, 2, 4, 8]);
        assert_eq!(sizes(&wish, None, 5), [1, 2, 4]);
        assert_eq!(sizes(&wish, Some(0), 5), [1]);
        let named = ExperimentOptions { pool_sizes: vec![90], ..ExperimentOptions::default() };
        assert_eq!(sizes(&named, Some(10), 5), [90]);
        assert_eq!((bounds(&wish, Some(97), 80), bounds(&named, None, 5)), ((1, 64), (90, 90)));
    }

    #[test]
    fn a_sweep_that_could_only_end_with_cannot_tell_is_refused() {
        let sweep = |sizes: &[u32], clients: &[u32], rounds| ExperimentOptions {
            question: ExperimentKind::Sweep,
            started: vec![("weir".to_owned(), "weir".into())],
            pool_sizes: sizes.to_vec(),
            clients: clients.to_vec(),
            rounds,
            ..ExperimentOptions::default()
        };
        for (wish, room, words) in [
            (sweep(&[10, 20], &[80], 5), None, "4 different pool sizes up to its 80 clients"),
            (sweep(&[10, 20, 30, 40], &[80, 20], 5), None, "up to its 20 clients to see a curve, and has 2"),
            (sweep(&[], &[4], 5), None, "and has 3"),
            (sweep(&[], &[80], 5), Some(5), "and has 3"),
            (sweep(&[1, 2, 3, 4], &[80], 1), None, "--rounds 2"),
            (
                ExperimentOptions { started: Vec::new(), ..sweep(&[1, 2, 3, 4], &[80], 5) },
                None,
                "Weir, or --pooler",
            ),
        ] {
            let said = shortage(&wish, room).unwrap_or_default();
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(shortage(&sweep(&[1, 2, 3, 4], &[80], 2), None), None);
        assert_eq!(shortage(&sweep(&[], &[80, 8], 5), Some(97)), None);
        assert_eq!(
            shortage(
                &ExperimentOptions { question: ExperimentKind::Compare, ..sweep(&[10], &[80], 1) },
                None
            ),
            None
        );
    }
}
