//! The boundary that both loops drive: the shard's methods as a trait.
//!
//! The product has one implementation, [`Shard`]; tests bring small scripted ones. The loops are generic over it, so
//! that nothing is dispatched at run time.

use std::sync::Arc;

use messages::Report;
use settings::Config;
use shard::{Action, ConnId, Event, Now, Shard};
use telemetry::Record;

/// Where log records go; called by every thread.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where the shards' reports go; called by every shard's thread, so it must not wait.
pub type Reports = Arc<dyn Fn(Report) + Send + Sync>;

/// What a loop needs of a shard; see [`Shard`] for the meaning of each.
pub trait Core {
    /// The thread runs; actions may follow.
    fn start(&mut self, now: Now);
    /// A free connection id.
    fn allocate_id(&mut self) -> ConnId;
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
    /// The loop has ended; what it still held then. For tests: a shard has nothing to do any more.
    fn stopped(&mut self, _held: Held) {}
}

/// What a loop holds for connections that are not closed, in numbers. Without connections all are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections in any state, those that are about to leave too.
    pub connections: usize,
    /// Receive buffers with bytes that have not gone on.
    pub buffers: usize,
    /// Requests that the kernel has not answered for the last time.
    pub requests: usize,
    /// Events not yet passed to the shard.
    pub events: usize,
}

impl Core for Shard {
    fn start(&mut self, now: Now) {
        Shard::start(self, now);
    }

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

    fn config(&self) -> &Arc<Config> {
        Shard::config(self)
    }
}
