//! Requests about prepared statements: renamed, answered here, sent with a Parse before them, or kept until it is known
//! what they mean.
//!
//! Owns which of the two names goes where, and when a request begins to be kept in case its plan is stale
//! ([`crate::replay`]). A name means what PostgreSQL will have executed by then: in its own segment a Parse or Close counts
//! at once, because an error before it skips what follows it too; in a later segment, or behind SQL that may deallocate,
//! what depends on it waits for the replies. Never parses SQL.

use std::borrow::Cow;

use wire::frame::{HEADER_BYTES, Header};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;
use wire::{encode, rename};

use super::{RequestAction, Step, plain, send, send_internal};
use crate::parse_settings::SettingsId;
use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::{self, parse_message};
use crate::server_statements::{Availability, Room, StatementTraits, UseSite};
use crate::statement_text::{Effects, effects};
use crate::{Boundary, ClientFault, Lookup, Output, ParseSettings, PendingReply, Reader, StatementId};

/// What has to come before a message that uses a statement.
pub(super) enum Prerequisite {
    Nothing(StatementTraits),
    Parse,
    /// The server has just described it otherwise than the client may know it.
    Differs,
}

/// Why a message that uses a statement is not sent.
pub(super) enum Obstacle {
    /// It depends on replies.
    Replies,
    /// It depends on the client's next message.
    Next,
    /// The client would read the rows by an old description.
    OldDescription,
}

/// What is known of the settings under which the server will parse what is sent now.
pub(super) enum InForce {
    /// They are these; None if only the server knows them.
    Settings(Option<ParseSettings>),
    /// An answer that will tell has not come.
    Unanswered,
}

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
                Found::Yes((b"", rest)) => self.parse_unnamed(&body[rest..], complete),
                Found::Yes(_) if !complete => RequestAction::Hold,
                Found::Yes((name, rest)) => self.parse(header, name, &body[rest..], at, out),
                Found::More => RequestAction::Hold,
                Found::Malformed => RequestAction::Stop(ClientFault::Malformed.into()),
            },
            tag::BIND => match frontend::bind_names(body) {
                Found::Yes((portal, b"", rest)) => self.bind_unnamed(header, portal, rest, at, out),
                // A whole one can be sent again.
                Found::Yes(_) if !complete && header.frame_bytes as usize <= replay::BYTES => {
                    RequestAction::Hold
                }
                Found::Yes((portal, name, rest)) => self.bind(header, portal, name, rest, at, out),
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
    fn parse_unnamed(&mut self, text: &[u8], complete: bool) -> RequestAction {
        if !self.server.skipping {
            let effects = match effects(text) {
                None if !complete => return RequestAction::Hold,
                effects => effects.unwrap_or(Effects::CALLS).unseen_calls(),
            };
            if self.context.resets.is_some() && effects.any(Effects::ALTERING) && !self.unnamed_resets() {
                return RequestAction::Hold;
            }
            let segment = self.server.replies.segment();
            self.server.statements.unnamed.parse_sent(self.context.client, effects, segment);
        }
        self.pass(PendingReply::Parse(None))
    }

    /// Bind of the statement without a name, which may have been another client's.
    #[inline(always)]
    fn bind_unnamed(
        &mut self,
        header: Header,
        portal: &[u8],
        rest: usize,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.availability(self.context.client, self.server.replies.segment()) {
            _ if self.server.skipping => RequestAction::Pass,
            Availability::Usable(traits) => {
                self.server.segment_effects.add(Effects::BOUND.and(traits.effects.calls()));
                self.server.portal_effects.add(traits.effects);
                if traits.effects.any(Effects::ALTERING) {
                    self.alters_by_portal(None);
                }
                self.pass(PendingReply::Bind(None))
            }
            Availability::Unresolved => RequestAction::AwaitReplies,
            Availability::Missing | Availability::Stale | Availability::Differs => {
                self.refuse_bind(header, portal, b"", rest, at, out)
            }
        }
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
        if self.server.skipping {
            return dropped;
        }
        match self.find(name) {
            Lookup::Unresolved => return RequestAction::AwaitReplies,
            Lookup::Is(taken) => return self.refuse_parse(header, name, taken, rest, at, out),
            Lookup::Unknown => {}
        }
        let InForce::Settings(settings) = self.in_force() else { return RequestAction::AwaitReplies };
        let found = settings.as_ref().and_then(|settings| self.context.registry.find(rest, settings));
        let Some(before) = self.before_parse_of(found) else { return RequestAction::AwaitReplies };
        let names = self.request.statements.get_or_insert_default();
        let segment = self.server.replies.segment();
        let Some(statement) = names.parse(name, rest, settings.as_ref(), segment, self.context.registry)
        else {
            return RequestAction::Stop(ClientFault::StatementTooLarge.into());
        };
        self.context.parsed += 1;
        self.server.status = None;
        self.flush(out);
        match before {
            Prerequisite::Nothing(_) if self.may_answer_parse() => {
                self.send_local(PendingReply::LocalParseComplete, encode::parse_complete, out);
            }
            _ => self.prepare(statement, PendingReply::Parse(Some(statement)), Reader::Preparing, at, out),
        }
        dropped
    }

    /// The server would not refuse a Parse because of a failed transaction, nor parse it under other settings, as far as its
    /// answers say, and none is to come that could say otherwise.
    fn may_answer_parse(&self) -> bool {
        !self.server.in_failed_block() && !self.settings_may_change()
    }

    /// Something was asked whose answer may tell of other settings.
    fn settings_may_change(&self) -> bool {
        self.server.segment_effects.any(Effects::CALLS) || self.server.replies.end_with_ready()
    }

    /// The settings under which the server will parse what is sent now. A command that changes them is reported with the next
    /// ReadyForQuery: in its own segment nothing is known, behind that its answer is waited for.
    pub(super) fn in_force(&mut self) -> InForce {
        if let Some(set) = self.server.set_segment {
            if self.server.status.is_some() || set < self.server.replies.answering_segment() {
                self.server.set_segment = None;
            } else if set == self.server.replies.segment() {
                return InForce::Settings(None);
            } else {
                return InForce::Unanswered;
            }
        }
        // A setting that is set and restored within the segment is never reported.
        if self.server.segment_effects.any(Effects::UNSEEN) {
            return InForce::Settings(None);
        }
        let server = &mut *self.server;
        let known = match server.settings.take() {
            Some((of, settings)) if of.shared_with(&server.parameters) => settings,
            older => {
                let older = older.as_ref().map(|(_, settings)| settings);
                self.context.registry.settings(older, &server.parameters, server.catalog)
            }
        };
        server.settings = Some((server.parameters.clone(), known.clone()));
        InForce::Settings(Some(known))
    }

    /// What has to come before a message that uses the statement that a client's name stands for.
    #[inline(always)]
    pub(super) fn before_named(
        &mut self,
        name: &[u8],
        statement: StatementId,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<(StatementId, Prerequisite), Obstacle> {
        if !self.context.registry.is_retired(statement) {
            match self.before_use(Some(statement)) {
                Some(nothing @ Prerequisite::Nothing(_)) => return Ok((statement, nothing)),
                Some(Prerequisite::Parse | Prerequisite::Differs) => {}
                None => return Err(Obstacle::Replies),
            }
        }
        self.before_parse(name, statement, header, at, out)
    }

    /// What has to come before a message that uses this statement; None if that depends on replies.
    #[inline(always)]
    pub(super) fn before_use(&mut self, statement: Option<StatementId>) -> Option<Prerequisite> {
        let site = self.use_site(false);
        self.before(statement, site)
    }

    /// What has to come before a Parse of what has been parsed already, if it has, so that it need not be parsed again.
    fn before_parse_of(&mut self, found: Option<StatementId>) -> Option<Prerequisite> {
        let site = self.use_site(true);
        self.before(found, site)
    }

    #[inline(always)]
    fn before(&mut self, statement: Option<StatementId>, site: UseSite) -> Option<Prerequisite> {
        if self.server.replies.has_change() {
            return None;
        }
        let availability =
            statement.map_or(Availability::Missing, |id| self.server.statements.touch(id, site));
        match availability {
            Availability::Usable(traits) => Some(Prerequisite::Nothing(traits)),
            Availability::Unresolved => None,
            Availability::Stale => Some(Prerequisite::Parse),
            Availability::Differs => Some(Prerequisite::Differs),
            Availability::Missing => {
                match self.server.statements.room(self.context.statements_max, site.segment) {
                    Room::Unresolved => None,
                    Room::Enough | Room::Evict(_) => Some(Prerequisite::Parse),
                }
            }
        }
    }

    /// This client, here in its stream.
    #[inline(always)]
    fn use_site(&mut self, parses: bool) -> UseSite {
        let server = &*self.server;
        let settings = match &server.settings {
            Some((of, known))
                if of.shared_with(&server.parameters)
                    && server.set_segment.is_none()
                    && !server.segment_effects.any(Effects::UNSEEN) =>
            {
                Some(known.id())
            }
            _ => self.settings_id_in_force(),
        };
        UseSite { client: self.context.client, segment: self.server.replies.segment(), settings, parses }
    }

    #[cold]
    #[inline(never)]
    fn settings_id_in_force(&mut self) -> Option<SettingsId> {
        match self.in_force() {
            InForce::Settings(settings) => settings.map(|settings| settings.id()),
            InForce::Unanswered => None,
        }
    }

    /// Sends a Parse under the shared name, and a Describe, making room first. A client that prepares it now gets the types of parameters
    /// that PostgreSQL finds now; one that has had it parsed before keeps those that it had then.
    #[inline(never)]
    pub(super) fn prepare(
        &mut self,
        statement: StatementId,
        pending: PendingReply,
        reader: Reader,
        at: Boundary,
        out: &mut impl Output,
    ) {
        let segment = self.server.replies.segment();
        if self.server.statements.is_expected(statement) {
            self.close_internal(statement, at, out);
        }
        while let Room::Evict(oldest) = self.server.statements.room(self.context.statements_max, segment) {
            self.close_internal(oldest, at, out);
        }
        let registry = &self.context.registry;
        let rest = match reader {
            Reader::Preparing => registry.rest(statement).map(|rest| Cow::Borrowed(&**rest)),
            Reader::Fresh | Reader::Holding => registry.typed(statement),
        };
        let name = server_name(statement);
        send_internal(self.server, at, out, |bytes| {
            parse_message(bytes, &name, rest.as_deref().unwrap_or_default());
            encode::describe(bytes, b'S', &name);
        });
        self.context.parsed_on_server += 1;
        let site = self.use_site(true);
        let registry = &self.context.registry;
        let (effects, scope) = (registry.effects(statement), registry.scope(statement));
        self.server.statements.parse_sent(statement, effects, scope, site);
        self.server.replies.push(pending);
        self.server.replies.push(PendingReply::InternalDescribe(statement, reader));
    }

    pub(super) fn close_internal(&mut self, statement: StatementId, at: Boundary, out: &mut impl Output) {
        let name = server_name(statement);
        send_internal(self.server, at, out, |bytes| encode::close(bytes, b'S', &name));
        self.server.statements.close_sent(statement, self.server.replies.segment());
        self.server.replies.push(PendingReply::InternalClose(statement));
    }

    #[inline(always)]
    fn bind(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        if self.server.skipping {
            return RequestAction::Pass;
        }
        let statement = match self.find(name) {
            Lookup::Unresolved => return RequestAction::AwaitReplies,
            Lookup::Unknown if self.server.replies.has_change() => return RequestAction::AwaitReplies,
            Lookup::Unknown => return self.refuse_bind(header, portal, name, rest, at, out),
            Lookup::Is(statement) => statement,
        };
        let (statement, before) = match self.before_named(name, statement, header, at, out) {
            Ok(found) => found,
            Err(Obstacle::Replies) => return RequestAction::AwaitReplies,
            Err(Obstacle::Next) => return RequestAction::AwaitNext,
            Err(Obstacle::OldDescription) => {
                return self.refuse_old_description(header, portal, name, rest, at, out);
            }
        };
        self.context.bound += 1;
        let effects = match &before {
            Prerequisite::Nothing(traits) => traits.effects,
            _ => self.context.registry.effects(statement),
        };
        self.flush(out);
        let pending = match self.ensure_prepared(name, statement, before, header, at, out) {
            true => PendingReply::RecordedBind(statement),
            false => PendingReply::Bind(Some(statement)),
        };
        // To plan it may call functions.
        self.server.segment_effects.add(Effects::BOUND.and(effects.calls()));
        self.server.portal_effects.add(effects);
        if effects.any(Effects::ALTERING) {
            self.alters_by_portal(Some(statement));
        }
        let server = server_name(statement);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::bind(bytes, header, portal, name.len(), &server);
        });
        self.ask(pending);
        RequestAction::Dropped(HEADER_BYTES + rest)
    }

    /// Describe or Close of a named statement.
    #[inline(never)]
    fn target(&mut self, header: Header, name: &[u8], at: Boundary, out: &mut impl Output) -> RequestAction {
        let dropped = RequestAction::Dropped(header.frame_bytes as usize);
        if self.server.skipping {
            return dropped;
        }
        let found = self.find(name);
        if found == Lookup::Unresolved || self.server.replies.has_change() {
            return RequestAction::AwaitReplies;
        }
        match (header.tag, found) {
            (tag::CLOSE, Lookup::Is(_)) => self.close(name, out),
            (tag::CLOSE, _) => self.close_nothing(at, out),
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
    fn close(&mut self, name: &[u8], out: &mut impl Output) {
        let segment = self.server.replies.segment();
        if let Some(names) = &mut self.request.statements {
            names.close(name, segment);
        }
        self.flush(out);
        self.server.status = None;
        self.send_local(PendingReply::LocalCloseComplete, encode::close_complete, out);
    }

    /// Closing a statement that does not exist is no error; the server answers it.
    #[cold]
    #[inline(never)]
    fn close_nothing(&mut self, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        self.server.status = None;
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::CLOSE, b'S', &server_name(NO_STATEMENT));
        });
        self.server.replies.push(PendingReply::Close);
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
            false => PendingReply::Describe(Some(statement)),
        };
        let server = server_name(statement);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::DESCRIBE, b'S', &server);
        });
        self.note_describe_sent();
        self.ask(pending);
    }

    fn describe_portal(&mut self) -> RequestAction {
        self.note_describe();
        self.note_describe_sent();
        self.pass(PendingReply::Describe(None))
    }

    fn describe_unnamed(&mut self, header: Header, at: Boundary, out: &mut impl Output) -> RequestAction {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.availability(self.context.client, self.server.replies.segment()) {
            _ if self.server.skipping => RequestAction::Pass,
            Availability::Usable(_) => self.pass(PendingReply::Describe(None)),
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
            names.describe_sent((!self.server.skipping).then_some(number), self.context.registry);
        }
    }

    fn note_describe(&mut self) {
        if let Some(names) = &mut self.request.statements {
            names.describe_history.describes = true;
        }
    }

    #[inline(always)]
    fn find(&self, name: &[u8]) -> Lookup {
        let segment = self.server.replies.segment();
        self.request.statements.as_ref().map_or(Lookup::Unknown, |names| names.find(name, segment))
    }

    /// True if the server has had it for longer, and this is the message of the segment by which it will be seen
    /// whether its plan still holds: from here on the segment is kept.
    #[inline(always)]
    fn ensure_prepared(
        &mut self,
        name: &[u8],
        statement: StatementId,
        before: Prerequisite,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> bool {
        let Prerequisite::Nothing(traits) = before else {
            let reader = self.reader(name, header).unwrap_or(Reader::Holding);
            self.prepare(statement, PendingReply::InternalParse(statement), reader, at, out);
            return false;
        };
        let server = &mut *self.server;
        let in_block = server.in_block() && server.replies.is_empty();
        if server.segment_effects != Effects::NONE
            || server.replay_buffer.records()
            || in_block
            || server.skipping
        {
            return false;
        }
        let number = server.replies.next_number();
        server.replay_buffer.begin(statement, number, traits.verified);
        true
    }

    /// Sends a reply of Weir's own: now if nothing is owed before it, otherwise when the stream gets there.
    fn send_local(&mut self, pending: PendingReply, message: fn(&mut Vec<u8>), out: &mut impl Output) {
        if self.server.replies.is_empty() && self.server.remain == 0 {
            out.to_client(message);
            if let Some(names) = &mut self.request.statements {
                names.confirm(self.context.registry);
            }
        } else {
            self.server.replies.push(pending);
        }
    }
}
