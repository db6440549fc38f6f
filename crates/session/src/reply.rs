//! The hot path, server to client: steps over frame headers, matches each reply with what is owed, passes whole
//! buffers on.
//!
//! Owns which replies are passed, which are swallowed and which Weir says itself. Looks into a body only where it must
//! (ReadyForQuery, ParameterStatus, short command tags). A reply that nobody is owed is a fault, never passed on.

mod error;
mod parameters;
mod resets;
mod statements;

use wire::backend::{self, Status};
use wire::encode;
use wire::frame::{self, HEADER_BYTES, Header};
use wire::tag::backend as tag;

use crate::statement_text::Effects;
use crate::{
    Boundary, ClientStatements, Conversation, Output, Owed, Parameters, Reader, Registry, ServerFault,
    Tracked, internal_result,
};

/// A ParameterStatus (or a partial frame) is kept up to this size; no PostgreSQL sends larger ones.
const HELD_BYTES: usize = 64 * 1024;

/// A CommandComplete longer than this is none of those that are looked for.
const TAG_BYTES: u32 = 64;

/// What a step found besides what it passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replied {
    /// ReadyForQuery that went to the client.
    pub ready: u32,
    /// How many of them ended a transaction (said idle).
    pub idle: u32,
    /// A query of Weir's own ended; Some(false) if it failed.
    pub own_ready: Option<bool>,
    /// The server refused for good (57P01 and the like): a FATAL went to the client.
    pub fatal: bool,
    /// Tracked parameters changed.
    pub parameters_changed: bool,
    /// Requests that were said again, their statement prepared anew, because DDL had spoilt its plan.
    pub replayed: u16,
    /// What the client sent later, and was kept ([`Conversation::holds_back`]), can be passed on now.
    pub unblocked: bool,
    /// DISCARD ALL was run: what the server does not report of its parameters is as on a fresh one.
    pub discarded: bool,
    /// The client's startup values are its own again and the server has others: [`Conversation::take_lost`] says which.
    pub lost: bool,
    /// A transaction block was opened where none is allowed; its ReadyForQuery was not passed on.
    pub block_refused: bool,
    /// The server broke the protocol; nothing after that was passed on.
    pub fault: Option<ServerFault>,
}

/// An error that a client was told of in a server's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Its SQLSTATE, as the server sent it; zeros where it sent none.
    pub code: [u8; 5],
    /// How many ReadyForQuery of this step came before it: to which request it belongs.
    pub behind: u32,
}

/// What a step needs besides the two sides.
pub struct Context<'a> {
    /// All statements of the shard.
    pub registry: &'a mut Registry,
    /// Which parameters are tracked.
    pub tracked: &'a Tracked,
    /// The linked client's names, if it has any.
    pub names: Option<&'a mut ClientStatements>,
    /// Where an error answer to a query of Weir's own is kept: the body of its ErrorResponse.
    pub own_error: &'a mut Option<Vec<u8>>,
    /// Errors that the client is told of are put here.
    pub complaints: &'a mut Vec<Complaint>,
    /// What RESET goes back to for the linked client; None where the server knows that itself.
    pub startup: Option<&'a Parameters>,
    /// What a server has that was told nothing.
    pub fresh: Option<&'a Parameters>,
    /// A client listens. Without one nothing is passed on, and a frame is swallowed whole or kept until it is whole.
    pub audience: bool,
    /// The client borrows: between its transactions a server's farewell is not its business.
    pub borrows: bool,
    /// Statement pooling: a ReadyForQuery inside a transaction block ends it all.
    pub refuses_blocks: bool,
    /// The longest body of a frame, by `max_packet_size`; never more than `i32::MAX - 4`.
    pub body_max: u32,
}

impl Conversation {
    /// Passes `input` on to the client. Bytes that cannot be judged yet are kept; the next call joins them.
    #[inline]
    pub fn step(&mut self, context: &mut Context<'_>, input: &[u8], out: &mut impl Output) -> Replied {
        if self.partial.is_empty() {
            self.run(context, input, 0, out)
        } else {
            self.join(context, input, out)
        }
    }

    /// A step whose first frame began in earlier input.
    #[inline(never)]
    fn join(&mut self, context: &mut Context<'_>, input: &[u8], out: &mut impl Output) -> Replied {
        let mut joined = std::mem::take(&mut self.partial);
        let mut taken = 0;
        // Of a row no more than the header is joined, so that what is behind it goes on without a copy.
        let missing = HEADER_BYTES.saturating_sub(joined.len());
        if joined.first().is_some_and(|tag| is_row(*tag))
            && let Some(front) = input.get(..missing).filter(|front| !front.is_empty())
        {
            joined.extend_from_slice(front);
            taken = missing;
            let replied = self.run(context, &joined, 0, out);
            if replied.fault.is_some() {
                return replied;
            }
            if self.partial.is_empty() {
                return self.run(context, input, taken, out);
            }
            joined = std::mem::take(&mut self.partial); // It is nobody's row.
        }
        joined.extend_from_slice(&input[taken..]);
        self.run(context, &joined, 0, out)
    }

    /// Deals with `input` from `at` on.
    fn run(&mut self, context: &mut Context<'_>, input: &[u8], at: usize, out: &mut impl Output) -> Replied {
        let mut step = Step { server: self, context, input, start: at, at, replied: Replied::default() };
        step.frames(out);
        step.flush(out);
        let (at, mut replied) = (step.at, step.replied);
        if self.unsure_readies > 0 {
            self.mark_end(out);
        }
        // What comes behind a COPY from the client is answered when that is over: what waits may be its data.
        if self.awaits_replies && (self.owes.answered() >= self.awaits_until || self.copying_in) {
            self.awaits_replies = false;
            replied.unblocked = true;
        }
        if replied.fault.is_none() && at < input.len() {
            self.partial.extend_from_slice(&input[at..]);
        }
        replied
    }
}

struct Step<'a, 'c> {
    server: &'a mut Conversation,
    context: &'a mut Context<'c>,
    input: &'a [u8],
    start: usize,
    at: usize,
    replied: Replied,
}

/// What large results are made of.
fn is_row(frame_tag: u8) -> bool {
    matches!(frame_tag, tag::DATA_ROW | tag::COPY_DATA)
}

/// What becomes of a frame.
enum Verdict {
    Pass,
    Swallow,
    /// Not enough of it is here.
    Hold,
    /// An error or ReadyForQuery that the client gets in other words, or behind others, which the conversation has.
    Reworded,
    /// An error that the client is spared: its request is sent again.
    Replay(Boundary, Reader),
    /// This and what follows is not for the client.
    Stop,
    Fault(ServerFault),
}

impl Step<'_, '_> {
    fn frames(&mut self, out: &mut impl Output) {
        if self.server.remain > 0 {
            self.skip_body();
        }
        self.say_what_is_due(out);
        while self.at < self.input.len() {
            let rest = &self.input[self.at..];
            let header = match frame::header_within(rest, self.context.body_max) {
                Ok(Some(header)) => header,
                Ok(None) => return self.judge_tag(rest),
                Err(_) => return self.fail(ServerFault::FrameLength),
            };
            let verdict = self.frame(header, rest);
            if matches!(verdict, Verdict::Pass) {
                self.server.remain = header.frame_bytes;
                self.skip_body();
                if is_row(header.tag) {
                    self.skip_rows();
                    continue;
                }
            } else if !self.instead(verdict, header, out) {
                return;
            }
            self.say_what_is_due(out);
        }
    }

    /// Deals with a frame that is not passed on as it is. False if the step ends before it.
    #[inline(never)]
    fn instead(&mut self, verdict: Verdict, header: Header, out: &mut impl Output) -> bool {
        match verdict {
            Verdict::Hold | Verdict::Stop => return false,
            Verdict::Fault(fault) => {
                self.fail(fault);
                return false;
            }
            Verdict::Pass | Verdict::Swallow | Verdict::Reworded | Verdict::Replay(..) => {}
        }
        self.flush(out);
        self.at += header.frame_bytes as usize;
        self.start = self.at;
        match verdict {
            Verdict::Reworded => {
                let frame = std::mem::take(&mut self.server.reworded);
                out.to_client(|bytes| bytes.extend_from_slice(&frame));
            }
            Verdict::Replay(at, reader) => {
                self.replied.unblocked |= self.server.replay(at, reader, self.context.registry, out);
                self.replied.replayed += 1;
            }
            _ => {}
        }
        true
    }

    /// Less than a header is here; that its first byte is no tag can be said already.
    fn judge_tag(&mut self, rest: &[u8]) {
        let Some(first) = rest.first().copied() else { return };
        let unasked = matches!(first, tag::NOTICE | tag::NOTIFICATION | tag::PARAMETER_STATUS | tag::ERROR);
        let expected = self.context.audience || !self.server.owes.is_empty();
        if !(wire::tag::is_backend(first) && (expected || unasked)) {
            self.fail(ServerFault::UnexpectedTag(first));
        }
    }

    fn fail(&mut self, fault: ServerFault) {
        self.replied.fault = Some(fault);
    }

    #[inline(always)]
    fn skip_body(&mut self) {
        let here = (self.input.len() - self.at).min(self.server.remain as usize);
        self.at += here;
        self.server.remain -= u32::try_from(here).unwrap_or(self.server.remain);
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
    fn frame(&mut self, header: Header, rest: &[u8]) -> Verdict {
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
            tag::NOTICE | tag::NOTIFICATION => self.for_client_only(),
            tag::PARAMETER_DESCRIPTION => self.parameters_described(header, rest),
            tag::COPY_OUT | tag::COPY_DONE | tag::FUNCTION_RESULT => {
                self.server.unsure_readies = 0;
                self.data()
            }
            other => Verdict::Fault(ServerFault::UnexpectedTag(other)),
        }
    }

    /// Runs `read` on the body once all of it is here.
    fn with_body(
        &mut self,
        header: Header,
        rest: &[u8],
        read: fn(&mut Self, Header, &[u8]) -> Verdict,
    ) -> Verdict {
        match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
            Some(body) => read(self, header, body),
            None if header.frame_bytes as usize > HELD_BYTES => Verdict::Fault(ServerFault::Malformed),
            None => Verdict::Hold,
        }
    }

    /// Parts of a result: whoever asked gets them.
    #[inline]
    fn data(&mut self) -> Verdict {
        match self.server.owes.front() {
            Some(Owed::Own) => self.own_data(),
            Some(_) => Verdict::Pass,
            None => Verdict::Fault(ServerFault::OutOfStep(self.input[self.at])),
        }
    }

    /// Notices and notifications come at any time; those of Weir's own queries are nobody's business.
    fn for_client_only(&mut self) -> Verdict {
        if self.is_private() { self.swallow_body() } else { Verdict::Pass }
    }

    /// What comes now is not for a client: it answers Weir's own query, or nobody listens.
    fn is_private(&self) -> bool {
        !self.context.audience || self.server.owes.front() == Some(Owed::Own)
    }

    /// Swallowing needs the whole frame; Weir's own queries have small answers.
    fn swallow_body(&mut self) -> Verdict {
        let rest = &self.input[self.at..];
        match frame::header(rest) {
            Ok(Some(header)) if rest.len() >= header.frame_bytes as usize => Verdict::Swallow,
            Ok(Some(header)) if header.frame_bytes as usize > HELD_BYTES => {
                Verdict::Fault(ServerFault::Malformed)
            }
            _ => Verdict::Hold,
        }
    }

    /// Rows of Weir's own question are kept; other data of its own queries is of no interest.
    fn own_data(&mut self) -> Verdict {
        let rest = &self.input[self.at..];
        let Some(answer) = &mut self.server.own_answer else { return self.swallow_body() };
        match frame::header(rest) {
            Ok(Some(header)) if header.frame_bytes as usize > internal_result::FRAME_BYTES => {
                Verdict::Fault(ServerFault::Malformed)
            }
            Ok(Some(header)) => match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
                Some(body) if header.tag != tag::DATA_ROW || answer.keep(body) => Verdict::Swallow,
                Some(_) => Verdict::Fault(ServerFault::Malformed),
                None => Verdict::Hold,
            },
            _ => Verdict::Hold,
        }
    }

    /// A question of Weir's own goes by the extended protocol, whose steps are confirmed one by one.
    fn own_step(&mut self, header: Header) -> Verdict {
        match (self.server.owes.front(), &self.server.own_answer) {
            (Some(Owed::Own), Some(_)) => self.swallow_body(),
            _ => Verdict::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline]
    fn executed(&mut self, header: Header) -> Verdict {
        self.server.unsure_readies = 0;
        self.server.copy_syncs = 0; // The copy they were sent in, if this ends one, has ignored them.
        match self.server.owes.front() {
            Some(Owed::Execute) => {
                self.server.owes.pop();
                Verdict::Pass
            }
            Some(Owed::Query) => Verdict::Pass,
            Some(Owed::Own) => self.swallow_body(),
            _ => Verdict::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline(always)]
    fn command_complete(&mut self, header: Header, rest: &[u8]) -> Verdict {
        // Those that are looked for begin with a D, P or R, and so do others; the rest need not be whole.
        if rest.len() < header.frame_bytes as usize && header.frame_bytes <= TAG_BYTES {
            return Verdict::Hold;
        }
        if matches!(rest.get(HEADER_BYTES), Some(b'D' | b'P' | b'R')) && header.frame_bytes <= TAG_BYTES {
            self.note_command(rest.get(HEADER_BYTES..header.frame_bytes as usize));
        }
        self.executed(header)
    }

    /// Commands that change which statements are prepared, or reset parameters.
    #[cold]
    #[inline(never)]
    fn note_command(&mut self, body: Option<&[u8]>) {
        let command = body.and_then(backend::command_tag);
        match command {
            Some(b"DISCARD ALL" | b"DEALLOCATE ALL") => {
                let discarded = command == Some(b"DISCARD ALL");
                self.replied.discarded |= discarded;
                self.forget_statements();
                if discarded {
                    self.note_reset();
                }
            }
            // Under which name is not said. DO may have run either.
            Some(b"DEALLOCATE" | b"PREPARE" | b"DO") => self.server.statements.distrust_all(),
            Some(b"RESET") => self.note_reset_command(),
            _ => {}
        }
    }

    fn copy_in(&mut self, header: Header) -> Verdict {
        match self.server.owes.front() {
            Some(Owed::Query | Owed::Execute) => {
                let begun = self.server.owes.copy_in();
                self.server.doubtful |= begun.refuses;
                self.server.copying_in = !begun.ended;
                self.server.copy_syncs = begun.syncs;
                self.server.unsure_readies = 0;
                if self.server.owes.answered() >= self.server.resets.from {
                    self.server.owes.release(); // The Sync that comes behind the data ends this request.
                }
                self.server.copying_both = header.tag == tag::COPY_BOTH;
                self.settle_watch();
                Verdict::Pass
            }
            _ => Verdict::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline(always)]
    fn ready(&mut self, header: Header, body: &[u8]) -> Verdict {
        let Some(status) = backend::ready_status(body) else { return Verdict::Fault(ServerFault::Malformed) };
        let Some(answered) = self.server.ready() else {
            return Verdict::Fault(ServerFault::OutOfStep(header.tag));
        };
        self.server.copying_in = false;
        let before = std::mem::replace(&mut self.server.last_status, status);
        if self.server.query_amidst {
            self.sync_behind_query(answered, before, status);
        }
        if self.server.owes.is_empty() {
            self.server.status = Some(status);
            self.server.segment_effects = Effects::NONE;
        }
        if planted::bug!("release_at_first_ready") {
            self.server.status = Some(status);
        }
        if answered == Owed::Own {
            self.replied.own_ready = Some(self.context.own_error.is_none());
            return Verdict::Swallow;
        }
        if matches!(answered, Owed::OwnSync | Owed::Marker) {
            return Verdict::Swallow;
        }
        if self.context.refuses_blocks && status != Status::Idle {
            self.replied.block_refused = true;
            return Verdict::Stop;
        }
        self.replied.ready += 1;
        self.replied.idle += u32::from(status == Status::Idle);
        if self.server.resets.noted {
            return self.ready_behind_reset(status);
        }
        Verdict::Pass
    }

    /// PostgreSQL 18 keeps the transaction of a pipeline open beyond a Query in it. A Sync right behind that says idle and leaves
    /// it open for all that (seen in 18.6), and the next command, whoever sends it, fails with "unexpected state STARTED".
    #[cold]
    #[inline(never)]
    fn sync_behind_query(&mut self, answered: Owed, before: Status, status: Status) {
        // Which of the segments that were sent it stands in is not kept.
        let may_come = answered != Owed::Sync && status != Status::Idle;
        self.server.query_amidst = may_come || !self.server.owes.is_empty();
        self.server.doubtful |=
            answered == Owed::Sync && before == Status::InTransaction && status == Status::Idle;
    }

    /// Says what stands at the head of the queue and is Weir's to say.
    #[inline]
    fn say_what_is_due(&mut self, out: &mut impl Output) {
        if self.server.owes.may_be_silent() && self.server.remain == 0 {
            self.say_silent(out);
        }
    }

    #[inline(never)]
    fn say_silent(&mut self, out: &mut impl Output) {
        while let Some(owed) = self.server.owes.pop_silent() {
            match owed {
                Owed::SayParseComplete => self.say(encode::parse_complete, out),
                Owed::SayCloseComplete => self.say(encode::close_complete, out),
                _ => {}
            }
        }
    }

    fn say(&mut self, message: fn(&mut Vec<u8>), out: &mut impl Output) {
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
        let (mut registry, mut own_error) = (Registry::default(), None);
        let mut answer = Vec::new();
        for _ in 0..3 {
            encode::data_row(&mut answer, [Some(&[b'x'; 200][..])]);
        }
        encode::command_complete(&mut answer, "SELECT 3");
        encode::ready(&mut answer, Status::Idle);
        for cut in 1..HEADER_BYTES {
            let mut server = Conversation::new(Parameters::unknown(&tracked));
            server.owes.push(Owed::Query);
            let mut sent = Sent::default();
            for piece in [&answer[..cut], &answer[cut..]] {
                let mut context = Context {
                    registry: &mut registry,
                    tracked: &tracked,
                    names: None,
                    own_error: &mut own_error,
                    complaints: &mut Vec::new(),
                    startup: None,
                    fresh: None,
                    audience: true,
                    borrows: true,
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
