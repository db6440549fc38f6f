//! Consecutive sends of one event to one connection, gathered into one system call.
//!
//! Owns the ranges, never the bytes.

use std::io::IoSlice;

use shard::{ConnId, Source};

/// Most pieces of one parcel; more become a second parcel.
pub(crate) const PIECES: usize = 16;

/// A range of one of the two sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) source: Source,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Piece {
    fn length(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
}

/// What the pieces point into.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) received: &'a [u8],
    pub(crate) written: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// The bytes of a piece; a piece outside its source is a bug of the shard and empty.
    pub(crate) fn of(&self, piece: Piece) -> &'a [u8] {
        let whole = match piece.source {
            Source::Received => self.received,
            Source::Written => self.written,
        };
        let bytes = whole.get(piece.start as usize..piece.end as usize);
        debug_assert!(bytes.is_some(), "{piece:?} of {} bytes", whole.len());
        bytes.unwrap_or_default()
    }
}

/// Pieces for one connection.
pub(crate) struct Parcel {
    to: ConnId,
    count: usize,
    pieces: [Piece; PIECES],
}

impl Parcel {
    /// Nothing yet.
    pub(crate) fn new() -> Parcel {
        const NOTHING: Piece = Piece { source: Source::Written, start: 0, end: 0 };
        Parcel { to: ConnId(0), count: 0, pieces: [NOTHING; PIECES] }
    }

    /// Adds a piece; false if it does not fit in here and this parcel must go first.
    pub(crate) fn take(&mut self, to: ConnId, piece: Piece) -> bool {
        if self.count == 0 {
            self.to = to;
        } else if self.to != to {
            return false;
        } else if let Some(last) = self.pieces.get_mut(self.count - 1)
            && last.source == piece.source
            && last.end == piece.start
        {
            last.end = piece.end;
            return true;
        }
        let Some(free) = self.pieces.get_mut(self.count) else { return false };
        *free = piece;
        self.count += 1;
        true
    }

    /// To whom.
    pub(crate) fn to(&self) -> ConnId {
        self.to
    }

    /// The pieces in order.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    /// Nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All bytes of it.
    pub(crate) fn length(&self) -> usize {
        self.pieces().iter().map(|piece| piece.length()).sum()
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The pieces as the system wants them; the first `pieces().len()` count.
    pub(crate) fn slices<'a>(&self, bytes: Bytes<'a>) -> [IoSlice<'a>; PIECES] {
        std::array::from_fn(|index| {
            IoSlice::new(self.pieces().get(index).map_or(&[][..], |piece| bytes.of(*piece)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(source: Source, start: u32, end: u32) -> Piece {
        Piece { source, start, end }
    }

    #[test]
    fn neighbours_become_one_piece() {
        let mut parcel = Parcel::new();
        assert!(parcel.take(ConnId(1), piece(Source::Received, 0, 5)));
        assert!(parcel.take(ConnId(1), piece(Source::Received, 5, 9)));
        assert!(parcel.take(ConnId(1), piece(Source::Written, 9, 11)));
        assert_eq!(parcel.pieces(), [piece(Source::Received, 0, 9), piece(Source::Written, 9, 11)]);
        assert_eq!(parcel.length(), 11);
        assert!(!parcel.take(ConnId(2), piece(Source::Received, 11, 12)), "another connection");
    }

    #[test]
    fn a_full_parcel_refuses() {
        let mut parcel = Parcel::new();
        for index in 0..u32::try_from(PIECES).unwrap_or(0) {
            assert!(parcel.take(ConnId(1), piece(Source::Written, index * 2, index * 2 + 1)));
        }
        assert!(!parcel.take(ConnId(1), piece(Source::Written, 100, 101)));
    }
}
