//! The hot path, client to server: steps over frame headers and passes whole buffers on.
//!
//! Owns where requests begin and end, what each will be answered with, and renaming prepared statements. Looks into a
//! body only where a statement has a name. Never waits and never allocates for a plain request.

mod awaiting;
mod bind;
mod first_message;
mod held;
mod missing;
mod prepare;
mod refused;
mod resets;
mod sequences;
mod sql_names;
mod statements;

use wire::frame::{self, HEADER_BYTES, Header};
use wire::frontend::{self, Found};
use wire::tag::{begins_request, frontend as tag};

use first_message::begins_block;
pub use first_message::{FirstMessage, first_message};

use crate::replay::ReplayBuffer;
use crate::resets::{Reset, may_reset};
use crate::statement_guard::StatementGuard;
use crate::statement_text::Effects;
use crate::{
    Boundary, ClientFault, ClientStatements, Output, PendingReply, ServerProtocol, StatementRegistry, Tracked,
};

/// The state of a client's stream of requests.
#[derive(Debug, Default)]
pub struct ClientStream {
    /// Bytes that have arrived and were not passed on.
    pub held: Vec<u8>,
    /// How many held bytes it takes until a step may get further.
    held_until: usize,
    /// The client's names, once it has any.
    pub statements: Option<Box<ClientStatements>>,
}

/// What a step found besides what it passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// All input is dealt with.
    All,
    /// The client sent Terminate.
    Terminate,
    /// The client cannot be served any longer.
    Fault(Box<ClientFault>),
}

impl From<ClientFault> for RequestOutcome {
    #[cold]
    fn from(fault: ClientFault) -> RequestOutcome {
        RequestOutcome::Fault(Box::new(fault))
    }
}

/// What a step needs besides the two sides.
pub struct RequestContext<'a> {
    /// All statements of the shard.
    pub registry: &'a mut StatementRegistry,
    /// `max_prepared_statements`; 0 passes names through.
    pub statements_max: usize,
    /// `max_packet_size`.
    pub frame_bytes_max: u32,
    /// Some for a client whose startup packet gave parameters: what it resets is the server's to reset and Weir's to set
    /// again.
    pub resets: Option<&'a Tracked>,
    /// `disable_pqexec`: no simple query is passed on.
    pub refuses_simple: bool,
    /// What is behind a request waits for its answer: it is to be refused, unless it is of the same transaction.
    pub one_at_a_time: bool,
    /// Holds a client to reading only, or notes what it prepares because it may have to be held to that.
    pub guard: Option<&'a mut StatementGuard>,
    /// The client's number on its shard, counted from 1.
    pub client: u64,
    /// Counted up: statements prepared by clients, on servers, bound.
    pub parsed: u64,
    /// See above.
    pub parsed_on_server: u64,
    /// See above.
    pub bound: u64,
}

/// The header of a frame that is not too long; whether its tag is known is left to the caller.
#[inline(always)]
fn header(bytes: &[u8], frame_bytes_max: u32) -> Result<Option<Header>, ClientFault> {
    match frame::header(bytes) {
        Ok(Some(header)) if header.frame_bytes <= frame_bytes_max => Ok(Some(header)),
        Ok(None) => no_header(bytes).map_or(Ok(None), Err),
        _ => Err(no_header(bytes).unwrap_or(ClientFault::FrameLength)),
    }
}

/// Less than a header is here, or its length is wrong. A wrong tag is reported first: random bytes have both.
#[cold]
#[inline(never)]
fn no_header(bytes: &[u8]) -> Option<ClientFault> {
    bytes.first().and_then(|tag| unknown(*tag))
}

/// No client sends this tag.
#[cold]
fn unknown(tag: u8) -> Option<ClientFault> {
    (!wire::tag::is_frontend(tag)).then_some(ClientFault::UnknownTag(tag))
}

impl ClientStream {
    /// Passes `input` on. Bytes that cannot be judged yet are kept in `held`; the caller puts them before the next input.
    pub fn step(
        &mut self,
        server: &mut ServerProtocol,
        context: &mut RequestContext<'_>,
        input: &[u8],
        out: &mut impl Output,
    ) -> RequestOutcome {
        let (outcome, done) = self.pass(server, context, input, out);
        self.keep(outcome, &input[done..])
    }

    /// Passes `input` on as far as it can be judged, and returns how many of its bytes are consumed. The caller keeps the rest, by
    /// [`ClientStream::keep`] or [`ClientStream::keep_held`].
    #[inline(always)]
    pub fn pass(
        &mut self,
        server: &mut ServerProtocol,
        context: &mut RequestContext<'_>,
        input: &[u8],
        out: &mut impl Output,
    ) -> (RequestOutcome, usize) {
        if server.blocks_requests() {
            return (RequestOutcome::All, 0);
        }
        let mut step = Step { request: self, server, context, input, start: 0, at: 0 };
        let outcome = step.run(out);
        let (start, at) = (step.start, step.at);
        if start < at {
            out.forward(input, start, at);
        }
        if server.copy.is_in_doubt() {
            server.send_marker(out);
        }
        (outcome, at)
    }
}

/// One call of [`ClientStream::pass`]: `start..at` of the input is to be passed on.
struct Step<'a, 'r> {
    request: &'a mut ClientStream,
    server: &'a mut ServerProtocol,
    context: &'a mut RequestContext<'r>,
    input: &'a [u8],
    start: usize,
    at: usize,
}

/// What is done with a frame.
enum RequestAction {
    Pass,
    /// Replaced: this many bytes of the frame (header included) are dropped, the rest follows unchanged.
    Dropped(usize),
    /// Not enough of it is here.
    Hold,
    /// All of it is here, but not what comes behind it.
    AwaitNext,
    /// What it means depends on replies that have not come.
    AwaitReplies,
    /// Passed on whole, and what comes behind it is kept for the time being.
    PassAndHold,
    Stop(RequestOutcome),
}

impl Step<'_, '_> {
    #[inline(always)]
    fn run(&mut self, out: &mut impl Output) -> RequestOutcome {
        self.at += self.server.request_stream.advance(self.input.len() - self.at);
        while self.at < self.input.len()
            && let Some(boundary) = self.server.boundary()
        {
            let rest = &self.input[self.at..];
            let header = match header(rest, self.context.frame_bytes_max) {
                Ok(Some(header)) => header,
                Ok(None) => return RequestOutcome::All,
                Err(fault) => return fault.into(),
            };
            if self.context.one_at_a_time && self.server.is_answering() && begins_request(header.tag) {
                return self.end(RequestAction::AwaitReplies, header, boundary, out);
            }
            if let Some(action) = self.guarded(header, rest) {
                return self.end(action, header, boundary, out);
            }
            let watched = self.server.replay_buffer.is_on();
            if watched && self.server.replay_buffer.records() && !self.is_whole_or_unwatched(header, rest) {
                return unknown(header.tag).map_or(RequestOutcome::All, RequestOutcome::from);
            }
            let behind = watched && self.server.replay_buffer.is_whole();
            let action = self.frame(header, rest, boundary, out);
            if matches!(action, RequestAction::Pass) {
                if watched {
                    self.server.replay_buffer.follow(behind);
                    self.server.replay_buffer.record(&rest[..rest.len().min(header.frame_bytes as usize)]);
                }
                self.begin(header.frame_bytes, boundary);
            } else if let RequestAction::Dropped(bytes) = action {
                self.server.replay_buffer.follow(behind);
                self.drop_front(header, rest, bytes, boundary, out);
            } else {
                return self.end(action, header, boundary, out);
            }
        }
        RequestOutcome::All
    }

    /// Passes over bytes of a frame that was replaced; what follows them in it is passed on.
    #[inline(always)]
    fn drop_front(&mut self, header: Header, rest: &[u8], bytes: usize, at: Boundary, out: &mut impl Output) {
        self.flush(out); // The end of a frame that began in earlier input is never dropped with it.
        match rest.get(bytes..header.frame_bytes as usize) {
            Some(tail) => self.server.replay_buffer.record(tail),
            None => drop(self.server.replay_buffer.end()), // Too long to be kept.
        }
        self.at += bytes;
        self.start = self.at;
        self.begin(header.frame_bytes - u32::try_from(bytes).unwrap_or(header.frame_bytes), at);
    }

    /// The step goes no further than this frame.
    #[inline(never)]
    fn end(
        &mut self,
        action: RequestAction,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestOutcome {
        match action {
            RequestAction::PassAndHold => self.at += header.frame_bytes as usize,
            RequestAction::Stop(outcome) => return outcome,
            _ if self.server.awaits_request_behind_own() && !self.server.holds_for_sequences() => {
                self.end_own_segment(at, out);
            }
            RequestAction::AwaitReplies => self.await_replies(at, out),
            RequestAction::Hold
            | RequestAction::AwaitNext
            | RequestAction::Pass
            | RequestAction::Dropped(_) => {}
        }
        RequestOutcome::All
    }

    /// While a request is recorded its messages are sent whole, so that it can be replayed at any time; one that is too
    /// long ends the recording.
    fn is_whole_or_unwatched(&mut self, header: Header, rest: &[u8]) -> bool {
        let bytes = header.frame_bytes as usize;
        if self.server.replay_buffer.has_room_for(bytes) {
            return rest.len() >= bytes;
        }
        self.server.replay_buffer.end();
        true
    }

    /// Bytes of a message, or what is left of it, are passed on from here; moves over as many of them as are here.
    #[inline(always)]
    fn begin(&mut self, bytes: u32, at: Boundary) {
        self.at += self.server.request_stream.begin(at, bytes, self.input.len() - self.at);
    }

    #[inline(always)]
    fn frame(&mut self, header: Header, rest: &[u8], at: Boundary, out: &mut impl Output) -> RequestAction {
        if self.server.replies.is_full() && self.executes() && self.keeps_next() {
            return unknown(header.tag)
                .map_or(RequestAction::AwaitReplies, |fault| RequestAction::Stop(fault.into()));
        }
        match header.tag {
            tag::QUERY => return self.query(header, rest, at, out),
            tag::SYNC => return self.sync(),
            tag::EXECUTE => {
                let effects = self.server.effects.execute();
                self.server.ask(PendingReply::Execute);
                if effects.any(Effects::ALTERING.and(Effects::SESSION)) {
                    self.executes_alteration(effects);
                }
            }
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE => {
                return self.extended(header, rest, at, out);
            }
            tag::FUNCTION_CALL => {
                self.note_query();
                self.server.session.note_hidden(self.context.client, &[]);
                self.server.session.note_sequences();
                self.server.ask(PendingReply::Function);
                self.server.replies.note_change();
            }
            tag::COPY_DONE | tag::COPY_FAIL => self.end_copy(),
            tag::TERMINATE => return RequestAction::Stop(RequestOutcome::Terminate),
            tag::PASSWORD => return RequestAction::Stop(ClientFault::PasswordAfterLogin.into()),
            tag::COPY_DATA => {}
            tag::FLUSH if self.executes() => self.server.replies.note_flush(),
            tag::FLUSH => {}
            other => {
                if let Some(fault) = unknown(other) {
                    return RequestAction::Stop(fault.into());
                }
            }
        }
        RequestAction::Pass
    }

    /// The server does what it is asked, as far as is known.
    fn executes(&self) -> bool {
        !self.server.copy.is_reading() && !self.server.skipping.is_on()
    }

    #[cold]
    #[inline(never)]
    fn keeps_next(&self) -> bool {
        self.server.replies.keeps_next(self.server.transaction.is_at_rest())
    }

    /// A Query or FunctionCall is sent, perhaps behind an Execute of the same segment.
    #[inline(always)]
    fn note_query(&mut self) {
        if self.server.effects.segment().any(Effects::BOUND) {
            self.server.taint.note_query_in_pipeline();
        }
    }

    /// A simple query may change which statements are prepared, all but the BEGIN that drivers send before others.
    #[inline(always)]
    fn query(&mut self, header: Header, rest: &[u8], at: Boundary, out: &mut impl Output) -> RequestAction {
        if self.context.refuses_simple {
            return RequestAction::Stop(ClientFault::SimpleQuery.into());
        }
        // What comes behind it is none of its text.
        let rest = &rest[..rest.len().min(header.frame_bytes as usize)];
        let Some(begins) = begins_block(header, rest) else { return RequestAction::Hold };
        let effects = match self.effects_of_followed(header, rest, at, out) {
            Ok(effects) => effects,
            Err(action) => return action,
        };
        self.note_query();
        if self.context.resets.is_some() && may_reset(rest, HEADER_BYTES) {
            if !self.resetting_query() {
                return RequestAction::Hold;
            }
            self.note_query_of_followed(effects, header, rest);
            return RequestAction::Pass;
        }
        self.note_query_of_followed(effects, header, rest);
        self.server.ask(PendingReply::Query);
        if !begins {
            self.server.replies.note_change();
        }
        RequestAction::Pass
    }

    /// What a request may change in a session that is followed, and which names it uses, shows when all of it is here.
    #[inline(always)]
    fn is_to_be_whole(&self, header: Header, rest: &[u8]) -> bool {
        let whole = header.frame_bytes as usize;
        rest.len() < whole && whole <= held::WHOLE_BYTES && self.server.session.is_followed()
    }

    /// What a Query may change in a session that is followed, unseen by its answer. One that is too long to be looked at may change anything. An error is what
    /// has to be done first: it cannot be sent yet.
    #[inline(always)]
    fn effects_of_followed(
        &mut self,
        header: Header,
        rest: &[u8],
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<Effects, RequestAction> {
        if !self.server.session.is_followed() {
            return Ok(Effects::NONE);
        }
        if self.is_to_be_whole(header, rest) {
            return Err(RequestAction::Hold);
        }
        let whole = rest.get(HEADER_BYTES..header.frame_bytes as usize);
        let effects = whole.map_or(Effects::ANYTHING, |text| self.session_effects(text));
        if effects.any(Effects::PREPARED_FOR)
            && let Some(action) = self.before_text(effects, whole.unwrap_or_default(), true, at, out)
        {
            return Err(action);
        }
        Ok(effects)
    }

    /// What has to be done before a text with these effects is sent. None if it can be sent.
    #[cold]
    #[inline(never)]
    fn before_text(
        &mut self,
        effects: Effects,
        text: &[u8],
        alone: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> Option<RequestAction> {
        if let Some(action) = self.before_sequence_values(effects) {
            return Some(action);
        }
        if effects.any(Effects::NAMES) { self.before_names_in(text, alone, at, out) } else { None }
    }

    /// A Query is sent in a session that is followed. (What is held has changed nothing yet.)
    #[inline(always)]
    fn note_query_of_followed(&mut self, effects: Effects, header: Header, rest: &[u8]) {
        if !self.server.session.is_followed() {
            return;
        }
        self.server.session.note_unbound(false);
        if effects.any(Effects::NOTED) {
            let message = &rest[..rest.len().min(header.frame_bytes as usize)];
            let whole = rest.get(HEADER_BYTES..header.frame_bytes as usize).unwrap_or_default();
            self.note_session_effects(effects, whole, message);
        }
    }

    /// What a text, up to a NUL, may change in its session without its command tag showing it.
    #[inline(always)]
    fn session_effects(&mut self, text: &[u8]) -> Effects {
        let effects = self.context.registry.session_effects(text);
        match self.server.session.names_changing_relation(text) {
            true => effects.and(Effects::HIDDEN),
            false => effects,
        }
    }

    /// What is sent with these effects may change the session, by a statement of this text. `message` has it, or its values.
    #[cold]
    #[inline(never)]
    fn note_session_effects(&mut self, effects: Effects, text: &[u8], message: &[u8]) {
        if effects.any(Effects::READS) {
            self.server.session.note_reading();
        }
        if effects.any(Effects::SEQUENCES) {
            self.server.session.note_sequences();
        }
        if !effects.any(Effects::SESSION) {
            return;
        }
        if effects.any(Effects::HIDDEN) || effects.any(Effects::LOCKS) && effects.any(Effects::SETS_VALUES) {
            self.server.session.note_hidden(self.context.client, message);
        } else if effects.any(Effects::LOCKS) {
            self.server.session.note_locks();
        } else {
            self.server.session.note_settings(text, message);
        }
        if !self.executes() {
            self.server.session.note_error(); // It may be skipped: what it would leave is not what will be found.
        }
    }

    /// Sync ends skipping; while a copy runs PostgreSQL ignores it, unless the copy has failed by then.
    #[inline(always)]
    fn sync(&mut self) -> RequestAction {
        if self.server.copy.sync() {
            self.server.transaction.asked();
            return RequestAction::Pass;
        }
        self.server.skipping.end();
        self.server.effects.end_segment();
        self.server.owe(PendingReply::Sync);
        if self.server.effects.resets.is_asked() {
            self.server.hold_requests();
        }
        if self.server.replay_buffer.sync() && self.server.replay_buffer.blocks_requests() {
            return RequestAction::PassAndHold;
        }
        RequestAction::Pass
    }

    fn end_copy(&mut self) {
        if !self.server.copy.end() && !self.server.replies.is_empty() && !self.server.skipping.is_on() {
            self.server.owe(PendingReply::CopyEnd);
        }
    }

    /// Parse, Bind, Describe, Close: passed on if the statement has no name, renamed if it has.
    #[inline(always)]
    fn extended(
        &mut self,
        header: Header,
        rest: &[u8],
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        if matches!(header.tag, tag::PARSE | tag::BIND) && self.is_to_be_whole(header, rest) {
            return RequestAction::Hold;
        }
        if self.context.statements_max == 0 || !self.server.copy.is_at_rest() && self.is_among_copy_data() {
            return self.as_is(header, rest);
        }
        let whole = rest.len().min(header.frame_bytes as usize);
        let body = &rest[HEADER_BYTES..whole];
        let complete = whole == header.frame_bytes as usize;
        match self.named(header, body, complete, at, out) {
            RequestAction::Hold if complete => RequestAction::Stop(ClientFault::Malformed.into()),
            action => action,
        }
    }

    /// The server reads a COPY, or what is sent is skipped unless it has ignored a Sync of a copy that failed.
    #[cold]
    fn is_among_copy_data(&self) -> bool {
        self.server.copy.is_reading() || self.server.copy.is_in_doubt() && self.server.skipping.is_on()
    }

    /// Its names are the server's. A Parse among the data of a copy is executed if that has failed before.
    #[inline(never)]
    fn as_is(&mut self, header: Header, rest: &[u8]) -> RequestAction {
        let frame_tag = header.tag;
        if frame_tag == tag::PARSE
            && let body = rest.get(HEADER_BYTES..header.frame_bytes as usize).unwrap_or_default()
            && let Found::Yes((_, text)) = frontend::parse_name(body)
            && let Some(action) = self.before_parse_of_values(None, &body[text..])
        {
            return action;
        }
        let is_parse_in_copy = frame_tag == tag::PARSE && self.server.copy.is_reading();
        let first = rest.get(HEADER_BYTES);
        if is_parse_in_copy && first.is_none() || !self.extended_as_is(frame_tag) {
            return RequestAction::Hold;
        }
        if is_parse_in_copy && first == Some(&0) && !self.server.skipping.is_on() {
            let segment = self.server.replies.segment();
            self.server.statements.unnamed.parse_sent(self.context.client, Effects::ALL, segment);
            self.server.effects.set_unnamed_resets(Reset::UNCLEAR);
        }
        RequestAction::Pass
    }

    #[inline(always)]
    fn pass(&mut self, pending: PendingReply) -> RequestAction {
        self.server.ask(pending);
        RequestAction::Pass
    }

    /// Passes on what comes before the current frame, so that what is written next keeps its place.
    fn flush(&mut self, out: &mut impl Output) {
        if self.start < self.at {
            out.forward(self.input, self.start, self.at);
        }
        self.start = self.at;
    }
}

/// Sends a message of Weir's own, and keeps it where its request is kept.
fn send(
    replay_buffer: &mut ReplayBuffer,
    at: Boundary,
    out: &mut impl Output,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.to_server(at, |bytes| {
        let start = bytes.len();
        write(bytes);
        replay_buffer.record(&bytes[start..]);
    });
}

/// The same for a message that the client has not asked for.
fn send_internal(
    server: &mut ServerProtocol,
    at: Boundary,
    out: &mut impl Output,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let replies = &mut server.replies;
    send(&mut server.replay_buffer, at, out, |bytes| {
        let start = bytes.len();
        write(bytes);
        replies.note_internal_bytes(bytes.len() - start);
    });
}

fn plain(frame_tag: u8) -> PendingReply {
    match frame_tag {
        tag::PARSE => PendingReply::Parse,
        tag::BIND => PendingReply::Bind,
        tag::DESCRIBE => PendingReply::Describe,
        _ => PendingReply::Close,
    }
}
