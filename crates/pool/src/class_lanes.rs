//! Waiting clients of several classes (`queue_priority`): within a class in the order of their arrival, and between classes as if the lower ones had come later.
//!
//! Owns how much later that is, by which nobody starves: what has waited for so long comes before whoever comes then, whatever its class.

use settings::Priority;

use crate::lane::{Lane, Waiter};

/// A client of class normal is served as if it had come so much later.
const NORMAL_US: u64 = 1_000_000;

/// One of class low.
const LOW_US: u64 = 5_000_000;

/// A place in one of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassPlace {
    class: Priority,
    pub(crate) place: u64,
}

/// A lane for each class. Where no classes are, there is one.
#[derive(Debug, Default)]
pub(crate) struct ClassLanes {
    normal: Lane,
    others: Option<Box<Others>>,
    /// Where lanes count their places from.
    first: u64,
}

#[derive(Debug)]
struct Others {
    high: Lane,
    low: Lane,
}

impl ClassLanes {
    /// Such whose places are counted from there on.
    pub(crate) fn beginning_at(first: u64) -> ClassLanes {
        ClassLanes { normal: Lane::beginning_at(first), others: None, first }
    }

    #[inline]
    pub(crate) fn push(&mut self, waiter: Waiter, class: Priority) -> ClassPlace {
        let lane = match class {
            Priority::Normal => &mut self.normal,
            class => self.others(class),
        };
        ClassPlace { class, place: lane.push(waiter) }
    }

    #[cold]
    fn others(&mut self, class: Priority) -> &mut Lane {
        let lane = || Lane::beginning_at(self.first);
        let others = self.others.get_or_insert_with(|| Box::new(Others { high: lane(), low: lane() }));
        if class == Priority::High { &mut others.high } else { &mut others.low }
    }

    pub(crate) fn leave(&mut self, place: ClassPlace) -> bool {
        self.lane_mut(place.class).is_some_and(|lane| lane.leave(place.place))
    }

    /// Who waits at a place, if it has not been served and has not left.
    pub(crate) fn at(&self, place: ClassPlace) -> Option<Waiter> {
        self.lane(place.class)?.at(place.place)
    }

    /// Removes the client that comes next.
    #[inline]
    pub(crate) fn serve(&mut self) -> Option<Waiter> {
        match self.others {
            None => self.normal.serve(),
            Some(_) => self.serve_by_class(),
        }
    }

    #[cold]
    fn serve_by_class(&mut self) -> Option<Waiter> {
        const LATER: [(Priority, u64); 3] =
            [(Priority::High, 0), (Priority::Normal, NORMAL_US), (Priority::Low, LOW_US)];
        let due = |(class, later_us): &(Priority, u64)| {
            let waiter = self.lane(*class)?.front()?;
            Some((waiter.since_us.saturating_add(*later_us), waiter.order, *class))
        };
        let (_, _, class) =
            LATER.iter().filter_map(due).min_by_key(|(due_us, order, _)| (*due_us, *order))?;
        let served = self.lane_mut(class)?.serve();
        if self.others.as_ref().is_some_and(|others| others.high.is_empty() && others.low.is_empty()) {
            self.close_others();
        }
        served
    }

    /// No place is given twice: the lanes begin behind those that were there.
    fn close_others(&mut self) {
        if let Some(others) = self.others.take() {
            self.first = self.first.max(others.high.next_place()).max(others.low.next_place());
        }
    }

    /// The client that has waited longest.
    #[inline]
    pub(crate) fn front(&self) -> Option<Waiter> {
        match &self.others {
            None => self.normal.front(),
            Some(others) => {
                let fronts = [self.normal.front(), others.high.front(), others.low.front()];
                fronts.into_iter().flatten().min_by_key(|waiter| waiter.order)
            }
        }
    }

    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.normal.waiting
            + self.others.as_ref().map_or(0, |others| others.high.waiting + others.low.waiting)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// All of class high, then normal, then low; of each oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        let others = self.others.as_deref();
        let high = others.into_iter().flat_map(|others| others.high.iter());
        high.chain(self.normal.iter()).chain(others.into_iter().flat_map(|others| others.low.iter()))
    }

    fn lane(&self, class: Priority) -> Option<&Lane> {
        match class {
            Priority::Normal => Some(&self.normal),
            Priority::High => self.others.as_ref().map(|others| &others.high),
            Priority::Low => self.others.as_ref().map(|others| &others.low),
        }
    }

    fn lane_mut(&mut self, class: Priority) -> Option<&mut Lane> {
        match class {
            Priority::Normal => Some(&mut self.normal),
            Priority::High => self.others.as_mut().map(|others| &mut others.high),
            Priority::Low => self.others.as_mut().map(|others| &mut others.low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(client: u32, since_us: u64) -> Waiter {
        Waiter { client, since_us, dedicated: false, order: since_us }
    }

    fn served(lanes: &mut ClassLanes) -> Vec<u32> {
        std::iter::from_fn(|| lanes.serve()).map(|waiter| waiter.client).collect()
    }

    #[test]
    fn higher_classes_come_first_and_each_in_its_order() {
        let mut lanes = ClassLanes::default();
        let classes = [Priority::Low, Priority::Normal, Priority::High];
        for client in 1..=6 {
            lanes.push(waiter(client, u64::from(client)), classes[client as usize % 3]);
        }
        assert_eq!(lanes.front().map(|waiter| waiter.client), Some(1), "it has waited longest");
        assert_eq!(lanes.waiting(), 6);
        assert_eq!(served(&mut lanes), [2, 5, 1, 4, 3, 6]);
        assert!(lanes.is_empty());
    }

    #[test]
    fn who_has_waited_long_comes_before_who_comes_then() {
        let mut lanes = ClassLanes::default();
        lanes.push(waiter(1, 0), Priority::Low);
        lanes.push(waiter(2, 3_999_999), Priority::Normal);
        lanes.push(waiter(3, 4_000_001), Priority::Normal);
        lanes.push(waiter(4, 4_999_999), Priority::High);
        lanes.push(waiter(5, 5_000_001), Priority::High);
        assert_eq!(served(&mut lanes), [2, 4, 1, 3, 5]);
    }

    #[test]
    fn a_low_one_is_served_beside_high_ones_without_end() {
        let mut lanes = ClassLanes::default();
        lanes.push(waiter(1, 0), Priority::Low);
        let at_us = (0..10_000_u64).map(|turn| turn * 1_000).find(|now_us| {
            lanes.push(waiter(2, *now_us), Priority::High);
            lanes.serve().is_some_and(|waiter| waiter.client == 1)
        });
        assert_eq!(at_us, Some(LOW_US));
    }

    #[test]
    fn a_place_is_left_once_and_never_given_twice() {
        let mut lanes = ClassLanes::default();
        let first = lanes.push(waiter(1, 0), Priority::High);
        assert_eq!(lanes.at(first).map(|waiter| waiter.client), Some(1));
        assert_eq!(served(&mut lanes), [1]);
        let second = lanes.push(waiter(2, 0), Priority::High);
        assert!(first != second && !lanes.leave(first));
        assert!(lanes.leave(second) && !lanes.leave(second));
        lanes.push(waiter(3, 0), Priority::Normal);
        let low = lanes.push(waiter(4, 0), Priority::Low);
        assert_eq!(served(&mut lanes), [3, 4]);
        assert_ne!(lanes.push(waiter(5, 0), Priority::Low), low);
    }
}
