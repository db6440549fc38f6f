//! How many connections each pool may have of a budget that several pools draw on (`max_db_connections`, `max_user_connections`).
//!
//! Owns the division (`connection_sharing`): guarantees first, what is left by demand, most to nobody (max-min fairness). What pools hold and want is told by
//! their shards into atomics, the division is worked out by whichever shard asks, and each pool's allowance is an atomic that is read when a connection is opened
//! and, where sharing is on, when one is released. Never closes or opens anything.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A server that was idle for so long is not needed by its pool; what was opened is kept for as long at least, as it has cost a login.
pub const TENURE_US: u64 = 1_000_000;

/// An allowance that is none.
pub(crate) const UNBOUNDED: u32 = u32::MAX;

/// A limit that several pools share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Budget {
    /// `max_db_connections`.
    Database,
    /// `max_user_connections`.
    User,
}

/// How a pool takes part in the division of its budgets (`connection_sharing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// `guaranteed_connections`.
    pub guaranteed: u32,
    /// Above its guarantee it claims what others have more of than itself.
    pub by_demand: bool,
}

/// What a shard tells of its part of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareReport {
    /// Clients for which a connection would be opened.
    pub(crate) waiting: u32,
    /// Servers that nobody has used for a while.
    pub(crate) idle: u32,
    /// Servers that will not be released soon.
    pub(crate) stuck: u32,
}

/// A pool's part in its budgets, over all shards.
#[derive(Debug)]
pub struct PoolShare {
    takes_part: AtomicBool,
    guaranteed: AtomicU32,
    /// What it never passes: `pool_size` and its reserve.
    most: AtomicU32,
    waiting: AtomicU32,
    idle: AtomicU32,
    stuck: AtomicU32,
    /// Bit N: clients of shard N have waited for so long that the pool claims more than it has.
    claims: AtomicU64,
    /// By [`Budget`].
    allowed: [AtomicU32; 2],
    /// When it has last begun to have a connection, counted in each budget.
    begun: [AtomicU64; 2],
}

impl Default for PoolShare {
    fn default() -> PoolShare {
        PoolShare {
            takes_part: AtomicBool::new(false),
            guaranteed: AtomicU32::new(0),
            most: AtomicU32::new(UNBOUNDED),
            waiting: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            stuck: AtomicU32::new(0),
            claims: AtomicU64::new(0),
            allowed: [AtomicU32::new(UNBOUNDED), AtomicU32::new(UNBOUNDED)],
            begun: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

impl PoolShare {
    /// It takes part like this from now on, with at most this many connections.
    pub(crate) fn set(&self, sharing: Option<Sharing>, most: u32) {
        self.most.store(most, Ordering::Relaxed);
        self.takes_part.store(sharing.is_some(), Ordering::Relaxed);
        self.guaranteed.store(sharing.map_or(0, |sharing| sharing.guaranteed), Ordering::Relaxed);
        if sharing.is_none() {
            self.allowed.iter().for_each(|allowed| allowed.store(UNBOUNDED, Ordering::Relaxed));
        }
    }

    /// The budget has no limit any more: it is not divided again.
    pub(crate) fn end_limit(&self, budget: Budget) {
        self.allowed[budget as usize].store(UNBOUNDED, Ordering::Relaxed);
    }

    /// A shard tells something else than before.
    pub(crate) fn change(&self, before: ShareReport, now: ShareReport) {
        let change = |count: &AtomicU32, before: u32, now: u32| {
            if before != now {
                count.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        };
        change(&self.waiting, before.waiting, now.waiting);
        change(&self.idle, before.idle, now.idle);
        change(&self.stuck, before.stuck, now.stuck);
    }

    /// The clients of a shard have waited long, or do not any more.
    pub(crate) fn set_claim(&self, shard: u16, claims: bool) {
        match claims {
            true => self.claims.fetch_or(1 << shard, Ordering::Relaxed),
            false => self.claims.fetch_and(!(1 << shard), Ordering::Relaxed),
        };
    }

    /// How many connections it may have of a budget; `None` is as many as there are.
    #[must_use]
    pub fn allowed(&self, budget: Budget) -> Option<u32> {
        Some(self.allowed[budget as usize].load(Ordering::Relaxed)).filter(|allowed| *allowed != UNBOUNDED)
    }

    /// One of its budgets is divided at present.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.allowed.iter().any(|allowed| allowed.load(Ordering::Relaxed) != UNBOUNDED)
    }

    /// The budget of which a pool with this many connections has more than it may.
    pub(crate) fn exceeded(&self, taken: u32) -> Option<Budget> {
        [Budget::Database, Budget::User]
            .into_iter()
            .find(|budget| taken > self.allowed[*budget as usize].load(Ordering::Relaxed))
    }

    /// It has a connection again.
    pub(crate) fn begins(&self, database: u64, user: u64) {
        self.begun[Budget::Database as usize].store(database, Ordering::Relaxed);
        self.begun[Budget::User as usize].store(user, Ordering::Relaxed);
    }

    /// The number that the division has given it; a pool that takes no part in it is not bound.
    pub(crate) fn allow(&self, budget: Budget, allowed: u32) {
        let allowed = if self.takes_part.load(Ordering::Relaxed) { allowed } else { UNBOUNDED };
        self.allowed[budget as usize].store(allowed, Ordering::Relaxed);
    }

    /// `held`: its connections, without those that are being closed.
    pub(crate) fn member(&self, held: u32, budget: Budget) -> Member {
        if !self.takes_part.load(Ordering::Relaxed) {
            return Member { held, stuck: held, ..Member::default() };
        }
        // What another limit keeps it from having is not kept for it.
        let other = match budget {
            Budget::Database => Budget::User,
            Budget::User => Budget::Database,
        };
        let most =
            self.most.load(Ordering::Relaxed).min(self.allowed[other as usize].load(Ordering::Relaxed));
        Member {
            held,
            waiting: self.waiting.load(Ordering::Relaxed).min(most.saturating_sub(held)),
            idle: self.idle.load(Ordering::Relaxed).min(held),
            stuck: self.stuck.load(Ordering::Relaxed).min(held),
            guaranteed: self.guaranteed.load(Ordering::Relaxed),
            claims: self.claims.load(Ordering::Relaxed) != 0,
            begun: self.begun[budget as usize].load(Ordering::Relaxed),
        }
    }
}

/// A pool that draws on a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Member {
    /// Connections, without those that are being closed.
    held: u32,
    pub(crate) waiting: u32,
    idle: u32,
    stuck: u32,
    guaranteed: u32,
    /// It has waited so long that others have to give it what they have more of.
    claims: bool,
    begun: u64,
}

impl Member {
    fn used(&self) -> u32 {
        self.held - self.idle
    }

    fn wanted(&self) -> u32 {
        self.used().saturating_add(self.waiting)
    }

    /// What others have to give up connections for.
    fn demand(&self) -> u32 {
        match self.claims {
            true => self.wanted(),
            false => self.used().max(self.wanted().min(self.guaranteed)),
        }
    }

    /// Its part while nobody has more than `level`, but for what is guaranteed and what it cannot give up.
    fn part(&self, level: u32, guarantees_fit: bool) -> u32 {
        let bound = match guarantees_fit {
            true => self.guaranteed.max(level),
            false => self.guaranteed.min(level),
        };
        self.demand().min(bound).max(self.stuck)
    }
}

/// How many connections each may have.
pub(crate) fn allowances(budget: u32, members: &[Member]) -> Vec<u32> {
    let total =
        |level: u32, fit: bool| members.iter().map(|member| u64::from(member.part(level, fit))).sum::<u64>();
    let most = u64::from(budget);
    let fit = total(0, true) <= most;
    // The highest level that fits: between one that does (or is 0) and one that does not.
    let (mut level, mut above) = (0, budget.saturating_add(1));
    while above - level > 1 {
        let between = level + (above - level) / 2;
        if total(between, fit) <= most { level = between } else { above = between }
    }
    let mut allowed: Vec<u32> = members.iter().map(|member| member.part(level, fit)).collect();
    let mut spare = u32::try_from(most.saturating_sub(total(level, fit))).unwrap_or(0);
    let mut next: Vec<usize> = (0..members.len())
        .filter(|place| members[*place].part(level.saturating_add(1), fit) > allowed[*place])
        .collect();
    // Who has one more keeps it: nothing would be won by moving it. Where there is not one for each, all take turns.
    let keeps = |place: &usize| level > 0 && members[*place].held > allowed[*place];
    next.sort_by_key(|place| (!keeps(place), members[*place].begun));
    for place in next.into_iter().take(spare as usize) {
        allowed[place] += 1;
        spare -= 1;
    }
    hand_out_unused(members, &mut allowed, spare);
    allowed
}

/// What nobody has to give up: first come, first served, then kept by those who have it.
fn hand_out_unused(members: &[Member], allowed: &mut [u32], mut spare: u32) {
    let mut wanted = 0_u32;
    for (member, allowed) in members.iter().zip(allowed.iter_mut()) {
        let more = member.wanted().saturating_sub(*allowed).min(spare);
        *allowed += more;
        wanted = wanted.saturating_add(more);
    }
    spare = spare.saturating_sub(wanted);
    for (member, allowed) in members.iter().zip(allowed.iter_mut()) {
        let kept = member.held.saturating_sub(*allowed).min(spare);
        *allowed += kept;
        spare -= kept;
    }
    allowed.iter_mut().for_each(|allowed| *allowed = allowed.saturating_add(spare));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(held: u32, waiting: u32) -> Member {
        Member { held, waiting, claims: waiting > 0, ..Member::default() }
    }

    fn guaranteed(guaranteed: u32, member: Member) -> Member {
        Member { guaranteed, ..member }
    }

    #[test]
    fn who_waits_gets_as_much_as_who_has_all() {
        assert_eq!(allowances(20, &[busy(20, 500), busy(0, 500)]), [10, 10]);
        assert_eq!(allowances(20, &[busy(20, 500), busy(0, 3), busy(0, 500)]), [9, 3, 8]);
        assert_eq!(allowances(7, &[busy(3, 9), busy(4, 9)]), [3, 4], "what is left over stays where it is");
    }

    #[test]
    fn guarantees_come_first_and_only_while_they_are_asked_for() {
        let asks = guaranteed(12, busy(0, 30));
        assert_eq!(allowances(20, &[busy(20, 500), asks]), [8, 12]);
        let asks_less = guaranteed(12, busy(0, 2));
        assert_eq!(allowances(20, &[busy(20, 500), asks_less]), [18, 2]);
        assert_eq!(allowances(20, &[busy(20, 500), guaranteed(12, busy(0, 0))]), [20, 0]);
    }

    #[test]
    fn a_guarantee_does_not_have_to_be_claimed_and_what_is_above_it_does() {
        let unclaimed = |member: Member| Member { claims: false, ..member };
        let asks = guaranteed(4, unclaimed(busy(0, 30)));
        assert_eq!(allowances(20, &[unclaimed(busy(20, 500)), asks]), [16, 4]);
        assert_eq!(
            allowances(20, &[unclaimed(busy(14, 9)), unclaimed(busy(6, 0)), asks]),
            [10, 6, 4],
            "who has most gives"
        );
    }

    #[test]
    fn guarantees_that_do_not_fit_are_cut_alike() {
        let three = [guaranteed(8, busy(10, 9)), guaranteed(8, busy(0, 9)), guaranteed(2, busy(0, 9))];
        assert_eq!(allowances(10, &three), [4, 4, 2]);
    }

    #[test]
    fn what_cannot_be_given_up_is_not_counted_on() {
        let pinned = Member { stuck: 15, ..busy(15, 0) };
        assert_eq!(allowances(20, &[pinned, busy(5, 9), busy(0, 9)]), [15, 3, 2]);
        assert_eq!(allowances(20, &[pinned, busy(5, 0), guaranteed(4, busy(0, 9))]), [15, 1, 4]);
    }

    #[test]
    fn idle_connections_are_given_up_only_while_somebody_wants_them() {
        let idle = Member { idle: 8, ..busy(10, 0) };
        let late = |waiting| Member { claims: false, ..busy(10, waiting) };
        assert_eq!(allowances(20, &[idle, late(3)]), [7, 13]);
        assert_eq!(allowances(20, &[idle, late(30)]), [2, 18]);
        assert_eq!(allowances(25, &[idle, late(3)]), [12, 15], "there are more than enough");
    }

    #[test]
    fn where_there_is_not_one_for_each_all_take_turns() {
        let mut members: Vec<Member> =
            (0..5).map(|begun| Member { begun, ..busy(u32::from(begun >= 3), 9) }).collect();
        let mut served = [0; 5];
        for turn in 0..10 {
            let allowed = allowances(2, &members);
            assert_eq!(allowed.iter().sum::<u32>(), 2);
            for (place, member) in members.iter_mut().enumerate() {
                if allowed[place] > member.held {
                    member.begun = 5 + turn * 5 + place as u64;
                    served[place] += 1;
                }
                member.held = allowed[place];
            }
        }
        assert!(served.iter().all(|served| (3..=5).contains(served)), "{served:?}");
    }

    #[test]
    fn the_division_comes_to_rest() {
        let mut members = [busy(20, 30), busy(0, 7), guaranteed(5, busy(0, 9)), busy(0, 2)];
        let wanted = members.map(|member| member.wanted());
        let mut moved = 0;
        for _ in 0..10 {
            let allowed = allowances(20, &members);
            for (place, member) in members.iter_mut().enumerate() {
                moved += allowed[place].saturating_sub(member.held);
                member.held = allowed[place];
                member.waiting = wanted[place] - member.held;
            }
        }
        assert_eq!((members.map(|member| member.held), moved), ([6, 6, 6, 2], 14));
    }
}
