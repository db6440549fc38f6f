//! The protocol state of one server connection: which replies are owed, its transaction status, its statements.
//!
//! Owns the question whether a server is quiet ([`ServerProtocol::is_quiet`]), on which releasing it depends. The steps
//! that change it are in [`crate::request`] (what a client asks) and [`crate::reply`] (what the server answers).

use wire::backend::Status;

use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::ReplayBuffer;
use crate::reported::NonAscii;
use crate::resets::Resets;
use crate::server_statements::UnnamedStatement;
use crate::statement_text::Effects;
use crate::{
    Catalog, InternalResult, Output, Parameters, ParseSettings, PendingReply, ReplyQueue, Reset,
    ServerStatements,
};

/// Proof that the stream to a server is between two messages. Writing a message of Weir's own takes one, so that none can be
/// written between two halves of a client's.
#[derive(Clone, Copy, Debug)]
pub struct Boundary(());

/// The protocol state of a logged-in server connection.
#[derive(Debug)]
pub struct ServerProtocol {
    /// Replies owed, oldest first.
    pub(crate) replies: ReplyQueue,
    /// What the last ReadyForQuery said; None since something was asked after it.
    pub(crate) status: Option<Status>,
    /// Body bytes of the message that is being sent to the server still to be sent.
    pub(crate) unsent_body: u32,
    /// Body bytes of the current reply frame still to come.
    pub(crate) remain: u32,
    /// Bytes of a reply frame that cannot be judged yet.
    pub(crate) partial: Vec<u8>,
    /// An extended segment failed and its Sync has not been sent yet: the server ignores what comes.
    pub(crate) skipping: bool,
    /// The server reads COPY data.
    pub(crate) copying_in: bool,
    /// The last COPY that began goes both ways.
    pub(crate) copy_is_both: bool,
    /// Syncs sent while the server reads COPY data: it ignores them, unless the copy has failed before them.
    pub(crate) copy_syncs: u32,
    /// Such Syncs of a copy that has failed: as many times ReadyForQuery may come, or fewer. Zero again at the first other
    /// reply, because replies come in order.
    pub(crate) possible_readies: u32,
    /// Something was sent whose outcome is not modelled: this server is closed when it is released.
    pub(crate) tainted: bool,
    /// A Query or FunctionCall was sent behind an Execute, before its Sync.
    pub(crate) query_in_pipeline: bool,
    /// What the last ReadyForQuery said, whatever was asked since.
    pub(crate) last_status: Status,
    /// What may have been done since the last Sync; nothing if nothing but Parse, Describe and Close was asked.
    pub(crate) segment_effects: Effects,
    /// What executing the portals that were bound may change.
    pub(crate) portal_effects: Effects,
    /// What executing them resets.
    pub(crate) portal_resets: Reset,
    /// What the statement without a name resets, if that may change anything.
    pub(crate) unnamed_resets: Reset,
    /// The last segment in which settings may have been changed, until it is answered.
    pub(crate) set_segment: Option<u64>,
    /// Where names in a text are looked up.
    pub(crate) catalog: Catalog,
    /// The settings in force, as of these parameters.
    pub(crate) settings: Option<(Parameters, ParseSettings)>,
    /// What the client sends now waits for replies to what was sent before.
    pub(crate) awaits_replies: bool,
    /// The number of the oldest reply owed when that ends.
    pub(crate) awaits_until: u64,
    /// What the client gets instead of the server's message.
    pub(crate) replacement: Vec<u8>,
    /// The request that may have to be replayed.
    pub(crate) replay_buffer: ReplayBuffer,
    /// The types of the parameters of the statement that is being described to Weir.
    pub(crate) described_types: Vec<u32>,
    /// The rows of an internal query, while one runs.
    pub(crate) internal_result: Option<Box<InternalResult>>,
    /// What is known of resets since nothing was owed.
    pub(crate) resets: Resets,
    /// Parameters that have the client's startup value again for the client, but not on this server.
    pub(crate) lost: Reset,
    /// Parameters reported last in bytes other than ASCII.
    pub(crate) non_ascii: NonAscii,
    /// Statements prepared here.
    pub statements: ServerStatements,
    /// Tracked parameters as the server reported them.
    pub parameters: Parameters,
}

impl ServerProtocol {
    /// A server that has just said ReadyForQuery for the first time.
    #[must_use]
    pub fn new(parameters: Parameters) -> ServerProtocol {
        ServerProtocol {
            replies: ReplyQueue::default(),
            status: Some(Status::Idle),
            unsent_body: 0,
            remain: 0,
            partial: Vec::new(),
            skipping: false,
            copying_in: false,
            copy_is_both: false,
            copy_syncs: 0,
            possible_readies: 0,
            tainted: false,
            query_in_pipeline: false,
            last_status: Status::Idle,
            segment_effects: Effects::NONE,
            portal_effects: Effects::NONE,
            portal_resets: Reset::default(),
            unnamed_resets: Reset::default(),
            set_segment: None,
            catalog: Catalog::default(),
            settings: None,
            awaits_replies: false,
            awaits_until: 0,
            replacement: Vec::new(),
            replay_buffer: ReplayBuffer::default(),
            described_types: Vec::new(),
            internal_result: None,
            resets: Resets::default(),
            lost: Reset::default(),
            non_ascii: NonAscii::default(),
            statements: ServerStatements::default(),
            parameters,
        }
    }

    /// Sets the pool in which names are looked up.
    #[must_use]
    pub fn with_catalog(mut self, catalog: Catalog) -> ServerProtocol {
        self.catalog = catalog;
        self
    }

    /// A server that came from another process, where it had just said this ReadyForQuery.
    #[must_use]
    pub fn imported(parameters: Parameters, status: Status, tainted: bool) -> ServerProtocol {
        let mut protocol = ServerProtocol::new(parameters);
        (protocol.status, protocol.last_status, protocol.tainted) = (Some(status), status, tainted);
        // Portals live as long as their transaction, and what these do is not known here.
        if status != Status::Idle {
            (protocol.portal_effects, protocol.portal_resets) = (Effects::ALL, Reset::UNCLEAR);
        }
        protocol
    }

    /// Nothing is owed and nothing half read, in a transaction or not: another process can continue.
    #[must_use]
    pub fn is_exportable(&self) -> bool {
        let at_boundary = self.remain == 0 && self.partial.is_empty() && self.possible_readies == 0;
        self.replies.is_empty() && self.status.is_some() && at_boundary && !self.copying_in && !self.skipping
    }

    /// The number of the client whose unnamed statement this server has.
    #[must_use]
    pub fn unnamed_owner(&self) -> Option<u64> {
        self.statements.unnamed.owner()
    }

    /// This client has been on another server since: PostgreSQL would have the unnamed statement of there, or none.
    #[inline]
    pub fn forget_unnamed_of(&mut self, client: u64) {
        if self.statements.unnamed.is_of(client) {
            self.statements.unnamed = UnnamedStatement::default();
        }
    }

    /// A server that came from another process has this client's unnamed statement.
    pub fn import_unnamed(&mut self, owner: u64) {
        self.statements.unnamed = UnnamedStatement::imported(owner);
        self.unnamed_resets = Reset::UNCLEAR;
    }

    /// Something was sent whose outcome is not modelled.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// A Query was sent behind an Execute, and their Sync has not come: PostgreSQL 18 may answer it with status idle and keep
    /// the transaction open.
    #[must_use]
    pub fn has_query_in_pipeline(&self) -> bool {
        self.query_in_pipeline
    }

    /// [`ServerProtocol::has_answered`], and no message is half sent. One of the conditions of release; the others (unsent
    /// bytes, cancels) are the shard's to know.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.has_answered() && self.boundary().is_some()
    }

    /// Nothing is owed, the last ReadyForQuery said idle, no reply is half read, no COPY runs.
    #[inline]
    #[must_use]
    pub fn has_answered(&self) -> bool {
        let nothing_owed = self.replies.is_empty() || planted::bug!("release_at_first_ready");
        nothing_owed
            && self.status == Some(Status::Idle)
            && self.remain == 0
            && self.partial.is_empty()
            && !self.copying_in
            && self.possible_readies == 0
    }

    /// Some if the stream to the server is between two messages.
    #[inline]
    #[must_use]
    pub fn boundary(&self) -> Option<Boundary> {
        (self.unsent_body == 0 || planted::bug!("half_request_left")).then_some(Boundary(()))
    }

    /// The server is quiet and its client has sent nothing more: DDL may come before the next request, so that the next Bind
    /// of each statement is recorded again.
    #[inline]
    pub fn mark_quiet(&mut self) {
        self.statements.mark_quiet();
        if self.portal_effects.any(Effects::ALTERING) {
            self.portal_resets = Reset::default();
        }
        self.portal_effects = Effects::NONE;
    }

    /// The last ReadyForQuery, unless something was asked since.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// In a transaction block (or a failed one).
    #[must_use]
    pub fn in_block(&self) -> bool {
        self.last_status != Status::Idle
    }

    /// In a failed transaction block, as the last ReadyForQuery said.
    pub(crate) fn in_failed_block(&self) -> bool {
        self.last_status == Status::Failed
    }

    /// A reply is outstanding.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.replies.is_empty() || self.status.is_none()
    }

    /// A stream runs in both directions (CopyBoth).
    #[must_use]
    pub fn is_copy_both(&self) -> bool {
        self.copy_is_both && self.copying_in
    }

    /// What the client sends now is kept until the server has answered something that was sent before.
    #[inline]
    #[must_use]
    pub fn blocks_requests(&self) -> bool {
        self.replay_buffer.blocks_requests() || self.awaits_replies
    }

    /// The client has received a part of a frame: no other message may be written before the rest.
    #[must_use]
    pub fn is_mid_reply(&self) -> bool {
        self.remain > 0
    }

    /// Bytes of the reply that is passed on which have not come yet.
    #[must_use]
    pub fn remaining_bytes(&self) -> u32 {
        self.remain
    }

    /// ReadyForQuery arrived: what it answers, if anything was asked that it can answer.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<PendingReply> {
        if self.possible_readies > 0 && self.replies.front() != Some(PendingReply::Sync) {
            // No other request is answered with it alone: the server read a Sync behind the data that it refused.
            self.possible_readies -= 1;
            self.skipping = false;
            return Some(PendingReply::Sync);
        }
        let answered = self.replies.ready()?;
        self.possible_readies += std::mem::take(&mut self.copy_syncs);
        Some(answered)
    }

    /// Where only possible ReadyForQuery may still come, a Close of a portal that does not exist marks their end.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_marker(&mut self, out: &mut impl Output) {
        let Some(at) = self.boundary().filter(|_| self.replies.is_empty() && self.status.is_some()) else {
            return;
        };
        out.to_server(at, |bytes| {
            // Of a portal: a query would end the client's statement without a name.
            wire::encode::close(bytes, b'P', &server_name(NO_STATEMENT));
            wire::encode::sync(bytes);
        });
        self.replies.push(PendingReply::Marker);
        self.status = None;
    }

    /// Appends a query of Weir's own; its replies are swallowed and [`crate::ReplyOutcome::internal_done`] reports its end.
    pub fn send_internal_query(&mut self, _at: Boundary, out: &mut Vec<u8>, sql: &str) {
        wire::encode::query(out, sql.as_bytes());
        self.replies.push(PendingReply::InternalQuery);
        self.status = None;
    }

    /// Appends a query of Weir's own whose rows are kept for [`ServerProtocol::take_internal_result`]. `before` returns no row and
    /// runs in the same transaction, so that what it sets locally is in force for this query alone. The values are
    /// bound (PostgreSQL 55.2.3, extended query) and never become part of the text; [`crate::ReplyOutcome::internal_done`]
    /// reports the end.
    pub fn send_internal_select(
        &mut self,
        _at: Boundary,
        out: &mut Vec<u8>,
        before: &str,
        sql: &str,
        values: &[String],
    ) {
        wire::encode::parse(out, b"", before.as_bytes(), &[]);
        wire::encode::bind_simple(out, b"", b"", &[]);
        wire::encode::execute(out, b"", 0);
        let values: Vec<Option<&[u8]>> = values.iter().map(|value| Some(value.as_bytes())).collect();
        wire::encode::parse(out, b"", sql.as_bytes(), &[]);
        wire::encode::bind_simple(out, b"", b"", &values);
        wire::encode::describe(out, b'P', b"");
        wire::encode::execute(out, b"", 0);
        wire::encode::sync(out);
        self.statements.unnamed = UnnamedStatement::default();
        self.replies.push(PendingReply::InternalQuery);
        self.internal_result = Some(Box::default());
        self.status = None;
    }

    /// The same as one simple query, whose statements are one transaction too: parameters in `sql` have no values. `sql` is a
    /// single statement.
    pub fn send_internal_simple_query(&mut self, _at: Boundary, out: &mut Vec<u8>, before: &str, sql: &str) {
        wire::encode::query(out, format!("{before}; {sql}").as_bytes());
        self.statements.unnamed = UnnamedStatement::default();
        self.replies.push(PendingReply::InternalQuery);
        self.internal_result = Some(Box::default());
        self.status = None;
    }

    /// The rows of the last [`ServerProtocol::send_internal_select`] or [`ServerProtocol::send_internal_simple_query`].
    pub fn take_internal_result(&mut self) -> InternalResult {
        self.internal_result.take().map(|answer| *answer).unwrap_or_default()
    }
}
