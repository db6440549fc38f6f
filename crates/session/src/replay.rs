//! What becomes of a prepared statement whose plan DDL has spoilt: the client sees nothing of it, where that is safe.
//!
//! Owns the copy of a request that may have to be said again, and the judgement whether it may be. A request is its
//! segment from the first Bind or Describe of a named statement on, up to Sync. It may be said again if the server
//! refused that very message (0A000, 26000) before anything of the segment was executed, outside a transaction block,
//! and nothing of what comes behind has been sent. Never knows a socket; never keeps more than [`BYTES`].

use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;
use wire::{encode, error, sqlstate};

use crate::prepared::server_name;
use crate::{Boundary, Conversation, Output, Owed, Reader, Registry, StatementId};

/// A request that is longer is not kept: its errors pass.
pub(crate) const BYTES: usize = 64 * 1024;

/// A copy that took more memory than this gives it back.
const KEPT_BYTES: usize = 4096;

/// The request that is watched on a server, and its copy.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: State,
    statement: StatementId,
    /// The number of its first entry among the owed replies.
    number: u64,
    /// What was sent, from the watched message on; its Sync is not in it.
    copy: Vec<u8>,
    /// The server has bound the statement since it was last at rest: nothing is made to wait for it.
    verified: bool,
    /// Something was sent behind the segment.
    followed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    /// More of the segment is to come.
    Recording,
    /// Its Sync has been sent.
    Whole,
    /// Likewise, and what comes behind it has to wait.
    HoldsBack,
}

impl Watch {
    /// The next message is the first of the segment that may meet a spoilt plan.
    pub(crate) fn begin(&mut self, statement: StatementId, number: u64, verified: bool) {
        self.copy.clear();
        (self.state, self.statement, self.number) = (State::Recording, statement, number);
        (self.verified, self.followed) = (verified, false);
    }

    /// What is sent now belongs to the copy.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.state == State::Recording
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

    /// A request is watched.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.state != State::Off
    }

    /// All of the segment has been sent.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole | State::HoldsBack)
    }

    /// A message of whatever kind was dealt with; `behind` says that the segment was whole before it.
    #[inline]
    pub(crate) fn follow(&mut self, behind: bool) {
        self.followed |= behind && self.is_whole();
    }

    /// What was watched is a Bind, and the message behind it asks for the description of its portal.
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

    /// The segment's Sync goes to the server. True if it was watched.
    #[inline]
    pub(crate) fn sync(&mut self) -> bool {
        let records = self.records();
        if records {
            self.state = if self.verified { State::Whole } else { State::HoldsBack };
        }
        records
    }

    /// What the client sends behind this segment has to wait until it is known that the segment need not be said
    /// again: what was asked later must not be done earlier.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.state == State::HoldsBack
    }

    /// Ends it; true if it held something back.
    pub(crate) fn end(&mut self) -> bool {
        let held_back = self.holds_back();
        self.state = State::Off;
        if self.copy.capacity() > KEPT_BYTES {
            self.copy = Vec::new();
        }
        held_back
    }
}

/// What is known of how the client reads results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habit {
    /// It has asked for a description: it may still read rows by that one.
    pub(crate) describes: bool,
}

/// An error that says that a prepared statement's result has changed. Its SQLSTATE has other uses, and its words are
/// translated; PostgreSQL's routine is neither.
pub(crate) fn is_reshaped(error_body: &[u8]) -> bool {
    let fields = error::parse(error_body);
    let routine = fields.field(b'R').is_none_or(|routine| routine == b"RevalidateCachedQuery");
    fields.code() == Some(sqlstate::FEATURE_NOT_SUPPORTED.as_bytes()) && routine
}

/// An error that says that a prepared statement is not there.
fn is_gone(error_body: &[u8]) -> bool {
    error::parse(error_body).code() == Some(sqlstate::UNDEFINED_PREPARED.as_bytes())
}

/// An error that says that a text which was parsed once cannot be parsed any more, or not with the types that its parameters had: it is
/// about a place in the text. What a function has to say of its values is not.
pub(crate) fn is_misfit(error_body: &[u8]) -> bool {
    let fields = error::parse(error_body);
    fields.code().is_some_and(|code| code.starts_with(b"42")) && fields.field(b'P').is_some()
}

/// One of the two.
pub(crate) fn is_spoilt(error_body: &[u8]) -> bool {
    is_reshaped(error_body) || is_gone(error_body)
}

/// A request that can be said again.
pub(crate) struct Refused {
    pub(crate) statement: StatementId,
    pub(crate) reader: Reader,
    /// The number of the Describe of what is bound, where there is one.
    pub(crate) described: Option<u64>,
    /// The result has changed.
    pub(crate) is_reshaped: bool,
}

impl Conversation {
    /// Whether the request that the server has just refused with this error can be said again, and for whom.
    pub(crate) fn may_replay(&self, error_body: &[u8], habit: Habit, registry: &Registry) -> Option<Refused> {
        let Some(Owed::WatchedBind(statement) | Owed::WatchedDescribe(statement)) = self.owes.front() else {
            return None;
        };
        let watch = &self.watch;
        let nothing_behind =
            watch.state != State::Off && (!watch.followed || planted::bug!("replay_overtakes"));
        let front = self.owes.answered();
        let described = match self.owes.front() {
            Some(Owed::WatchedDescribe(_)) => Some(front),
            _ => watch.describes_portal().then_some(front + 1),
        };
        let reads_anew = described.is_some() || !habit.describes;
        let is_reshaped = is_reshaped(error_body);
        let mendable = is_gone(error_body) || is_reshaped && reads_anew;
        let known = watch.number == front && registry.rest(statement).is_some();
        let spared = !planted::bug!("spoilt_plan_told");
        let may = spared && mendable && nothing_behind && !self.in_block() && known;
        let reader = if reads_anew { Reader::Anew } else { Reader::Holding };
        may.then_some(Refused { statement, reader, described, is_reshaped })
    }

    /// Says it again: what was to be skipped ends with a Sync of our own or the client's, the statement is prepared
    /// anew, and the copy follows. True if the client's further requests had been held back.
    pub(crate) fn replay(
        &mut self,
        at: Boundary,
        reader: Reader,
        registry: &Registry,
        out: &mut impl Output,
    ) -> bool {
        let statement = self.watch.statement;
        let Some(rest) = registry.typed(statement) else { return self.watch.end() };
        let (name, whole) = (server_name(statement), self.watch.is_whole());
        let copy = std::mem::take(&mut self.watch.copy);
        self.owes.note_own(rest.len() + copy.len());
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
        self.owes.say_again(statement, reader, !whole);
        let segment = self.owes.segment();
        self.statements.prepared_anew(statement, registry.scope(statement), segment);
        if !registry.may_be_parsed_with(statement, &self.parameters, self.catalog) {
            // Parsed under other settings, it is for this request only.
            self.statements.mark_stale(statement);
        }
        self.watch.end()
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
