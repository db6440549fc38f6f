//! The rule against curves of which the truth is known: laws with seeded noise, plateaus, rising and falling ones,
//! noise alone, too little of everything.

use super::*;
use crate::advisor::curve::{Round, Size, curve, curve_by};
use crate::advisor::usl::Usl;
use crate::interval::SplitMix;

const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Its peak is 2360 at 11; 4 gives 86 % of it, 8 gives 98.7 %, 16 gives 97.7 %.
const KNEE: Usl = Usl { lambda: 1000.0, sigma: 0.3, kappa: 0.006 };

/// Roughly normal, mean 0, standard deviation 1: twelve uniform numbers less six.
fn normal(random: &mut SplitMix) -> f64 {
    (0..12).map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0
}

/// A sweep of a law: each round has a drift of its own, each run its noise.
fn sweep(truth: impl Fn(f64) -> f64, sizes: &[u32], rounds: usize, noise: f64, seed: u64) -> Vec<Size> {
    let mut random = SplitMix(seed);
    let drift: Vec<f64> = (0..rounds).map(|_| (0.05 * normal(&mut random)).exp()).collect();
    let run = |size: u32, round: usize, random: &mut SplitMix| Round {
        tps: truth(f64::from(size)) * drift[round] * (noise * normal(random)).exp(),
        p99_us: Some(80_000.0 / f64::from(size)),
    };
    let size = |connections: &u32, random: &mut SplitMix| Size {
        connections: *connections,
        rounds: (0..rounds).map(|round| Some(run(*connections, round, random))).collect(),
    };
    sizes.iter().map(|connections| size(connections, &mut random)).collect()
}

/// By fewer resamples than usual: there are many sweeps.
fn asked(sizes: &[Size], question: AdviceOptions) -> Verdict {
    judge(&curve_by(sizes, question.clients, 100), &question)
}

const ASKED: AdviceOptions =
    AdviceOptions { clients: 150, p99_target_us: None, ceiling: None, insists: false };
const INSISTED: AdviceOptions = AdviceOptions { insists: true, ..ASKED };

fn size_of(verdict: &Verdict) -> u32 {
    match verdict {
        Verdict::Size(found) => found.connections,
        Verdict::CannotTell(doubts) => panic!("cannot tell: {doubts:?}"),
    }
}

fn doubts_of(verdict: Verdict) -> Vec<Doubt> {
    match verdict {
        Verdict::CannotTell(doubts) => doubts,
        Verdict::Size(found) => panic!("told {found:?}"),
    }
}

#[test]
fn the_smallest_good_size_of_a_known_law_is_found() {
    for seed in 0..20 {
        let verdict = asked(&sweep(|size| KNEE.tps(size), &SIZES, 5, 0.01, seed), ASKED);
        assert_eq!(size_of(&verdict), 8, "seed {seed}: {verdict:?}");
    }
}

/// Throughput at a number of connections.
type Truth = Box<dyn Fn(f64) -> f64>;

/// Truths of several kinds: laws with an early, a middling and a late peak, plateaus that stay and that fall, and a curve as
/// two cores give it, which is of no law.
fn truths() -> Vec<Truth> {
    let law = |sigma: f64, kappa: f64| -> Truth {
        Box::new(move |size| Usl { lambda: 1000.0, sigma, kappa }.tps(size))
    };
    let measured = [5752.0, 8481.0, 11_380.0, 12_305.0, 13_766.0, 12_515.0, 10_500.0];
    let at = |size: f64| SIZES.iter().position(|known| f64::from(*known) >= size).expect("a size");
    vec![
        law(0.3, 0.006),
        law(0.5, 0.03),
        law(0.05, 0.0006),
        law(0.2, 0.0003),
        Box::new(|size| 1000.0 * size.min(4.0)),
        Box::new(|size| 1000.0 * size.min(8.0) * if size > 16.0 { 0.75 } else { 1.0 }),
        Box::new(move |size| measured[at(size)]),
    ]
}

/// How many of `seeds` sweeps are told a size, and how many of these sizes truly give 95 % of the best one.
fn true_of_told(question: AdviceOptions, noise: f64, seeds: u64) -> (u64, u64) {
    let (mut told, mut right) = (0, 0);
    for truth in truths() {
        let best = SIZES.iter().map(|size| truth(f64::from(*size))).fold(0.0, f64::max);
        for seed in 0..seeds {
            if let Verdict::Size(found) = asked(&sweep(&truth, &SIZES, 6, noise, seed), question) {
                told += 1;
                right += u64::from(truth(f64::from(found.connections)) >= ENOUGH * best);
            }
        }
    }
    (told, right)
}

#[test]
fn what_is_told_is_true_of_95_in_100_sweeps() {
    for noise in [0.02, 0.05, 0.1] {
        let (told, right) = true_of_told(ASKED, noise, 15);
        assert!(right * 100 >= told * 95, "noise {noise}: {right} right of {told} told");
        assert!(told > 75 || noise > 0.05, "noise {noise}: {told} told of 105");
    }
}

#[test]
fn who_insists_is_always_told_and_nearly_as_often_the_truth() {
    for (noise, percent) in [(0.1, 95), (0.2, 85)] {
        let (told, right) = true_of_told(INSISTED, noise, 15);
        assert_eq!(told, 105);
        assert!(right * 100 >= told * percent, "noise {noise}: {right} right of {told}");
    }
    let noise = asked(&sweep(|_| 2500.0, &SIZES, 3, 0.5, 1), INSISTED);
    assert!(
        matches!(&noise, Verdict::Size(found) if matches!(found.notes[..], [Note::Despite(_), ..])),
        "{noise:?}"
    );
    let rising = Usl { sigma: 0.002, kappa: 0.0, ..KNEE };
    let verdict = asked(&sweep(|size| rising.tps(size), &SIZES, 5, 0.01, 3), INSISTED);
    assert_eq!(size_of(&verdict), 64);
    let once = sweep(|size| KNEE.tps(size), &SIZES, 1, 0.01, 5);
    assert_eq!(doubts_of(asked(&once, INSISTED)), [Doubt::TooFewRounds], "nothing to guess by");
}

#[test]
fn a_plateau_gives_its_first_size() {
    let plateau = |size: f64| if size < 4.0 { 1000.0 * size } else { 4000.0 };
    for (noise, seed) in [(0.004, 1), (0.01, 2), (0.02, 3)] {
        let verdict = asked(&sweep(plateau, &SIZES, 5, noise, seed), ASKED);
        assert!((4..=16).contains(&size_of(&verdict)), "{verdict:?}");
    }
    let tutorial: Vec<u32> = (1..=8).map(|ten| ten * 10).collect();
    let flat = asked(&sweep(|_| 2500.0, &tutorial, 5, 0.01, 2), ASKED);
    let Verdict::Size(found) = &flat else { panic!("{flat:?}") };
    assert_eq!((found.connections, found.good_up_to), (10, 80));
    assert_eq!(found.notes, [Note::SmallestTried]);
}

#[test]
fn a_curve_that_still_rises_cannot_be_judged() {
    let rising = Usl { sigma: 0.002, kappa: 0.0, ..KNEE };
    let sizes = sweep(|size| rising.tps(size), &SIZES, 5, 0.01, 3);
    let doubt = Doubt::PeakAbove { largest: 64, for_want_of_clients: false };
    assert_eq!(doubts_of(asked(&sizes, ASKED)), [doubt]);
    let few = AdviceOptions { clients: 64, ..ASKED };
    assert_eq!(doubts_of(asked(&sizes, few)), [Doubt::PeakAbove { largest: 64, for_want_of_clients: true }]);
    let full = asked(&sizes, AdviceOptions { ceiling: Some(64), ..ASKED });
    let Verdict::Size(found) = full else { panic!("{full:?}") };
    assert_eq!((found.connections, found.notes), (64, vec![Note::AtCeiling]));
}

#[test]
fn a_curve_that_only_falls_cannot_be_judged_unless_it_began_at_one() {
    let falling = Usl { sigma: 0.9, kappa: 0.02, ..KNEE };
    let sizes = sweep(|size| falling.tps(size), &[10, 20, 40, 80], 5, 0.01, 4);
    assert_eq!(doubts_of(asked(&sizes, ASKED)), [Doubt::PeakBelow(10)]);
    let from_one = sweep(|size| falling.tps(size), &SIZES, 5, 0.01, 4);
    assert_eq!(size_of(&asked(&from_one, ASKED)), 1);
}

#[test]
fn noise_alone_is_no_advice() {
    for seed in 0..20 {
        let verdict = asked(&sweep(|_| 2500.0, &SIZES, 3, 0.5, seed), ASKED);
        let doubts = doubts_of(verdict);
        assert!(
            matches!(doubts[..], [Doubt::PoorFit(_) | Doubt::TooUnsure(_) | Doubt::PeakAbove { .. }]),
            "{doubts:?}"
        );
    }
}

#[test]
fn two_summits_are_no_advice() {
    let valley = |size: f64| if (4.0..32.0).contains(&size) { 1000.0 } else { 3000.0 };
    let doubts = doubts_of(asked(&sweep(valley, &SIZES, 5, 0.01, 9), ASKED));
    assert!(matches!(doubts[..], [Doubt::PoorFit(_)]), "{doubts:?}");
}

#[test]
fn too_little_is_told_as_too_little() {
    let two = sweep(|size| KNEE.tps(size), &[4, 8], 5, 0.01, 5);
    assert_eq!(doubts_of(asked(&two, ASKED)), [Doubt::TooFewSizes(2)]);
    let once = sweep(|size| KNEE.tps(size), &SIZES, 1, 0.01, 5);
    assert_eq!(doubts_of(asked(&once, ASKED)), [Doubt::TooFewRounds]);
    assert_eq!(doubts_of(asked(&[], ASKED)), [Doubt::NothingMeasured]);
    let mut failed = sweep(|size| KNEE.tps(size), &SIZES, 3, 0.01, 5);
    failed.iter_mut().for_each(|size| size.rounds.iter_mut().for_each(|round| *round = None));
    assert_eq!(doubts_of(asked(&failed, ASKED)), [Doubt::NothingMeasured]);
}

#[test]
fn failed_and_empty_runs_do_not_count() {
    let mut sizes = sweep(|size| KNEE.tps(size), &SIZES, 5, 0.005, 6);
    sizes[2].rounds[1] = None;
    sizes[3].rounds[0] = Some(Round { tps: 0.0, p99_us: None });
    sizes[6].rounds.iter_mut().for_each(|round| *round = None);
    let found = curve(&sizes, 150);
    assert_eq!(found.sizes.len(), 6);
    assert_eq!(size_of(&judge(&found, &ASKED)), 8);
}

#[test]
fn connections_beyond_the_clients_do_not_count() {
    let truth = |size: f64| KNEE.tps(size.min(16.0));
    let sizes = sweep(truth, &SIZES, 5, 0.005, 7);
    assert_eq!(size_of(&asked(&sizes, AdviceOptions { clients: 16, ..ASKED })), 8);
}

#[test]
fn the_target_of_the_tail_may_ask_for_more() {
    let sizes = sweep(|size| KNEE.tps(size), &SIZES, 5, 0.004, 8);
    let with = |target: f64| asked(&sizes, AdviceOptions { p99_target_us: Some(target), ..ASKED });
    assert_eq!(size_of(&with(20_000.0)), 8);
    let larger = with(6_000.0);
    assert_eq!(size_of(&larger), 16);
    assert!(matches!(larger, Verdict::Size(found) if found.notes.contains(&Note::LargerForTarget)));
    let missed = doubts_of(with(10.0));
    assert!(matches!(missed[..], [Doubt::TargetMissed { .. }]), "{missed:?}");
}
