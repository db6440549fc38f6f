//! What the world drives: the real shard, or a relay that has no pool at all.

use shard::audit::Audit;
use shard::{Action, ConnId, Event, Now, PoolState, Shard};

/// The shard's own boundary, so that something simpler can stand in its place.
pub(crate) trait Pooler {
    /// A free id for a socket that the driver brings.
    fn allocate_id(&mut self) -> ConnId;
    /// Something happened.
    fn handle(&mut self, event: Event<'_>, now: Now);
    /// The next thing to do.
    fn poll(&mut self) -> Option<Action>;
    /// The bytes that actions point into.
    fn written(&self) -> &[u8];
    /// When a tick is due.
    fn deadline(&self) -> Option<u64>;
    /// Its pools, if it has any.
    fn pools(&self) -> Vec<PoolState<'_>> {
        Vec::new()
    }
    /// Its tables counted anew, if it has any.
    fn audit(&self) -> Option<Audit> {
        None
    }
}

impl Pooler for Shard {
    fn allocate_id(&mut self) -> ConnId {
        Shard::allocate_id(self)
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

    fn pools(&self) -> Vec<PoolState<'_>> {
        Shard::pools(self).collect()
    }

    fn audit(&self) -> Option<Audit> {
        Some(Shard::audit(self))
    }
}
