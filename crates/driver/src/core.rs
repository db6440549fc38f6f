//! The boundary that both loops drive: the shard's methods as a trait.
//!
//! The product has one implementation, [`Shard`]; tests bring small scripted ones. The loops are generic over it, so
//! that nothing is dispatched at run time.

use std::collections::VecDeque;
use std::sync::Arc;

use settings::Config;
use shard::{Action, ConnId, Event, Now, Shard};

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

/// The connection that a pending event is about. Pending events of a connection that leaves are dropped: its id may belong
/// to another one before they would be handled.
pub(crate) fn told_of(event: &Event<'_>) -> Option<ConnId> {
    match event {
        Event::SendBufferFull { conn }
        | Event::SendBufferEmpty { conn }
        | Event::WriteFailed { conn }
        | Event::HalfClosed { conn }
        | Event::Connected { conn, .. } => Some(*conn),
        _ => None,
    }
}

/// Drops a pending HalfClosed: the shard resumes before it has handled it. It belongs to one pause, and comes once in each.
pub(crate) fn forget_half_close(pending: &mut VecDeque<Event<'static>>, conn: ConnId) {
    pending.retain(|event| !matches!(event, Event::HalfClosed { conn: of } if *of == conn));
}
