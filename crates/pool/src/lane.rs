//! Waiting clients in the order of their arrival, with leaving from the middle at no cost.

use std::collections::VecDeque;

/// A waiting client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The client's number, as given by its owner.
    pub client: u32,
    /// Start of the wait, in microseconds of the monotonic clock.
    pub since_us: u64,
    /// It takes no existing server, only one opened for it alone.
    pub dedicated: bool,
    /// Counts arrivals over both lanes.
    pub(crate) order: u64,
}

/// Waiters of one kind. One that left leaves a gap, which is skipped when it comes to the front.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    places: VecDeque<Option<Waiter>>,
    first: u64,
    pub(crate) waiting: usize,
}

impl Lane {
    /// One whose places are counted from there on.
    pub(crate) fn beginning_at(first: u64) -> Lane {
        Lane { first, ..Lane::default() }
    }

    /// The place that comes next.
    pub(crate) fn next_place(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    pub(crate) fn push(&mut self, waiter: Waiter) -> u64 {
        let place = self.next_place();
        self.places.push_back(Some(waiter));
        self.waiting += 1;
        place
    }

    pub(crate) fn leave(&mut self, place: u64) -> bool {
        let place = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(place) = place.and_then(|index| self.places.get_mut(index)) else { return false };
        let left = place.take().is_some();
        self.waiting -= usize::from(left);
        self.close_gaps();
        left
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<Waiter> {
        self.places.front().copied().flatten()
    }

    /// Who waits at a place, if it has not been served and has not left.
    pub(crate) fn at(&self, place: u64) -> Option<Waiter> {
        let index = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok())?;
        self.places.get(index).copied().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) fn serve(&mut self) -> Option<Waiter> {
        let waiter = self.places.front_mut().and_then(Option::take);
        self.waiting -= usize::from(waiter.is_some());
        self.close_gaps();
        waiter
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.places.iter().copied().flatten()
    }

    fn close_gaps(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}
