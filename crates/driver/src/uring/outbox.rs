//! Output of one connection on its way to the kernel: ranges of received buffers, and bytes of the shard's own.
//!
//! Owns the order. An outbox that is in flight is owned by the ring, so nothing of it can move or go.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::uring::buffers::{Buffer, Buffers};

/// Own bytes are kept for the next outbox up to this capacity.
const SPARE: usize = 16 * 1024;

/// Most segments of one send.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// A segment of output.
#[derive(Debug)]
pub(crate) enum Segment {
    /// A range of a receive buffer, forwarded without a copy.
    Shared { buffer: Buffer, start: u32, end: u32 },
    /// Copied bytes from `start`.
    Owned { bytes: Vec<u8>, start: usize },
}

impl Segment {
    /// The bytes that are still to go.
    pub(crate) fn bytes<'a>(&'a self, buffers: &'a Buffers) -> &'a [u8] {
        match self {
            Segment::Shared { buffer, start, end } => {
                buffers.bytes(buffer, *end as usize).get(*start as usize..).unwrap_or_default()
            }
            Segment::Owned { bytes, start } => bytes.get(*start..).unwrap_or_default(),
        }
    }
}

/// Pieces in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    segments: VecDeque<Segment>,
    /// Memory of own bytes that have gone.
    spare: Vec<u8>,
}

impl Outbox {
    /// Adds a range of a received buffer.
    pub(crate) fn share(&mut self, buffers: &mut Buffers, from: &Buffer, begin: u32, until: u32) {
        if let Some(Segment::Shared { buffer, end, .. }) = self.segments.back_mut()
            && buffer == from
            && *end == begin
        {
            *end = until;
            return;
        }
        let buffer = buffers.hold(from);
        self.segments.push_back(Segment::Shared { buffer, start: begin, end: until });
    }

    /// Adds a copy.
    pub(crate) fn copy(&mut self, more: &[u8]) {
        if let Some(Segment::Owned { bytes, .. }) = self.segments.back_mut() {
            bytes.extend_from_slice(more);
            return;
        }
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.extend_from_slice(more);
        self.segments.push_back(Segment::Owned { bytes, start: 0 });
    }

    /// Nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// What goes with the next send.
    pub(crate) fn front(&self) -> impl ExactSizeIterator<Item = &Segment> {
        self.segments.iter().take(MAX_SEGMENTS)
    }

    /// The same for a system call; the number says how many count.
    pub(crate) fn slices<'a>(&'a self, buffers: &'a Buffers) -> ([IoSlice<'a>; MAX_SEGMENTS], usize) {
        let slice = |index: usize| self.segments.get(index).map_or(&[][..], |segment| segment.bytes(buffers));
        (std::array::from_fn(|index| IoSlice::new(slice(index))), self.front().len())
    }

    /// Nothing is left over by the next send.
    pub(crate) fn fits_one_send(&self) -> bool {
        self.segments.len() <= MAX_SEGMENTS
    }

    /// This many bytes were sent.
    pub(crate) fn advance(&mut self, buffers: &mut Buffers, mut gone: usize) {
        while let Some(segment) = self.segments.front_mut() {
            let left = segment.bytes(buffers).len();
            if gone < left {
                match segment {
                    Segment::Shared { start, .. } => *start += u32::try_from(gone).unwrap_or(0),
                    Segment::Owned { start, .. } => *start += gone,
                }
                return;
            }
            gone -= left;
            if let Some(segment) = self.segments.pop_front() {
                self.let_go(buffers, segment);
            }
        }
    }

    /// Puts later output behind this; `later` is empty then.
    pub(crate) fn append(&mut self, later: &mut Outbox) {
        self.segments.append(&mut later.segments);
    }

    /// It keeps at least twice as much memory of received buffers as it has bytes of them.
    pub(crate) fn is_sparse(&self, buffers: &Buffers) -> bool {
        let (mut held, mut bytes) = (0, 0);
        for segment in self.segments.iter().filter(|segment| matches!(segment, Segment::Shared { .. })) {
            held += buffers.size() as usize;
            bytes += segment.bytes(buffers).len();
        }
        held > 0 && held >= 2 * bytes
    }

    /// Copies what holds much more memory in buffers than it is long: its reader takes its time.
    pub(crate) fn compact(&mut self, buffers: &mut Buffers) {
        if !self.is_sparse(buffers) {
            return;
        }
        let length = self.segments.iter().map(|segment| segment.bytes(buffers).len()).sum();
        let mut all = Vec::with_capacity(length);
        while let Some(segment) = self.segments.pop_front() {
            all.extend_from_slice(segment.bytes(buffers));
            self.let_go(buffers, segment);
        }
        self.segments.push_back(Segment::Owned { bytes: all, start: 0 });
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, buffers: &mut Buffers) {
        while let Some(segment) = self.segments.pop_front() {
            self.let_go(buffers, segment);
        }
    }

    /// Takes everything as copied bytes.
    pub(crate) fn into_bytes(mut self, buffers: &mut Buffers) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(segment) = self.segments.pop_front() {
            all.extend_from_slice(segment.bytes(buffers));
            self.let_go(buffers, segment);
        }
        all
    }

    fn let_go(&mut self, buffers: &mut Buffers, segment: Segment) {
        match segment {
            Segment::Shared { buffer, .. } => buffers.release(buffer),
            Segment::Owned { mut bytes, .. } if self.spare.capacity() == 0 && bytes.capacity() <= SPARE => {
                bytes.clear();
                self.spare = bytes;
            }
            Segment::Owned { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use io_uring::IoUring;

    use super::*;
    use crate::uring::buffers::ReceiveBuffers;

    #[test]
    fn few_bytes_of_many_buffers_become_memory_of_their_own() {
        let plan = ReceiveBuffers { size: 4096, first: 8, most: 8 };
        let mut buffers = Buffers::new(&IoUring::new(8).unwrap(), plan).unwrap();
        let mut outbox = Outbox::default();
        for id in 0..4 {
            let buffer = buffers.take(id, 100);
            outbox.share(&mut buffers, &buffer, 0, 100);
            buffers.release(buffer);
        }
        outbox.copy(b"own");
        assert_eq!((buffers.free(), outbox.front().len()), (4, 5));
        outbox.compact(&mut buffers);
        assert_eq!((buffers.free(), outbox.front().len()), (8, 1));
        assert_eq!(outbox.into_bytes(&mut buffers), [&[0; 400][..], b"own"].concat());
    }

    #[test]
    fn full_buffers_are_not_copied() {
        let plan = ReceiveBuffers { size: 4096, first: 8, most: 8 };
        let mut buffers = Buffers::new(&IoUring::new(8).unwrap(), plan).unwrap();
        let mut outbox = Outbox::default();
        let buffer = buffers.take(0, 4096);
        outbox.share(&mut buffers, &buffer, 0, 3000);
        buffers.release(buffer);
        outbox.compact(&mut buffers);
        assert_eq!(buffers.free(), 7);
        outbox.clear(&mut buffers);
    }
}
