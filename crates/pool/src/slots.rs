//! How many server connections a limit counts, and how many of it this process may have where the nodes of a fleet share it (`fleet`).
//!
//! Owns that both are compared in one step: a slot that was given back is not used by a thread that had looked before. Touched when a connection opens or
//! closes; where a server is released, the lease is read, and only in a fleet.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No fleet shares the limit.
const UNLEASED: u32 = u32::MAX;

/// What this process may have of a limit that a fleet shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Connections, until `until_us`.
    pub slots: u32,
    /// Connections from then on; at most `slots`.
    pub floor: u32,
    /// Microseconds of the monotonic clock.
    pub until_us: u64,
}

/// A count of server connections that passes neither its limit nor its lease, however many shards take at the same moment.
#[repr(align(128))]
#[derive(Debug)]
pub struct SlotCounter {
    /// Above: the leased slots; below: how many are taken.
    word: AtomicU64,
    floor: AtomicU32,
    until_us: AtomicU64,
    /// Of those that are taken: connections that are being closed.
    leaving: AtomicU32,
}

impl Default for SlotCounter {
    fn default() -> SlotCounter {
        SlotCounter {
            word: AtomicU64::new(word(UNLEASED, 0)),
            floor: AtomicU32::new(UNLEASED),
            until_us: AtomicU64::new(u64::MAX),
            leaving: AtomicU32::new(0),
        }
    }
}

impl SlotCounter {
    /// Takes a slot if fewer than `limit` are taken (0 means no limit) and the lease allows one more.
    ///
    /// # Errors
    /// What prevents it.
    pub fn take(&self, limit: u32, now_us: u64) -> Result<(), Full> {
        let most = self.most(now_us);
        let mut why = Full::Limit;
        let free = |state: u64| {
            let (slots, taken) = parts(state);
            if limit > 0 && taken >= limit {
                why = Full::Limit;
                return None;
            }
            why = Full::Lease;
            (taken < slots.min(most)).then(|| word(slots, taken + 1))
        };
        let update = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, free);
        update.map(drop).map_err(|_| why)
    }

    /// Counts a connection that exists already, whatever limit and lease are.
    pub fn add(&self) {
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns one slot.
    pub fn release(&self) {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(parts(before).1 > 0, "a slot was released twice");
    }

    /// How many are taken.
    #[inline]
    pub fn taken(&self) -> u32 {
        parts(self.word.load(Ordering::Acquire)).1
    }

    /// How many are taken, without those that are being closed.
    pub fn staying(&self) -> u32 {
        self.taken().saturating_sub(self.leaving.load(Ordering::Acquire))
    }

    /// A connection is being closed.
    pub(crate) fn leaves(&self) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
    }

    /// Its socket is gone; [`SlotCounter::release`] follows.
    pub(crate) fn has_left(&self) {
        let before = self.leaving.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a server has left twice");
    }

    /// Sets the lease; `None` is none. Returns how many are taken: none more than that and the lease is taken from here on.
    pub fn set_lease(&self, lease: Option<Lease>) -> u32 {
        let lease = lease.unwrap_or(Lease { slots: UNLEASED, floor: UNLEASED, until_us: u64::MAX });
        self.floor.store(lease.floor, Ordering::Release);
        // Before the time up to which it holds: a thread that reads the new time sees the new slots.
        let set = |state: u64| Some(word(lease.slots, parts(state).1));
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        self.until_us.store(lease.until_us, Ordering::Release);
        before.map_or(0, |state| parts(state).1)
    }

    /// The lease leaves room for one more.
    #[must_use]
    pub fn has_room(&self, now_us: u64) -> bool {
        let most = self.most(now_us);
        let (slots, taken) = parts(self.word.load(Ordering::Acquire));
        taken < slots.min(most)
    }

    /// More than the lease allows will be taken once those that are being closed are gone.
    #[must_use]
    pub fn is_over_lease(&self, now_us: u64) -> bool {
        self.leased(now_us).is_some_and(|leased| self.staying() > leased)
    }

    /// How many the lease allows, if there is one.
    #[must_use]
    pub fn leased(&self, now_us: u64) -> Option<u32> {
        let most = self.most(now_us);
        let (slots, _) = parts(self.word.load(Ordering::Acquire));
        Some(slots.min(most)).filter(|leased| *leased != UNLEASED)
    }

    /// The floor once the lease is over. Read before the slots: see [`SlotCounter::set_lease`].
    fn most(&self, now_us: u64) -> u32 {
        if now_us < self.until_us.load(Ordering::Acquire) {
            UNLEASED
        } else {
            self.floor.load(Ordering::Acquire)
        }
    }
}

/// Why no slot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit is reached.
    Limit,
    /// The lease is: the fleet may have more.
    Lease,
}

fn word(slots: u32, taken: u32) -> u64 {
    u64::from(slots) << 32 | u64::from(taken)
}

fn parts(word: u64) -> (u32, u32) {
    let half = |part: u64| u32::try_from(part & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (half(word >> 32), half(word))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn lease(slots: u32, floor: u32, until_us: u64) -> Option<Lease> {
        Some(Lease { slots, floor, until_us })
    }

    #[test]
    fn neither_limit_nor_lease_is_passed() {
        let counter = SlotCounter::default();
        assert_eq!((counter.take(1, 0), counter.take(1, 0)), (Ok(()), Err(Full::Limit)));
        assert_eq!(counter.set_lease(lease(2, 1, 100)), 1);
        assert_eq!((counter.take(3, 0), counter.take(3, 0)), (Ok(()), Err(Full::Lease)));
        assert_eq!((counter.taken(), counter.leased(0), counter.is_over_lease(0)), (2, Some(2), false));
        assert_eq!(
            (counter.leased(100), counter.is_over_lease(100)),
            (Some(1), true),
            "the floor, once it is over"
        );
        counter.leaves();
        assert!(!counter.is_over_lease(100), "one of the two is going");
        counter.has_left();
        counter.release();
        assert_eq!((counter.take(3, 100), counter.take(3, 99)), (Err(Full::Lease), Ok(())));
        assert!(!counter.has_room(99) && counter.take(0, 99) == Err(Full::Lease), "no limit, and a lease");
        counter.add();
        assert_eq!((counter.taken(), counter.is_over_lease(0)), (3, true));
        assert_eq!(counter.set_lease(None), 3);
        assert_eq!((counter.leased(u64::MAX), counter.take(0, u64::MAX)), (None, Ok(())));
    }

    #[test]
    fn what_is_lowered_is_not_passed_by_a_thread_that_looked_before() {
        let counter = Arc::new(SlotCounter::default());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let counter = Arc::clone(&counter);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        if counter.take(0, 0).is_ok() {
                            counter.release();
                        }
                    }
                });
            }
            for round in 0..2_000 {
                let slots = round % 3;
                let before = counter.set_lease(lease(slots, 0, 1));
                assert!(counter.taken() <= before.max(slots), "taken beyond {slots}");
            }
        });
        assert_eq!(counter.taken(), 0);
    }
}
