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

use super::{Step, Verdict, plain, send, send_own};
use crate::parse_settings::SettingsId;
use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::{self, parse_message};
use crate::server_statements::{By, Room, Standing, Traits};
use crate::statement_text::{Effects, effects};
use crate::{Boundary, ClientFault, Lookup, Output, Owed, ParseSettings, Reader, StatementId};

/// What has to come before a message that uses a statement.
pub(super) enum Before {
    Nothing(Traits),
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
    /// They are these; None if they are known to nobody but the server.
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
    ) -> Verdict {
        match header.tag {
            tag::PARSE => match frontend::parse_name(body) {
                Found::Yes((b"", rest)) => self.parse_unnamed(&body[rest..], complete),
                Found::Yes(_) if !complete => Verdict::Hold,
                Found::Yes((name, rest)) => self.parse(header, name, &body[rest..], at, out),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(ClientFault::Malformed.into()),
            },
            tag::BIND => match frontend::bind_names(body) {
                Found::Yes((portal, b"", rest)) => self.bind_unnamed(header, portal, rest, at, out),
                // A whole one can be sent again.
                Found::Yes(_) if !complete && header.frame_bytes as usize <= replay::BYTES => Verdict::Hold,
                Found::Yes((portal, name, rest)) => self.bind(header, portal, name, rest, at, out),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(ClientFault::Malformed.into()),
            },
            // Describe and Close are a name and nothing else: judged when they are whole.
            _ if !complete => Verdict::Hold,
            tag => match frontend::target(body) {
                Found::Yes((b'P', _)) if tag == tag::DESCRIBE => self.describe_portal(),
                Found::Yes((b'S', b"")) if tag == tag::DESCRIBE => self.describe_unnamed(header, at, out),
                Found::Yes((b'S', name)) if !name.is_empty() => self.target(header, name, at, out),
                Found::Yes(_) => self.pass(plain(tag)),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(ClientFault::Malformed.into()),
            },
        }
    }

    #[inline(always)]
    fn parse_unnamed(&mut self, text: &[u8], complete: bool) -> Verdict {
        if !self.server.skipping {
            let effects = match effects(text) {
                None if !complete => return Verdict::Hold,
                effects => effects.unwrap_or(Effects::CALLS).unseen_calls(),
            };
            if self.rules.resets.is_some() && effects.any(Effects::ALTERING) && !self.unnamed_resets() {
                return Verdict::Hold;
            }
            let segment = self.server.owes.segment();
            self.server.statements.unnamed.parse_sent(self.rules.client, effects, segment);
        }
        self.pass(Owed::Parse(None))
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
    ) -> Verdict {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.standing(self.rules.client, self.server.owes.segment()) {
            _ if self.server.skipping => Verdict::Pass,
            Standing::Usable(traits) => {
                self.server.segment_effects.add(Effects::BOUND.and(traits.effects.calls()));
                self.server.portal_effects.add(traits.effects);
                if traits.effects.any(Effects::ALTERING) {
                    self.alters_by_portal(None);
                }
                self.pass(Owed::Bind(None))
            }
            Standing::InDoubt => Verdict::AwaitReplies,
            Standing::Lacking | Standing::Stale | Standing::Differs => {
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
    ) -> Verdict {
        let dropped = Verdict::Dropped(header.frame_bytes as usize);
        if self.server.skipping {
            return dropped;
        }
        match self.find(name) {
            Lookup::InDoubt => return Verdict::AwaitReplies,
            Lookup::Is(taken) => return self.refuse_parse(header, name, taken, rest, at, out),
            Lookup::Unknown => {}
        }
        let InForce::Settings(settings) = self.in_force() else { return Verdict::AwaitReplies };
        let found = settings.as_ref().and_then(|settings| self.rules.registry.find(rest, settings));
        let Some(before) = self.before_parse_of(found) else { return Verdict::AwaitReplies };
        let names = self.request.statements.get_or_insert_default();
        let segment = self.server.owes.segment();
        let Some(statement) = names.parse(name, rest, settings.as_ref(), segment, self.rules.registry) else {
            return Verdict::Stop(ClientFault::StatementTooLarge.into());
        };
        self.rules.parsed += 1;
        self.server.status = None;
        self.flush(out);
        match before {
            Before::Nothing(_) if self.may_answer_parse() => {
                self.say(Owed::SayParseComplete, encode::parse_complete, out);
            }
            _ => self.prepare(statement, Owed::Parse(Some(statement)), Reader::Preparing, at, out),
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
        self.server.segment_effects.any(Effects::CALLS) || self.server.owes.end_with_ready()
    }

    /// The settings under which the server will parse what is sent now. A command that changes them is reported with the next
    /// ReadyForQuery: in its own segment nothing is known, behind that its answer is waited for.
    pub(super) fn in_force(&mut self) -> InForce {
        if let Some(set) = self.server.set_segment {
            if self.server.status.is_some() || set < self.server.owes.answering_segment() {
                self.server.set_segment = None;
            } else if set == self.server.owes.segment() {
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
                self.rules.registry.settings(older, &server.parameters, server.catalog)
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
    ) -> Result<(StatementId, Before), Obstacle> {
        if !self.rules.registry.is_retired(statement) {
            match self.before_use(Some(statement)) {
                Some(nothing @ Before::Nothing(_)) => return Ok((statement, nothing)),
                Some(Before::Parse | Before::Differs) => {}
                None => return Err(Obstacle::Replies),
            }
        }
        self.before_parse(name, statement, header, at, out)
    }

    /// What has to come before a message that uses this statement; None if that depends on replies.
    #[inline(always)]
    pub(super) fn before_use(&mut self, statement: Option<StatementId>) -> Option<Before> {
        let by = self.by(false);
        self.before(statement, by)
    }

    /// What has to come before a Parse of what has been parsed already, if it has, so that it need not be parsed again.
    fn before_parse_of(&mut self, found: Option<StatementId>) -> Option<Before> {
        let by = self.by(true);
        self.before(found, by)
    }

    #[inline(always)]
    fn before(&mut self, statement: Option<StatementId>, by: By) -> Option<Before> {
        if self.server.owes.has_change() {
            return None;
        }
        let standing = statement.map_or(Standing::Lacking, |id| self.server.statements.touch(id, by));
        match standing {
            Standing::Usable(traits) => Some(Before::Nothing(traits)),
            Standing::InDoubt => None,
            Standing::Stale => Some(Before::Parse),
            Standing::Differs => Some(Before::Differs),
            Standing::Lacking => match self.server.statements.room(self.rules.statements_max, by.segment) {
                Room::InDoubt => None,
                Room::Enough | Room::Evict(_) => Some(Before::Parse),
            },
        }
    }

    /// This client, here in its stream.
    #[inline(always)]
    fn by(&mut self, parses: bool) -> By {
        let server = &*self.server;
        let settings = match &server.settings {
            Some((of, known))
                if of.shared_with(&server.parameters)
                    && server.set_segment.is_none()
                    && !server.segment_effects.any(Effects::UNSEEN) =>
            {
                Some(known.id())
            }
            _ => self.settings_found(),
        };
        By { client: self.rules.client, segment: self.server.owes.segment(), settings, parses }
    }

    #[cold]
    #[inline(never)]
    fn settings_found(&mut self) -> Option<SettingsId> {
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
        owed: Owed,
        reader: Reader,
        at: Boundary,
        out: &mut impl Output,
    ) {
        let segment = self.server.owes.segment();
        if self.server.statements.is_expected(statement) {
            self.close_own(statement, at, out);
        }
        while let Room::Evict(oldest) = self.server.statements.room(self.rules.statements_max, segment) {
            self.close_own(oldest, at, out);
        }
        let registry = &self.rules.registry;
        let rest = match reader {
            Reader::Preparing => registry.rest(statement).map(|rest| Cow::Borrowed(&**rest)),
            Reader::Anew | Reader::Holding => registry.typed(statement),
        };
        let name = server_name(statement);
        send_own(self.server, at, out, |bytes| {
            parse_message(bytes, &name, rest.as_deref().unwrap_or_default());
            encode::describe(bytes, b'S', &name);
        });
        self.rules.parsed_on_server += 1;
        let by = self.by(true);
        let registry = &self.rules.registry;
        let (effects, scope) = (registry.effects(statement), registry.scope(statement));
        self.server.statements.parse_sent(statement, effects, scope, by);
        self.server.owes.push(owed);
        self.server.owes.push(Owed::OwnDescribe(statement, reader));
    }

    pub(super) fn close_own(&mut self, statement: StatementId, at: Boundary, out: &mut impl Output) {
        let name = server_name(statement);
        send_own(self.server, at, out, |bytes| encode::close(bytes, b'S', &name));
        self.server.statements.close_sent(statement, self.server.owes.segment());
        self.server.owes.push(Owed::OwnClose(statement));
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
    ) -> Verdict {
        if self.server.skipping {
            return Verdict::Pass;
        }
        let statement = match self.find(name) {
            Lookup::InDoubt => return Verdict::AwaitReplies,
            Lookup::Unknown if self.server.owes.has_change() => return Verdict::AwaitReplies,
            Lookup::Unknown => return self.refuse_bind(header, portal, name, rest, at, out),
            Lookup::Is(statement) => statement,
        };
        let (statement, before) = match self.before_named(name, statement, header, at, out) {
            Ok(found) => found,
            Err(Obstacle::Replies) => return Verdict::AwaitReplies,
            Err(Obstacle::Next) => return Verdict::AwaitNext,
            Err(Obstacle::OldDescription) => {
                return self.refuse_old_description(header, portal, name, rest, at, out);
            }
        };
        self.rules.bound += 1;
        let effects = match &before {
            Before::Nothing(traits) => traits.effects,
            _ => self.rules.registry.effects(statement),
        };
        self.flush(out);
        let owed = match self.ensure_prepared(name, statement, before, header, at, out) {
            true => Owed::WatchedBind(statement),
            false => Owed::Bind(Some(statement)),
        };
        // To plan it may call functions.
        self.server.segment_effects.add(Effects::BOUND.and(effects.calls()));
        self.server.portal_effects.add(effects);
        if effects.any(Effects::ALTERING) {
            self.alters_by_portal(Some(statement));
        }
        let server = server_name(statement);
        send(&mut self.server.watch, at, out, |bytes| {
            rename::bind(bytes, header, portal, name.len(), &server);
        });
        self.ask(owed);
        Verdict::Dropped(HEADER_BYTES + rest)
    }

    /// Describe or Close of a named statement.
    #[inline(never)]
    fn target(&mut self, header: Header, name: &[u8], at: Boundary, out: &mut impl Output) -> Verdict {
        let dropped = Verdict::Dropped(header.frame_bytes as usize);
        if self.server.skipping {
            return dropped;
        }
        let found = self.find(name);
        if found == Lookup::InDoubt || self.server.owes.has_change() {
            return Verdict::AwaitReplies;
        }
        match (header.tag, found) {
            (tag::CLOSE, Lookup::Is(_)) => self.close(name, out),
            (tag::CLOSE, _) => self.close_nothing(at, out),
            (_, Lookup::Is(statement)) => {
                let Ok((statement, before)) = self.before_named(name, statement, header, at, out) else {
                    return Verdict::AwaitReplies;
                };
                self.describe(name, header, statement, before, at, out);
            }
            _ => return self.refuse_describe(header, name, at, out),
        }
        dropped
    }

    /// The server keeps the statement.
    fn close(&mut self, name: &[u8], out: &mut impl Output) {
        let segment = self.server.owes.segment();
        if let Some(names) = &mut self.request.statements {
            names.close(name, segment);
        }
        self.flush(out);
        self.server.status = None;
        self.say(Owed::SayCloseComplete, encode::close_complete, out);
    }

    /// Closing what does not exist is no error; the server says so best.
    #[cold]
    #[inline(never)]
    fn close_nothing(&mut self, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        self.server.status = None;
        send(&mut self.server.watch, at, out, |bytes| {
            rename::target(bytes, tag::CLOSE, b'S', &server_name(NO_STATEMENT));
        });
        self.server.owes.push(Owed::Close);
    }

    fn describe(
        &mut self,
        name: &[u8],
        header: Header,
        statement: StatementId,
        before: Before,
        at: Boundary,
        out: &mut impl Output,
    ) {
        self.flush(out);
        self.note_describe();
        let owed = match self.ensure_prepared(name, statement, before, header, at, out) {
            true => Owed::WatchedDescribe(statement),
            false => Owed::Describe(Some(statement)),
        };
        let server = server_name(statement);
        send(&mut self.server.watch, at, out, |bytes| {
            rename::target(bytes, tag::DESCRIBE, b'S', &server);
        });
        self.note_describe_sent();
        self.ask(owed);
    }

    fn describe_portal(&mut self) -> Verdict {
        self.note_describe();
        self.note_describe_sent();
        self.pass(Owed::Describe(None))
    }

    fn describe_unnamed(&mut self, header: Header, at: Boundary, out: &mut impl Output) -> Verdict {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.standing(self.rules.client, self.server.owes.segment()) {
            _ if self.server.skipping => Verdict::Pass,
            Standing::Usable(_) => self.pass(Owed::Describe(None)),
            Standing::InDoubt => Verdict::AwaitReplies,
            Standing::Lacking | Standing::Stale | Standing::Differs => {
                self.refuse_describe(header, b"", at, out)
            }
        }
    }

    /// It is the next that is owed, unless it is skipped.
    #[inline]
    fn note_describe_sent(&mut self) {
        if let Some(names) = &mut self.request.statements {
            let number = self.server.owes.next_number();
            names.describe_sent((!self.server.skipping).then_some(number), self.rules.registry);
        }
    }

    fn note_describe(&mut self) {
        if let Some(names) = &mut self.request.statements {
            names.habit.describes = true;
        }
    }

    #[inline(always)]
    fn find(&self, name: &[u8]) -> Lookup {
        let segment = self.server.owes.segment();
        self.request.statements.as_ref().map_or(Lookup::Unknown, |names| names.find(name, segment))
    }

    /// True if the server has had it for longer, and this is the message of the segment by which it will be seen
    /// whether its plan still holds: from here on the segment is kept.
    #[inline(always)]
    fn ensure_prepared(
        &mut self,
        name: &[u8],
        statement: StatementId,
        before: Before,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> bool {
        let Before::Nothing(traits) = before else {
            let reader = self.reader(name, header).unwrap_or(Reader::Holding);
            self.prepare(statement, Owed::OwnParse(statement), reader, at, out);
            return false;
        };
        let server = &mut *self.server;
        let in_block = server.in_block() && server.owes.is_empty();
        if server.segment_effects != Effects::NONE || server.watch.records() || in_block || server.skipping {
            return false;
        }
        let number = server.owes.next_number();
        server.watch.begin(statement, number, traits.verified);
        true
    }

    /// Says a reply of Weir's own: now if nothing is owed before it, else when the stream gets there.
    fn say(&mut self, owed: Owed, message: fn(&mut Vec<u8>), out: &mut impl Output) {
        if self.server.owes.is_empty() && self.server.remain == 0 {
            out.to_client(message);
            if let Some(names) = &mut self.request.statements {
                names.confirm(self.rules.registry);
            }
        } else {
            self.server.owes.push(owed);
        }
    }
}
