//! One prepared statement of a server: what was answered about it, what is expected, and whether it can be trusted.
//!
//! Owns the transitions of one statement; the order of use and the room for them are [`super::ServerStatements`]'.

use crate::parse_settings::SettingsId;
use crate::statement_text::Effects;

/// Which client uses a statement, and where in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UseSite {
    /// The client's number.
    pub(crate) client: u64,
    pub(crate) segment: u64,
    /// The settings in force, if they are known.
    pub(crate) settings: Option<SettingsId>,
    /// It is parsed: what PostgreSQL has analysed anew for the same client is not what it would be now.
    pub(crate) parses: bool,
}

/// Whether a statement can be used at a place of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// The server will have it by then, as its clients know it.
    Usable(StatementTraits),
    /// The server lacks it.
    Missing,
    /// What the server has is stale.
    Stale,
    /// Parsed for this client a moment ago, it is another than its clients know.
    Differs,
    /// A Parse or Close of an earlier segment is unanswered.
    Unresolved,
}

/// What matters of a statement that can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatementTraits {
    /// It was parsed or bound since the server was last quiet.
    pub(crate) verified: bool,
    /// What executing it may change.
    pub(crate) effects: Effects,
}

/// One statement of a server.
///
/// All unanswered Parses and Closes of a statement belong to one segment (what comes later waits), so that an error
/// takes back all of them that come behind it, and what was answered last holds again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedStatement {
    /// As of the last answer, the server has it.
    answered: bool,
    /// The server will have it once everything sent is executed.
    expected: bool,
    unanswered: u32,
    /// The segment of what is unanswered.
    segment: u64,
    /// When it was last used, by `clock`.
    used: u64,
    /// At which count of `quiet_count` it was last parsed or bound.
    verified: u64,
    /// The server has refused it, or it may be another one by now: it has to be closed before it is prepared again.
    stale: bool,
    /// At which count of `quiet_count` its description was found to be another than the statement's.
    differs: Option<u64>,
    /// What is sent behind its Parse waits for its description.
    awaited: bool,
    /// What executing it may change.
    effects: Effects,
    /// The settings that it was parsed under; None if no other client is given it.
    scope: Option<SettingsId>,
    /// The client that used it last, and in which segment.
    used_by: u64,
    used_in: u64,
    /// The client that has used it where other settings were, or may have been, in force than those that it was parsed under.
    /// PostgreSQL may have analysed it anew then, which is for that client alone: it does so whenever DDL, ANALYZE or DISCARD PLANS
    /// has invalidated the plan, and never says so (PostgreSQL, plancache.c).
    tainted_by: Option<u64>,
}

impl CachedStatement {
    /// One that was last used at this count.
    pub(super) fn used_at(clock: u64) -> CachedStatement {
        CachedStatement { used: clock, ..CachedStatement::default() }
    }

    /// Its name is taken on the server once everything sent is executed.
    pub(super) fn is_expected(&self) -> bool {
        self.expected
    }

    /// When it was last used.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// The server has something under this name that is not, or may not be, this statement.
    pub(super) fn is_stale(&self) -> bool {
        self.stale || self.tainted_by.is_some()
    }

    /// A Close that is sent in this segment would find it.
    pub(super) fn can_be_closed(&self, segment: u64) -> bool {
        self.expected && (self.unanswered == 0 || self.segment == segment)
    }

    /// Whether a message can use it here; if so it is used now.
    #[inline]
    pub(super) fn touch(&mut self, site: UseSite, clock: u64, quiet_count: u64) -> Availability {
        if self.unanswered > 0 && (self.segment != site.segment || self.awaited) {
            Availability::Unresolved
        } else if !self.expected {
            Availability::Missing
        } else if !self.stale && !self.is_tainted_for(site) {
            self.used = clock;
            self.note(site);
            let verified = self.verified == quiet_count;
            Availability::Usable(StatementTraits { verified, effects: self.effects })
        } else if self.differs == Some(quiet_count) {
            Availability::Differs
        } else {
            Availability::Stale
        }
    }

    /// What this client would meet is another's, or older than what it asks for.
    #[inline]
    fn is_tainted_for(&self, site: UseSite) -> bool {
        self.tainted_by.is_some_and(|client| site.parses || client != site.client)
    }

    #[inline]
    fn note(&mut self, site: UseSite) {
        (self.used_by, self.used_in) = (site.client, site.segment);
        if self.scope.is_some() && self.scope != site.settings {
            self.tainted_by = Some(site.client);
        }
    }

    /// Its Parse is being sent, and a Describe behind it.
    pub(super) fn parse_sent(
        &mut self,
        effects: Effects,
        scope: Option<SettingsId>,
        site: UseSite,
        clock: u64,
        quiet_count: u64,
    ) {
        (self.used, self.verified, self.stale, self.differs) = (clock, quiet_count, false, None);
        (self.expected, self.segment, self.effects) = (true, site.segment, effects);
        (self.scope, self.tainted_by) = (scope, None);
        self.note(site);
        self.unanswered += 2;
    }

    /// A Close, a Parse and a Describe of it are sent before messages that were sent already and are sent again: what those do to it
    /// comes last.
    pub(super) fn prepared_anew(&mut self, scope: Option<SettingsId>, segment: u64, quiet_count: u64) {
        if self.unanswered == 0 {
            (self.expected, self.segment) = (true, segment);
        }
        (self.verified, self.stale, self.differs) = (quiet_count, false, None);
        (self.scope, self.used_in) = (scope, segment);
        self.unanswered += 3;
    }

    /// A Close of it is being sent.
    pub(super) fn close_sent(&mut self, segment: u64) {
        (self.expected, self.segment) = (false, segment);
        self.unanswered += 1;
    }

    /// What uses it is not sent before its description has come.
    pub(super) fn await_description(&mut self) {
        self.awaited = true;
    }

    /// ParseComplete (`there`) or CloseComplete arrived.
    pub(super) fn answered(&mut self, there: bool) -> Remains {
        self.answered = there;
        self.settle()
    }

    /// Its description has come: it is the one that its clients know, or another.
    pub(super) fn described(&mut self, as_known: bool, quiet_count: u64) -> Remains {
        self.stale |= !as_known;
        self.differs = (!as_known).then_some(quiet_count);
        self.settle()
    }

    /// A Parse, Describe or Close of it failed, or was skipped.
    pub(super) fn skipped(&mut self) -> Remains {
        if self.unanswered == 1 {
            self.expected = self.answered;
        }
        // What the server's own is like is not known any more.
        self.stale = self.answered;
        self.settle()
    }

    fn settle(&mut self) -> Remains {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.awaited &= self.unanswered > 0;
        if self.unanswered == 0 && !self.answered { Remains::Nothing } else { Remains::Something }
    }

    /// DEALLOCATE ALL or DISCARD ALL was run.
    pub(super) fn deallocated(&mut self) -> Remains {
        self.answered = false;
        if self.unanswered > 0 { Remains::Something } else { Remains::Nothing }
    }

    /// The client was refused because its description differs: should it come again, that is looked at again.
    pub(super) fn forget_difference(&mut self) {
        self.differs = None;
    }

    /// A setting has changed in this segment: if it was used in it, or later, that was perhaps under the new settings.
    pub(super) fn settings_changed(&mut self, segment: u64) {
        if self.used_in >= segment && self.scope.is_some() {
            self.tainted_by = Some(self.used_by);
        }
    }

    /// SQL has prepared or deallocated a statement under a name that may be this one.
    pub(super) fn distrust(&mut self) {
        self.stale |= self.answered;
    }

    /// The server refused to bind it, and the client was told.
    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// The server has bound it.
    pub(super) fn verify(&mut self, quiet_count: u64) {
        self.verified = quiet_count;
    }
}

/// What is left of a statement after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// The server has it, or something about it is unanswered.
    Something,
    Nothing,
}
