//! Requests about prepared statements: renamed, answered here, sent with a Parse before them, or kept until it is known
//! what they mean.
//!
//! Owns which of the two names goes where. A name means what PostgreSQL will have executed by then: in its own segment a Parse or
//! Close counts at once, because an error before it skips what follows it too; in a later segment, or behind SQL that may deallocate,
//! what depends on it waits for the replies. Never parses SQL.

use wire::frame::Header;
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;
use wire::{encode, rename};

use super::bind::Bind;
use super::prepare::Prerequisite;
use super::{RequestAction, Step, plain, send};
use crate::prepared::{NO_STATEMENT, server_name};
use crate::server_protocol::settings::InForce;
use crate::server_statements::Availability;
use crate::statement_text::{Effects, effects};
use crate::{Boundary, ClientFault, Lookup, Output, PendingReply, Reader, StatementId};

impl Step<'_, '_> {
    #[inline(always)]
    pub(super) fn named(
        &mut self,
        header: Header,
        body: &[u8],
        complete: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        match header.tag {
            tag::PARSE => match frontend::parse_name(body) {
                Found::Yes((b"", rest)) => self.parse_unnamed(header, &body[rest..], complete, at, out),
                Found::Yes(_) if !complete => RequestAction::Hold,
                Found::Yes((name, rest)) => self.parse(header, name, &body[rest..], at, out),
                Found::More => RequestAction::Hold,
                Found::Malformed => RequestAction::Stop(ClientFault::Malformed.into()),
            },
            tag::BIND => match frontend::bind_names(body) {
                Found::Yes((portal, name, rest)) => {
                    self.bind(&Bind { header, portal, name, rest, at }, complete, out)
                }
                Found::More => RequestAction::Hold,
                Found::Malformed => RequestAction::Stop(ClientFault::Malformed.into()),
            },
            // Describe and Close are a name and nothing else: judged when they are whole.
            _ if !complete => RequestAction::Hold,
            tag => match frontend::target(body) {
                Found::Yes((b'P', _)) if tag == tag::DESCRIBE => self.describe_portal(),
                Found::Yes((b'S', b"")) if tag == tag::DESCRIBE => self.describe_unnamed(header, at, out),
                Found::Yes((b'S', name)) if !name.is_empty() => self.target(header, name, at, out),
                Found::Yes(_) => self.pass(plain(tag)),
                Found::More => RequestAction::Hold,
                Found::Malformed => RequestAction::Stop(ClientFault::Malformed.into()),
            },
        }
    }

    #[inline(always)]
    fn parse_unnamed(
        &mut self,
        header: Header,
        text: &[u8],
        complete: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        if !self.server.skipping.is_on() {
            let effects = match effects(text) {
                None if !complete => return RequestAction::Hold,
                effects => effects.unwrap_or(Effects::CALLS).unseen_calls(),
            };
            if self.context.resets.is_some() && effects.any(Effects::ALTERING) && !self.unnamed_resets() {
                return RequestAction::Hold;
            }
            let effects = if self.server.session.is_followed() {
                if self.awaits_whole_text(header, complete) {
                    return RequestAction::Hold;
                }
                let found = self.unnamed_session_effects(text, complete);
                if found.any(Effects::PREPARED_FOR)
                    && let Some(action) = self.before_text(found, text, false, at, out)
                {
                    self.server.session.note_unbound(false);
                    return action;
                }
                effects.and(found)
            } else {
                effects
            };
            let segment = self.server.replies.segment();
            self.server.statements.unnamed.parse_sent(self.context.client, effects, segment);
        }
        self.pass(PendingReply::Parse)
    }

    /// What the unnamed statement may change in the session once it is executed.
    #[inline(never)]
    fn unnamed_session_effects(&mut self, text: &[u8], complete: bool) -> Effects {
        self.server.session.note_unbound(true);
        let effects = match complete {
            true => self.session_effects(text),
            false => Effects::ANYTHING,
        };
        if effects.any(Effects::READS) {
            self.server.session.note_reading();
        }
        if effects.any(Effects::HIDDEN) {
            self.server.session.note_names(text);
        } else if effects.any(Effects::SETS_VALUES) {
            self.server.session.note_settings(text, text);
        }
        effects
    }

    /// Parse of a named statement: sent under the shared name, or answered here if the server has it.
    #[inline(never)]
    fn parse(
        &mut self,
        header: Header,
        name: &[u8],
        rest: &[u8],
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        let dropped = RequestAction::Dropped(header.frame_bytes as usize);
        if self.server.skipping.is_on() {
            return dropped;
        }
        match self.find(name) {
            Lookup::Unresolved => return RequestAction::AwaitReplies,
            Lookup::Is(taken) => return self.refuse_parse(header, name, taken, rest, at, out),
            Lookup::Unknown if self.is_own_name(name) => return self.pass_own(tag::PARSE, name),
            Lookup::Unknown => {}
        }
        let InForce::Settings(settings) = self.in_force() else { return RequestAction::AwaitReplies };
        let found = settings.as_ref().and_then(|settings| self.context.registry.find(rest, settings));
        if let Some(action) = self.before_parse_of_values(found, rest) {
            return action;
        }
        let Some(before) = self.before_parse_of(found) else { return RequestAction::AwaitReplies };
        let names = self.request.statements.get_or_insert_default();
        let segment = self.server.replies.segment();
        let Some(statement) = names.parse(name, rest, settings.as_ref(), segment, self.context.registry)
        else {
            return RequestAction::Stop(ClientFault::StatementTooLarge.into());
        };
        self.context.parsed += 1;
        self.flush(out);
        match before {
            Prerequisite::Nothing(_) if self.may_answer_parse() => {
                self.send_local(PendingReply::LocalParseComplete, encode::parse_complete, out);
            }
            _ => self.prepare(statement, PendingReply::NamedParse(statement), Reader::Preparing, at, out),
        }
        dropped
    }

    /// As far as the server's answers say, it would neither refuse a Parse because of a failed transaction nor parse it under other
    /// settings, and no answer is outstanding that could change that. Behind a Query in a pipeline a Parse must reach the server: it begins a command,
    /// without which the next Sync ends nothing ([`crate::server_protocol`], `taint`).
    fn may_answer_parse(&self) -> bool {
        !self.server.transaction.in_failed_block()
            && !self.settings_may_change()
            && self.server.taint.is_none()
    }

    /// The server may be in a COPY from the client. It would refuse a Close; if it did not get that, it would wait for data while the client
    /// waits for an answer.
    fn may_be_copying(&self) -> bool {
        self.server.effects.may_copy() && !self.server.replies.is_empty()
    }

    /// Something was asked whose answer may tell of other settings.
    fn settings_may_change(&self) -> bool {
        self.server.effects.segment().any(Effects::CALLS) || self.server.replies.end_with_ready()
    }

    /// Describe or Close of a named statement.
    #[inline(never)]
    fn target(&mut self, header: Header, name: &[u8], at: Boundary, out: &mut impl Output) -> RequestAction {
        let dropped = RequestAction::Dropped(header.frame_bytes as usize);
        if self.server.skipping.is_on() {
            return dropped;
        }
        let found = self.find(name);
        if found == Lookup::Unknown && self.is_own_name(name) {
            return self.pass_own(header.tag, name);
        }
        if found == Lookup::Unresolved || self.server.replies.has_change() {
            return RequestAction::AwaitReplies;
        }
        match (header.tag, found) {
            (tag::CLOSE, Lookup::Is(_)) => self.close(name, at, out),
            (tag::CLOSE, _) => self.close_nothing(PendingReply::Close, at, out),
            (_, Lookup::Is(statement)) => {
                let Ok((statement, before)) = self.before_named(name, statement, header, at, out) else {
                    return RequestAction::AwaitReplies;
                };
                self.describe(name, header, statement, before, at, out);
            }
            _ => return self.refuse_describe(header, name, at, out),
        }
        dropped
    }

    /// The server keeps the statement.
    fn close(&mut self, name: &[u8], at: Boundary, out: &mut impl Output) {
        let segment = self.server.replies.segment();
        if let Some(names) = &mut self.request.statements {
            names.close(name, segment);
        }
        // How often the server says ReadyForQuery behind a COPY that fails is not known: CloseComplete has its place among them.
        let has_copied = !self.server.copy.is_at_rest() || self.server.replies.has_copy_end();
        if has_copied || self.may_be_copying() {
            return self.close_nothing(PendingReply::NamedClose, at, out);
        }
        self.flush(out);
        self.send_local(PendingReply::LocalCloseComplete, encode::close_complete, out);
    }

    /// Closing a statement that does not exist is no error; the server answers it.
    #[cold]
    #[inline(never)]
    fn close_nothing(&mut self, pending: PendingReply, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::CLOSE, b'S', &server_name(NO_STATEMENT));
        });
        self.server.owe(pending);
    }

    fn describe(
        &mut self,
        name: &[u8],
        header: Header,
        statement: StatementId,
        before: Prerequisite,
        at: Boundary,
        out: &mut impl Output,
    ) {
        self.flush(out);
        self.note_describe();
        let pending = match self.ensure_prepared(name, statement, before, header, at, out) {
            true => PendingReply::RecordedDescribe(statement),
            false => PendingReply::NamedDescribe(statement),
        };
        let server = server_name(statement);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::DESCRIBE, b'S', &server);
        });
        self.note_describe_sent();
        self.server.ask(pending);
    }

    #[inline(always)]
    pub(super) fn describe_portal(&mut self) -> RequestAction {
        self.note_describe();
        self.note_describe_sent();
        self.pass(PendingReply::Describe)
    }

    fn describe_unnamed(&mut self, header: Header, at: Boundary, out: &mut impl Output) -> RequestAction {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.availability(self.context.client, self.server.replies.segment()) {
            _ if self.server.skipping.is_on() => RequestAction::Pass,
            Availability::Usable(_) => self.pass(PendingReply::Describe),
            Availability::Unresolved => RequestAction::AwaitReplies,
            Availability::Missing | Availability::Stale | Availability::Differs => {
                self.refuse_describe(header, b"", at, out)
            }
        }
    }

    /// It is the next that is owed, unless it is skipped.
    #[inline]
    fn note_describe_sent(&mut self) {
        if let Some(names) = &mut self.request.statements {
            let number = self.server.replies.next_number();
            names.describe_sent((!self.server.skipping.is_on()).then_some(number), self.context.registry);
        }
    }

    #[inline]
    fn note_describe(&mut self) {
        if let Some(names) = &mut self.request.statements {
            names.describe_history.describes = true;
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, name: &[u8]) -> Lookup {
        let segment = self.server.replies.segment();
        self.request.statements.as_ref().map_or(Lookup::Unknown, |names| names.find(name, segment))
    }

    /// Sends a reply of Weir's own: now if nothing is owed before it, otherwise when the stream gets there.
    fn send_local(&mut self, pending: PendingReply, message: fn(&mut Vec<u8>), out: &mut impl Output) {
        let asked = self.server.transaction.asked();
        if self.server.replies.is_empty() && !self.server.reply_stream.is_in_frame() {
            out.to_client(message);
            if let Some(names) = &mut self.request.statements {
                names.confirm(self.context.registry);
            }
        } else {
            self.server.replies.push(pending, asked);
        }
    }
}
