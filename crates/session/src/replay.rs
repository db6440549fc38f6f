//! The copy of a request that may have to be replayed, because its prepared statement may have a plan that DDL has made stale.
//!
//! Owns which messages belong to it. A request is its segment from the first Bind or Describe of a named statement on, up to Sync.
//! Whether it is replayed is decided with the server's reply ([`crate::reply`]). Never keeps more than [`BYTES`].

use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use crate::StatementId;

/// A request that is longer is not kept: its errors pass.
pub(crate) const BYTES: usize = 64 * 1024;

/// A copy that took more memory than this gives it back.
const KEPT_BYTES: usize = 4096;

/// The request that is recorded on a server, and its copy.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer {
    state: RecordingState,
    statement: StatementId,
    /// The number of its first entry among the owed replies.
    number: u64,
    /// What was sent, from the recorded message on; its Sync is not in it.
    copy: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordingState {
    #[default]
    Off,
    /// More of the segment is to come. `verified`: the server has bound the statement since it was last quiet, so that nothing has to
    /// wait for it.
    Recording { verified: bool },
    /// Its Sync has been sent. `followed`: so was something behind it.
    Whole { followed: bool },
    /// Its Sync has been sent, and what comes behind it has to wait.
    BlocksRequests { followed: bool },
}

impl ReplayBuffer {
    /// The next message is the first of the segment that may meet a stale plan.
    pub(crate) fn begin(&mut self, statement: StatementId, number: u64, verified: bool) {
        self.copy.clear();
        (self.state, self.statement, self.number) =
            (RecordingState::Recording { verified }, statement, number);
    }

    /// What is sent now belongs to the copy.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        matches!(self.state, RecordingState::Recording { .. })
    }

    /// Whether this many bytes more may be kept.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.copy.len() + bytes <= BYTES
    }

    /// These bytes go to the server.
    #[inline]
    pub(crate) fn record(&mut self, bytes: &[u8]) {
        if self.records() {
            if self.has_room_for(bytes.len()) {
                self.copy.extend_from_slice(bytes);
            } else {
                self.end();
            }
        }
    }

    /// A request is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.state != RecordingState::Off
    }

    /// All of the segment has been sent.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.state, RecordingState::Whole { .. } | RecordingState::BlocksRequests { .. })
    }

    /// A message of any kind was processed; `behind` means that the segment was whole before it.
    #[inline]
    pub(crate) fn follow(&mut self, behind: bool) {
        if let RecordingState::Whole { followed } | RecordingState::BlocksRequests { followed } =
            &mut self.state
        {
            *followed |= behind;
        }
    }

    /// Something was sent behind the segment.
    pub(crate) fn is_followed(&self) -> bool {
        matches!(
            self.state,
            RecordingState::Whole { followed: true } | RecordingState::BlocksRequests { followed: true }
        )
    }

    /// The reply with this number is to the first recorded message.
    pub(crate) fn begins_at(&self, number: u64) -> bool {
        self.number == number
    }

    /// The statement that the first recorded message uses.
    pub(crate) fn statement(&self) -> StatementId {
        self.statement
    }

    /// What was recorded.
    pub(crate) fn take_copy(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.copy)
    }

    /// What was recorded is a Bind, and the message behind it asks for the description of its portal.
    pub(crate) fn describes_portal(&self) -> bool {
        let Ok(Some(bind)) = frame::header(&self.copy) else { return false };
        let Some((bind, next)) = self.copy.split_at_checked(bind.frame_bytes as usize) else { return false };
        let Ok(Some(describe)) = frame::header(next) else { return false };
        let body = next.get(HEADER_BYTES..describe.frame_bytes as usize).unwrap_or_default();
        match (frontend::bind_names(&bind[HEADER_BYTES..]), frontend::target(body)) {
            (Found::Yes((portal, _, _)), Found::Yes((b'P', target))) => {
                describe.tag == tag::DESCRIBE && target == portal
            }
            _ => false,
        }
    }

    /// The segment's Sync goes to the server. True if it was recorded.
    #[inline]
    pub(crate) fn sync(&mut self) -> bool {
        let RecordingState::Recording { verified } = self.state else { return false };
        self.state = match verified {
            true => RecordingState::Whole { followed: false },
            false => RecordingState::BlocksRequests { followed: false },
        };
        true
    }

    /// What the client sends behind this segment has to wait until it is known that the segment is not replayed:
    /// later requests must not be executed earlier.
    #[inline]
    pub(crate) fn blocks_requests(&self) -> bool {
        matches!(self.state, RecordingState::BlocksRequests { .. })
    }

    /// Ends it; true if it held something back.
    pub(crate) fn end(&mut self) -> bool {
        let held_back = self.blocks_requests();
        self.state = RecordingState::Off;
        if self.copy.capacity() > KEPT_BYTES {
            self.copy = Vec::new();
        }
        held_back
    }
}

/// Appends a Parse whose body after the name is `rest`.
pub(crate) fn parse_message(out: &mut Vec<u8>, name: &[u8], rest: &[u8]) {
    let body_bytes = u32::try_from(name.len() + 1 + rest.len()).unwrap_or(u32::MAX - 4);
    out.push(wire::tag::frontend::PARSE);
    out.extend_from_slice(&(body_bytes + 4).to_be_bytes());
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(verified: bool) -> ReplayBuffer {
        let mut buffer = ReplayBuffer::default();
        assert!(!buffer.is_on() && !buffer.sync(), "nothing is recorded");
        buffer.begin(1, 20, verified);
        buffer.record(b"Bind");
        assert!(buffer.records() && buffer.is_on() && !buffer.is_whole());
        buffer
    }

    #[test]
    fn requests_wait_behind_a_segment_whose_plan_is_not_verified() {
        for verified in [false, true] {
            let mut buffer = recording(verified);
            buffer.follow(true);
            assert!(buffer.sync() && buffer.is_whole() && !buffer.records());
            assert!(buffer.blocks_requests() != verified && !buffer.is_followed());
            assert!(!buffer.sync(), "the Sync of a later segment");
            buffer.follow(true);
            assert!(buffer.is_followed());
            assert_eq!(buffer.end(), !verified);
            assert!(!buffer.is_on() && !buffer.is_followed());
        }
    }

    #[test]
    fn a_request_that_is_too_long_is_not_recorded() {
        let mut buffer = recording(false);
        buffer.record(&vec![0; BYTES - b"Bind".len()]);
        assert!(buffer.records());
        buffer.record(b"x");
        assert!(!buffer.is_on() && buffer.copy.capacity() == 0, "its memory is given back");
    }
}
