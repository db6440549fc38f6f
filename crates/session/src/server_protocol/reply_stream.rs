//! The stream of reply frames from a server: between two of them, within one whose beginning the client has, or with the
//! beginning of one that cannot be judged yet.
//!
//! Owns the bytes of that beginning. A frame is passed on or kept, never both.

/// How far the stream from a server is.
///
/// Not an enum: the bytes that are kept have a destructor, which every change of state on the path of a row would check.
#[derive(Debug, Default)]
pub(crate) struct ReplyStream {
    /// The client has the beginning of a frame; this many bytes of it have not come yet. Zero where `partial` is not empty.
    left: u32,
    /// The beginning of a frame that cannot be judged yet.
    partial: Vec<u8>,
}

impl ReplyStream {
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.left == 0 && self.partial.is_empty()
    }

    /// The client has the beginning of a frame: no other message may be written to it before the rest.
    #[inline]
    pub(crate) fn is_in_frame(&self) -> bool {
        self.left > 0
    }

    /// The beginning of a frame is kept.
    #[inline]
    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Bytes of the frame that is passed on which have not come yet.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// A frame of `bytes` is passed on, behind another; `at_hand` are here. Returns how many of those are the frame's.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bytes: u32, at_hand: usize) -> usize {
        debug_assert!(self.left == 0, "a frame begins behind another");
        if bytes as usize <= at_hand {
            return bytes as usize; // Whole, as most are: nothing is left of it.
        }
        self.left = bytes - u32::try_from(at_hand).unwrap_or(bytes);
        at_hand
    }

    /// This many bytes more are at hand. Returns how many of them belong to the frame that was begun.
    #[inline(always)]
    pub(crate) fn advance(&mut self, at_hand: usize) -> usize {
        let now = at_hand.min(self.left as usize);
        self.left -= u32::try_from(now).unwrap_or(self.left);
        now
    }

    /// Keeps the beginning of a frame until more of it has come.
    pub(crate) fn keep(&mut self, beginning: &[u8]) {
        self.partial.extend_from_slice(beginning);
    }

    /// What was kept; empty if nothing was.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_passed_on_to_its_last_byte() {
        let mut stream = ReplyStream::default();
        assert_eq!(stream.begin(5, 20), 5);
        assert!(stream.is_at_rest());
        assert_eq!(stream.begin(10, 4), 4);
        assert!(stream.is_in_frame() && stream.left() == 6 && !stream.is_at_rest());
        assert_eq!((stream.advance(5), stream.advance(5)), (5, 1));
        assert!(stream.is_at_rest() && stream.left() == 0);
    }

    #[test]
    fn the_beginning_of_a_frame_is_no_rest() {
        let mut stream = ReplyStream::default();
        assert!(!stream.is_partial() && stream.take_partial().is_empty());
        stream.keep(b"Z\0");
        assert!(!stream.is_at_rest() && !stream.is_in_frame());
        assert_eq!(stream.advance(3), 0, "none of it was passed on");
        assert!(stream.is_partial());
        assert_eq!(stream.take_partial(), b"Z\0");
        assert!(stream.is_at_rest());
    }
}
