//! The boundary that both loops drive: the shard's methods as a trait.
//!
//! The product has one implementation, [`Shard`]; tests bring small scripted ones. The loops are generic over it, so
//! that nothing is dispatched at run time.

use std::sync::Arc;

use settings::Config;
use shard::{Action, ConnId, Event, Now, Shard};

/// What a loop needs of a shard; see [`Shard`] for the meaning of each.
pub trait Core {
    /// The thread runs; actions may follow.
    fn start(&mut self, now: Now);
    /// A free connection id.
    fn vacant(&mut self) -> ConnId;
    /// Something happened.
    fn handle(&mut self, event: Event<'_>, now: Now);
    /// The next thing to do.
    fn poll(&mut self) -> Option<Action>;
    /// The bytes of [`shard::Source::Written`].
    fn written(&self) -> &[u8];
    /// When a tick is due, in microseconds of the monotonic clock.
    fn deadline(&self) -> Option<u64>;
    /// The configuration in force.
    fn config(&self) -> &Arc<Config>;
}

impl Core for Shard {
    fn start(&mut self, now: Now) {
        Shard::start(self, now);
    }

    fn vacant(&mut self) -> ConnId {
        Shard::vacant(self)
    }

    fn handle(&mut self, event: Event<'_>, now: Now) {
        Shard::handle(self, event, now);
    }

    fn poll(&mut self) -> Option<Action> {
        Shard::poll(self)
    }

    fn written(&self) -> &[u8] {
        Shard::written(self)
    }

    fn deadline(&self) -> Option<u64> {
        Shard::deadline(self)
    }

    fn config(&self) -> &Arc<Config> {
        Shard::config(self)
    }
}
