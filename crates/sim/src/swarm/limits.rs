//! How a seed's pools let clients wait, share connections, and limit a user.

use settings::{ConnectionSharing, Priority, QueueBy, QueuePriority};

use crate::prng::Prng;

/// In which order clients wait for servers, and who of them is refused.
#[derive(Clone, Debug)]
pub(crate) struct Queueing {
    /// `queue = fair`, and `queue_by`.
    pub(crate) fair: Option<QueueBy>,
    /// `queue_burst` in milliseconds.
    pub(crate) burst_ms: u64,
    /// `queue_priority`, and `priority` of the first user.
    pub(crate) classes: (QueuePriority, Priority),
    /// `queue_limit`.
    pub(crate) limit: u32,
    /// `queue_target` in milliseconds; 0 is none.
    pub(crate) target_ms: u64,
}

impl Queueing {
    /// Clients that wait may be refused.
    pub(crate) fn refuses(&self) -> bool {
        self.limit > 0 || self.target_ms > 0
    }
}

/// What the first user may use (`quotas_file`); 0 is as much as it likes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quotas {
    /// Connections at a time.
    pub(crate) connections: u32,
    /// Queries a day.
    pub(crate) queries: u64,
}

impl Quotas {
    /// Something is limited.
    pub(crate) fn limit_anything(self) -> bool {
        self.connections > 0 || self.queries > 0
    }
}

/// How pools share the connections of their database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// `connection_sharing`.
    pub(crate) mode: ConnectionSharing,
    /// `guaranteed_connections`.
    pub(crate) guaranteed: u32,
}

pub(super) fn queueing(prng: &mut Prng) -> Queueing {
    let by = [QueueBy::User, QueueBy::ApplicationName, QueueBy::ClientAddr];
    Queueing {
        fair: prng.chance(300_000).then(|| prng.pick(&by)),
        burst_ms: if prng.chance(500_000) { prng.log_between(1, 10_000) } else { 0 },
        classes: classes(&mut prng.split(super::CLASSES)),
        limit: if prng.chance(100_000) { u32::try_from(prng.between(1, 4)).unwrap_or(1) } else { 0 },
        target_ms: if prng.chance(100_000) { prng.log_between(1, 1_000) } else { 0 },
    }
}

pub(super) fn quotas(prng: &mut Prng) -> Quotas {
    if !prng.chance(120_000) {
        return Quotas::default();
    }
    let connections = if prng.chance(500_000) { prng.between(1, 6) } else { 0 };
    Quotas {
        connections: u32::try_from(connections).unwrap_or(1),
        queries: if prng.chance(600_000) { prng.log_between(1, 300) } else { 0 },
    }
}

fn classes(prng: &mut Prng) -> (QueuePriority, Priority) {
    let setting = prng.pick(&[QueuePriority::None, QueuePriority::Settings, QueuePriority::Comment]);
    (setting, prng.pick(&[Priority::High, Priority::Normal, Priority::Low]))
}

pub(super) fn sharing(prng: &mut Prng) -> Sharing {
    use ConnectionSharing::{Demand, Guaranteed, None};
    let mode = prng.pick(&[None, None, Guaranteed, Demand, Demand]);
    Sharing { mode, guaranteed: u32::try_from(prng.below(3)).unwrap_or(0) }
}
