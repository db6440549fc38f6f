//! Replay of a request whose prepared statement has a plan that DDL has made stale: the client does not notice, where that is safe.
//!
//! Owns the decision whether a request may be replayed. It may if the server refused its first message that uses the statement (0A000,
//! 26000) before anything of the segment was executed, outside a transaction block, and nothing of what comes behind has been sent.
//! The copy is [`crate::replay`]'s.

use wire::{encode, error, sqlstate};

use crate::client_statements::DescribeHistory;
use crate::prepared::server_name;
use crate::replay::parse_message;
use crate::{Boundary, Output, PendingReply, Reader, ServerProtocol, StatementId, StatementRegistry};

/// The error of PostgreSQL for a prepared statement whose result has changed. Its SQLSTATE has other uses and its message is
/// translated, so that the name of PostgreSQL's routine decides.
pub(super) fn is_changed_result(error_body: &[u8]) -> bool {
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
pub(super) fn is_unparsable(error_body: &[u8]) -> bool {
    let fields = error::parse(error_body);
    fields.code().is_some_and(|code| code.starts_with(b"42")) && fields.field(b'P').is_some()
}

/// One of the two errors above.
pub(super) fn is_stale_plan(error_body: &[u8]) -> bool {
    is_changed_result(error_body) || is_missing(error_body)
}

/// A request that can be replayed.
pub(super) struct ReplayableRequest {
    pub(super) statement: StatementId,
    pub(super) reader: Reader,
    /// The number of the Describe of what is bound, where there is one.
    pub(super) described: Option<u64>,
    /// The result has changed.
    pub(super) is_changed_result: bool,
}

/// Whether the request that the server has just refused with this error can be replayed, and for which reader.
pub(super) fn replayable(
    server: &ServerProtocol,
    error_body: &[u8],
    describe_history: DescribeHistory,
    registry: &StatementRegistry,
) -> Option<ReplayableRequest> {
    let Some(PendingReply::RecordedBind(statement) | PendingReply::RecordedDescribe(statement)) =
        server.replies.front()
    else {
        return None;
    };
    let replay_buffer = &server.replay_buffer;
    let nothing_behind = replay_buffer.is_on() && !replay_buffer.is_followed();
    let front = server.replies.answered();
    let described = match server.replies.front() {
        Some(PendingReply::RecordedDescribe(_)) => Some(front),
        _ => replay_buffer.describes_portal().then_some(front + 1),
    };
    let reads_anew = described.is_some() || !describe_history.describes;
    let is_changed_result = is_changed_result(error_body);
    let mendable = is_missing(error_body) || is_changed_result && reads_anew;
    let known = replay_buffer.begins_at(front) && registry.rest(statement).is_some();
    let may = mendable && nothing_behind && !server.in_block() && known;
    let reader = if reads_anew { Reader::Fresh } else { Reader::Holding };
    may.then_some(ReplayableRequest { statement, reader, described, is_changed_result })
}

/// Replays it: what was to be skipped ends with a Sync of Weir's own or the client's, the statement is prepared
/// anew, and the copy follows. True if the client's further requests had been held back.
pub(super) fn replay(
    server: &mut ServerProtocol,
    at: Boundary,
    reader: Reader,
    registry: &StatementRegistry,
    out: &mut impl Output,
) -> bool {
    let statement = server.replay_buffer.statement();
    let Some(rest) = registry.typed(statement) else { return server.replay_buffer.end() };
    let (name, whole) = (server_name(statement), server.replay_buffer.is_whole());
    let copy = server.replay_buffer.take_copy();
    server.replies.note_internal_bytes(rest.len() + copy.len());
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
    server.replies.requeue_replayed(statement, reader, !whole);
    let segment = server.replies.segment();
    server.statements.prepared_anew(statement, registry.scope(statement), segment);
    if !registry.may_be_parsed_with(statement, &server.parameters, server.settings.catalog()) {
        // Parsed under other settings, it is for this request only.
        server.statements.mark_stale(statement);
    }
    server.replay_buffer.end()
}
