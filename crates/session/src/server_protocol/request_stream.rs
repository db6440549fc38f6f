//! The stream of messages to a server: between two of them, or within one that is being forwarded.
//!
//! Owns [`Boundary`], which is created here and nowhere else.

use std::num::NonZeroU32;

/// Proof that the stream to a server is between two messages. Writing a message of Weir's own takes one, so that none can be
/// written between two halves of a client's.
#[derive(Clone, Copy, Debug)]
pub struct Boundary(());

/// How far the stream to a server is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum RequestStream {
    #[default]
    BetweenMessages,
    /// The server has the beginning of a message; this many of its bytes are still to be sent.
    InMessage(NonZeroU32),
}

impl RequestStream {
    /// Some if the stream is between two messages.
    #[inline(always)]
    pub(crate) fn boundary(self) -> Option<Boundary> {
        matches!(self, RequestStream::BetweenMessages).then_some(Boundary(()))
    }

    /// A message of `bytes` begins, of which `at_hand` are here. Returns how many of those are sent now.
    #[inline(always)]
    pub(crate) fn begin(&mut self, _at: Boundary, bytes: u32, at_hand: usize) -> usize {
        if bytes as usize <= at_hand {
            return bytes as usize; // Whole, as most are: the stream is between messages before and behind it.
        }
        *self = RequestStream::with_left(bytes - u32::try_from(at_hand).unwrap_or(bytes));
        at_hand
    }

    /// This many bytes more are at hand. Returns how many of them belong to the message that was begun.
    #[inline(always)]
    pub(crate) fn advance(&mut self, at_hand: usize) -> usize {
        let RequestStream::InMessage(left) = *self else { return 0 };
        let left = left.get();
        let now = at_hand.min(left as usize);
        *self = RequestStream::with_left(left - u32::try_from(now).unwrap_or(left));
        now
    }

    #[inline(always)]
    fn with_left(bytes: u32) -> RequestStream {
        NonZeroU32::new(bytes).map_or(RequestStream::BetweenMessages, RequestStream::InMessage)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_boundary_within_a_message() {
        let mut stream = RequestStream::default();
        assert_eq!(stream.begin(stream.boundary().unwrap(), 10, 4), 4);
        assert!(stream.boundary().is_none());
        assert_eq!(stream.advance(5), 5);
        assert!(stream.boundary().is_none());
        assert_eq!(stream.advance(5), 1, "the rest is the next message's");
        assert!(stream.boundary().is_some());
        assert_eq!(stream.advance(5), 0);
    }

    #[test]
    fn a_message_that_is_here_whole_leaves_a_boundary() {
        let mut stream = RequestStream::default();
        for bytes in [5, 0] {
            let at = stream.boundary().unwrap();
            assert_eq!(stream.begin(at, bytes, 20), bytes as usize);
            assert!(stream.boundary().is_some());
        }
    }
}
