//! The statement without a name: whose it is, as of the last answer and once everything sent is executed.
//!
//! Never sees its text.

use super::{Availability, StatementTraits};
use crate::statement_text::Effects;

/// The statement without a name: whose it is. PostgreSQL has one for a session; here a session's server has been another
/// client's before, and what that client left is not for the next.
#[derive(Debug, Default)]
pub(crate) struct UnnamedStatement {
    answered: Owner,
    expected: Owner,
    unanswered: u32,
    segment: u64,
}

/// Who parsed it, and what executing it may change.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    /// The client's number, counted from 1.
    client: u64,
    effects: Effects,
}

impl UnnamedStatement {
    /// A Parse of it is being sent.
    #[inline]
    pub(crate) fn parse_sent(&mut self, client: u64, effects: Effects, segment: u64) {
        (self.expected, self.segment) = (Owner { client, effects }, segment);
        self.unanswered += 1;
    }

    /// The number of the client that has it; None while that is not answered, or if no client has.
    pub(crate) fn owner(&self) -> Option<u64> {
        Some(self.answered.client).filter(|client| *client > 0 && self.unanswered == 0)
    }

    /// Whether this client parsed the one that was sent last.
    #[inline]
    pub(crate) fn is_of(&self, client: u64) -> bool {
        self.expected.client == client
    }

    /// That of a server which comes from another process. What it does when it is executed is not known here.
    pub(crate) fn imported(client: u64) -> UnnamedStatement {
        let owner = Owner { client, effects: Effects::ALL };
        UnnamedStatement { answered: owner, expected: owner, ..UnnamedStatement::default() }
    }

    /// ParseComplete arrived.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.answered = self.expected;
    }

    /// Its Parse failed, or was skipped.
    pub(crate) fn skipped(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered == 0 {
            self.expected = self.answered;
        }
    }

    /// What executing the one that was sent last may change.
    #[inline]
    pub(crate) fn effects(&self) -> Effects {
        self.expected.effects
    }

    /// Executing the one that was sent last may change prepared statements or parameters.
    pub(crate) fn may_alter(&self) -> bool {
        self.expected.effects.any(Effects::ALTERING)
    }

    /// Whether this client can use it in this segment.
    #[inline]
    pub(crate) fn availability(&self, client: u64, segment: u64) -> Availability {
        if self.expected.client != client {
            return Availability::Missing;
        }
        if self.unanswered > 0 && self.segment != segment && self.answered.client != client {
            return Availability::Unresolved;
        }
        let mut effects = self.expected.effects;
        if self.unanswered > 0 {
            effects.add(self.answered.effects);
        }
        Availability::Usable(StatementTraits { verified: true, effects })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USABLE: Availability =
        Availability::Usable(StatementTraits { verified: true, effects: Effects::NONE });

    #[test]
    fn the_unnamed_statement_is_for_the_client_that_parsed_it() {
        let mut unnamed = UnnamedStatement::default();
        assert_eq!(unnamed.availability(1, 0), Availability::Missing, "no client has parsed one");
        unnamed.parse_sent(1, Effects::NONE, 0);
        assert_eq!(unnamed.availability(1, 0), USABLE);
        assert_eq!(
            unnamed.availability(1, 1),
            Availability::Unresolved,
            "the Parse may be skipped, and what was there is not ours"
        );
        unnamed.answered();
        assert_eq!((unnamed.availability(1, 1), unnamed.availability(2, 1)), (USABLE, Availability::Missing));
        unnamed.parse_sent(2, Effects::NONE, 2);
        unnamed.skipped();
        assert_eq!(unnamed.availability(1, 3), USABLE, "it is still the first client's");
    }
}
