//! The protocol state of one server connection: which replies are owed, its transaction status, its statements.
//!
//! Owns the question whether a server is quiet ([`ServerProtocol::is_quiet`]), on which releasing it depends. The steps
//! that change it are in [`crate::request`] (what a client asks) and [`crate::reply`] (what the server answers).

mod copy;
mod deferred_begin;
mod effects;
mod gate;
pub(crate) mod internal;
pub(crate) mod leading_settings;
mod pending_resets;
mod prepared_by_sql;
mod reply_stream;
mod request_stream;
pub(crate) mod schema_watch;
mod sequences;
mod session;
pub(crate) mod session_knowledge;
pub(crate) mod settings;
mod skipping;
mod taint;

use wire::backend::Status;
use wire::tag::backend as tag;

pub use request_stream::Boundary;
pub use sequences::DISCARD_SEQUENCES;

use copy::CopyPhase;
use effects::SentEffects;
use gate::RequestGate;
use internal::InternalReplies;
use leading_settings::LeadingSettings;
use prepared_by_sql::PreparedBySql;
use reply_stream::ReplyStream;
use request_stream::RequestStream;
use schema_watch::SchemaWatch;
use session_knowledge::SessionKnowledge;
use settings::SettingsInForce;
use skipping::Skipping;
use taint::Taint;

use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::ReplayBuffer;
use crate::reply_queue::transaction::TransactionStatus;
use crate::reported::NonAscii;
use crate::server_statements::UnnamedStatement;
use crate::{Catalog, InternalResult, Output, Parameters, PendingReply, ReplyQueue, Reset, ServerStatements};

/// The protocol state of a logged-in server connection.
///
/// ```
/// use weir_session::{Parameters, ReplyContext, ServerProtocol, StatementRegistry, Tracked};
/// use wire::{backend::Status, encode};
/// # struct Discard;
/// # impl weir_session::Output for Discard {
/// #     fn forward(&mut self, _: &[u8], _: usize, _: usize) {}
/// #     fn to_client(&mut self, _: impl FnOnce(&mut Vec<u8>)) {}
/// #     fn to_server(&mut self, _: weir_session::Boundary, _: impl FnOnce(&mut Vec<u8>)) {}
/// # }
/// # let mut out = Discard;
///
/// let tracked = Tracked::new([]);
/// let mut server = ServerProtocol::new(Parameters::unknown(&tracked));
/// let at = server.boundary().expect("no message is half sent");
/// let mut request = Vec::new();
/// server.send_internal_query(at, &mut request, "select 1");
/// assert!(server.is_busy() && !server.is_quiet());
///
/// let mut reply = Vec::new();
/// encode::command_complete(&mut reply, "SELECT 1");
/// encode::ready(&mut reply, Status::Idle);
/// let mut context = ReplyContext {
///     registry: &mut StatementRegistry::default(),
///     tracked: &tracked,
///     names: None,
///     internal_error: &mut None,
///     errors_seen: &mut Vec::new(),
///     startup: None,
///     default_params: None,
///     listening: None,
///     has_client: false,
///     releases_between_transactions: true,
///     refuses_blocks: false,
///     body_max: i32::MAX.unsigned_abs() - 4,
/// };
/// let (beginning, rest) = reply.split_at(reply.len() - 1);
/// server.step(&mut context, beginning, &mut out);
/// assert!(!server.is_quiet(), "ReadyForQuery is not here whole");
/// let outcome = server.step(&mut context, rest, &mut out);
/// assert_eq!((outcome.internal_done, outcome.fault), (Some(true), None));
/// assert!(server.is_quiet());
/// ```
#[derive(Debug)]
pub struct ServerProtocol {
    /// Replies owed, oldest first.
    pub(crate) replies: ReplyQueue,
    /// What the last ReadyForQuery said, and whether something was asked since.
    pub(crate) transaction: TransactionStatus,
    /// How far the stream to the server is.
    pub(crate) request_stream: RequestStream,
    /// How far the stream from the server is.
    pub(crate) reply_stream: ReplyStream,
    /// Whether the server ignores what comes until Sync.
    pub(crate) skipping: Skipping,
    /// The COPY from the client that runs, and what is in doubt behind one that has failed.
    pub(crate) copy: CopyPhase,
    /// Whether something was sent whose outcome is not modelled: then this server is closed when it is released.
    pub(crate) taint: Taint,
    /// What requests that were sent may have changed, and what they reset.
    pub(crate) effects: SentEffects,
    /// Under which settings the server parses what is sent now.
    pub(crate) settings: SettingsInForce,
    /// Whether what the client sends now waits for replies to what was sent before.
    pub(crate) gate: RequestGate,
    /// The request that may have to be replayed.
    pub(crate) replay_buffer: ReplayBuffer,
    /// What Weir reads of the replies for itself, and sends in place of one.
    pub(crate) internal: InternalReplies,
    /// Whether it is known what the session holds.
    pub(crate) session: SessionKnowledge,
    /// Whether commands were run that may have changed the schema.
    pub(crate) schema_watch: SchemaWatch,
    /// Preparing it the statements that its client has prepared by SQL.
    pub(crate) prepared_by_sql: PreparedBySql,
    /// What Weir has set in front of the request that runs.
    pub(crate) leading: Option<Box<LeadingSettings>>,
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
            transaction: TransactionStatus::new(Status::Idle),
            request_stream: RequestStream::default(),
            reply_stream: ReplyStream::default(),
            skipping: Skipping::default(),
            copy: CopyPhase::default(),
            taint: Taint::default(),
            gate: RequestGate::default(),
            effects: SentEffects::default(),
            settings: SettingsInForce::default(),
            replay_buffer: ReplayBuffer::default(),
            internal: InternalReplies::default(),
            session: SessionKnowledge::default(),
            schema_watch: SchemaWatch::default(),
            prepared_by_sql: PreparedBySql::default(),
            leading: None,
            non_ascii: NonAscii::default(),
            statements: ServerStatements::default(),
            parameters,
        }
    }

    /// Sets the pool in which names are looked up.
    #[must_use]
    pub fn with_catalog(mut self, catalog: Catalog) -> ServerProtocol {
        self.settings = SettingsInForce::of(catalog);
        self
    }

    /// A server that came from another process, where it had just said this ReadyForQuery.
    #[must_use]
    pub fn imported(parameters: Parameters, status: Status, tainted: bool) -> ServerProtocol {
        let mut protocol = ServerProtocol::new(parameters);
        (protocol.transaction, protocol.taint) = (TransactionStatus::new(status), Taint::imported(tainted));
        if status != Status::Idle {
            protocol.effects = SentEffects::of_open_block();
        }
        protocol
    }

    /// Nothing is owed and nothing half read, in a transaction or not: another process can continue.
    #[must_use]
    pub fn is_exportable(&self) -> bool {
        self.replies.is_empty()
            && self.transaction.current().is_some()
            && self.reply_stream.is_at_rest()
            && self.copy.is_at_rest()
            && !self.skipping.is_on()
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
        self.effects.set_unnamed_resets(Reset::UNCLEAR);
    }

    /// Something was sent whose outcome is not modelled.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.taint.is_tainted()
    }

    /// A Query was sent behind an Execute, and their Sync has not come: PostgreSQL 18 may answer it with status idle and keep
    /// the transaction open.
    #[must_use]
    pub fn has_query_in_pipeline(&self) -> bool {
        self.taint.has_query_in_pipeline()
    }

    /// [`ServerProtocol::has_answered`], and no message is half sent. One of the conditions of release; the others (unsent
    /// bytes, cancels) are the shard's to know.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.has_answered() && self.boundary().is_some()
    }

    /// Nothing is asked of it, and it has begun to say something: that is its client's.
    #[must_use]
    pub fn has_half_message(&self) -> bool {
        self.replies.is_empty() && !self.reply_stream.is_at_rest()
    }

    /// Nothing is owed, the last ReadyForQuery said idle, no reply is half read, no COPY runs. Every field is named here: a new one
    /// does not compile until it is decided whether it has to be at rest before a server changes clients.
    #[inline]
    #[must_use]
    pub fn has_answered(&self) -> bool {
        let ServerProtocol {
            replies,
            transaction,
            reply_stream,
            skipping,
            copy,
            request_stream: _, // Its rest is the Boundary: `is_quiet`.
            taint: _,          // Such a server is released, and closed then.
            gate: _,           // Keeps bytes of the client on the client's side.
            effects: _,        // Of what was sent; that it is answered is asked above.
            settings: _,
            replay_buffer: _, // Copies what is owed.
            internal: _,
            schema_watch: _,
            session: _,         // Asked for by the shard once all this holds.
            prepared_by_sql: _, // What is given is owed.
            leading: _,
            non_ascii: _,
            statements: _,
            parameters: _,
        } = self;
        replies.nothing_owed().is_some()
            && transaction.is_at_rest()
            && reply_stream.is_at_rest()
            && copy.is_at_rest()
            && !skipping.is_on()
    }

    /// Some if the stream to the server is between two messages.
    #[inline]
    #[must_use]
    pub fn boundary(&self) -> Option<Boundary> {
        self.request_stream.boundary()
    }

    /// The server is quiet and its client has sent nothing more: DDL may come before the next request, so that the next Bind
    /// of each statement is recorded again.
    #[inline]
    pub fn mark_quiet(&mut self) {
        self.statements.mark_quiet();
        self.effects.mark_quiet(self.statements.unnamed.effects());
        self.session.mark_quiet();
    }

    /// The last ReadyForQuery, unless something was asked since.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.transaction.current()
    }

    /// In a transaction block (or a failed one).
    #[must_use]
    pub fn in_block(&self) -> bool {
        self.transaction.in_block()
    }

    /// A reply is outstanding.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.replies.is_empty() || self.transaction.current().is_none()
    }

    /// Requests are whole, and not all of them are answered. A COPY whose data is awaited is not whole.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.replies.awaits_ready() && !self.copy.is_reading()
    }

    /// The number of the newest reply that is outstanding, if one is.
    #[must_use]
    pub fn newest_reply(&self) -> u64 {
        self.replies.last_number()
    }

    /// The reply of this number is outstanding.
    #[must_use]
    pub fn owes_reply(&self, number: u64) -> bool {
        self.replies.answered() <= number
    }

    /// It is the server's turn: it has read all that it needs to answer the oldest request, and more than COPY data is awaited.
    #[must_use]
    pub fn owes_answer(&self) -> bool {
        self.replies.owes_answer() && !self.copy.is_reading()
    }

    /// A stream runs in both directions (CopyBoth).
    #[must_use]
    pub fn is_copy_both(&self) -> bool {
        self.copy.is_both()
    }

    /// What the client sends now is kept until the server has answered something that was sent before.
    #[inline]
    #[must_use]
    pub fn blocks_requests(&self) -> bool {
        self.replay_buffer.blocks_requests() || self.gate.is_closed()
    }

    /// Keeps what the client sends from here on until [`ServerProtocol::release_requests`].
    pub fn hold_requests(&mut self) {
        self.replies.hold();
    }

    /// Nothing has to wait for parameters any more.
    pub fn release_requests(&mut self) {
        self.replies.release();
        self.gate.open();
    }

    /// From here on the server gets nothing that does not belong to a request, or a transaction, that it has begun: what its client sends behind that is kept, for
    /// another server.
    pub fn end_requests(&mut self) {
        self.replies.end();
    }

    /// The opposite of [`ServerProtocol::end_requests`], for a server that is quiet.
    pub fn resume_requests(&mut self) {
        self.replies.resume();
        self.gate.open();
    }

    /// [`ServerProtocol::end_requests`] was called.
    #[must_use]
    pub fn ends_requests(&self) -> bool {
        self.replies.ends()
    }

    /// The server leaves its client: what waits for parameters, and what was reset, is that client's.
    #[inline]
    pub fn leave_client(&mut self) {
        self.release_requests();
        self.effects.take_lost();
    }

    /// [`ServerProtocol::hold_requests`] was called.
    #[inline]
    #[must_use]
    pub fn holds_requests(&self) -> bool {
        self.replies.is_held()
    }

    /// See [`ServerProtocol::take_lost`].
    #[must_use]
    pub fn lost(&self) -> Reset {
        self.effects.lost()
    }

    /// What was reset since this was last asked, and is the client's by its startup packet.
    pub fn take_lost(&mut self) -> Reset {
        self.effects.take_lost()
    }

    /// The client has received a part of a frame: no other message may be written before the rest.
    #[must_use]
    pub fn is_mid_reply(&self) -> bool {
        self.reply_stream.is_in_frame()
    }

    /// The beginning of a message that is not here whole, of which nothing was passed on; None if the client has received a part of it.
    pub fn take_unread(&mut self) -> Option<Vec<u8>> {
        (!self.is_mid_reply()).then(|| self.reply_stream.take_partial())
    }

    /// Bytes of the reply that is passed on which have not come yet.
    #[must_use]
    pub fn remaining_bytes(&self) -> u32 {
        self.reply_stream.left()
    }

    /// A request is sent to which the server owes this reply.
    #[inline(always)]
    pub(crate) fn owe(&mut self, pending: PendingReply) {
        let asked = self.transaction.asked();
        self.replies.push(pending, asked);
    }

    /// A request is sent that the server refuses because of this name.
    pub(crate) fn owe_refused(&mut self, name: &[u8]) {
        let asked = self.transaction.asked();
        self.replies.push_refused(name, asked);
    }

    /// A request of the client is sent: this reply is owed to it, unless the server ignores the request.
    #[inline(always)]
    pub(crate) fn ask(&mut self, pending: PendingReply) {
        let asked = self.transaction.asked();
        if self.skipping.is_on() {
            // Skipped, unless the server has read a Sync among the data of the copy that has failed.
            self.taint.set_if(self.copy.is_in_doubt());
        } else {
            // While it copies the server refuses this and leaves, unless the copy has failed already.
            self.taint.set_if(self.copy.is_reading());
            self.replies.push(pending, asked);
        }
    }

    /// A frame came. What was in doubt behind a COPY that failed is over with the first reply that only the oldest request can be
    /// answered with: this is the one place where that is noticed.
    #[inline(always)]
    pub(crate) fn frame_came(&mut self, frame_tag: u8) {
        if !self.copy.is_at_rest() {
            self.reply_in_copy(frame_tag);
        }
    }

    #[cold]
    #[inline(never)]
    fn reply_in_copy(&mut self, frame_tag: u8) {
        match frame_tag {
            // ReadyForQuery and errors have their own rules, rows follow other replies, and the rest answers no request.
            tag::READY | tag::ERROR | tag::DATA_ROW | tag::COPY_DATA => {}
            tag::PARAMETER_STATUS | tag::NOTICE | tag::NOTIFICATION => {}
            tag::COMMAND_COMPLETE | tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED => self.copy.reply_came(true),
            _ => self.copy.reply_came(false),
        }
    }

    /// ReadyForQuery arrived: what it answers, if anything was asked that it can answer.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<PendingReply> {
        if self.copy.is_at_rest() { self.replies.ready() } else { self.ready_of_copy() }
    }

    /// The same where a copy has failed, or may have.
    #[cold]
    #[inline(never)]
    fn ready_of_copy(&mut self) -> Option<PendingReply> {
        if self.replies.front() != Some(PendingReply::Sync) && self.copy.take_possible_ready() {
            // No other request is answered with it alone: the server read a Sync behind the data that it refused.
            self.skipping.end();
            return Some(PendingReply::Sync);
        }
        let answered = self.replies.ready()?;
        self.copy.ready();
        Some(answered)
    }

    /// Where only possible ReadyForQuery may still come, a Close of a portal that does not exist marks their end.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_marker(&mut self, out: &mut impl Output) {
        let Some(at) =
            self.boundary().filter(|_| self.replies.is_empty() && self.transaction.current().is_some())
        else {
            return;
        };
        out.to_server(at, |bytes| {
            // Of a portal: a query would end the client's statement without a name.
            wire::encode::close(bytes, b'P', &server_name(NO_STATEMENT));
            wire::encode::sync(bytes);
        });
        self.owe(PendingReply::Marker);
    }

    /// Appends a query of Weir's own; its replies are swallowed and [`crate::ReplyOutcome::internal_done`] reports its end.
    pub fn send_internal_query(&mut self, _at: Boundary, out: &mut Vec<u8>, sql: &str) {
        wire::encode::query(out, sql.as_bytes());
        self.owe(PendingReply::InternalQuery);
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
        self.owe(PendingReply::InternalQuery);
        self.internal.begin_result();
    }

    /// The same as one simple query, whose statements are one transaction too: parameters in `sql` have no values. `sql` is a
    /// single statement.
    pub fn send_internal_simple_query(&mut self, _at: Boundary, out: &mut Vec<u8>, before: &str, sql: &str) {
        wire::encode::query(out, format!("{before}; {sql}").as_bytes());
        self.statements.unnamed = UnnamedStatement::default();
        self.owe(PendingReply::InternalQuery);
        self.internal.begin_result();
    }

    /// The notifications for the client that came with the replies to Weir's own query.
    pub fn take_notifications(&mut self) -> Vec<u8> {
        self.internal.take_notifications()
    }

    /// The rows of the last [`ServerProtocol::send_internal_select`] or [`ServerProtocol::send_internal_simple_query`].
    pub fn take_internal_result(&mut self) -> InternalResult {
        self.internal.take_result()
    }
}
