//! The controller against modelled servers: curves with a knee, plateaus, sleeping statements, noise, drift, and loads that change.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
use super::*;

const INTERVAL_US: u64 = 333_000;

/// Uniform numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with this standard deviation.
    fn normal(&mut self, deviation: f64) -> f64 {
        ((0..12).map(|_| self.next()).sum::<f64>() - 6.0) * deviation
    }
}

/// What servers give in all, of which this many are busy.
type Curve = fn(f64) -> f64;

/// The Universal Scalability Law, with a peak near 20.
fn early_peak(busy: f64) -> f64 {
    900.0 * busy / (1.0 + 0.32 * (busy - 1.0) + 0.002 * busy * (busy - 1.0))
}

/// One with a peak near 4.
fn contended(busy: f64) -> f64 {
    900.0 * busy / (1.0 + 0.2 * (busy - 1.0) + 0.05 * busy * (busy - 1.0))
}

/// Two processors: all is done by two servers.
fn two_processors(busy: f64) -> f64 {
    3_000.0 * busy.min(2.0)
}

/// `pg_sleep(0.1)`.
fn sleeping(busy: f64) -> f64 {
    10.0 * busy
}

/// Clients that send the next request as soon as they have an answer, and the servers that they use.
struct Model {
    controller: SizeController,
    curve: Curve,
    clients: u32,
    noise: f64,
    /// A slow drift of the machine.
    drift: f64,
    random: Random,
    open: u32,
    stuck: u32,
    most_open: u32,
    obstacle: Option<SizeHold>,
    changes: Vec<SizeChange>,
    sizes: Vec<u32>,
}

impl Model {
    fn new(bounds: (u32, u32), curve: Curve, clients: u32, noise: f64, seed: u64) -> Model {
        Model {
            controller: SizeController::new(bounds.0, bounds.1, bounds.0),
            curve,
            clients,
            noise,
            drift: 0.0,
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            open: 0,
            stuck: 0,
            most_open: u32::MAX,
            obstacle: None,
            changes: Vec::new(),
            sizes: Vec::new(),
        }
    }

    fn interval(&mut self) -> SizeInterval {
        let size = self.controller.size();
        self.open = size.min(self.clients).min(self.most_open);
        self.drift = self.drift * 0.98 + self.random.normal(self.noise / 4.0);
        let noise = (self.random.normal(self.noise) + self.drift).exp();
        let seconds = 0.333;
        let busy = f64::from(self.open);
        let transactions = ((self.curve)(busy.max(1.0)) * noise * seconds) as u64;
        let waiting = self.clients - self.open;
        SizeInterval {
            elapsed_us: INTERVAL_US,
            counted: SizeReport {
                elapsed_us: INTERVAL_US,
                transactions,
                server_us: u64::from(self.open) * INTERVAL_US,
                wait_us: u64::from(waiting) * INTERVAL_US,
            },
            reporters: 1,
            open: self.open,
            reserve: 0,
            waiting,
            stuck: self.stuck,
            obstacle: self.obstacle,
        }
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds * 3 {
            let interval = self.interval();
            let before = self.controller.size();
            if let Some(change) = self.controller.observe(&interval) {
                assert_eq!(
                    (change.from, change.to),
                    (before, self.controller.size()).to_owned().max_kept(&change)
                );
                self.changes.push(change);
            }
            self.sizes.push(self.controller.size());
        }
    }

    /// What the sizes of the last seconds have given of what the best size would give.
    fn share(&self, seconds: u32, max: u32) -> f64 {
        let sizes = &self.sizes[self.sizes.len() - seconds as usize * 3..];
        let given = |size: u32| (self.curve)(f64::from(size.min(self.clients)));
        let best = (1..=max).map(given).fold(0.0, f64::max);
        sizes.iter().map(|size| given(*size)).sum::<f64>() / sizes.len() as f64 / best
    }
}

/// A size that is kept was in force while it was tried.
trait KeptFrom {
    fn max_kept(self, change: &SizeChange) -> (u32, u32);
}

impl KeptFrom for (u32, u32) {
    fn max_kept(self, change: &SizeChange) -> (u32, u32) {
        if change.kind == SizeChangeKind::Keeps { (change.from, self.1) } else { self }
    }
}

/// The median over seeds of what `share` says.
fn typical(share: impl Fn(u64) -> f64) -> (f64, f64) {
    let mut shares: Vec<f64> = (1..=40).map(share).collect();
    shares.sort_by(f64::total_cmp);
    (shares[2], shares[20])
}

#[test]
fn the_size_of_a_curve_with_a_knee_is_found_within_30_seconds() {
    for noise in [0.02, 0.06, 0.12] {
        let (low, median) = typical(|seed| {
            let mut model = Model::new((2, 80), early_peak, 80, noise, seed);
            model.run(30);
            model.run(60);
            model.share(60, 80)
        });
        assert!(median >= 0.95 && low >= 0.90, "noise {noise}: {low:.3} {median:.3}");
    }
}

#[test]
fn of_sizes_that_give_the_same_the_smaller_one_is_kept() {
    let mut sizes: Vec<u32> = (1..=40)
        .map(|seed| {
            let mut model = Model::new((1, 100), two_processors, 200, 0.05, seed);
            model.run(60);
            model.controller.found()
        })
        .collect();
    sizes.sort_unstable();
    assert!(sizes[0] >= 2 && sizes[20] <= 4 && sizes[37] <= 8, "{sizes:?}");
}

#[test]
fn where_more_servers_always_help_the_size_is_the_largest() {
    let mut model = Model::new((2, 50), sleeping, 200, 0.02, 7);
    model.run(45);
    assert_eq!(model.controller.found(), 50, "{:?}", model.changes);
}

#[test]
fn a_load_whose_best_size_changes_twice_is_followed() {
    let (low, median) = typical(|seed| {
        let mut model = Model::new((2, 80), early_peak, 100, 0.05, seed);
        model.run(30);
        model.run(20);
        let mut least = model.share(20, 80);
        for curve in [contended as Curve, early_peak] {
            model.curve = curve;
            model.run(30);
            model.run(20);
            least = least.min(model.share(20, 80));
        }
        least
    });
    assert!(median >= 0.95 && low >= 0.85, "{low:.3} {median:.3}");
}

#[test]
fn sizes_stay_within_bounds_and_change_by_little_steps() {
    for seed in 1..=20 {
        let mut model = Model::new((3, 17), early_peak, 40, 0.3, seed);
        model.run(120);
        assert!(model.sizes.iter().all(|size| (3..=17).contains(size)));
        // Back from a much smaller size that was tried is a long way.
        let most =
            |change: &SizeChange| change.kind == SizeChangeKind::Returns || change.to <= change.from * 5 / 2;
        assert!(model.changes.iter().all(most), "{:?}", model.changes);
        let kept = model.changes.iter().filter(|change| change.kind == SizeChangeKind::Keeps);
        assert!(kept.into_iter().all(|change| change.reason.contains("transactions/s")));
    }
}

#[test]
fn without_demand_nothing_is_tried() {
    let mut model = Model::new((10, 50), early_peak, 4, 0.05, 3);
    model.run(30);
    assert_eq!(model.controller.state(), SizeState::Holds(SizeHold::NoDemand));
    assert_eq!(model.changes, []);
}

#[test]
fn the_size_that_leaves_no_client_waiting_is_large_enough() {
    let mut model = Model::new((2, 50), sleeping, 12, 0.01, 3);
    model.run(40);
    let found = model.controller.found();
    assert!((12..=21).contains(&found), "{found}");
}

#[test]
fn figures_that_say_nothing_change_nothing() {
    for obstacle in [SizeHold::Paused, SizeHold::LoginFailures, SizeHold::Failover] {
        let mut model = Model::new((2, 50), early_peak, 80, 0.05, 5);
        model.run(20);
        let found = model.controller.found();
        model.obstacle = Some(obstacle);
        model.run(20);
        assert_eq!(model.controller.state(), SizeState::Holds(obstacle));
        assert_eq!((model.controller.size(), model.controller.found()), (found, found));
        model.obstacle = None;
        model.run(5);
        assert!(!matches!(model.controller.state(), SizeState::Holds(_)), "it goes on");
    }
}

#[test]
fn locks_that_keep_servers_are_no_reason_for_another_size() {
    let mut model = Model::new((2, 50), early_peak, 80, 0.05, 5);
    model.run(30);
    let found = model.controller.found();
    (model.curve, model.stuck) = (|_| 100.0, 50);
    model.run(20);
    assert_eq!(model.controller.state(), SizeState::Holds(SizeHold::LongTransactions));
    assert_eq!(model.controller.size(), found);
    // All transactions wait for one lock: none ends.
    (model.curve, model.stuck) = (|_| 0.0, 0);
    model.run(20);
    assert_eq!(model.controller.state(), SizeState::Holds(SizeHold::FewTransactions));
    assert_eq!(model.controller.size(), found);
}

#[test]
fn a_size_that_another_limit_forbids_is_given_up() {
    let mut model = Model::new((2, 50), early_peak, 80, 0.02, 5);
    model.most_open = 5;
    model.run(60);
    assert!(model.controller.found() <= 6, "{}", model.controller.found());
    let mut short = Model::new((8, 50), early_peak, 80, 0.02, 5);
    short.most_open = 5;
    short.run(20);
    assert_eq!(short.controller.state(), SizeState::Holds(SizeHold::NotReached));
}

#[test]
fn an_interval_in_which_time_jumps_is_no_measurement() {
    let mut model = Model::new((2, 50), early_peak, 80, 0.02, 5);
    model.run(30);
    let found = model.controller.found();
    let mut interval = model.interval();
    interval.elapsed_us = 3_600_000_000;
    interval.counted.transactions = 3;
    model.controller.observe(&interval);
    assert_eq!(model.controller.state(), SizeState::Holds(SizeHold::ClockJump));
    assert_eq!(model.controller.size(), found);
}

#[test]
fn new_bounds_hold_at_once() {
    let mut model = Model::new((2, 80), early_peak, 80, 0.02, 5);
    model.run(40);
    assert!(model.controller.found() > 5);
    let change = model.controller.set_bounds(1, 5).expect("a change");
    assert_eq!((change.to, change.kind, model.controller.size()), (5, SizeChangeKind::Bounds, 5));
    assert_eq!(model.controller.set_bounds(1, 5), None);
    model.run(20);
    assert!(model.controller.size() <= 5);
}

#[test]
fn a_load_that_is_clearly_another_one_is_searched_at_once() {
    let searched = (1..=40).filter(|seed| {
        let mut model = Model::new((2, 80), early_peak, 100, 0.03, *seed);
        model.run(60);
        model.changes.clear();
        model.curve = contended;
        model.run(6);
        model.changes.iter().filter(|change| change.kind == SizeChangeKind::Tries).count() >= 2
    });
    let searched = searched.count();
    assert!(searched >= 36, "{searched}");
}

/// The curve between measured sizes, thousands of transactions a second each.
fn measured(known: &[(f64, f64)], busy: f64) -> f64 {
    let place = known.iter().rposition(|(size, _)| *size <= busy).unwrap_or(0).min(known.len() - 2);
    let ((from, low), (to, high)) = (known[place], known[place + 1]);
    1_000.0 * (low + (high - low) * (busy / from).ln() / (to / from).ln())
}

/// Selects of few rows by 200 clients, PostgreSQL and pgbench on two processors: a peak near 10, and slowly less.
fn selects(busy: f64) -> f64 {
    let known = [
        (1.0, 9.0),
        (2.0, 15.8),
        (4.0, 20.5),
        (8.0, 24.0),
        (16.0, 23.4),
        (32.0, 20.5),
        (64.0, 19.0),
        (128.0, 17.0),
    ];
    measured(&known, busy)
}

/// TPC-B by 80 clients, likewise: a peak near 12.
fn updates(busy: f64) -> f64 {
    let known =
        [(1.0, 0.9), (2.0, 1.6), (4.0, 2.1), (8.0, 3.1), (16.0, 3.3), (32.0, 2.8), (64.0, 2.7), (128.0, 2.4)];
    measured(&known, busy)
}

/// Where each step down gains less than a measurement is uncertain by, a search by neighbours alone stays where it is.
#[test]
fn a_size_that_is_much_too_large_is_left_where_each_step_gains_little() {
    for (curve, noise, least, least_median) in [
        (selects as Curve, 0.03, 0.95, 0.98),
        (selects, 0.06, 0.94, 0.97),
        (selects, 0.1, 0.86, 0.95),
        (updates, 0.03, 0.92, 0.96),
        (updates, 0.06, 0.91, 0.95),
        (updates, 0.1, 0.88, 0.94),
    ] {
        let (low, median) = typical(|seed| {
            let mut model = Model::new((2, 64), sleeping, 80, noise, seed);
            model.run(25);
            model.curve = curve;
            model.run(30);
            model.run(30);
            model.share(30, 64)
        });
        assert!(median >= least_median && low >= least, "noise {noise}: {low:.3} {median:.3}");
    }
}

/// TPC-B by 80 clients where locks cost little: the more, the better, by little steps.
fn slow_rise(busy: f64) -> f64 {
    let known = [(1.0, 0.9), (2.0, 1.47), (4.0, 2.22), (8.0, 2.63), (16.0, 2.96), (32.0, 3.23), (64.0, 3.31)];
    measured(&known, busy)
}

/// Clients that come or go in the middle of a measurement were taken for another load: half of the size gave more than the present one.
#[test]
fn a_size_that_is_found_is_kept_while_clients_come_and_go() {
    for (curve, clients, noise, least, least_median) in [
        (sleeping as Curve, 80, 0.03, 0.97, 0.98),
        (selects, 200, 0.06, 0.95, 0.97),
        (selects, 200, 0.12, 0.86, 0.96),
        (slow_rise, 80, 0.06, 0.87, 0.96),
        (slow_rise, 80, 0.12, 0.86, 0.96),
    ] {
        let (low, median) = typical(|seed| {
            let mut model = Model::new((2, 64), updates, clients, noise, seed);
            model.run(30);
            model.curve = curve;
            model.run(30);
            let mut shares = 0.0;
            for _ in 0..4 {
                model.clients = 0;
                model.run(14);
                model.clients = clients;
                model.run(12);
                shares += model.share(10, 64) / 4.0;
            }
            shares
        });
        assert!(
            median >= least_median && low >= least,
            "{clients} clients, noise {noise}: {low:.3} {median:.3}"
        );
    }
}
