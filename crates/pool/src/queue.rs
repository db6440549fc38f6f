//! Who waits for a server, in order of arrival.
//!
//! Owns first come, first served, with leaving from the middle at no cost. Never knows what a waiter is.

use std::collections::VecDeque;

/// A place in the queue; valid until the waiter is served or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// One who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The client, by the number that its owner gave it.
    pub client: u32,
    /// Since when, in microseconds of the monotonic clock.
    pub since_us: u64,
    /// It takes no server that is there, only one opened for it alone.
    pub dedicated: bool,
}

/// The queue. A waiter that left leaves a gap, which is skipped when it comes to the front.
#[derive(Debug, Default)]
pub struct Queue {
    places: VecDeque<Option<Waiter>>,
    first: u64,
    waiting: usize,
}

impl Queue {
    /// Joins at the end, for any server.
    pub fn join(&mut self, client: u32, since_us: u64) -> Ticket {
        self.push(Waiter { client, since_us, dedicated: false })
    }

    /// Joins at the end, for a server of its own; it leaves when it has one.
    pub fn join_dedicated(&mut self, client: u32, since_us: u64) -> Ticket {
        self.push(Waiter { client, since_us, dedicated: true })
    }

    fn push(&mut self, waiter: Waiter) -> Ticket {
        let ticket = Ticket(self.first + self.places.len() as u64);
        self.places.push_back(Some(waiter));
        self.waiting += 1;
        ticket
    }

    /// Leaves before being served; false if it was served or has left.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let place = ticket.0.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(place) = place.and_then(|index| self.places.get_mut(index)) else { return false };
        let left = place.take().is_some();
        self.waiting -= usize::from(left);
        #[cfg(weir_bug = "waiter_lost")]
        if left && let Some(Some(next)) = self.places.iter_mut().find(|place| place.is_some()) {
            let _ = next;
            self.places.iter_mut().find(|place| place.is_some()).map(Option::take);
            self.waiting -= 1;
        }
        self.close_gaps();
        left
    }

    /// The one that has waited longest.
    #[must_use]
    pub fn front(&self) -> Option<Waiter> {
        self.places.front().copied().flatten()
    }

    /// Serves the one that has waited longest of those who take any server.
    pub fn serve(&mut self) -> Option<Waiter> {
        let fits = |place: &&mut Option<Waiter>| place.is_some_and(|waiter| !waiter.dedicated);
        let waiter = self.places.iter_mut().find(fits).and_then(Option::take);
        self.waiting -= usize::from(waiter.is_some());
        self.close_gaps();
        waiter
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.places.iter().copied().flatten()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
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
    fn who_waits_for_a_server_of_its_own_is_passed_over() {
        let mut queue = Queue::default();
        let own = queue.join_dedicated(1, 0);
        queue.join(2, 0);
        let last = queue.join(3, 0);
        assert_eq!(queue.serve().map(|waiter| waiter.client), Some(2));
        assert_eq!(queue.front().map(|waiter| (waiter.client, waiter.dedicated)), Some((1, true)));
        assert!(queue.leave(last));
        assert_eq!(queue.serve(), None);
        assert_eq!(queue.len(), 1);
        assert!(queue.leave(own));
        assert!(queue.is_empty());
    }

    #[test]
    fn leaving_from_the_middle_moves_nobody() {
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
