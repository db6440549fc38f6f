//! One thread's whole pooler, without the thread.
//!
//! A [`Shard`] is told what happened ([`Shard::handle`]) and says what to do ([`Shard::poll`]) and when to be woken
//! ([`Shard::deadline`]). It composes sessions, pools and authentication; it holds no socket, reads no clock, takes no
//! lock and starts no thread. Two callers drive it: the real driver and the simulator.
#![forbid(unsafe_code)]

pub mod action;
pub mod event;

pub use action::{Action, Source, Target};
pub use event::{ConnId, ConnectFault, Event, Now, Peer};

use std::sync::Arc;

use auth::Entropy;
use mail::ShardId;
use pool::Directory;
use settings::Config;

/// What one shard knows of a client that moves to another: opaque to everybody else.
#[derive(Debug)]
pub struct Handover {}

/// One thread's pooler.
pub struct Shard {}

impl Shard {
    /// A shard with nothing in it. `entropy` must be unguessable in production and seeded in the simulator.
    #[must_use]
    pub fn new(id: ShardId, config: Arc<Config>, directory: Arc<dyn Directory>, entropy: Box<dyn Entropy>, mock: Arc<auth::MockKey>) -> Shard {
        let _ = (id, config, directory, entropy, mock);
        Shard {}
    }

    /// A free connection id for a socket that the driver brings; taken by the [`Event::Accepted`] or [`Event::Adopted`] that must follow.
    pub fn vacant(&mut self) -> ConnId {
        ConnId(0)
    }

    /// Something happened. Take all actions with [`Shard::poll`] before the next call.
    pub fn handle(&mut self, event: Event<'_>, now: Now) {
        let _ = (event, now);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        None
    }

    /// The bytes that [`Source::Written`] ranges point into.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &[]
    }

    /// When [`Event::Tick`] is due next, in microseconds of the monotonic clock; None while nothing is timed.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        None
    }

    /// The configuration in force (the driver takes socket options from it).
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        unimplemented!()
    }
}
