//! The search for a size: which neighbour is tried when, and whether it is kept.

use settings::SizeBounds;

use super::estimates::Estimates;
use super::window::{Measured, Turn, Window};
use super::{SizeHold, SizeInterval, SizeState};

/// What a step up has to gain, and what a step down may lose, for each factor of 1.4.
const LEAST_GAIN: f64 = 0.02;
const MOST_LOSS: f64 = 0.01;

/// What a size may give less than the best one that is known.
const MOST_LOSS_IN_ALL: f64 = 0.03;

/// A measurement that differs by this is believed after fewer intervals.
const CLEAR: f64 = 0.12;

/// A size that is tried and gives less by this is left after one interval.
const BAD: f64 = 0.22;

/// The next step is a double one after one that gained so much for each factor of 1.4.
const STEEP: f64 = 0.06;

/// How many steps away a much smaller and a much larger size are, and the loss above which they are not tried again.
const FAR_DOWN: usize = 3;
const FAR_UP: usize = 2;
const FAR_LOSS: f64 = 0.08;

/// Intervals of a measurement: at least, at least where the difference is clear, and at most.
const INTERVALS: usize = 3;
const CLEAR_INTERVALS: usize = 2;
const LONGEST_US: u64 = 8_000_000;

/// Transactions of a measurement: enough, and enough where it has lasted long.
const TRANSACTIONS: u64 = 30;
const LEAST_TRANSACTIONS: u64 = 12;

/// Measurements of a size that is tried.
const MOST_MEASUREMENTS: u32 = 3;

/// How long is rested before the next size is tried: after the first that was not kept, and at most.
const SHORT_REST_US: u64 = 1_000_000;
const LONG_REST_US: u64 = 6_000_000;

/// After so long a neighbour is tried again whatever is known of it: a load may have another best size and give the same at the present one.
const TRY_AGAIN_US: u64 = 15_000_000;

/// How long reaching a size may take.
const REACH_US: u64 = 5_000_000;

/// An interval that is longer is no interval.
const JUMP_US: u64 = 2_000_000;

/// A change of the size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeChange {
    /// The size until now.
    pub from: u32,
    /// The size from now on.
    pub to: u32,
    /// What it is for.
    pub kind: SizeChangeKind,
    /// Why, with figures.
    pub reason: String,
}

/// What a change of the size is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeChangeKind {
    /// A neighbour is tried.
    Tries,
    /// What was tried is not kept.
    Returns,
    /// What was tried is the size from now on.
    Keeps,
    /// The bounds have changed.
    Bounds,
}

/// What is being measured.
#[derive(Clone, Debug)]
enum Phase {
    /// The size was just changed: server connections are opened or closed.
    Reaching {
        since_us: u64,
    },
    Measuring(Window),
    /// What was tried is kept, and measured: the next size may be tried.
    Kept,
}

/// A size that is tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    place: usize,
    measurements: u32,
}

/// The search of one pool.
#[derive(Clone, Debug)]
pub struct SizeController {
    bounds: (u32, u32),
    estimates: Estimates,
    /// The size that was found so far, and what it gave last.
    base: usize,
    base_rate: f64,
    trial: Option<Trial>,
    phase: Phase,
    hold: Option<SizeHold>,
    now_us: u64,
    /// When a size may be tried next, and how long the rest before that was.
    try_at_us: u64,
    rest_us: u64,
    /// The last size that was kept gave much more: the next step in its direction is a double one.
    is_steep: bool,
    /// The direction in which a size was tried last.
    went_up: bool,
    /// When a smaller one and a larger one were tried last.
    tried_us: [u64; 2],
    last_kept: Option<(u64, SizeChange)>,
    changes: u64,
}

impl SizeController {
    /// A search from `size` between two bounds, neither of which is 0.
    #[must_use]
    pub fn new(min: u32, max: u32, size: u32) -> SizeController {
        let (min, max) = (min.max(1), max.max(min).max(1));
        let size = size.clamp(min, max);
        let estimates = Estimates::new(min, max, size);
        SizeController {
            bounds: (min, max),
            base: estimates.place_of(size),
            estimates,
            base_rate: 0.0,
            trial: None,
            phase: Phase::Reaching { since_us: 0 },
            hold: None,
            now_us: 0,
            try_at_us: 0,
            rest_us: SHORT_REST_US,
            is_steep: false,
            went_up: false,
            tried_us: [0; 2],
            last_kept: None,
            changes: 0,
        }
    }

    /// The size that is in force: the one that is tried, if one is.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.estimates.size(self.trial.map_or(self.base, |trial| trial.place))
    }

    /// The size that was found so far.
    #[must_use]
    pub fn found(&self) -> u32 {
        self.estimates.size(self.base)
    }

    /// What it is at.
    #[must_use]
    pub fn state(&self) -> SizeState {
        match self.hold {
            Some(hold) => SizeState::Holds(hold),
            None if self.trial.is_some() || self.rest_us < LONG_REST_US => SizeState::Seeks,
            None => SizeState::Rests,
        }
    }

    /// The last change of the size that was found, and how long ago it was, in microseconds.
    #[must_use]
    pub fn last_change(&self) -> Option<(u64, &SizeChange)> {
        self.last_kept.as_ref().map(|(at_us, change)| (self.now_us.saturating_sub(*at_us), change))
    }

    /// How often the size that was found has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The bounds may be others now (RELOAD): the size is within them at once.
    pub fn set_bounds(&mut self, min: u32, max: u32) -> Option<SizeChange> {
        let (min, max) = (min.max(1), max.max(min).max(1));
        if self.bounds == (min, max) {
            return None;
        }
        let from = self.size();
        let size = SizeBounds::Auto { min, max }.nearest(self.found());
        let (now_us, changes, last_kept) = (self.now_us, self.changes, self.last_kept.take());
        *self = SizeController { now_us, changes, last_kept, ..SizeController::new(min, max, size) };
        self.phase = Phase::Reaching { since_us: now_us };
        let reason = format!("its bounds are {min} and {max} now");
        (from != size).then(|| self.note(SizeChange { from, to: size, kind: SizeChangeKind::Bounds, reason }))
    }

    /// An interval has passed. The change of the size that follows, if one does.
    pub fn observe(&mut self, interval: &SizeInterval) -> Option<SizeChange> {
        self.pass(interval.elapsed_us);
        let jump = (interval.elapsed_us > JUMP_US).then_some(SizeHold::ClockJump);
        if let Some(hold) = interval.obstacle.or(jump) {
            return self.hold(hold);
        }
        match &mut self.phase {
            Phase::Reaching { since_us } => {
                let since_us = *since_us;
                self.reach(interval, since_us)
            }
            Phase::Kept => {
                self.phase = Phase::Measuring(Window::default());
                self.try_next()
            }
            Phase::Measuring(window) => {
                let size = self.estimates.size(self.trial.map_or(self.base, |trial| trial.place));
                window.add(interval, size);
                match window.turn() {
                    None => self.measure(),
                    Some(Turn::Went) => self.hold(SizeHold::NoDemand),
                    Some(Turn::Came) => {
                        self.phase = Phase::Reaching { since_us: self.now_us };
                        None
                    }
                }
            }
        }
    }

    /// Where figures say nothing of the size, time makes nothing that is known doubtful, and no trial due: clients that come back go on with what was found.
    fn pass(&mut self, elapsed_us: u64) {
        self.now_us += elapsed_us;
        if self.hold.is_none() {
            return self.estimates.pass(seconds(elapsed_us.min(JUMP_US)));
        }
        self.try_at_us += elapsed_us;
        for tried_us in &mut self.tried_us {
            *tried_us += elapsed_us;
        }
    }

    /// Measuring begins when the size is reached, behind one interval at least.
    fn reach(&mut self, interval: &SizeInterval, since_us: u64) -> Option<SizeChange> {
        let size = self.size();
        let is_reached = match self.trial {
            // One may be renewed just now.
            Some(trial) if trial.place > self.base => {
                interval.open + size / 10 >= size || interval.waiting == 0
            }
            Some(_) => interval.open <= size.saturating_add(interval.reserve),
            None => true,
        };
        if is_reached {
            self.phase = Phase::Measuring(Window::default());
            return None;
        }
        if self.now_us.saturating_sub(since_us) < REACH_US {
            return None;
        }
        let is_larger = self.trial.is_some_and(|trial| trial.place > self.base);
        self.lengthen_rest();
        self.hold(if is_larger { SizeHold::NotReached } else { SizeHold::LongTransactions })
    }

    fn measure(&mut self) -> Option<SizeChange> {
        let Phase::Measuring(window) = &self.phase else { return None };
        let expected = self.estimates.expected(self.base);
        let is_clear = self.trial.is_some() && expected.is_some_and(|it| (window.log() - it).abs() > CLEAR);
        let is_bad = self.trial.is_some() && expected.is_some_and(|it| window.log() < it - BAD);
        let intervals = if is_bad {
            1
        } else if is_clear {
            CLEAR_INTERVALS
        } else {
            INTERVALS
        };
        let is_late = window.elapsed_us() >= LONGEST_US;
        if window.intervals() < intervals || window.transactions() < TRANSACTIONS && !is_late {
            return None;
        }
        if window.is_stuck() {
            return self.hold(SizeHold::LongTransactions);
        }
        if self.trial.is_none() && window.is_short() {
            return self.hold(SizeHold::NotReached);
        }
        let measured = window.measured();
        if window.transactions() < LEAST_TRANSACTIONS {
            let is_idle = !self.has_demand(&measured);
            return self.hold(if is_idle { SizeHold::NoDemand } else { SizeHold::FewTransactions });
        }
        self.phase = Phase::Measuring(Window::default());
        match self.trial {
            None => self.base_measured(&measured),
            Some(trial) => self.trial_measured(trial, &measured),
        }
    }

    /// Clients wait, or all servers are busy: another size might give more.
    fn has_demand(&self, measured: &Measured) -> bool {
        measured.waiting >= 0.5 || measured.busy >= 0.9 * f64::from(self.size())
    }

    fn base_measured(&mut self, measured: &Measured) -> Option<SizeChange> {
        if !self.has_demand(measured) {
            return self.hold(SizeHold::NoDemand);
        }
        self.hold = None;
        self.base_rate = measured.rate;
        let log = measured.rate.ln();
        let surprise = self.estimates.measured(self.base, log, measured.variance);
        if surprise.is_change() {
            self.estimates.shift(self.base, log, measured.variance);
            (self.rest_us, self.try_at_us, self.is_steep) = (SHORT_REST_US, self.now_us, false);
        }
        self.try_next()
    }

    /// Tries a neighbour, if one may be better and the rest is over.
    fn try_next(&mut self) -> Option<SizeChange> {
        if self.now_us < self.try_at_us {
            return None;
        }
        let place = self.next_trial()?;
        let from = self.size();
        self.went_up = place > self.base;
        self.tried_us[usize::from(self.went_up)] = self.now_us;
        self.trial = Some(Trial { place, measurements: 0 });
        self.phase = Phase::Reaching { since_us: self.now_us };
        Some(SizeChange { from, to: self.size(), kind: SizeChangeKind::Tries, reason: String::new() })
    }

    fn next_trial(&self) -> Option<usize> {
        let last = self.estimates.last();
        let step = |goes_on: bool| if self.is_steep && goes_on { 2 } else { 1 };
        let up = (self.base < last)
            .then(|| self.far_up().unwrap_or_else(|| self.base + step(self.went_up)).min(last));
        let down = (self.base > 0)
            .then(|| self.far_down().unwrap_or_else(|| self.base.saturating_sub(step(!self.went_up))));
        let is_due = |is_up: bool| self.now_us - self.tried_us[usize::from(is_up)] > TRY_AGAIN_US;
        let up =
            up.filter(|up| is_due(true) || self.estimates.may_gain(*up, self.base, self.least_gain(*up)));
        let down = down.filter(|down| {
            is_due(false) || self.estimates.may_gain(*down, self.base, -self.most_loss(*down))
        });
        match (up, down) {
            // Of which less is known; else the other one than last time.
            (Some(up), Some(down)) if self.estimates.is_unknown(up) != self.estimates.is_unknown(down) => {
                Some(if self.estimates.is_unknown(up) { up } else { down })
            }
            (Some(up), Some(down)) => {
                Some(if self.went_up && !self.estimates.is_unknown(up) { down } else { up })
            }
            (up, down) => up.or(down),
        }
    }

    /// A much smaller size, of which the difference is seen through the noise where that of a neighbour is not: where nothing is known of those
    /// between, since the load is another one, or where a neighbour was given up just now.
    fn far_down(&self) -> Option<usize> {
        let far = self.base.saturating_sub(FAR_DOWN);
        let is_new = (far..self.base).all(|place| self.estimates.is_unknown(place));
        (is_new || !self.went_up && self.is_far_due(far)).then_some(far)
    }

    /// A much larger one, likewise; not so far, for each server connection is one of PostgreSQL's.
    fn far_up(&self) -> Option<usize> {
        let far = (self.base + FAR_UP).min(self.estimates.last());
        (self.went_up && self.is_far_due(far)).then_some(far)
    }

    /// A neighbour in the direction that was tried last was given up, and this one is not known to give much less.
    fn is_far_due(&self, far: usize) -> bool {
        self.rest_us > SHORT_REST_US && self.estimates.gain(far, self.base).0 > -FAR_LOSS
    }

    fn least_gain(&self, place: usize) -> f64 {
        LEAST_GAIN * self.estimates.steps(place, self.base)
    }

    fn most_loss(&self, place: usize) -> f64 {
        MOST_LOSS * self.estimates.steps(place, self.base)
    }

    fn trial_measured(&mut self, mut trial: Trial, measured: &Measured) -> Option<SizeChange> {
        let expected = self.estimates.expected(self.base).unwrap_or_default();
        let log = measured.rate.ln();
        let surprise = self.estimates.measured(trial.place, log, measured.variance);
        if surprise.is_change() {
            self.estimates.bend((trial.place, self.base), log - expected, measured.variance);
        }
        if !self.has_demand(measured) {
            // A larger size that leaves no client waiting and does as much is large enough.
            if trial.place > self.base && measured.rate.ln() > expected - MOST_LOSS_IN_ALL {
                return self.keep(trial.place, measured);
            }
            return self.hold(SizeHold::NoDemand);
        }
        trial.measurements += 1;
        let (gain, deviation) = self.estimates.gain(trial.place, self.base);
        let doubt = if trial.measurements < MOST_MEASUREMENTS { 0.7 * deviation } else { 0.0 };
        let surplus = match trial.place > self.base {
            true => gain - self.least_gain(trial.place),
            // Less than the present size by little, and than the best one that is known.
            false => {
                (gain + self.most_loss(trial.place)).min(MOST_LOSS_IN_ALL - self.estimates.loss(trial.place))
            }
        };
        if surplus > doubt {
            return self.keep(trial.place, measured);
        }
        if surplus < -doubt || trial.measurements >= MOST_MEASUREMENTS {
            self.lengthen_rest();
            return self.give_up("it gave no more");
        }
        self.trial = Some(trial);
        None
    }

    /// What is tried is the size from now on.
    fn keep(&mut self, place: usize, measured: &Measured) -> Option<SizeChange> {
        let from = self.found();
        let gain = self.estimates.gain(place, self.base).0;
        self.is_steep = gain > STEEP * self.estimates.steps(place, self.base);
        if let Some(next) = if place > self.base { Some(place + 1) } else { place.checked_sub(1) } {
            self.estimates.doubt_one(next);
        }
        let before = self.base_rate;
        (self.base, self.trial, self.hold) = (place, None, None);
        (self.base_rate, self.rest_us, self.try_at_us) = (measured.rate, SHORT_REST_US, self.now_us);
        let reason = format!(
            "{:.0} transactions/s instead of {before:.0}, {:.1} ms each at the server, {:.0} clients wait",
            measured.rate, measured.server_ms, measured.waiting
        );
        let change = SizeChange { from, to: self.found(), kind: SizeChangeKind::Keeps, reason };
        // The next one is tried at once: this one was measured just now.
        self.phase =
            if self.has_demand(measured) { Phase::Kept } else { Phase::Measuring(Window::default()) };
        Some(self.note(change))
    }

    fn note(&mut self, change: SizeChange) -> SizeChange {
        self.changes += 1;
        self.last_kept = Some((self.now_us, change.clone()));
        change
    }

    fn lengthen_rest(&mut self) {
        self.try_at_us = self.now_us + self.rest_us;
        self.rest_us = (self.rest_us * 2).min(LONG_REST_US);
        self.is_steep = false;
    }

    /// Nothing is tried for now, and the size is what was found.
    fn hold(&mut self, hold: SizeHold) -> Option<SizeChange> {
        self.hold = Some(hold);
        if self.trial.is_none() {
            self.phase = Phase::Reaching { since_us: self.now_us };
        }
        self.give_up(hold.text())
    }

    fn give_up(&mut self, reason: &str) -> Option<SizeChange> {
        let from = self.size();
        self.trial.take()?;
        self.phase = Phase::Reaching { since_us: self.now_us };
        let change =
            SizeChange { from, to: self.found(), kind: SizeChangeKind::Returns, reason: reason.to_owned() };
        Some(change)
    }
}

#[allow(clippy::cast_precision_loss)] // Some seconds.
fn seconds(time_us: u64) -> f64 {
    time_us as f64 / 1_000_000.0
}
