//! Bytes of a client that cannot be passed on yet.
//!
//! Owns how they are kept and when they are looked at again: not before they can be judged, or have doubled, and without being
//! copied. Never judges them.

use wire::frame::{self, HEADER_BYTES, Header};
use wire::tag::frontend as tag;

use super::{ClientStream, RequestOutcome};
use crate::ClientFault;

/// Bytes of one frame that may be kept because it cannot be judged yet (a Parse with a name must be whole).
const HELD_BYTES: usize = 16 * 1024 * 1024;

/// A frame up to this length is looked at again when it is whole.
pub(super) const WHOLE_BYTES: usize = 64 * 1024;

/// Memory of held bytes that have been passed on is kept for the next ones up to this capacity.
const SLACK_BYTES: usize = 64 * 1024;

impl ClientStream {
    /// The held bytes are known not to be enough yet: a caller that only adds to them need not step.
    #[must_use]
    pub fn needs_more_than(&self, added: usize) -> bool {
        self.held.len() + added < self.held_until && self.held.len() + added <= HELD_BYTES
    }

    /// Keeps what a step has left of bytes that were received.
    #[inline(always)]
    pub fn keep(&mut self, outcome: RequestOutcome, left: &[u8]) -> RequestOutcome {
        self.held_until = 0;
        if left.is_empty() || !matches!(outcome, RequestOutcome::All) {
            return outcome;
        }
        self.held.extend_from_slice(left);
        self.wait_for_more()
    }

    /// Keeps what a step that dealt with `done` bytes has left of bytes that were held.
    pub fn keep_held(&mut self, outcome: RequestOutcome, mut held: Vec<u8>, done: usize) -> RequestOutcome {
        self.held_until = 0;
        if done >= held.len() || !matches!(outcome, RequestOutcome::All) {
            return outcome;
        }
        held.drain(..done);
        if held.capacity() > SLACK_BYTES && held.capacity() > 4 * held.len() {
            held.shrink_to_fit();
        }
        self.held = held;
        self.wait_for_more()
    }

    /// Notes from where on another look may come to more.
    #[cold]
    #[inline(never)]
    fn wait_for_more(&mut self) -> RequestOutcome {
        let here = self.held.len();
        let Ok(Some(header)) = frame::header(&self.held) else {
            self.held_until = HEADER_BYTES;
            return RequestOutcome::All;
        };
        let whole = header.frame_bytes as usize;
        if here >= whole {
            return RequestOutcome::All;
        }
        if here > HELD_BYTES {
            return ClientFault::StatementTooLarge.into();
        }
        self.held_until = if needs_whole_frame(header) { whole } else { whole.min(2 * here) };
        RequestOutcome::All
    }
}

/// Less of it comes to nothing, or is not worth a look.
fn needs_whole_frame(header: Header) -> bool {
    matches!(header.tag, tag::PARSE | tag::DESCRIBE | tag::CLOSE)
        || header.frame_bytes as usize <= WHOLE_BYTES
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use wire::encode;

    /// The first bytes of a message with a long name.
    fn long(write: impl FnOnce(&mut Vec<u8>, &[u8]), here: usize) -> Vec<u8> {
        let mut message = Vec::new();
        write(&mut message, &vec![b'x'; 12 << 20]);
        message.truncate(here);
        message
    }

    #[test]
    fn a_message_is_looked_at_again_when_it_is_whole_or_has_doubled() {
        let bind = long(|out, name| encode::bind_simple(out, name, b"s", &[]), 1 << 20);
        let describe = long(|out, name| encode::describe(out, b'P', name), 1 << 20);
        for (held, too_little) in [(bind, (1 << 20) - 1), (describe, (11 << 20))] {
            let mut request = ClientStream::default();
            assert_eq!(request.keep(RequestOutcome::All, &held), RequestOutcome::All);
            assert!(request.needs_more_than(1) && request.needs_more_than(too_little));
            assert!(!request.needs_more_than(12 << 20));
        }
    }

    #[test]
    fn bytes_that_are_looked_at_again_are_not_copied() {
        let mut request = ClientStream::default();
        request.keep(RequestOutcome::All, &long(|out, name| encode::describe(out, b'P', name), 1 << 20));
        let held = std::mem::take(&mut request.held);
        let place = held.as_ptr();
        assert_eq!(request.keep_held(RequestOutcome::All, held, 0), RequestOutcome::All);
        assert_eq!(request.held.as_ptr(), place);
    }

    #[test]
    fn memory_of_what_was_passed_on_goes_back() {
        let mut request = ClientStream::default();
        let held = vec![b'Q'; 1 << 20];
        request.keep_held(RequestOutcome::All, held, (1 << 20) - 3);
        assert_eq!(request.held, b"QQQ");
        assert!(request.held.capacity() <= SLACK_BYTES);
    }
}
