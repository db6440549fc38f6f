//! The queue of clients that wait for a server, in order of arrival.
//!
//! Owns first come, first served, with leaving from the middle at no cost. Clients that take any server and clients that
//! need a dedicated one wait in two lanes, so that neither blocks the other; clients that may not ask for a server yet, because their
//! request would pin it (`max_pinned`), wait in a third. Never knows what a waiter is.

use std::collections::VecDeque;

/// A place in the queue; valid until the waiter is served or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    lane: LaneKind,
    place: u64,
}

impl QueuePosition {
    /// It is among those that wait for a pin.
    #[must_use]
    pub fn is_for_pin(self) -> bool {
        self.lane == LaneKind::Pin
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKind {
    Shared,
    Dedicated,
    Pin,
}

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
    order: u64,
}

/// The waiting clients of a pool.
#[derive(Debug, Default)]
pub struct Queue {
    shared: Lane,
    dedicated: Lane,
    pins: Lane,
    arrivals: u64,
}

/// Waiters of one kind. One that left leaves a gap, which is skipped when it comes to the front.
#[derive(Debug, Default)]
struct Lane {
    places: VecDeque<Option<Waiter>>,
    first: u64,
    waiting: usize,
}

impl Queue {
    /// Joins at the end, for any server.
    ///
    /// ```
    /// let mut queue = weir_pool::Queue::default();
    /// let first = queue.join(7, 100);
    /// queue.join(8, 200);
    /// assert!(queue.leave(first) && !queue.leave(first));
    /// assert_eq!(queue.serve().map(|waiter| waiter.client), Some(8));
    /// assert!(queue.is_empty());
    /// ```
    pub fn join(&mut self, client: u32, since_us: u64) -> QueuePosition {
        self.push(client, since_us, LaneKind::Shared)
    }

    /// Joins at the end, for a dedicated server; the client leaves the queue when it has one.
    pub fn join_dedicated(&mut self, client: u32, since_us: u64) -> QueuePosition {
        self.push(client, since_us, LaneKind::Dedicated)
    }

    /// Joins the end of those that wait for a pin; a client that gets one joins for a server then.
    pub fn join_for_pin(&mut self, client: u32, since_us: u64) -> QueuePosition {
        self.push(client, since_us, LaneKind::Pin)
    }

    fn push(&mut self, client: u32, since_us: u64, lane: LaneKind) -> QueuePosition {
        self.arrivals += 1;
        let dedicated = lane == LaneKind::Dedicated;
        let waiter = Waiter { client, since_us, dedicated, order: self.arrivals };
        QueuePosition { lane, place: self.lane_mut(lane).push(waiter) }
    }

    fn lane_mut(&mut self, lane: LaneKind) -> &mut Lane {
        match lane {
            LaneKind::Shared => &mut self.shared,
            LaneKind::Dedicated => &mut self.dedicated,
            LaneKind::Pin => &mut self.pins,
        }
    }

    /// Leaves before being served; false if it was served or has left.
    pub fn leave(&mut self, position: QueuePosition) -> bool {
        self.lane_mut(position.lane).leave(position.place)
    }

    /// The client that has waited longest for a server.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Waiter> {
        match (self.shared.front(), self.dedicated.front()) {
            (Some(shared), Some(dedicated)) if dedicated.order < shared.order => Some(dedicated),
            (None, dedicated) => dedicated,
            (shared, _) => shared,
        }
    }

    /// The client that has waited longest for any server.
    #[must_use]
    pub fn front_shared(&self) -> Option<Waiter> {
        self.shared.front()
    }

    /// The client that has waited longest for a dedicated server.
    #[must_use]
    pub fn front_dedicated(&self) -> Option<Waiter> {
        self.dedicated.front()
    }

    /// The client that has waited longest for a pin.
    #[must_use]
    pub fn front_pin(&self) -> Option<Waiter> {
        self.pins.front()
    }

    /// Removes the client that has waited longest for a pin.
    pub fn serve_pin(&mut self) -> Option<Waiter> {
        self.pins.serve()
    }

    /// All clients that wait for a pin, oldest first.
    pub fn pins(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.pins.iter()
    }

    /// The number of clients that wait for a pin.
    #[must_use]
    pub fn pins_len(&self) -> usize {
        self.pins.waiting
    }

    /// Removes the client that has waited longest for any server.
    pub fn serve(&mut self) -> Option<Waiter> {
        self.shared.serve()
    }

    /// All clients that take any server, oldest first.
    pub fn shared(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.shared.iter()
    }

    /// All clients that need a dedicated server, oldest first.
    pub fn dedicated(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.dedicated.iter()
    }

    /// The number of clients that wait for any server.
    #[inline]
    #[must_use]
    pub fn shared_len(&self) -> usize {
        self.shared.waiting
    }

    /// The number of clients that wait for a server.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.waiting + self.dedicated.waiting
    }

    /// No client waits for a server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Lane {
    fn push(&mut self, waiter: Waiter) -> u64 {
        let place = self.first + self.places.len() as u64;
        self.places.push_back(Some(waiter));
        self.waiting += 1;
        place
    }

    fn leave(&mut self, place: u64) -> bool {
        let place = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(place) = place.and_then(|index| self.places.get_mut(index)) else { return false };
        let left = place.take().is_some();
        self.waiting -= usize::from(left);
        self.close_gaps();
        left
    }

    #[inline]
    fn front(&self) -> Option<Waiter> {
        self.places.front().copied().flatten()
    }

    fn serve(&mut self) -> Option<Waiter> {
        let waiter = self.places.front_mut().and_then(Option::take);
        self.waiting -= usize::from(waiter.is_some());
        self.close_gaps();
        waiter
    }

    fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.places.iter().copied().flatten()
    }

    fn close_gaps(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut queue = Queue::default();
        for client in 1..=3 {
            queue.join(client, u64::from(client));
        }
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(1));
        assert_eq!(queue.front().map(|waiter| waiter.client), Some(2));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_waiter_for_a_dedicated_server_blocks_no_other() {
        let mut queue = Queue::default();
        let own = queue.join_dedicated(1, 0);
        queue.join(2, 0);
        let last = queue.join(3, 0);
        assert_eq!(queue.front().map(|waiter| waiter.client), Some(1), "by arrival over both");
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(2));
        assert_eq!(queue.front_dedicated().map(|waiter| waiter.client), Some(1));
        assert_eq!(queue.front_shared().map(|waiter| waiter.client), Some(3));
        assert!(queue.leave(last));
        assert_eq!(queue.serve(), None);
        assert_eq!((queue.len(), queue.shared_len()), (1, 0));
        assert!(queue.leave(own));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waiter_for_a_pin_asks_for_no_server() {
        let mut queue = Queue::default();
        let first = queue.join_for_pin(1, 0);
        let second = queue.join_for_pin(2, 5);
        assert_eq!((queue.len(), queue.pins_len(), queue.front()), (0, 2, None));
        assert!(queue.leave(first));
        assert_eq!(queue.serve_pin().map(|waiter| (waiter.client, waiter.since_us)), Some((2, 5)));
        assert!(!queue.leave(second), "was served");
        assert_eq!(queue.front_pin(), None);
    }

    #[test]
    fn leaving_from_the_middle_keeps_the_order() {
        let mut queue = Queue::default();
        let first = queue.join(1, 0);
        let second = queue.join(2, 0);
        let third = queue.join(3, 0);
        assert!(queue.leave(second));
        assert!(!queue.leave(second), "only once");
        assert!(queue.leave(first));
        assert_eq!(queue.front().map(|waiter| waiter.client), Some(3));
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(3));
        assert!(!queue.leave(third), "was served");
        assert!(queue.is_empty());
    }
}
