//! Consecutive sends of one event to one connection, gathered into one system call.
//!
//! Owns the ranges, never the bytes.

use std::io::IoSlice;

use shard::{ConnId, Source};

use crate::event_loop::SendRange;

/// Segments per batch, at most; more go into a second batch.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// What the ranges point into.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) received: &'a [u8],
    pub(crate) written: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// The bytes of a range.
    pub(crate) fn of(&self, range: SendRange) -> &'a [u8] {
        range.of(match range.source {
            Source::Received => self.received,
            Source::Written => self.written,
        })
    }
}

/// Ranges for one connection.
pub(crate) struct WriteBatch {
    to: ConnId,
    count: usize,
    segments: [SendRange; MAX_SEGMENTS],
}

impl WriteBatch {
    /// Nothing yet.
    pub(crate) fn new() -> WriteBatch {
        const NOTHING: SendRange = SendRange { source: Source::Written, start: 0, end: 0 };
        WriteBatch { to: ConnId(0), count: 0, segments: [NOTHING; MAX_SEGMENTS] }
    }

    /// Adds a segment; false if it does not fit and this batch must be written first.
    pub(crate) fn take(&mut self, to: ConnId, segment: SendRange) -> bool {
        if self.count == 0 {
            self.to = to;
        } else if self.to != to {
            return false;
        } else if let Some(last) = self.segments.get_mut(self.count - 1)
            && last.source == segment.source
            && last.end == segment.start
        {
            last.end = segment.end;
            return true;
        }
        let Some(free) = self.segments.get_mut(self.count) else { return false };
        *free = segment;
        self.count += 1;
        true
    }

    /// The connection that it is for.
    pub(crate) fn to(&self) -> ConnId {
        self.to
    }

    /// The segments in order.
    pub(crate) fn segments(&self) -> &[SendRange] {
        &self.segments[..self.count]
    }

    /// Nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All bytes of it.
    pub(crate) fn length(&self) -> usize {
        self.segments().iter().map(|segment| segment.length() as usize).sum()
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The segments as the system wants them; the first `segments().len()` count.
    pub(crate) fn slices<'a>(&self, bytes: Bytes<'a>) -> [IoSlice<'a>; MAX_SEGMENTS] {
        std::array::from_fn(|index| {
            IoSlice::new(self.segments().get(index).map_or(&[][..], |segment| bytes.of(*segment)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(source: Source, start: u32, end: u32) -> SendRange {
        SendRange { source, start, end }
    }

    #[test]
    fn neighbours_become_one_piece() {
        let mut batch = WriteBatch::new();
        assert!(batch.take(ConnId(1), segment(Source::Received, 0, 5)));
        assert!(batch.take(ConnId(1), segment(Source::Received, 5, 9)));
        assert!(batch.take(ConnId(1), segment(Source::Written, 9, 11)));
        assert_eq!(batch.segments(), [segment(Source::Received, 0, 9), segment(Source::Written, 9, 11)]);
        assert_eq!(batch.length(), 11);
        assert!(!batch.take(ConnId(2), segment(Source::Received, 11, 12)), "another connection");
    }

    #[test]
    fn a_full_parcel_refuses() {
        let mut batch = WriteBatch::new();
        for index in 0..u32::try_from(MAX_SEGMENTS).unwrap_or(0) {
            assert!(batch.take(ConnId(1), segment(Source::Written, index * 2, index * 2 + 1)));
        }
        assert!(!batch.take(ConnId(1), segment(Source::Written, 100, 101)));
    }
}
