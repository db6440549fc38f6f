//! Clients that wait for a server in a fair queue: each subject's in the order of their arrival (and of their classes), and of all subjects the one that has had least comes next.
//!
//! Owns that order and leaving from the middle. How much a subject has had is [`FairShare`]'s to say, and may change on other shards meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use settings::Priority;

use crate::FairShare;
use crate::class_lanes::{ClassLanes, ClassPlace};
use crate::lane::Waiter;

/// How many more arrivals of waiters that are gone than of those that wait are kept.
const FEW_GONE: usize = 64;

/// A place in the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FairPlace {
    subject: u32,
    place: ClassPlace,
}

/// The lane.
#[derive(Debug, Default)]
pub(crate) struct FairLane {
    /// Those that wait, by the numbers of their subjects.
    subjects: BTreeMap<u32, Subject>,
    /// The same by what each had when it was looked at last; it may have had more since.
    by_counted: BTreeSet<(u64, u32)>,
    /// All that wait, oldest first, and some that are gone.
    arrivals: VecDeque<FairPlace>,
    waiting: usize,
    /// No place is below this one that was given to a subject that is gone.
    next_place: u64,
}

#[derive(Debug)]
struct Subject {
    share: Arc<FairShare>,
    lane: ClassLanes,
    /// Its key in `by_counted`.
    counted: u64,
}

impl FairLane {
    /// Joins behind the others of the same subject and class.
    pub(crate) fn join(
        &mut self,
        waiter: Waiter,
        class: Priority,
        share: &Arc<FairShare>,
        burst_us: u64,
    ) -> FairPlace {
        let number = share.number();
        let subject = self.subjects.entry(number).or_insert_with(|| {
            share.catch_up(burst_us);
            let counted = share.counted();
            self.by_counted.insert((counted, number));
            Subject { share: Arc::clone(share), lane: ClassLanes::beginning_at(self.next_place), counted }
        });
        let place = FairPlace { subject: number, place: subject.lane.push(waiter, class) };
        self.next_place = self.next_place.max(place.place.place + 1);
        self.waiting += 1;
        self.arrivals.push_back(place);
        place
    }

    /// Leaves before being served; false if it was served or has left.
    pub(crate) fn leave(&mut self, place: FairPlace) -> bool {
        let Some(subject) = self.subjects.get_mut(&place.subject) else { return false };
        let has_left = subject.lane.leave(place.place);
        if has_left {
            self.one_less(place.subject);
        }
        has_left
    }

    /// Removes the oldest of the subject that has had least.
    pub(crate) fn serve(&mut self) -> Option<Waiter> {
        loop {
            let (counted, number) = *self.by_counted.first()?;
            let subject = self.subjects.get_mut(&number)?;
            let counts_now = subject.share.counted();
            if counts_now > counted {
                subject.counted = counts_now;
                self.by_counted.pop_first();
                self.by_counted.insert((counts_now, number));
                continue;
            }
            subject.share.leads();
            let waiter = subject.lane.serve()?;
            self.one_less(number);
            return Some(waiter);
        }
    }

    /// What this subject has had turned out to be less: its turn comes earlier.
    pub(crate) fn corrected(&mut self, share: &FairShare) {
        let number = share.number();
        let Some(subject) = self.subjects.get_mut(&number) else { return };
        let counts_now = share.counted();
        if counts_now < subject.counted {
            self.by_counted.remove(&(subject.counted, number));
            self.by_counted.insert((counts_now, number));
            subject.counted = counts_now;
        }
    }

    /// The same of all subjects.
    pub(crate) fn look_again(&mut self) {
        for (number, subject) in &mut self.subjects {
            let counts_now = subject.share.counted();
            if counts_now < subject.counted {
                self.by_counted.remove(&(subject.counted, *number));
                self.by_counted.insert((counts_now, *number));
                subject.counted = counts_now;
            }
        }
    }

    /// The client that has waited longest.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<Waiter> {
        self.at(*self.arrivals.front()?)
    }

    /// All, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.arrivals.iter().filter_map(|place| self.at(*place))
    }

    /// How many wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.arrivals.len()
    }

    fn at(&self, place: FairPlace) -> Option<Waiter> {
        self.subjects.get(&place.subject)?.lane.at(place.place)
    }

    fn one_less(&mut self, number: u32) {
        self.waiting -= 1;
        if let Some(subject) = self.subjects.get(&number)
            && subject.lane.is_empty()
        {
            self.by_counted.remove(&(subject.counted, number));
            self.subjects.remove(&number);
        }
        while let Some(first) = self.arrivals.front()
            && self.at(*first).is_none()
        {
            self.arrivals.pop_front();
        }
        if self.arrivals.len() > 2 * self.waiting + FEW_GONE {
            let mut arrivals = std::mem::take(&mut self.arrivals);
            arrivals.retain(|place| self.at(*place).is_some());
            self.arrivals = arrivals;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use settings::{Priority, QueueBy};

    use crate::{FairShare, FairShares, Queue};

    /// One server, and what each of the subjects has had of it after this many turns while all of them wait with this many clients.
    fn served(weights: &[u32], waiting: &[usize], costs_us: &[u64], turns: usize) -> Vec<u64> {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let share = |shares: &mut FairShares, place: usize| {
            shares.share(&pool, QueueBy::User, &place.to_string(), weights[place])
        };
        for (place, count) in waiting.iter().enumerate() {
            let share = share(&mut shares, place);
            for _ in 0..*count {
                queue.join_fair(u32::try_from(place).unwrap_or(0), 0, Priority::Normal, (&share, 0));
            }
        }
        let (mut now_us, mut had) = (0, vec![0; weights.len()]);
        for _ in 0..turns {
            let Some(waiter) = queue.serve() else { break };
            let place = waiter.client as usize;
            let share = share(&mut shares, place);
            let turn = FairShare::begin(&share, now_us, false);
            now_us += costs_us[place];
            had[place] += costs_us[place];
            turn.end(now_us);
            queue.corrected(&share);
            queue.join_fair(waiter.client, now_us, Priority::Normal, (&share, 0));
        }
        had
    }

    #[test]
    fn each_subject_gets_the_same_time_however_many_of_it_wait() {
        let had = served(&[1, 1, 1], &[500, 5, 1], &[1_000, 1_000, 1_000], 3_000);
        assert!(had.iter().all(|time| time.abs_diff(1_000_000) <= 2_000), "{had:?}");
    }

    #[test]
    fn time_counts_and_not_turns() {
        let had = served(&[1, 1], &[50, 50], &[10_000, 500], 5_000);
        assert!(had[0].abs_diff(had[1]) <= 20_000, "{had:?}");
    }

    #[test]
    fn weights_divide_it() {
        let had = served(&[3, 1], &[9, 9], &[1_000, 1_000], 4_000);
        assert!(had[0].abs_diff(3 * had[1]) <= 6_000, "{had:?}");
    }

    #[test]
    fn who_leaves_leaves_no_gap_and_no_place_is_given_twice() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let (a, b) = (shares.share(&pool, QueueBy::User, "a", 1), shares.share(&pool, QueueBy::User, "b", 1));
        let first = queue.join_fair(1, 10, Priority::Normal, (&a, 0));
        let second = queue.join_fair(2, 20, Priority::Normal, (&b, 0));
        queue.join_fair(3, 30, Priority::Normal, (&a, 0));
        assert_eq!(queue.front_shared().map(|waiter| waiter.client), Some(1));
        assert!(queue.leave(first) && !queue.leave(first));
        assert_eq!(queue.shared().map(|waiter| waiter.client).collect::<Vec<_>>(), [2, 3]);
        assert!(queue.leave(second));
        let again = queue.join_fair(4, 40, Priority::Normal, (&b, 0));
        assert!(!queue.leave(second), "its subject waits again, and it does not");
        assert_eq!((queue.len(), queue.shared_len()), (2, 2));
        assert!(queue.leave(again));
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(3));
        assert_eq!((queue.serve(), queue.is_empty()), (None, true));
    }

    #[test]
    fn a_subject_that_is_new_does_not_get_all_servers_before_its_turns_have_cost_anything() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let (old, new) =
            (shares.share(&pool, QueueBy::User, "old", 1), shares.share(&pool, QueueBy::User, "new", 1));
        FairShare::begin(&old, 0, false).end(10_000);
        for _ in 0..20 {
            queue.join_fair(1, 10_000, Priority::Normal, (&old, 0));
            queue.join_fair(2, 10_000, Priority::Normal, (&new, 0));
        }
        let turns: Vec<_> = (0..10)
            .filter_map(|_| {
                let waiter = queue.serve()?;
                let turn = FairShare::begin(if waiter.client == 1 { &old } else { &new }, 10_000, false);
                Some((waiter.client, turn))
            })
            .collect();
        let of_new = turns.iter().filter(|(client, _)| *client == 2).count();
        assert!((5..=6).contains(&of_new), "{of_new} of 10");
    }

    #[test]
    fn a_turn_that_ends_elsewhere_earlier_than_estimated_is_seen_here() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let (a, b) = (shares.share(&pool, QueueBy::User, "a", 1), shares.share(&pool, QueueBy::User, "b", 1));
        FairShare::begin(&a, 0, false).end(10_000_000);
        FairShare::begin(&b, 0, false).end(10_500_000);
        let elsewhere = FairShare::begin(&a, 10_500_000, false);
        queue.join_fair(1, 10_500_000, Priority::Normal, (&a, 0));
        queue.join_fair(2, 10_500_000, Priority::Normal, (&b, 0));
        elsewhere.end(10_500_001);
        queue.look_again();
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(1));
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(2));
        assert!(queue.serve().is_none() && queue.is_empty());
    }

    #[test]
    fn a_light_subject_is_served_beside_a_heavy_one_in_bounded_time() {
        let had = served(&[1, 1_000], &[1, 500], &[1_000, 1_000], 3_003);
        assert!((2_000..=4_000).contains(&had[0]), "{had:?}");
    }

    #[test]
    fn who_has_no_subject_comes_first_and_all_can_change_over() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let share = shares.share(&pool, QueueBy::User, "a", 1);
        queue.join_fair(1, 10, Priority::Normal, (&share, 0));
        queue.join(2, 20);
        queue.join_fair(3, 30, Priority::Normal, (&share, 0));
        assert_eq!(queue.front_shared().map(|waiter| waiter.client), Some(1), "it has waited longest");
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(2));
        assert_eq!(queue.take_fair().iter().map(|waiter| waiter.client).collect::<Vec<_>>(), [1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn one_that_waits_long_keeps_no_memory_of_those_that_were_served() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let (heavy, light) = (
            shares.share(&pool, QueueBy::User, "heavy", 1),
            shares.share(&pool, QueueBy::User, "light", 1_000),
        );
        FairShare::begin(&heavy, 0, false).end(1_000_000_000);
        queue.join_fair(1, 0, Priority::Normal, (&heavy, 0));
        for _ in 0..10_000 {
            queue.join_fair(2, 0, Priority::Normal, (&light, u64::MAX));
            assert_eq!(queue.serve().map(|waiter| waiter.client), Some(2));
        }
        assert!(queue.remembered() < 200, "{}", queue.remembered());
    }

    #[test]
    fn a_subject_that_calls_all_of_its_clients_high_gets_no_more_than_others() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let subjects = ["hostile", "other"].map(|name| shares.share(&pool, QueueBy::User, name, 1));
        let classes = [Priority::High, Priority::Low];
        for client in 0..2 {
            for _ in 0..50 {
                queue.join_fair(client, 0, classes[client as usize], (&subjects[client as usize], 0));
            }
        }
        let mut turns = [0, 0];
        for now_us in (0..1_000_000).step_by(1_000) {
            let Some(waiter) = queue.serve() else { break };
            let place = waiter.client as usize;
            turns[place] += 1;
            FairShare::begin(&subjects[place], now_us, false).end(now_us + 1_000);
            queue.join_fair(waiter.client, now_us, classes[place], (&subjects[place], 0));
        }
        assert_eq!(turns, [500, 500]);
    }

    #[test]
    fn within_a_subject_classes_count() {
        let (mut shares, mut queue, pool) = (FairShares::default(), Queue::default(), Arc::default());
        let share = shares.share(&pool, QueueBy::User, "a", 1);
        queue.join_fair(1, 0, Priority::Low, (&share, 0));
        let gone = queue.join_fair(2, 10, Priority::High, (&share, 0));
        queue.join_fair(3, 20, Priority::Normal, (&share, 0));
        queue.join_fair(4, 30, Priority::High, (&share, 0));
        assert!(queue.leave(gone) && !queue.leave(gone));
        assert_eq!(queue.front_shared().map(|waiter| waiter.client), Some(1));
        let order: Vec<_> = std::iter::from_fn(|| queue.serve()).map(|waiter| waiter.client).collect();
        assert_eq!(order, [4, 3, 1]);
    }
}
