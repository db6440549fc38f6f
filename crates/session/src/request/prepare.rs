//! What has to be on a server before a message that uses a prepared statement, and sending it there.
//!
//! Owns Weir's own Parse, Describe and Close, and when a request begins to be kept in case its plan is stale ([`crate::replay`]). By
//! which description the client reads is [`super::missing`]'s.

use std::borrow::Cow;

use wire::encode;
use wire::frame::Header;

use super::{Step, send_internal};
use crate::parse_settings::SettingsId;
use crate::prepared::server_name;
use crate::replay::parse_message;
use crate::server_protocol::settings::InForce;
use crate::server_statements::{Availability, Room, StatementTraits, UseSite};
use crate::statement_text::Effects;
use crate::{Boundary, Output, PendingReply, Reader, ServerProtocol, StatementId};

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

impl Step<'_, '_> {
    /// The settings under which the server will parse what is sent now.
    pub(super) fn in_force(&mut self) -> InForce {
        if self.server.session.reads_otherwise() {
            return InForce::Settings(None);
        }
        let ServerProtocol { settings, transaction, replies, effects, parameters, .. } = &mut *self.server;
        settings.in_force(*transaction, replies, effects.segment(), parameters, self.context.registry)
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
    pub(super) fn before_parse_of(&mut self, found: Option<StatementId>) -> Option<Prerequisite> {
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
        let known = match self.server.session.reads_otherwise() {
            true => None,
            false => self.server.settings.known_id(&self.server.parameters, self.server.effects.segment()),
        };
        let settings = known.or_else(|| self.settings_id_in_force());
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
        self.server.owe(pending);
        self.server.owe(PendingReply::InternalDescribe(statement, reader));
    }

    pub(super) fn close_internal(&mut self, statement: StatementId, at: Boundary, out: &mut impl Output) {
        let name = server_name(statement);
        send_internal(self.server, at, out, |bytes| encode::close(bytes, b'S', &name));
        self.server.statements.close_sent(statement, self.server.replies.segment());
        self.server.owe(PendingReply::InternalClose(statement));
    }

    /// True if the server has had it for longer, and this is the message of the segment by which it will be seen
    /// whether its plan still holds: from here on the segment is kept.
    #[inline(always)]
    pub(super) fn ensure_prepared(
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
        if server.effects.segment() != Effects::NONE
            || server.replay_buffer.records()
            || in_block
            || server.skipping.is_on()
        {
            return false;
        }
        let number = server.replies.next_number();
        server.replay_buffer.begin(statement, number, traits.verified);
        true
    }
}
