//! A request that asks for what `nextval` has left in the session, by `currval` or `lastval` (`session_state = virtual`).
//!
//! Owns when it is kept until its client has a server whose values are its own, or that has none. Which server that is, the shard decides.

use super::{RequestAction, Step};
use crate::StatementId;
use crate::statement_text::Effects;

impl Step<'_, '_> {
    /// The same in front of a Parse with a name: what it parses may be bound right behind it. `found` is the statement, if it is known.
    #[inline]
    pub(super) fn before_parse_of_values(
        &mut self,
        found: Option<StatementId>,
        text: &[u8],
    ) -> Option<RequestAction> {
        if !self.server.session.is_followed() {
            return None;
        }
        let effects = match found {
            Some(statement) => self.context.registry.effects(statement),
            None => self.context.registry.session_effects(text),
        };
        if effects.any(Effects::SEQUENCE_VALUES) { self.before_sequence_values(effects) } else { None }
    }

    /// A text with these effects is about to be sent. None if it can be sent, as far as its values are concerned.
    ///
    /// Behind other messages of the same segment nothing of Weir's own can be sent that would not end their transaction.
    #[cold]
    pub(super) fn before_sequence_values(&mut self, effects: Effects) -> Option<RequestAction> {
        let calls_next = effects.any(Effects::SEQUENCES);
        if !effects.any(Effects::SEQUENCE_VALUES)
            || !self.server.session.is_followed()
            || !self.executes()
            || self.server.effects.segment() != Effects::NONE
        {
            return None;
        }
        // Settings in front of it are no part of its segment.
        if self.server.transaction.is_at_rest() || self.server.awaits_request() {
            self.server.session.sequences.transaction_begins();
        } else if self.server.transaction.current().is_none() {
            return self.behind_others_of_values(calls_next);
        }
        if !self.server.session.sequences.have_to_be_settled(calls_next) {
            return None;
        }
        if self.server.transaction.in_failed_block() {
            return None;
        }
        self.server.session.sequences.hold_request(calls_next);
        Some(RequestAction::AwaitNext)
    }

    /// Earlier requests are unanswered, or its segment has begun.
    fn behind_others_of_values(&mut self, calls_next: bool) -> Option<RequestAction> {
        let waits = self.server.replies.awaits_ready()
            && self.server.session.sequences.may_have_to_be_settled(calls_next);
        waits.then_some(RequestAction::AwaitReplies)
    }
}
