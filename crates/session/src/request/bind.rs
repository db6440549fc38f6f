//! Bind: of a named statement, of the one without a name, and of one that the server is to refuse.
//!
//! Owns which statement a Bind uses under the server's name for it. What comes before it is [`super::prepare`]'s.

use wire::frame::{HEADER_BYTES, Header};
use wire::rename;

use super::prepare::{Obstacle, Prerequisite};
use super::{RequestAction, Step, send};
use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay;
use crate::server_statements::Availability;
use crate::statement_text::Effects;
use crate::{Boundary, Lookup, Output, PendingReply, StatementId};

/// The parts of a Bind.
#[derive(Clone, Copy)]
pub(super) struct Bind<'a> {
    pub(super) header: Header,
    pub(super) portal: &'a [u8],
    /// The client's name of the statement.
    pub(super) name: &'a [u8],
    /// Where in the body what follows the names begins.
    pub(super) rest: usize,
    pub(super) at: Boundary,
}

impl Bind<'_> {
    /// Appends its beginning, with the server's name of the statement.
    fn begin(&self, bytes: &mut Vec<u8>, statement: StatementId) {
        rename::bind(bytes, self.header, self.portal, self.name.len(), &server_name(statement));
    }

    /// What [`Bind::begin`] takes the place of; the rest follows unchanged.
    fn dropped(&self) -> RequestAction {
        RequestAction::Dropped(HEADER_BYTES + self.rest)
    }
}

impl Step<'_, '_> {
    /// Bind, whose names are here; the rest of it is, if it is `complete`.
    #[inline(always)]
    pub(super) fn bind(&mut self, bind: &Bind<'_>, complete: bool, out: &mut impl Output) -> RequestAction {
        if bind.name.is_empty() {
            return self.bind_unnamed(bind, out);
        }
        // A whole one can be sent again.
        if !complete && bind.header.frame_bytes as usize <= replay::BYTES {
            return RequestAction::Hold;
        }
        self.bind_named(bind, out)
    }

    /// Bind of the statement without a name, which may have been another client's.
    #[inline(always)]
    fn bind_unnamed(&mut self, bind: &Bind<'_>, out: &mut impl Output) -> RequestAction {
        let unnamed = &self.server.statements.unnamed;
        match unnamed.availability(self.context.client, self.server.replies.segment()) {
            _ if self.server.skipping.is_on() => RequestAction::Pass,
            Availability::Usable(traits) => {
                self.server.session.note_unbound(false);
                self.server.effects.bind(traits.effects);
                if traits.effects.any(Effects::ALTERING) {
                    self.alters_by_portal(None);
                }
                if traits.effects.any(Effects::NOTED) {
                    self.note_session_effects_of(None, traits.effects, bind);
                }
                self.pass(PendingReply::Bind)
            }
            Availability::Unresolved => RequestAction::AwaitReplies,
            Availability::Missing | Availability::Stale | Availability::Differs => {
                self.refuse_bind(bind, out)
            }
        }
    }

    #[inline(always)]
    fn bind_named(&mut self, bind: &Bind<'_>, out: &mut impl Output) -> RequestAction {
        if self.server.skipping.is_on() {
            return RequestAction::Pass;
        }
        let statement = match self.find(bind.name) {
            Lookup::Unresolved => return RequestAction::AwaitReplies,
            Lookup::Unknown if self.is_own_name(bind.name) => return self.bind_own(bind),
            Lookup::Unknown if self.server.replies.has_change() => return RequestAction::AwaitReplies,
            Lookup::Unknown => return self.refuse_bind(bind, out),
            Lookup::Is(statement) => statement,
        };
        let (statement, before) = match self.before_named(bind.name, statement, bind.header, bind.at, out) {
            Ok(found) => found,
            Err(Obstacle::Replies) => return RequestAction::AwaitReplies,
            Err(Obstacle::Next) => return RequestAction::AwaitNext,
            Err(Obstacle::OldDescription) => {
                return self.refuse_old_description(bind, out);
            }
        };
        let effects = match &before {
            Prerequisite::Nothing(traits) => traits.effects,
            _ => self.context.registry.effects(statement),
        };
        if effects.any(Effects::PREPARED_FOR)
            && let Some(action) = self.before_text_of(effects, statement, bind, out)
        {
            return action;
        }
        self.context.bound += 1;
        self.flush(out);
        let pending = match self.ensure_prepared(bind.name, statement, before, bind.header, bind.at, out) {
            true => PendingReply::RecordedBind(statement),
            false => PendingReply::NamedBind(statement),
        };
        self.server.effects.bind(effects);
        if effects.any(Effects::ALTERING) {
            self.alters_by_portal(Some(statement));
        }
        let effects = match self.server.session.has_changing_relations() {
            true => effects.and(self.effects_by_relations(statement)),
            false => effects,
        };
        if effects.any(Effects::NOTED) {
            self.note_session_effects_of(Some(statement), effects, bind);
        }
        send(&mut self.server.replay_buffer, bind.at, out, |bytes| bind.begin(bytes, statement));
        self.server.ask(pending);
        bind.dropped()
    }

    /// What has to be done before a statement with these effects is bound.
    #[cold]
    fn before_text_of(
        &mut self,
        effects: Effects,
        statement: StatementId,
        bind: &Bind<'_>,
        out: &mut impl Output,
    ) -> Option<RequestAction> {
        let text = self.context.registry.rest(statement).cloned()?;
        self.before_text(effects, &text, false, bind.at, out)
    }

    /// What the tables and views that a statement names may change in its session. They may have changed since it was parsed.
    #[cold]
    fn effects_by_relations(&self, statement: StatementId) -> Effects {
        let text = self.context.registry.rest(statement);
        let is_named = text.is_none_or(|text| self.server.session.names_changing_relation(text));
        if is_named { Effects::HIDDEN } else { Effects::NONE }
    }

    /// What is bound may change the session; which parameters it sets may stand in its text, or among its values.
    #[cold]
    #[inline(never)]
    fn note_session_effects_of(&mut self, statement: Option<StatementId>, effects: Effects, bind: &Bind<'_>) {
        if !self.server.session.is_followed() {
            return;
        }
        if effects.any(Effects::READS) {
            self.server.session.note_reading();
        }
        if effects.any(Effects::SEQUENCES) {
            self.server.session.note_sequences();
        }
        if !effects.any(Effects::SESSION) {
            return;
        }
        if let Some(text) = statement.and_then(|statement| self.context.registry.rest(statement)).cloned() {
            self.note_session_effects(effects, &text, &text);
        }
        let message = self.input.get(self.at..).unwrap_or_default();
        let message = &message[..message.len().min(bind.header.frame_bytes as usize)];
        let is_whole = message.len() == bind.header.frame_bytes as usize;
        let sets_and_locks = effects.any(Effects::SETS_VALUES) && effects.any(Effects::LOCKS);
        if !is_whole || effects.any(Effects::HIDDEN) || sets_and_locks {
            self.server.session.note_hidden(self.context.client, message);
        } else if effects.any(Effects::SETS_VALUES) {
            self.server.session.note_settings_bound(message);
        } else {
            self.server.session.note_locks();
        }
    }

    /// Bind of a name that stands for nothing.
    #[cold]
    #[inline(never)]
    fn refuse_bind(&mut self, bind: &Bind<'_>, out: &mut impl Output) -> RequestAction {
        if self.server.replies.internal_bytes_full() {
            return RequestAction::AwaitReplies; // The name is kept.
        }
        let action = self.bind_nothing(bind, out);
        self.server.owe_refused(bind.name);
        action
    }

    /// Bind of a client that would read the rows by an old description; the words of the error are Weir's.
    #[cold]
    #[inline(never)]
    fn refuse_old_description(&mut self, bind: &Bind<'_>, out: &mut impl Output) -> RequestAction {
        let action = self.bind_nothing(bind, out);
        self.server.owe(PendingReply::RefusedBind);
        action
    }

    fn bind_nothing(&mut self, bind: &Bind<'_>, out: &mut impl Output) -> RequestAction {
        self.flush(out);
        self.server.effects.bind_refused();
        self.close_internal(NO_STATEMENT, bind.at, out); // SQL may have prepared one under this name.
        send(&mut self.server.replay_buffer, bind.at, out, |bytes| bind.begin(bytes, NO_STATEMENT));
        bind.dropped()
    }
}
