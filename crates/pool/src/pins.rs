//! The budget of clients that keep a server because of their sessions (`max_pinned`), over all shards.
//!
//! Owns that each of them counts once, and is no longer counted when its [`PinUnit`] is dropped. Which client is one is its owner's to say.

use std::sync::Arc;

use crate::{Pool, SharedPool};

/// One client's part of the budget of its pool.
#[derive(Debug)]
pub struct PinUnit {
    shared: Arc<SharedPool>,
}

impl PinUnit {
    /// Counts a client that has its pin already (another process admitted it), whatever the limit is.
    #[must_use]
    pub fn imported(shared: &Arc<SharedPool>) -> PinUnit {
        shared.pins.take(0);
        PinUnit { shared: Arc::clone(shared) }
    }
}

impl Drop for PinUnit {
    fn drop(&mut self) {
        self.shared.pins.release();
    }
}

impl Pool {
    /// One more client may be pinned: it is counted until the unit is dropped. None if `max_pinned` is reached.
    #[must_use]
    pub fn take_pin(&self) -> Option<PinUnit> {
        let shared = self.shared();
        shared.pins.take(self.limits.max_pinned).then(|| PinUnit { shared: Arc::clone(shared) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::pool::tests::limits;

    #[test]
    fn units_end_at_the_limit_over_all_parts_and_come_back_when_they_are_dropped() {
        let shared = Arc::<SharedPool>::default();
        let part = |max_pinned| {
            let limits = Limits { max_pinned, ..limits(9) };
            Pool::new(limits, Arc::clone(&shared), Arc::default(), Arc::default())
        };
        let (one, other) = (part(2), part(2));
        let first = one.take_pin();
        let _second = other.take_pin();
        assert!(first.is_some() && one.take_pin().is_none() && other.take_pin().is_none());
        drop(first);
        assert_eq!(shared.pinned(), 1);
        let lowered = part(1);
        assert!(lowered.take_pin().is_none(), "what is there counts");
        let _imported = PinUnit::imported(&shared);
        assert_eq!(shared.pinned(), 2);
        assert!(part(0).take_pin().is_some(), "no limit");
    }

    #[test]
    fn shards_whose_clients_wait_are_notified_once() {
        let shared = SharedPool::default();
        shared.request_pin(3);
        assert_eq!((shared.take_pin_requests(), shared.take_pin_requests()), (0b1000, 0));
    }
}
