//! Ids of connections, shards and listening sockets: how they index tables, and how successive uses of one are told apart.
//!
//! The only place in which an id becomes an index. Never holds what an id stands for.

use messages::ShardId;
use shard::ConnId;

/// An id that indexes a table.
pub(crate) trait TableId: Copy {
    /// Its place in the table.
    fn index(self) -> usize;
}

impl TableId for ConnId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl TableId for ShardId {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A listening socket, by its place among those of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerId(pub(crate) u32);

impl TableId for ListenerId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Tells the successive connections of a [`ConnId`] apart. It has 28 bits, so that the kernel can return it with an event,
/// beside the id and the kind of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// The generation before any connection.
    pub(crate) const FIRST: Generation = Generation(0);
    /// The bits that are used.
    pub(crate) const MASK: u32 = 0x0FFF_FFFF;

    /// The generation of these bits; higher ones are ignored.
    pub(crate) fn from_bits(bits: u32) -> Generation {
        Generation(bits & Generation::MASK)
    }

    /// Its bits, at most [`Generation::MASK`].
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The generation after this one.
    pub(crate) fn next(self) -> Generation {
        Generation::from_bits(self.0.wrapping_add(1))
    }
}

/// The connection that an answer is for.
#[derive(Clone, Copy)]
pub(crate) struct Requester {
    pub(crate) shard: ShardId,
    pub(crate) conn: ConnId,
    pub(crate) generation: Generation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_wrap_within_their_bits() {
        assert_eq!(Generation::from_bits(u32::MAX).bits(), Generation::MASK);
        assert_eq!(Generation::from_bits(u32::MAX).next(), Generation::FIRST);
    }
}
