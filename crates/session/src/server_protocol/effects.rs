//! What requests that were sent may have changed on the server: in the segment that is being sent, by the portals that are
//! bound, by the statement without a name, and which parameters a reset has left otherwise than the client has them.
//!
//! Owns when each of these begins and ends. What a text may change is [`crate::statement_text`]'s, what it resets
//! [`crate::resets`]'s.

use wire::backend::Status;

use super::pending_resets::PendingResets;
use crate::Reset;
use crate::session_state::MAX_NAMES;
use crate::statement_text::Effects;

/// The effects of what was sent.
#[derive(Debug, Default)]
pub(crate) struct SentEffects {
    /// What may have been done since the last Sync; nothing if nothing but Parse, Describe and Close was asked.
    segment: Effects,
    /// What executing the portals that were bound may change.
    portals: Effects,
    /// What executing them resets.
    portal_resets: Reset,
    /// What the statement without a name resets, if that may change anything.
    unnamed_resets: Reset,
    /// What is known of resets since nothing was owed.
    pub(crate) resets: PendingResets,
    /// Parameters that have the client's startup value again for the client, but not on this server.
    lost: Reset,
    /// Statements that portals, and the statement without a name, may name once they are executed.
    names: NamedStatements,
}

/// Names of statements in texts of this client's that have been sent and may be executed yet.
#[derive(Debug, Default)]
struct NamedStatements {
    client: u64,
    names: Vec<Box<str>>,
    /// There were too many: each name counts as one of them.
    any: bool,
}

impl SentEffects {
    /// Of a server that came from another process in a transaction block. Portals live as long as their transaction, and what these
    /// do is not known here.
    pub(crate) fn of_open_block() -> SentEffects {
        SentEffects { portals: Effects::ALL, portal_resets: Reset::UNCLEAR, ..SentEffects::default() }
    }

    /// What was done since the last Sync.
    #[inline]
    pub(crate) fn segment(&self) -> Effects {
        self.segment
    }

    /// Sync is sent, or nothing is owed any more.
    #[inline]
    pub(crate) fn end_segment(&mut self) {
        self.segment = Effects::NONE;
    }

    /// A statement with these effects is bound. To plan it may call functions.
    #[inline]
    pub(crate) fn bind(&mut self, effects: Effects) {
        self.segment.add(Effects::BOUND.and(effects.calls()));
        self.portals.add(effects);
    }

    /// A Bind is sent that the server refuses.
    pub(crate) fn bind_refused(&mut self) {
        self.segment.add(Effects::BOUND);
    }

    /// A statement that resets these is taken to be bound, because its name is not followed.
    pub(crate) fn bind_resetting(&mut self, reset: Reset) {
        self.portals.add(Effects::ALTERING);
        self.portal_resets.add(reset);
    }

    /// What executing a portal that was bound just now resets.
    pub(crate) fn add_portal_resets(&mut self, reset: Reset) {
        self.portal_resets.add(reset);
    }

    /// A portal is executed; which one of those that were bound is not known. What that may change.
    #[inline]
    pub(crate) fn execute(&mut self) -> Effects {
        self.segment.add(self.portals.and(Effects::BOUND));
        self.portals
    }

    /// One of the portals that may be executed may be a COPY from the client.
    pub(crate) fn may_copy(&self) -> bool {
        self.portals.any(Effects::COPIES)
    }

    /// What executing portals resets.
    pub(crate) fn portal_resets(&self) -> Reset {
        self.portal_resets
    }

    /// What executing the statement without a name resets, if that may change anything.
    pub(crate) fn unnamed_resets(&self) -> Reset {
        self.unnamed_resets
    }

    pub(crate) fn set_unnamed_resets(&mut self, resets: Reset) {
        self.unnamed_resets = resets;
    }

    /// A text of this client's is sent that names these statements when it is executed, which is later.
    #[cold]
    pub(crate) fn name_statements<'a>(&mut self, client: u64, names: impl Iterator<Item = &'a String>) {
        if self.names.client != client {
            self.names = NamedStatements { client, ..NamedStatements::default() };
        }
        for name in names {
            if self.names.names.len() >= MAX_NAMES {
                self.names.any = true;
            } else if !self.may_name(client, name) {
                self.names.names.push(name.as_str().into());
            }
        }
    }

    /// Something of this client's that may be executed yet names this statement.
    pub(crate) fn may_name(&self, client: u64, name: &str) -> bool {
        let NamedStatements { client: own, names, any } = &self.names;
        *own == client && (*any || names.iter().any(|known| **known == *name))
    }

    /// The server is quiet: there is no portal any more, and `unnamed` is what the statement without a name may do.
    #[inline]
    pub(crate) fn mark_quiet(&mut self, unnamed: Effects) {
        if self.portals.any(Effects::ALTERING.and(Effects::NAMES)) {
            self.end_portals(unnamed);
        }
        self.portals = Effects::NONE;
    }

    #[cold]
    fn end_portals(&mut self, unnamed: Effects) {
        self.portal_resets = Reset::default();
        if !unnamed.any(Effects::NAMES) {
            self.names = NamedStatements::default();
        }
    }

    /// The query whose reply has this number resets these.
    #[cold]
    pub(crate) fn query_resets(&mut self, reset: Reset, number: u64) {
        self.forget_lost();
        self.resets.ask_by_query(reset, number);
    }

    /// The Execute whose reply has this number resets these.
    #[cold]
    pub(crate) fn execute_resets(&mut self, reset: Reset, number: u64) {
        self.forget_lost();
        self.resets.ask(reset, number);
    }

    /// What was lost before is set again by now.
    fn forget_lost(&mut self) {
        if !self.resets.is_asked() {
            self.lost = Reset::default();
        }
    }

    /// All that was asked is answered, with this status; the parameters that were reset for the client, and that this server has
    /// otherwise.
    pub(crate) fn resets_answered(&mut self, status: Status, lost: Reset) {
        let is_over = status == Status::Idle;
        self.portal_resets = if is_over { Reset::default() } else { self.portal_resets.of_older_portals() };
        (self.resets, self.lost) = (PendingResets::default(), lost);
    }

    /// Parameters that have the client's startup value again for the client, but not on this server.
    pub(crate) fn lost(&self) -> Reset {
        self.lost
    }

    pub(crate) fn take_lost(&mut self) -> Reset {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_the_effects_of_what_was_bound_and_executed_in_it() {
        let mut effects = SentEffects::default();
        effects.bind(Effects::CALLS.and(Effects::SETTINGS));
        assert_eq!(effects.segment(), Effects::BOUND.and(Effects::CALLS), "to plan it may call functions");
        assert!(effects.execute().any(Effects::SETTINGS));
        assert!(effects.segment().any(Effects::SETTINGS));
        effects.end_segment();
        assert_eq!(effects.segment(), Effects::NONE);
        effects.execute();
        assert!(effects.segment().any(Effects::SETTINGS), "the portal may be there in the next segment");
        effects.end_segment();
        effects.mark_quiet(Effects::NONE);
        effects.execute();
        assert_eq!(effects.segment(), Effects::BOUND);
    }

    #[test]
    fn what_portals_reset_is_unclear_once_one_was_executed_in_a_block() {
        let mut effects = SentEffects::default();
        effects.bind_resetting(Reset::of_session(1));
        assert_eq!(effects.portal_resets(), Reset::of_session(1));
        effects.execute_resets(Reset::of_session(1), 20);
        effects.resets_answered(Status::InTransaction, Reset::default());
        assert_eq!(effects.portal_resets(), Reset::UNCLEAR);
        effects.resets_answered(Status::Idle, Reset::default());
        assert_eq!(effects.portal_resets(), Reset::default());
    }

    #[test]
    fn names_of_statements_end_with_what_may_be_executed_yet() {
        let (mut effects, name) = (SentEffects::default(), "s".to_owned());
        let bind = |effects: &mut SentEffects| {
            effects.name_statements(1, [&name].into_iter());
            effects.bind(Effects::NAMES);
            assert!(effects.may_name(1, "s") && !effects.may_name(2, "s") && !effects.may_name(1, "t"));
        };
        bind(&mut effects);
        effects.mark_quiet(Effects::NAMES);
        assert!(effects.may_name(1, "s"), "the statement without a name can be bound again");
        bind(&mut effects);
        effects.mark_quiet(Effects::NONE);
        assert!(!effects.may_name(1, "s"));
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        effects.name_statements(1, many.iter());
        assert!(effects.may_name(1, "s"), "more than are kept");
        effects.name_statements(2, [&name].into_iter());
        assert!(!effects.may_name(1, "s") && !effects.may_name(2, "t"));
    }

    #[test]
    fn what_is_lost_is_taken_once_and_forgotten_with_the_next_reset() {
        let mut effects = SentEffects::default();
        effects.resets_answered(Status::Idle, Reset::of_session(1));
        assert_eq!((effects.take_lost(), effects.take_lost()), (Reset::of_session(1), Reset::default()));
        effects.resets_answered(Status::Idle, Reset::of_session(1));
        effects.query_resets(Reset::of_session(2), 20);
        assert!(effects.lost().is_empty());
    }
}
