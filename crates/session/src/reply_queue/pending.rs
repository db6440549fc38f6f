//! Which replies a server may owe, and what ends each of them.

use crate::prepared::StatementId;

/// One reply that the server owes, or that Weir sends to the client at this point of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingReply {
    /// Query: anything, then ReadyForQuery.
    Query,
    /// FunctionCall: a result, then ReadyForQuery.
    Function,
    /// Sync: ReadyForQuery.
    Sync,
    /// The client's Parse of the statement without a name: ParseComplete.
    Parse,
    /// The client's Parse of a named statement: ParseComplete.
    NamedParse(StatementId),
    /// Weir's own Parse, before a Bind or Describe on a server that lacks the statement: swallow its ParseComplete.
    InternalParse(StatementId),
    /// Weir's own Describe of a statement, right behind its Parse: swallow the description, and compare it.
    InternalDescribe(StatementId, Reader),
    /// The client's Parse of a statement under its own name, which SQL may have taken: ParseComplete.
    OwnParse,
    /// Weir's own Parse of a client's statement under the client's name, because SQL names it: swallow its ParseComplete, and the name
    /// means what the server has.
    InternalOwnParse,
    /// The client's Parse of a statement that the server has already: Weir sends ParseComplete.
    LocalParseComplete,
    /// Bind of the statement without a name: BindComplete.
    Bind,
    /// Bind of a named statement, likewise.
    NamedBind(StatementId),
    /// Describe of a portal or the statement without a name: RowDescription or NoData.
    Describe,
    /// Describe of a named statement, likewise.
    NamedDescribe(StatementId),
    /// Bind of a named statement whose request is kept, in case its plan is stale.
    RecordedBind(StatementId),
    /// Describe, likewise.
    RecordedDescribe(StatementId),
    /// Bind that is sent to be refused: its client would read the rows by an old description.
    RefusedBind,
    /// Parse, Bind or Describe that the server refuses, because the client's name is taken or unknown: the error gets
    /// that name ([`super::ReplyQueue::refused_name`]).
    Refused,
    /// Execute: rows, then CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    /// The client's Close of a portal or the unnamed statement: CloseComplete.
    Close,
    /// Weir's own Close of a statement that made room: swallow its CloseComplete.
    InternalClose(StatementId),
    /// The client's Close of a named statement, which the server keeps: Weir sends CloseComplete.
    LocalCloseComplete,
    /// The same behind a COPY that may be running or whose end is in doubt: the server is sent a Close of nothing, and its CloseComplete is passed on.
    NamedClose,
    /// CopyDone or CopyFail: no reply of its own; ends what a COPY swallows.
    CopyEnd,
    /// A query of Weir's own: swallow everything up to its ReadyForQuery.
    InternalQuery,
    /// A Close of nothing, with a Sync, of Weir's own behind Syncs that the server may have ignored: what comes before its
    /// CloseComplete answers those.
    Marker,
    /// The Sync of a segment that is replayed, or behind Weir's own Parse in front of a Query: swallow its ReadyForQuery.
    InternalSync,
    /// A message of a BEGIN that was deferred, in front of the client's request (`deferred_begin`): swallow its reply.
    DeferredBegin,
    /// A message of the settings that Weir sends in front of the client's request: swallow its reply.
    LeadingSetting,
}

/// By which description the client for which a statement was parsed reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The client has just prepared the statement, and can have no description but this one.
    Preparing,
    /// The client asks for this description, or reads by none.
    Fresh,
    /// The client may hold an older description.
    Holding,
}

impl PendingReply {
    /// Entries that the server does not answer.
    #[inline]
    pub(super) fn is_local(self) -> bool {
        matches!(
            self,
            PendingReply::LocalParseComplete | PendingReply::LocalCloseComplete | PendingReply::CopyEnd
        )
    }

    /// Entries that a ReadyForQuery answers.
    pub(super) fn ends_with_ready(self) -> bool {
        matches!(
            self,
            PendingReply::Query
                | PendingReply::Function
                | PendingReply::Sync
                | PendingReply::InternalQuery
                | PendingReply::InternalSync
                | PendingReply::Marker
        )
    }
}
