//! Consecutive sends of one event to one connection, gathered into one system call.
//!
//! Owns the ranges, never the bytes.

use std::io::IoSlice;

use shard::{ConnId, Source};

/// Segments per batch, at most; more go into a second batch.
pub(crate) const PIECES: usize = 16;

/// A range of one of the two sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) source: Source,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Segment {
    fn length(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
}

/// What the segments point into.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) received: &'a [u8],
    pub(crate) written: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// The bytes of a segment; one outside its source is a bug of the shard and empty.
    pub(crate) fn of(&self, segment: Segment) -> &'a [u8] {
        let whole = match segment.source {
            Source::Received => self.received,
            Source::Written => self.written,
        };
        let bytes = whole.get(segment.start as usize..segment.end as usize);
        debug_assert!(bytes.is_some(), "{segment:?} of {} bytes", whole.len());
        bytes.unwrap_or_default()
    }
}

/// Pieces for one connection.
pub(crate) struct WriteBatch {
    to: ConnId,
    count: usize,
    segments: [Segment; PIECES],
}

impl WriteBatch {
    /// Nothing yet.
    pub(crate) fn new() -> WriteBatch {
        const NOTHING: Segment = Segment { source: Source::Written, start: 0, end: 0 };
        WriteBatch { to: ConnId(0), count: 0, segments: [NOTHING; PIECES] }
    }

    /// Adds a segment; false if it does not fit and this batch must be written first.
    pub(crate) fn take(&mut self, to: ConnId, segment: Segment) -> bool {
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

    /// To whom.
    pub(crate) fn to(&self) -> ConnId {
        self.to
    }

    /// The segments in order.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    /// Nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All bytes of it.
    pub(crate) fn length(&self) -> usize {
        self.segments().iter().map(|segment| segment.length()).sum()
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The segments as the system wants them; the first `segments().len()` count.
    pub(crate) fn slices<'a>(&self, bytes: Bytes<'a>) -> [IoSlice<'a>; PIECES] {
        std::array::from_fn(|index| {
            IoSlice::new(self.segments().get(index).map_or(&[][..], |segment| bytes.of(*segment)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(source: Source, start: u32, end: u32) -> Segment {
        Segment { source, start, end }
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
        for index in 0..u32::try_from(PIECES).unwrap_or(0) {
            assert!(batch.take(ConnId(1), segment(Source::Written, index * 2, index * 2 + 1)));
        }
        assert!(!batch.take(ConnId(1), segment(Source::Written, 100, 101)));
    }
}
