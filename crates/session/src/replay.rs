//! Replay of a request whose prepared statement has a plan that DDL has made stale: the client does not notice, where that is safe.
//!
//! Owns the copy of a request that may have to be replayed, and the decision whether it may be. A request is its
//! segment from the first Bind or Describe of a named statement on, up to Sync. It may be replayed if the server
//! refused that very message (0A000, 26000) before anything of the segment was executed, outside a transaction block,
//! and nothing of what comes behind has been sent. Never knows a socket; never keeps more than [`BYTES`].

use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;
use wire::{encode, error, sqlstate};

use crate::prepared::server_name;
use crate::{Boundary, Output, PendingReply, Reader, ServerProtocol, StatementId, StatementRegistry};

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
    /// The server has bound the statement since it was last quiet: nothing has to wait for it.
    verified: bool,
    /// Something was sent behind the segment.
    followed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordingState {
    #[default]
    Off,
    /// More of the segment is to come.
    Recording,
    /// Its Sync has been sent.
    Whole,
    /// Likewise, and what comes behind it has to wait.
    BlocksRequests,
}

impl ReplayBuffer {
    /// The next message is the first of the segment that may meet a stale plan.
    pub(crate) fn begin(&mut self, statement: StatementId, number: u64, verified: bool) {
        self.copy.clear();
        (self.state, self.statement, self.number) = (RecordingState::Recording, statement, number);
        (self.verified, self.followed) = (verified, false);
    }

    /// What is sent now belongs to the copy.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.state == RecordingState::Recording
    }

    /// Whether so many bytes more may be kept.
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
        matches!(self.state, RecordingState::Whole | RecordingState::BlocksRequests)
    }

    /// A message of any kind was processed; `behind` means that the segment was whole before it.
    #[inline]
    pub(crate) fn follow(&mut self, behind: bool) {
        self.followed |= behind && self.is_whole();
    }

    /// What was recorded is a Bind, and the message behind it asks for the description of its portal.
    fn describes_portal(&self) -> bool {
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
        let records = self.records();
        if records {
            self.state = if self.verified { RecordingState::Whole } else { RecordingState::BlocksRequests };
        }
        records
    }

    /// What the client sends behind this segment has to wait until it is known that the segment is not replayed:
    /// later requests must not be executed earlier.
    #[inline]
    pub(crate) fn blocks_requests(&self) -> bool {
        self.state == RecordingState::BlocksRequests
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

/// Whether the client has asked for descriptions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DescribeHistory {
    /// It has asked for a description: it may still read rows by that one.
    pub(crate) describes: bool,
}

/// The error of PostgreSQL for a prepared statement whose result has changed. Its SQLSTATE has other uses and its message is
/// translated, so that the name of PostgreSQL's routine decides.
pub(crate) fn is_changed_result(error_body: &[u8]) -> bool {
    let fields = error::parse(error_body);
    let routine = fields.field(b'R').is_none_or(|routine| routine == b"RevalidateCachedQuery");
    fields.code() == Some(sqlstate::FEATURE_NOT_SUPPORTED.as_bytes()) && routine
}

/// The error for a prepared statement that does not exist.
fn is_missing(error_body: &[u8]) -> bool {
    error::parse(error_body).code() == Some(sqlstate::UNDEFINED_PREPARED.as_bytes())
}

/// The error for a text that was parsed once and cannot be parsed any more, or not with the types that its parameters had: it has a
/// position in the text, which errors raised by functions have not.
pub(crate) fn is_unparsable(error_body: &[u8]) -> bool {
    let fields = error::parse(error_body);
    fields.code().is_some_and(|code| code.starts_with(b"42")) && fields.field(b'P').is_some()
}

/// One of the two errors above.
pub(crate) fn is_stale_plan(error_body: &[u8]) -> bool {
    is_changed_result(error_body) || is_missing(error_body)
}

/// A request that can be replayed.
pub(crate) struct ReplayableRequest {
    pub(crate) statement: StatementId,
    pub(crate) reader: Reader,
    /// The number of the Describe of what is bound, where there is one.
    pub(crate) described: Option<u64>,
    /// The result has changed.
    pub(crate) is_changed_result: bool,
}

impl ServerProtocol {
    /// Whether the request that the server has just refused with this error can be replayed, and for which reader.
    pub(crate) fn replayable(
        &self,
        error_body: &[u8],
        describe_history: DescribeHistory,
        registry: &StatementRegistry,
    ) -> Option<ReplayableRequest> {
        let Some(PendingReply::RecordedBind(statement) | PendingReply::RecordedDescribe(statement)) =
            self.replies.front()
        else {
            return None;
        };
        let replay_buffer = &self.replay_buffer;
        let nothing_behind = replay_buffer.state != RecordingState::Off
            && (!replay_buffer.followed || planted::bug!("replay_overtakes"));
        let front = self.replies.answered();
        let described = match self.replies.front() {
            Some(PendingReply::RecordedDescribe(_)) => Some(front),
            _ => replay_buffer.describes_portal().then_some(front + 1),
        };
        let reads_anew = described.is_some() || !describe_history.describes;
        let is_changed_result = is_changed_result(error_body);
        let mendable = is_missing(error_body) || is_changed_result && reads_anew;
        let known = replay_buffer.number == front && registry.rest(statement).is_some();
        let spared = !planted::bug!("spoilt_plan_told");
        let may = spared && mendable && nothing_behind && !self.in_block() && known;
        let reader = if reads_anew { Reader::Fresh } else { Reader::Holding };
        may.then_some(ReplayableRequest { statement, reader, described, is_changed_result })
    }

    /// Replays it: what was to be skipped ends with a Sync of Weir's own or the client's, the statement is prepared
    /// anew, and the copy follows. True if the client's further requests had been held back.
    pub(crate) fn replay(
        &mut self,
        at: Boundary,
        reader: Reader,
        registry: &StatementRegistry,
        out: &mut impl Output,
    ) -> bool {
        let statement = self.replay_buffer.statement;
        let Some(rest) = registry.typed(statement) else { return self.replay_buffer.end() };
        let (name, whole) = (server_name(statement), self.replay_buffer.is_whole());
        let copy = std::mem::take(&mut self.replay_buffer.copy);
        self.replies.note_internal_bytes(rest.len() + copy.len());
        out.to_server(at, |bytes| {
            if !whole {
                encode::sync(bytes);
            }
            encode::close(bytes, b'S', &name);
            parse_message(bytes, &name, &rest);
            encode::describe(bytes, b'S', &name);
            bytes.extend_from_slice(&copy);
            if whole {
                encode::sync(bytes);
            }
        });
        self.replies.requeue_replayed(statement, reader, !whole);
        let segment = self.replies.segment();
        self.statements.prepared_anew(statement, registry.scope(statement), segment);
        if !registry.may_be_parsed_with(statement, &self.parameters, self.catalog) {
            // Parsed under other settings, it is for this request only.
            self.statements.mark_stale(statement);
        }
        self.replay_buffer.end()
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
