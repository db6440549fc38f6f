//! Simulated time and what is to happen in it, in one order that a seed fixes.
//!
//! Time jumps from one event to the next. Two events of the same microsecond happen in the order they were asked for.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One second in the clock's unit.
pub(crate) const SECOND_US: u64 = 1_000_000;

/// The queue of coming events.
#[derive(Debug)]
pub(crate) struct Clock<T> {
    now_us: u64,
    sequence: u64,
    /// When what is at which place of `events`: small, because a heap moves what it has all the time.
    coming: BinaryHeap<Entry>,
    events: Vec<Option<T>>,
    free: Vec<u32>,
    wall_offset_us: i64,
}

impl<T> Clock<T> {
    /// Nothing to come; the monotonic clock shows one hour, as if the machine had started then.
    pub(crate) fn new() -> Clock<T> {
        let wall_offset_us = 1_790_000_000 * 1_000_000;
        Clock {
            now_us: 3_600 * SECOND_US,
            sequence: 0,
            coming: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            wall_offset_us,
        }
    }

    /// Monotonic microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Microseconds since 1970, as a clock that people set shows them.
    pub(crate) fn wall_us(&self) -> u64 {
        self.now_us.saturating_add_signed(self.wall_offset_us)
    }

    /// Somebody sets the wall clock.
    pub(crate) fn set_wall_by(&mut self, change_us: i64) {
        self.wall_offset_us = self.wall_offset_us.saturating_add(change_us);
    }

    /// Time passes without anything happening: what was to come is late.
    pub(crate) fn jump(&mut self, us: u64) {
        self.now_us += us;
    }

    /// Something is to happen in this many microseconds.
    pub(crate) fn after(&mut self, delay_us: u64, what: T) {
        self.at(self.now_us + delay_us, what);
    }

    /// Something is to happen then, or now if then is past.
    pub(crate) fn at(&mut self, at_us: u64, what: T) {
        self.sequence += 1;
        let place = self.keep(what);
        self.coming.push(Entry { at_us: at_us.max(self.now_us), sequence: self.sequence, place });
    }

    fn keep(&mut self, what: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.events[place as usize] = Some(what);
            return place;
        }
        self.events.push(Some(what));
        u32::try_from(self.events.len() - 1).unwrap_or(u32::MAX)
    }

    /// The next event; the clock now shows its time. None once nothing comes before `until_us`.
    pub(crate) fn next(&mut self, until_us: u64) -> Option<T> {
        if self.coming.peek()?.at_us > until_us {
            return None;
        }
        let entry = self.coming.pop()?;
        // After a jump some of what was to come is late.
        self.now_us = self.now_us.max(entry.at_us);
        self.free.push(entry.place);
        self.events[entry.place as usize].take()
    }

    /// Lets time pass to this moment without an event.
    pub(crate) fn pass_to(&mut self, at_us: u64) {
        self.now_us = self.now_us.max(at_us);
    }
}

/// Ordered by time, then as asked for; the earliest is the greatest, because the heap gives that first.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at_us: u64,
    sequence: u64,
    place: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at_us, other.sequence).cmp(&(self.at_us, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_ties_as_asked() {
        let mut clock = Clock::new();
        let start = clock.now_us();
        clock.after(5, 'c');
        clock.after(1, 'a');
        clock.after(5, 'd');
        clock.after(2, 'b');
        let order: Vec<char> = std::iter::from_fn(|| clock.next(start + 10)).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
        assert_eq!(clock.now_us(), start + 5);
    }

    #[test]
    fn setting_the_wall_leaves_the_monotonic_clock_alone() {
        let mut clock: Clock<()> = Clock::new();
        let (mono, wall) = (clock.now_us(), clock.wall_us());
        clock.set_wall_by(-5);
        assert_eq!((clock.now_us(), clock.wall_us()), (mono, wall - 5));
    }
}
