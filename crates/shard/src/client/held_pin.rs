//! What a client holds of its pool's budget of pins (`max_pinned`), and since when it is pinned.
//!
//! Data only; `link/pins.rs` decides. Why it is pinned is its server's to know.

use pool::PinUnit;

/// A client that counts in `max_pinned`.
pub(crate) struct HeldPin {
    /// Counted until this is dropped.
    _unit: PinUnit,
    /// Since when its session holds what cannot move; None if its request is only known to lead to that.
    since_us: Option<u64>,
}

impl HeldPin {
    /// For a request that is about to be sent.
    pub(crate) fn reserved(unit: PinUnit) -> HeldPin {
        HeldPin { _unit: unit, since_us: None }
    }

    /// For what the session is known to hold since then.
    pub(crate) fn since(unit: PinUnit, since_us: u64) -> HeldPin {
        HeldPin { _unit: unit, since_us: Some(since_us) }
    }

    /// The session holds what cannot move. True if that is new.
    pub(crate) fn begin(&mut self, now_us: u64) -> bool {
        let is_new = self.since_us.is_none();
        self.since_us.get_or_insert(now_us);
        is_new
    }

    /// Since when the session holds it.
    pub(crate) fn since_us(&self) -> Option<u64> {
        self.since_us
    }
}
