//! The queue of clients that wait for a server, in order of arrival, or by shares of their subjects (`queue = fair`).
//!
//! Owns first come, first served, with leaving from the middle at no cost. Clients that take any server and clients that
//! need a dedicated one wait in two lanes, so that neither blocks the other; clients that may not ask for a server yet, because their
//! request would pin it (`max_pinned`), wait in a third; those of subjects with shares in a fourth (`fair_lane`). Never knows what a waiter is.

use std::sync::Arc;

use settings::Priority;

use crate::FairShare;
use crate::class_lanes::{ClassLanes, ClassPlace};
use crate::fair_lane::{FairLane, FairPlace};
use crate::lane::{Lane, Waiter};

/// A place in the queue; valid until the waiter is served or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition(Position);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Shared(ClassPlace),
    InLane { lane: LaneKind, place: u64 },
    Fair(FairPlace),
}

impl QueuePosition {
    /// It is among those that wait for a pin.
    #[must_use]
    pub fn is_for_pin(self) -> bool {
        matches!(self.0, Position::InLane { lane: LaneKind::Pin, .. })
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKind {
    Dedicated,
    Pin,
}

/// The waiting clients of a pool.
#[derive(Debug, Default)]
pub struct Queue {
    shared: ClassLanes,
    dedicated: Lane,
    pins: Lane,
    /// Those that wait for any server by the shares of their subjects, if some have.
    fair: Option<Box<FairLane>>,
    /// Since when clients have waited for servers without a pause.
    standing_since_us: u64,
    arrivals: u64,
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
        self.join_as(client, since_us, Priority::Normal)
    }

    /// Joins at the end of a class, for any server.
    #[inline]
    pub fn join_as(&mut self, client: u32, since_us: u64, class: Priority) -> QueuePosition {
        let waiter = self.arrives(client, since_us, false);
        QueuePosition(Position::Shared(self.shared.push(waiter, class)))
    }

    /// Joins at the end, for a dedicated server; the client leaves the queue when it has one.
    pub fn join_dedicated(&mut self, client: u32, since_us: u64) -> QueuePosition {
        self.push(client, since_us, LaneKind::Dedicated)
    }

    /// Joins the end of those that wait for a pin; a client that gets one joins for a server then.
    pub fn join_for_pin(&mut self, client: u32, since_us: u64) -> QueuePosition {
        self.push(client, since_us, LaneKind::Pin)
    }

    /// Joins for any server, behind the others of the same subject and class.
    pub fn join_fair(
        &mut self,
        client: u32,
        since_us: u64,
        class: Priority,
        (share, burst_us): (&Arc<FairShare>, u64),
    ) -> QueuePosition {
        let waiter = self.arrives(client, since_us, false);
        QueuePosition(Position::Fair(self.fair.get_or_insert_default().join(waiter, class, share, burst_us)))
    }

    fn push(&mut self, client: u32, since_us: u64, lane: LaneKind) -> QueuePosition {
        let waiter = self.arrives(client, since_us, lane == LaneKind::Dedicated);
        QueuePosition(Position::InLane { lane, place: self.lane_mut(lane).push(waiter) })
    }

    fn arrives(&mut self, client: u32, since_us: u64, dedicated: bool) -> Waiter {
        if self.is_empty() {
            self.standing_since_us = since_us;
        }
        self.arrivals += 1;
        Waiter { client, since_us, dedicated, order: self.arrivals }
    }

    fn lane_mut(&mut self, lane: LaneKind) -> &mut Lane {
        match lane {
            LaneKind::Dedicated => &mut self.dedicated,
            LaneKind::Pin => &mut self.pins,
        }
    }

    /// A client has joined now that has waited elsewhere before: the queue has stood since now at most, if it was empty.
    pub fn has_joined(&mut self, now_us: u64) {
        if self.len() == 1 {
            self.standing_since_us = now_us;
        }
    }

    /// What subjects have had may have turned out to be less, by turns that have ended in other pools and on other shards.
    pub fn look_again(&mut self) {
        if let Some(fair) = &mut self.fair {
            fair.look_again();
        }
    }

    /// Leaves before being served; false if it was served or has left.
    pub fn leave(&mut self, position: QueuePosition) -> bool {
        match position.0 {
            Position::Shared(place) => self.shared.leave(place),
            Position::InLane { lane, place } => self.lane_mut(lane).leave(place),
            Position::Fair(place) => self.fair.as_mut().is_some_and(|lane| lane.leave(place)),
        }
    }

    /// Removes all that wait by the shares of their subjects, oldest first.
    pub fn take_fair(&mut self) -> Vec<Waiter> {
        self.fair.take().map_or_else(Vec::new, |fair| fair.iter().collect())
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.fair.as_ref().map_or(0, |fair| fair.remembered())
    }

    /// A turn of this subject has ended: what was estimated of it may have been too much.
    pub fn corrected(&mut self, share: &FairShare) {
        if let Some(fair) = &mut self.fair {
            fair.corrected(share);
        }
    }

    /// The client that has waited longest for a server.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Waiter> {
        match (self.front_shared(), self.dedicated.front()) {
            (Some(shared), Some(dedicated)) if dedicated.order < shared.order => Some(dedicated),
            (None, dedicated) => dedicated,
            (shared, _) => shared,
        }
    }

    /// Since when clients have waited for servers without a pause, while some do.
    #[must_use]
    pub fn standing_since_us(&self) -> u64 {
        self.standing_since_us
    }

    /// The client that has waited longest for any server.
    #[must_use]
    pub fn front_shared(&self) -> Option<Waiter> {
        let fair = self.fair.as_ref().and_then(|fair| fair.oldest());
        match (self.shared.front(), fair) {
            (Some(shared), Some(fair)) if fair.order < shared.order => Some(fair),
            (None, fair) => fair,
            (shared, _) => shared,
        }
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

    /// Removes the client whose turn it is for any server: the one that has waited longest or, where shares count, the oldest of the subject that has had
    /// least. Who has joined without a subject comes before those.
    pub fn serve(&mut self) -> Option<Waiter> {
        let own = self.shared.serve();
        if own.is_some() {
            return own;
        }
        self.fair.as_mut()?.serve()
    }

    /// All clients that take any server, oldest first; those with subjects behind those without.
    pub fn shared(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.shared.iter().chain(self.fair.iter().flat_map(|fair| fair.iter()))
    }

    /// All clients that need a dedicated server, oldest first.
    pub fn dedicated(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.dedicated.iter()
    }

    /// The number of clients that wait for any server.
    #[inline]
    #[must_use]
    pub fn shared_len(&self) -> usize {
        self.shared.waiting() + self.fair.as_ref().map_or(0, |fair| fair.waiting())
    }

    /// The number of clients that wait for a server.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared_len() + self.dedicated.waiting
    }

    /// No client waits for a server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
