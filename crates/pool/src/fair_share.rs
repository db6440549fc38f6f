//! What each subject of a pool's fair queue has had of its servers' time, over all shards.
//!
//! Owns the arithmetic of start-time fair queueing (Goyal, Vin and Cheng, 1996) where what a turn costs is known only when it ends: an estimate is
//! counted when it begins, and what it has cost in truth when it ends. All of it is atomics, touched once when a server is checked out and once when it is
//! released. Never knows what a subject is, nor who waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use settings::QueueBy;

/// Units of counted time in a microsecond of a subject of weight 1: weights divide it without becoming nothing.
const SCALE: u64 = 1_000;

/// A subject that has had more than others by so much is as one that has had so much more: nobody waits for the end of longer debts.
const LONGEST_DEBT_US: u64 = 60_000_000;

/// The weight of the last turn's cost in the estimate is one in this many parts.
const SMOOTHING: u64 = 8;

/// The number of unused subjects that the table may keep before they are removed.
const FEWEST_FORGOTTEN: usize = 1_024;

/// What the subjects of a pool have in common, over all shards.
#[derive(Debug, Default)]
pub struct FairPool {
    /// How far they have come: the counted time of the one that was served last while others waited, or of any while none did.
    counted: AtomicU64,
    /// What a turn of any of them costs.
    typical: TypicalTime,
}

/// What a turn costs, smoothed, in microseconds; 0 where none has ended.
#[derive(Debug, Default)]
struct TypicalTime(AtomicU64);

impl TypicalTime {
    fn us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Two threads that end turns at once may lose one of the two.
    fn note(&self, took_us: u64) {
        let smoothed = match self.us() {
            0 => took_us,
            typical_us => (typical_us * (SMOOTHING - 1)).saturating_add(took_us) / SMOOTHING,
        };
        self.0.store(smoothed, Ordering::Relaxed);
    }
}

/// What one subject has had.
#[derive(Debug)]
pub struct FairShare {
    number: u32,
    by: QueueBy,
    subject: Box<str>,
    pool: Arc<FairPool>,
    weight: AtomicU32,
    /// Server time divided by the weight, [`SCALE`] units to a microsecond; what begins now is estimated.
    counted: AtomicU64,
    typical: TypicalTime,
    /// Server time in truth.
    server_us: AtomicU64,
    turns: AtomicU64,
}

/// A turn that has begun: what was counted for it, and since when it lasts.
#[derive(Debug)]
pub struct FairTurn {
    share: Arc<FairShare>,
    estimate_us: u64,
    since_us: u64,
}

/// What a subject has had in all, for those who look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareUse {
    /// Its weight.
    pub weight: u32,
    /// Times that it had a server.
    pub turns: u64,
    /// How long, in microseconds, turns that go on not included.
    pub server_us: u64,
}

impl FairShare {
    /// The number that no other subject has.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What kind of subject it is.
    #[must_use]
    pub fn by(&self) -> QueueBy {
        self.by
    }

    /// Its name.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What it has had in all.
    #[must_use]
    pub fn usage(&self) -> ShareUse {
        ShareUse {
            weight: self.weight.load(Ordering::Relaxed),
            turns: self.turns.load(Ordering::Relaxed),
            server_us: self.server_us.load(Ordering::Relaxed),
        }
    }

    /// Its part of the server time, beside the weights of others. 0 counts as 1.
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.max(1), Ordering::Relaxed);
    }

    /// Where it stands: of those that wait, the lowest comes next.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Whether it is a subject of this pool.
    #[must_use]
    pub fn is_of(&self, pool: &Arc<FairPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// It begins to wait. What it has not used before does not count, but for so much; neither does what is too long ago.
    pub fn catch_up(&self, burst_us: u64) {
        let now = self.pool.counted.load(Ordering::Relaxed);
        let (least, most) =
            (now.saturating_sub(self.scaled(burst_us)), now.saturating_add(self.scaled(LONGEST_DEBT_US)));
        let within = |counted: u64| Some(counted.clamp(least, most)).filter(|within| *within != counted);
        let _ = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
    }

    /// It is served before others that wait, or before anyone else does: those that come back begin where it is.
    pub(crate) fn leads(&self) {
        self.pool.counted.fetch_max(self.counted(), Ordering::Relaxed);
    }

    /// It gets a server; `is_alone`: nobody waits for one.
    #[must_use]
    pub fn begin(share: &Arc<FairShare>, now_us: u64, is_alone: bool) -> FairTurn {
        if is_alone {
            share.leads();
        }
        // Nothing is known of its first turns: they are taken for what those of others are.
        let estimate_us = match share.typical.us() {
            0 => share.pool.typical.us(),
            typical_us => typical_us,
        };
        share.counted.fetch_add(share.scaled(estimate_us), Ordering::Relaxed);
        FairTurn { share: Arc::clone(share), estimate_us, since_us: now_us }
    }

    fn scaled(&self, time_us: u64) -> u64 {
        time_us.saturating_mul(SCALE) / u64::from(self.weight.load(Ordering::Relaxed).max(1))
    }
}

impl FairTurn {
    /// Whose turn it is.
    #[must_use]
    pub fn share(&self) -> &Arc<FairShare> {
        &self.share
    }

    /// It goes on for longer than was estimated: what it has cost so far counts now.
    pub fn goes_on(&mut self, now_us: u64) {
        let so_far_us = now_us.saturating_sub(self.since_us);
        if let Some(more) = so_far_us.checked_sub(self.estimate_us) {
            self.share.counted.fetch_add(self.share.scaled(more), Ordering::Relaxed);
            self.estimate_us = so_far_us;
        }
    }

    /// The server is released.
    pub fn end(self, now_us: u64) {
        let (share, took_us) = (&*self.share, now_us.saturating_sub(self.since_us));
        if took_us >= self.estimate_us {
            share.counted.fetch_add(share.scaled(took_us - self.estimate_us), Ordering::Relaxed);
        } else {
            let less = share.scaled(self.estimate_us - took_us);
            // The weight may have changed in between.
            let lower = |counted: u64| Some(counted.saturating_sub(less));
            let _ = share.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        }
        share.typical.note(took_us);
        share.pool.typical.note(took_us);
        share.server_us.fetch_add(took_us, Ordering::Relaxed);
        share.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// The subjects of all pools. What holds it says who may look at it when.
#[derive(Debug, Default)]
pub struct FairShares {
    /// By the addresses of their pools, which are there as long as one of their shares is.
    subjects: BTreeMap<(usize, QueueBy, Box<str>), Arc<FairShare>>,
    made: u32,
    forget_at: usize,
}

impl FairShares {
    /// The share of a subject of this pool. One that nobody holds any more may be forgotten: it is then as if it had always been away.
    ///
    /// ```
    /// use settings::QueueBy;
    /// let (mut shares, pool) = (weir_pool::FairShares::default(), Default::default());
    /// let share = shares.share(&pool, QueueBy::User, "alice", 2);
    /// weir_pool::FairShare::begin(&share, 0, true).end(500);
    /// assert_eq!((share.usage().server_us, share.counted()), (500, 250_000));
    /// assert!(std::sync::Arc::ptr_eq(&share, &shares.share(&pool, QueueBy::User, "alice", 2)));
    /// ```
    pub fn share(&mut self, pool: &Arc<FairPool>, by: QueueBy, subject: &str, weight: u32) -> Arc<FairShare> {
        if self.subjects.len() >= self.forget_at.max(FEWEST_FORGOTTEN) {
            self.subjects.retain(|_, share| Arc::strong_count(share) > 1);
            self.forget_at = self.subjects.len() * 2;
        }
        let share =
            self.subjects.entry((Arc::as_ptr(pool).addr(), by, subject.into())).or_insert_with(|| {
                self.made += 1;
                Arc::new(FairShare {
                    number: self.made,
                    by,
                    subject: subject.into(),
                    pool: Arc::clone(pool),
                    weight: AtomicU32::new(1),
                    counted: AtomicU64::new(0),
                    typical: TypicalTime::default(),
                    server_us: AtomicU64::new(0),
                    turns: AtomicU64::new(0),
                })
            });
        share.set_weight(weight);
        Arc::clone(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(weights: (u32, u32)) -> (Arc<FairShare>, Arc<FairShare>) {
        let (mut shares, pool) = (FairShares::default(), Arc::default());
        (
            shares.share(&pool, QueueBy::User, "a", weights.0),
            shares.share(&pool, QueueBy::User, "b", weights.1),
        )
    }

    #[test]
    fn a_turn_counts_before_it_ends_and_is_corrected() {
        let (a, _) = two((1, 1));
        FairShare::begin(&a, 0, true).end(800);
        let turn = FairShare::begin(&a, 1_000, true);
        assert_eq!(a.counted(), 1_600 * SCALE, "the second is as long as the first was, until it is known");
        turn.end(1_100);
        assert_eq!(a.counted(), 900 * SCALE);
        assert_eq!(a.usage(), ShareUse { weight: 1, turns: 2, server_us: 900 });
    }

    #[test]
    fn what_is_not_known_of_a_subject_is_taken_to_be_what_others_cost() {
        let (a, b) = two((1, 1));
        FairShare::begin(&a, 0, true).end(800);
        let turn = FairShare::begin(&b, 1_000, true);
        assert_eq!(b.counted(), 800 * SCALE, "its first turn counts before it ends, too");
        turn.end(1_100);
        assert_eq!(b.counted(), 100 * SCALE);
        let _its_own = FairShare::begin(&b, 2_000, true);
        assert_eq!(b.counted(), 200 * SCALE);
    }

    #[test]
    fn a_long_turn_counts_while_it_lasts() {
        let (a, _) = two((1, 1));
        let mut turn = FairShare::begin(&a, 0, true);
        turn.goes_on(5_000);
        turn.goes_on(4_000);
        assert_eq!(a.counted(), 5_000 * SCALE);
        turn.end(6_000);
        assert_eq!(a.counted(), 6_000 * SCALE);
    }

    #[test]
    fn who_was_away_has_no_more_in_hand_than_the_burst() {
        let (a, b) = two((1, 2));
        for turn in 0..100 {
            FairShare::begin(&a, turn * 1_000, true).end(turn * 1_000 + 1_000);
        }
        b.catch_up(10_000);
        let clock = 99_000 * SCALE;
        assert_eq!(b.counted(), clock - 10_000 * SCALE / 2);
        b.catch_up(0);
        assert_eq!(b.counted(), clock);
        let (mut shares, pool, other) = (FairShares::default(), Arc::default(), Arc::default());
        let first = shares.share(&pool, QueueBy::User, "a", 1);
        FairShare::begin(&first, 0, true).end(9);
        FairShare::begin(&first, 0, true).end(9);
        for (pool, counted) in [(&pool, 9 * SCALE), (&other, 0)] {
            let new = shares.share(pool, QueueBy::User, "new", 1);
            new.catch_up(0);
            assert_eq!(new.counted(), counted);
        }
    }

    #[test]
    fn who_is_served_beside_those_who_wait_does_not_move_them() {
        let (a, b) = two((4, 1));
        FairShare::begin(&a, 0, false).end(1_000_000);
        b.catch_up(0);
        assert_eq!(b.counted(), 0);
        FairShare::begin(&a, 0, true).end(1_000_000);
        b.catch_up(0);
        assert_eq!(b.counted(), 250_000 * SCALE);
    }

    #[test]
    fn a_debt_has_an_end() {
        let (a, _) = two((2, 1));
        FairShare::begin(&a, 0, false).end(3_600_000_000);
        a.catch_up(0);
        assert_eq!(a.counted(), LONGEST_DEBT_US * SCALE / 2);
    }

    #[test]
    fn subjects_that_nobody_holds_are_forgotten() {
        let (mut shares, pool) = (FairShares::default(), Arc::default());
        let held = shares.share(&pool, QueueBy::ClientAddr, "held", 1);
        for number in 0..10_000 {
            shares.share(&pool, QueueBy::ClientAddr, &number.to_string(), 1);
        }
        assert!(shares.subjects.len() <= 2 * FEWEST_FORGOTTEN);
        assert!(Arc::ptr_eq(&held, &shares.share(&pool, QueueBy::ClientAddr, "held", 1)));
    }
}
