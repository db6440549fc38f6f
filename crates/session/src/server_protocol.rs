//! One server connection's dialogue: what is owed, what state it is in, what it has.
//!
//! Owns the question whether a server is quiet ([`Conversation::is_quiet`]), on which releasing it depends. The steps
//! that change it are in [`crate::request`] (what a client asks) and [`crate::reply`] (what the server answers).

use wire::backend::Status;

use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::Watch;
use crate::reported::NonAscii;
use crate::resets::Resets;
use crate::server_statements::Unnamed;
use crate::statement_text::Effects;
use crate::{Catalog, Output, Owed, Owes, OwnAnswer, Parameters, ParseSettings, Reset, ServerStatements};

/// The stream to a server is between two messages. Whoever writes a message of Weir's own has to show one, so that none can
/// be written between two halves of a client's.
#[derive(Clone, Copy, Debug)]
pub struct Boundary(());

/// The protocol state of a logged-in server connection.
#[derive(Debug)]
pub struct Conversation {
    /// Replies owed, oldest first.
    pub(crate) owes: Owes,
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
    pub(crate) copying_both: bool,
    /// Syncs sent while the server reads COPY data: it ignores them, unless the copy has failed before them.
    pub(crate) copy_syncs: u32,
    /// Such Syncs of a copy that has failed: as many times ReadyForQuery may come, or fewer. Zero again at the first other
    /// reply, because replies come in order.
    pub(crate) unsure_readies: u32,
    /// Something was sent whose outcome is not modelled: this server is closed when it is released.
    pub(crate) doubtful: bool,
    /// A Query or FunctionCall was sent behind an Execute, before its Sync.
    pub(crate) query_amidst: bool,
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
    /// The error that the client gets instead of the server's.
    pub(crate) reworded: Vec<u8>,
    /// The request that may have to be said again.
    pub(crate) watch: Watch,
    /// The types of the parameters of the statement that is being described to Weir.
    pub(crate) own_parameters: Vec<u32>,
    /// The answer to a question of Weir's own, while one is asked.
    pub(crate) own_answer: Option<Box<OwnAnswer>>,
    /// What is known of resets since nothing was owed.
    pub(crate) resets: Resets,
    /// What is the client's again by its startup packet, and not on this server.
    pub(crate) lost: Reset,
    /// Parameters reported last in bytes other than ASCII.
    pub(crate) non_ascii: NonAscii,
    /// Statements prepared here.
    pub statements: ServerStatements,
    /// Tracked parameters as the server reported them.
    pub parameters: Parameters,
}

impl Conversation {
    /// A server that has just said ReadyForQuery for the first time.
    #[must_use]
    pub fn new(parameters: Parameters) -> Conversation {
        Conversation {
            owes: Owes::default(),
            status: Some(Status::Idle),
            unsent_body: 0,
            remain: 0,
            partial: Vec::new(),
            skipping: false,
            copying_in: false,
            copying_both: false,
            copy_syncs: 0,
            unsure_readies: 0,
            doubtful: false,
            query_amidst: false,
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
            reworded: Vec::new(),
            watch: Watch::default(),
            own_parameters: Vec::new(),
            own_answer: None,
            resets: Resets::default(),
            lost: Reset::default(),
            non_ascii: NonAscii::default(),
            statements: ServerStatements::default(),
            parameters,
        }
    }

    /// The same, a server of this pool.
    #[must_use]
    pub fn within(mut self, catalog: Catalog) -> Conversation {
        self.catalog = catalog;
        self
    }

    /// A server that came from another process, where it had just said this ReadyForQuery.
    #[must_use]
    pub fn resumed(parameters: Parameters, status: Status, doubtful: bool) -> Conversation {
        let mut talk = Conversation::new(parameters);
        (talk.status, talk.last_status, talk.doubtful) = (Some(status), status, doubtful);
        // Portals live as long as their transaction, and what these do is not known here.
        if status != Status::Idle {
            (talk.portal_effects, talk.portal_resets) = (Effects::ALL, Reset::UNCLEAR);
        }
        talk
    }

    /// Nothing is owed and nothing half read, in a transaction or not: the dialogue can go on in another process.
    #[must_use]
    pub fn rests(&self) -> bool {
        let at_boundary = self.remain == 0 && self.partial.is_empty() && self.unsure_readies == 0;
        self.owes.is_empty() && self.status.is_some() && at_boundary && !self.copying_in && !self.skipping
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
            self.statements.unnamed = Unnamed::default();
        }
    }

    /// A server that came from another process has this client's unnamed statement.
    pub fn adopt_unnamed(&mut self, owner: u64) {
        self.statements.unnamed = Unnamed::adopted(owner);
        self.unnamed_resets = Reset::UNCLEAR;
    }

    /// Something was sent whose outcome is not modelled.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// A Query went behind an Execute, and their Sync has not come: PostgreSQL 18 may say idle to it and keep the transaction.
    #[must_use]
    pub fn has_query_amidst(&self) -> bool {
        self.query_amidst
    }

    /// [`Conversation::has_answered`], and no message is half sent. One of the conditions of release; the others (unsent
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
        let nothing_owed = self.owes.is_empty() || planted::bug!("release_at_first_ready");
        nothing_owed
            && self.status == Some(Status::Idle)
            && self.remain == 0
            && self.partial.is_empty()
            && !self.copying_in
            && self.unsure_readies == 0
    }

    /// Some if the stream to the server is between two messages.
    #[inline]
    #[must_use]
    pub fn boundary(&self) -> Option<Boundary> {
        (self.unsent_body == 0 || planted::bug!("half_request_left")).then_some(Boundary(()))
    }

    /// The server is quiet and its client has asked for nothing more: DDL may come before what is asked next, so that
    /// the next Bind of each statement is watched anew.
    #[inline]
    pub fn rest(&mut self) {
        self.statements.mark_rest();
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

    /// A reply is being waited for.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.owes.is_empty() || self.status.is_none()
    }

    /// A stream runs in both directions (CopyBoth): the server hears what it is told.
    #[must_use]
    pub fn streams_both_ways(&self) -> bool {
        self.copying_both && self.copying_in
    }

    /// What the client sends now is kept until the server has answered something that was sent before.
    #[inline]
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.watch.holds_back() || self.awaits_replies
    }

    /// The client has received a part of a frame: nothing can be said to it before the rest.
    #[must_use]
    pub fn mid_reply(&self) -> bool {
        self.remain > 0
    }

    /// Bytes of the reply that is passed on which have not come yet.
    #[must_use]
    pub fn remaining_bytes(&self) -> u32 {
        self.remain
    }

    /// ReadyForQuery arrived: what it answers, if anything was asked that it can answer.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<Owed> {
        if self.unsure_readies > 0 && self.owes.front() != Some(Owed::Sync) {
            // No other request is answered with it alone: the server read a Sync behind the data that it refused.
            self.unsure_readies -= 1;
            self.skipping = false;
            return Some(Owed::Sync);
        }
        let answered = self.owes.ready()?;
        self.unsure_readies += std::mem::take(&mut self.copy_syncs);
        Some(answered)
    }

    /// Where only such a ReadyForQuery may still come, a Close of nothing behind it tells how many do.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_end(&mut self, out: &mut impl Output) {
        let Some(at) = self.boundary().filter(|_| self.owes.is_empty() && self.status.is_some()) else {
            return;
        };
        out.to_server(at, |bytes| {
            // Of a portal: a query would end the client's statement without a name.
            wire::encode::close(bytes, b'P', &server_name(NO_STATEMENT));
            wire::encode::sync(bytes);
        });
        self.owes.push(Owed::Marker);
        self.status = None;
    }

    /// Appends a query of Weir's own; its replies are swallowed and [`crate::Replied::own_ready`] tells of its end.
    pub fn ask_own(&mut self, _at: Boundary, out: &mut Vec<u8>, sql: &str) {
        wire::encode::query(out, sql.as_bytes());
        self.owes.push(Owed::Own);
        self.status = None;
    }

    /// Appends a question of Weir's own, whose rows are kept for [`Conversation::take_answer`]. `before` returns no row and
    /// runs in the same transaction, so that what it sets locally is in force for the question alone. The values are
    /// bound (PostgreSQL 55.2.3, extended query) and never become part of the text; [`crate::Replied::own_ready`] tells
    /// of the end.
    pub fn ask_for_rows(
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
        self.statements.unnamed = Unnamed::default();
        self.owes.push(Owed::Own);
        self.own_answer = Some(Box::default());
        self.status = None;
    }

    /// What came for the last [`Conversation::ask_for_rows`].
    pub fn take_answer(&mut self) -> OwnAnswer {
        self.own_answer.take().map(|answer| *answer).unwrap_or_default()
    }
}
