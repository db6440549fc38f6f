//! The hot path, server to client: steps over frame headers, matches each reply with what is owed, passes whole
//! buffers on.
//!
//! Owns which replies are passed on, which are swallowed and which Weir sends itself. Looks into a body only where it must
//! (ReadyForQuery, ParameterStatus, short command tags). A reply that answers no request is a fault, never passed on.

mod error;
mod execution;
mod internal;
mod parameters;
mod replay;
mod resets;
mod statements;

use wire::encode;
use wire::frame::{self, HEADER_BYTES, Header};
use wire::tag::backend as tag;

use crate::{
    Boundary, ClientStatements, Listening, Output, Parameters, PendingReply, Reader, ServerFault,
    ServerProtocol, StatementRegistry, Tracked,
};

/// A ParameterStatus (or a partial frame) is kept up to this size; no PostgreSQL sends larger ones.
const HELD_BYTES: usize = 64 * 1024;

/// What a step found besides what it passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyOutcome {
    /// ReadyForQuery that went to the client.
    pub ready: u32,
    /// How many of them ended a transaction (said idle).
    pub idle: u32,
    /// A query of Weir's own ended; Some(false) if it failed.
    pub internal_done: Option<bool>,
    /// The server ends the connection (57P01 and the like).
    pub fatal: bool,
    /// That error goes to the client, for which it is the end of its connection.
    pub ends_client: bool,
    /// Tracked parameters changed.
    pub parameters_changed: bool,
    /// Requests that were replayed, their statement prepared anew, because DDL had made its plan stale.
    pub replayed: u16,
    /// What the client sent later and was kept ([`ServerProtocol::blocks_requests`]) can be passed on now.
    pub unblocked: bool,
    /// DISCARD ALL was run: what the server does not report of its parameters is as on a fresh one.
    pub discarded: bool,
    /// The client's startup values are its own again and the server has others: [`ServerProtocol::take_lost`] says which.
    pub lost: bool,
    /// A transaction block was opened where none is allowed; its ReadyForQuery was not passed on.
    pub block_refused: bool,
    /// The server broke the protocol; nothing after that was passed on.
    pub fault: Option<ServerFault>,
}

/// An error of a server that a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSeen {
    /// Its SQLSTATE, as the server sent it; zeros where it sent none.
    pub code: [u8; 5],
    /// How many ReadyForQuery of this step came before it: to which request it belongs.
    pub behind: u32,
}

/// What a step needs besides the two sides.
pub struct ReplyContext<'a> {
    /// All statements of the shard.
    pub registry: &'a mut StatementRegistry,
    /// Which parameters are tracked.
    pub tracked: &'a Tracked,
    /// The linked client's names, if it has any.
    pub names: Option<&'a mut ClientStatements>,
    /// Where an error answer to a query of Weir's own is kept: the body of its ErrorResponse.
    pub internal_error: &'a mut Option<Vec<u8>>,
    /// Errors that the client gets are put here.
    pub errors_seen: &'a mut Vec<ErrorSeen>,
    /// What RESET goes back to for the linked client; None where the server knows that itself.
    pub startup: Option<&'a Parameters>,
    /// The values of a server on which nothing was set.
    pub default_params: Option<&'a Parameters>,
    /// What the linked client listens on by way of another connection, if it does.
    pub listening: Option<&'a mut Listening>,
    /// A client is linked. Without one nothing is passed on, and a frame is swallowed whole or kept until it is whole.
    pub has_client: bool,
    /// The client does not keep its server between transactions (transaction and statement pooling): a FATAL that comes
    /// there is not passed on.
    pub releases_between_transactions: bool,
    /// Statement pooling: a ReadyForQuery inside a transaction block ends it all.
    pub refuses_blocks: bool,
    /// The longest body of a frame, by `max_packet_size`; never more than `i32::MAX - 4`.
    pub body_max: u32,
}

impl ServerProtocol {
    /// Passes `input` on to the client. Bytes that cannot be judged yet are kept; the next call joins them.
    #[inline]
    pub fn step(
        &mut self,
        context: &mut ReplyContext<'_>,
        input: &[u8],
        out: &mut impl Output,
    ) -> ReplyOutcome {
        if self.reply_stream.is_partial() {
            self.join(context, input, out)
        } else {
            self.run(context, input, 0, out)
        }
    }

    /// A step whose first frame began in earlier input.
    #[inline(never)]
    fn join(&mut self, context: &mut ReplyContext<'_>, input: &[u8], out: &mut impl Output) -> ReplyOutcome {
        let mut joined = self.reply_stream.take_partial();
        let mut taken = 0;
        // Of a row no more than the header is joined, so that what is behind it goes on without a copy.
        let missing = HEADER_BYTES.saturating_sub(joined.len());
        if joined.first().is_some_and(|tag| is_row(*tag))
            && let Some(front) = input.get(..missing).filter(|front| !front.is_empty())
        {
            joined.extend_from_slice(front);
            taken = missing;
            let outcome = self.run(context, &joined, 0, out);
            if outcome.fault.is_some() {
                return outcome;
            }
            if !self.reply_stream.is_partial() {
                return self.run(context, input, taken, out);
            }
            joined = self.reply_stream.take_partial(); // The row answers no request.
        }
        joined.extend_from_slice(&input[taken..]);
        self.run(context, &joined, 0, out)
    }

    /// Deals with `input` from `at` on.
    fn run(
        &mut self,
        context: &mut ReplyContext<'_>,
        input: &[u8],
        at: usize,
        out: &mut impl Output,
    ) -> ReplyOutcome {
        let mut step = Step { server: self, context, input, start: at, at, outcome: ReplyOutcome::default() };
        step.frames(out);
        step.flush(out);
        let (at, mut outcome) = (step.at, step.outcome);
        if self.copy.is_in_doubt() {
            self.send_marker(out);
        }
        if self.gate.opens_at(self.replies.answered(), self.copy.is_reading()) {
            outcome.unblocked = true;
        }
        if outcome.fault.is_none() && at < input.len() {
            self.reply_stream.keep(&input[at..]);
        }
        outcome
    }
}

struct Step<'a, 'c> {
    server: &'a mut ServerProtocol,
    context: &'a mut ReplyContext<'c>,
    input: &'a [u8],
    start: usize,
    at: usize,
    outcome: ReplyOutcome,
}

/// What large results are made of.
fn is_row(frame_tag: u8) -> bool {
    matches!(frame_tag, tag::DATA_ROW | tag::COPY_DATA)
}

/// What is done with a frame.
enum ReplyAction {
    Pass,
    Swallow,
    /// Not enough of it is here.
    Hold,
    /// The client gets the frames of [`crate::server_protocol::internal`] instead of this error or ReadyForQuery.
    Replaced,
    /// An error that the client does not get: its request is sent again.
    Replay(Boundary, Reader),
    /// This and what follows is not for the client.
    Stop,
    Fault(ServerFault),
}

impl Step<'_, '_> {
    fn frames(&mut self, out: &mut impl Output) {
        self.at += self.server.reply_stream.advance(self.input.len() - self.at);
        self.send_due_local(out);
        while self.at < self.input.len() {
            let rest = &self.input[self.at..];
            let header = match frame::header_within(rest, self.context.body_max) {
                Ok(Some(header)) => header,
                Ok(None) => return self.check_tag(rest),
                Err(_) => return self.fail(ServerFault::FrameLength),
            };
            let action = self.frame(header, rest);
            if matches!(action, ReplyAction::Pass) {
                self.at += self.server.reply_stream.begin(header.frame_bytes, rest.len());
                if is_row(header.tag) {
                    self.skip_rows();
                    continue;
                }
            } else if !self.instead(action, header, out) {
                return;
            }
            self.send_due_local(out);
        }
    }

    /// Deals with a frame that is not passed on as it is. False if the step ends before it.
    #[inline(never)]
    fn instead(&mut self, action: ReplyAction, header: Header, out: &mut impl Output) -> bool {
        match action {
            ReplyAction::Hold | ReplyAction::Stop => return false,
            ReplyAction::Fault(fault) => {
                self.fail(fault);
                return false;
            }
            ReplyAction::Pass | ReplyAction::Swallow | ReplyAction::Replaced | ReplyAction::Replay(..) => {}
        }
        self.flush(out);
        self.at += header.frame_bytes as usize;
        self.start = self.at;
        match action {
            ReplyAction::Replaced => {
                let frame = self.server.internal.take_replacement();
                out.to_client(|bytes| bytes.extend_from_slice(&frame));
            }
            ReplyAction::Replay(at, reader) => {
                self.outcome.unblocked |= replay::replay(self.server, at, reader, self.context.registry, out);
                self.outcome.replayed += 1;
            }
            _ => {}
        }
        true
    }

    /// Less than a header is here; that its first byte is no tag can be said already.
    fn check_tag(&mut self, rest: &[u8]) {
        let Some(first) = rest.first().copied() else { return };
        let unasked = matches!(first, tag::NOTICE | tag::NOTIFICATION | tag::PARAMETER_STATUS | tag::ERROR);
        let expected = self.context.has_client || !self.server.replies.is_empty();
        if !(wire::tag::is_backend(first) && (expected || unasked)) {
            self.fail(ServerFault::UnexpectedTag(first));
        }
    }

    fn fail(&mut self, fault: ServerFault) {
        self.outcome.fault = Some(fault);
    }

    /// Moves over the whole rows that follow a row: whose they are, and what is owed, is as it was.
    #[inline]
    fn skip_rows(&mut self) {
        // No row that is whole in here is longer than all of it; where one may yet be too long, each is judged by itself.
        if (self.context.body_max as usize) < self.input.len() {
            return;
        }
        let mut rest = &self.input[self.at..];
        while let Ok(Some(header)) = frame::header(rest)
            && is_row(header.tag)
            && let Some(behind) = rest.get(header.frame_bytes as usize..)
        {
            rest = behind;
        }
        self.at = self.input.len() - rest.len();
    }

    #[inline(always)]
    fn frame(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        self.server.frame_came(header.tag);
        match header.tag {
            tag::DATA_ROW | tag::COPY_DATA => self.data(),
            tag::READY => self.with_body(header, rest, Self::ready),
            tag::COMMAND_COMPLETE => self.command_complete(header, rest),
            tag::ROW_DESCRIPTION | tag::NO_DATA => self.described(header, rest),
            tag::PARSE_COMPLETE => self.parse_complete(header),
            tag::BIND_COMPLETE => self.bind_complete(header),
            tag::CLOSE_COMPLETE => self.close_complete(header),
            tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED => self.executed(header),
            tag::ERROR => self.error(header, rest),
            tag::PARAMETER_STATUS => self.with_body(header, rest, Self::parameter_status),
            tag::COPY_IN | tag::COPY_BOTH => self.copy_in(header),
            tag::NOTICE | tag::NOTIFICATION => self.for_client_only(header, rest),
            tag::PARAMETER_DESCRIPTION => self.parameters_described(header, rest),
            tag::COPY_OUT | tag::COPY_DONE | tag::FUNCTION_RESULT => self.data(),
            other => ReplyAction::Fault(ServerFault::UnexpectedTag(other)),
        }
    }

    /// Runs `read` on the body once all of it is here.
    fn with_body(
        &mut self,
        header: Header,
        rest: &[u8],
        read: fn(&mut Self, Header, &[u8]) -> ReplyAction,
    ) -> ReplyAction {
        match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
            Some(body) => read(self, header, body),
            None if header.frame_bytes as usize > HELD_BYTES => ReplyAction::Fault(ServerFault::Malformed),
            None => ReplyAction::Hold,
        }
    }

    /// Sends the replies at the head of the queue that are Weir's to send.
    #[inline]
    fn send_due_local(&mut self, out: &mut impl Output) {
        if self.server.replies.may_be_local() && !self.server.reply_stream.is_in_frame() {
            self.send_local_replies(out);
        }
    }

    #[inline(never)]
    fn send_local_replies(&mut self, out: &mut impl Output) {
        while let Some(pending) = self.server.replies.pop_local() {
            match pending {
                PendingReply::LocalParseComplete => self.send_local(encode::parse_complete, out),
                PendingReply::LocalCloseComplete => self.send_local(encode::close_complete, out),
                _ => {}
            }
        }
    }

    fn send_local(&mut self, message: fn(&mut Vec<u8>), out: &mut impl Output) {
        self.flush(out);
        out.to_client(message);
        self.confirm();
    }

    #[inline(always)]
    fn flush(&mut self, out: &mut impl Output) {
        if self.start < self.at {
            out.forward(self.input, self.start, self.at);
        }
        self.start = self.at;
    }
}

#[cfg(test)]
mod tests {
    use wire::backend::Status;

    use super::*;

    /// How much was copied on its way to the client, and all of it.
    #[derive(Default)]
    struct Sent {
        received: Vec<u8>,
        copied: usize,
        bytes: Vec<u8>,
    }

    impl Output for Sent {
        fn forward(&mut self, input: &[u8], start: usize, end: usize) {
            if input != self.received {
                self.copied += end - start;
            }
            self.bytes.extend_from_slice(&input[start..end]);
        }

        fn to_client(&mut self, _: impl FnOnce(&mut Vec<u8>)) {}

        fn to_server(&mut self, _: Boundary, _: impl FnOnce(&mut Vec<u8>)) {}
    }

    #[test]
    fn a_row_that_is_cut_in_its_header_has_no_more_than_that_copied() {
        let tracked = Tracked::new([]);
        let (mut registry, mut internal_error) = (StatementRegistry::default(), None);
        let mut answer = Vec::new();
        for _ in 0..3 {
            encode::data_row(&mut answer, [Some(&[b'x'; 200][..])]);
        }
        encode::command_complete(&mut answer, "SELECT 3");
        encode::ready(&mut answer, Status::Idle);
        for cut in 1..HEADER_BYTES {
            let mut server = ServerProtocol::new(Parameters::unknown(&tracked));
            server.owe(PendingReply::Query);
            let mut sent = Sent::default();
            for piece in [&answer[..cut], &answer[cut..]] {
                let mut context = ReplyContext {
                    registry: &mut registry,
                    tracked: &tracked,
                    names: None,
                    internal_error: &mut internal_error,
                    errors_seen: &mut Vec::new(),
                    startup: None,
                    default_params: None,
                    listening: None,
                    has_client: true,
                    releases_between_transactions: true,
                    refuses_blocks: false,
                    body_max: i32::MAX.unsigned_abs() - 4,
                };
                sent.received = piece.to_vec();
                assert_eq!(server.step(&mut context, piece, &mut sent).fault, None);
            }
            assert_eq!(sent.bytes, answer, "cut at {cut}");
            assert_eq!(sent.copied, HEADER_BYTES, "cut at {cut}");
            assert!(server.is_quiet());
        }
    }
}
