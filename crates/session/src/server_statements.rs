//! The prepared statements of one server connection, with the order of their use and whether they can be trusted.
//!
//! Owns what the server has as of its last answer, and what it will have once everything sent is executed. A Parse or
//! Close counts for what follows it in its segment; in a later segment it counts once it is answered, because
//! PostgreSQL may yet skip it. Never knows a name or a text.

use std::collections::BTreeMap;

use crate::parse_settings::SettingsId;
use crate::statement_text::Effects;
use crate::{StatementId, StatementRegistry};

/// One server's set, with the order of use.
#[derive(Debug, Default)]
pub struct ServerStatements {
    entries: BTreeMap<StatementId, CachedStatement>,
    /// The statement without a name.
    pub(crate) unnamed: UnnamedStatement,
    clock: u64,
    /// Counts the times at which nothing was owed.
    quiet_count: u64,
}

/// One statement of a server.
///
/// All unanswered Parses and Closes of a statement belong to one segment (what comes later waits), so that an error
/// takes back all of them that come behind it, and what was answered last holds again.
#[derive(Clone, Copy, Debug, Default)]
struct CachedStatement {
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
}

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

/// Whether one statement more may be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// If this one, the least recently used, is closed.
    Evict(StatementId),
    /// All have unanswered changes.
    Unresolved,
}

impl ServerStatements {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.values().filter(|entry| entry.expected).count()
    }

    /// All of them, the least recently used first.
    #[must_use]
    pub fn by_age(&self) -> Vec<StatementId> {
        let present = self.entries.iter().filter(|(_, entry)| entry.expected);
        let mut by_age: Vec<(u64, StatementId)> = present.map(|(id, entry)| (entry.used, *id)).collect();
        by_age.sort_unstable();
        by_age.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether a message of this segment can use it; if so it is now the last used.
    #[inline]
    pub(crate) fn touch(&mut self, id: StatementId, site: UseSite) -> Availability {
        self.clock += 1;
        match self.entries.get_mut(&id) {
            Some(entry) if entry.unanswered > 0 && (entry.segment != site.segment || entry.awaited) => {
                Availability::Unresolved
            }
            Some(entry) if entry.expected && !entry.stale && !entry.is_tainted_for(site) => {
                entry.used = self.clock;
                entry.note(site);
                let verified = entry.verified == self.quiet_count;
                Availability::Usable(StatementTraits { verified, effects: entry.effects })
            }
            Some(entry) if entry.expected && entry.differs == Some(self.quiet_count) => Availability::Differs,
            Some(entry) if entry.expected => Availability::Stale,
            _ => Availability::Missing,
        }
    }

    /// Its name is taken on the server by the time the next message is read: it has to be closed before it is prepared.
    pub(crate) fn is_expected(&self, id: StatementId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.expected)
    }

    /// Its Parse is being sent, and a Describe behind it. `scope` are the settings that clients share it under.
    pub(crate) fn parse_sent(
        &mut self,
        id: StatementId,
        effects: Effects,
        scope: Option<SettingsId>,
        site: UseSite,
    ) {
        self.clock += 1;
        let (used, verified) = (self.clock, self.quiet_count);
        let entry = self.entries.entry(id).or_default();
        (entry.used, entry.verified, entry.stale, entry.differs) = (used, verified, false, None);
        (entry.expected, entry.segment, entry.effects) = (true, site.segment, effects);
        (entry.scope, entry.tainted_by) = (scope, None);
        entry.note(site);
        entry.unanswered += 2;
    }

    /// What uses it is not sent before its description has come.
    pub(crate) fn await_description(&mut self, id: StatementId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.awaited = true;
        }
    }

    /// Its description has come: it is the one that its clients know, or another.
    pub(crate) fn described(&mut self, id: StatementId, as_known: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.stale |= !as_known;
            entry.differs = (!as_known).then_some(self.quiet_count);
            self.settle(id);
        }
    }

    /// The client was refused because its description differs: should it come again, that is looked at again.
    pub(crate) fn forget_difference(&mut self, id: StatementId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.differs = None;
        }
    }

    /// A setting has changed in this segment: what was used in it, or later, was perhaps used under the new settings.
    pub(crate) fn settings_changed(&mut self, segment: u64) {
        for entry in
            self.entries.values_mut().filter(|entry| entry.used_in >= segment && entry.scope.is_some())
        {
            entry.tainted_by = Some(entry.used_by);
        }
    }

    /// A Close of it is being sent.
    pub(crate) fn close_sent(&mut self, id: StatementId, segment: u64) {
        let entry = self.entries.entry(id).or_default();
        (entry.expected, entry.segment) = (false, segment);
        entry.unanswered += 1;
    }

    /// ParseComplete (`there`) or CloseComplete arrived.
    pub(crate) fn answered(&mut self, id: StatementId, there: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.answered = there;
            self.settle(id);
        }
    }

    /// A Parse, Describe or Close of it failed, or was skipped.
    pub(crate) fn skipped(&mut self, id: StatementId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            if planted::bug!("parse_cached_early") {
                entry.answered = entry.expected;
            }
            if entry.unanswered == 1 {
                entry.expected = entry.answered;
            }
            // What the server's own is like is not known any more.
            entry.stale = entry.answered && !planted::bug!("parse_cached_early");
            self.settle(id);
        }
    }

    fn settle(&mut self, id: StatementId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        entry.awaited &= entry.unanswered > 0;
        if entry.unanswered == 0 && !entry.answered {
            self.entries.remove(&id);
        }
    }

    /// A server that came from another process has it, after all that it has so far. How long ago it was bound there is
    /// not known.
    pub fn import(&mut self, id: StatementId, registry: &StatementRegistry) {
        let site = UseSite { client: 0, segment: 0, settings: registry.scope(id), parses: true };
        self.parse_sent(id, registry.effects(id), registry.scope(id), site);
        self.answered(id, true);
        self.described(id, true);
        self.mark_quiet();
    }

    /// One that the other process did not trust: see [`ServerStatements::is_stale`].
    pub fn import_stale(&mut self, id: StatementId, registry: &StatementRegistry) {
        self.import(id, registry);
        self.mark_stale(id);
    }

    /// The server has something under this name that is not, or may not be, this statement.
    #[must_use]
    pub fn is_stale(&self, id: StatementId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.stale || entry.tainted_by.is_some())
    }

    /// What has to be closed before one more is prepared in this segment, if there are `limit` or more.
    pub(crate) fn room(&self, limit: usize, segment: u64) -> Room {
        if self.count() < limit {
            return Room::Enough;
        }
        let certain =
            |entry: &CachedStatement| entry.expected && (entry.unanswered == 0 || entry.segment == segment);
        let oldest =
            self.entries.iter().filter(|(_, entry)| certain(entry)).min_by_key(|(_, entry)| entry.used);
        oldest.map_or(Room::Unresolved, |(id, _)| Room::Evict(*id))
    }

    /// DEALLOCATE ALL or DISCARD ALL was run: only what is yet to be answered remains.
    pub(crate) fn clear(&mut self) {
        self.entries.retain(|_, entry| {
            entry.answered = false;
            entry.unanswered > 0
        });
    }

    /// SQL has prepared or deallocated a statement under a name that may be one of these.
    pub(crate) fn distrust_all(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.answered) {
            entry.stale = true;
        }
    }

    /// Nothing is owed any more: what was bound before may be stale when it is bound next.
    #[inline]
    pub(crate) fn mark_quiet(&mut self) {
        self.quiet_count += 1;
    }

    /// The server has bound it.
    pub(crate) fn verify(&mut self, id: StatementId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.verified = self.quiet_count;
        }
    }

    /// A Close, a Parse and a Describe of it are sent before messages that were sent already and are sent again: what those do to it
    /// comes last.
    pub(crate) fn prepared_anew(&mut self, id: StatementId, scope: Option<SettingsId>, segment: u64) {
        let (clock, quiet_count) = (self.clock, self.quiet_count);
        let entry =
            self.entries.entry(id).or_insert(CachedStatement { used: clock, ..CachedStatement::default() });
        if entry.unanswered == 0 {
            (entry.expected, entry.segment) = (true, segment);
        }
        (entry.verified, entry.stale, entry.differs) = (quiet_count, false, None);
        (entry.scope, entry.used_in) = (scope, segment);
        entry.unanswered += 3;
    }

    /// The server refused to bind it, and the client was told.
    pub(crate) fn mark_stale(&mut self, id: StatementId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.stale = true;
        }
    }
}

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

    /// Bound or parsed just now, and harmless.
    const USABLE: Availability =
        Availability::Usable(StatementTraits { verified: true, effects: Effects::NONE });

    /// A client under the settings that all are parsed under here.
    fn site(segment: u64) -> UseSite {
        UseSite { client: 1, segment, settings: Some(7), parses: false }
    }

    fn with(ids: &[StatementId]) -> ServerStatements {
        let mut server = ServerStatements::default();
        for id in ids {
            server.parse_sent(*id, Effects::NONE, Some(7), site(0));
            server.answered(*id, true);
            server.described(*id, true);
        }
        server
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut server = with(&[1, 2]);
        assert_eq!(server.touch(1, site(1)), USABLE);
        assert_eq!(server.room(3, 1), Room::Enough);
        assert_eq!(server.room(2, 1), Room::Evict(2));
        server.close_sent(2, 1);
        assert_eq!(server.touch(2, site(1)), Availability::Missing);
        assert_eq!(server.room(2, 1), Room::Enough);
    }

    #[test]
    fn they_have_an_age() {
        let mut server = with(&[9, 7]);
        server.touch(9, site(0));
        assert_eq!(server.by_age(), [7, 9]);
    }

    #[test]
    fn what_is_unanswered_counts_in_its_own_segment_only() {
        let mut server = ServerStatements::default();
        server.parse_sent(1, Effects::NONE, Some(7), site(5));
        assert_eq!(server.touch(1, site(5)), USABLE);
        assert_eq!(server.touch(1, site(6)), Availability::Unresolved);
        assert_eq!(server.room(1, 6), Room::Unresolved);
        server.answered(1, true);
        assert_eq!(server.touch(1, site(6)), Availability::Unresolved, "its description may be another");
        server.described(1, true);
        assert_eq!(server.touch(1, site(6)), USABLE);
    }

    #[test]
    fn an_error_brings_back_what_was_answered_last() {
        let mut server = with(&[1]);
        server.close_sent(1, 5);
        server.parse_sent(1, Effects::NONE, Some(7), site(5));
        server.close_sent(1, 5);
        assert_eq!(server.touch(1, site(5)), Availability::Missing);
        server.answered(1, false);
        for _ in ["Parse", "Describe", "Close"] {
            server.skipped(1);
        }
        assert_eq!(
            (server.touch(1, site(6)), server.count()),
            (Availability::Missing, 0),
            "the first Close was executed"
        );

        let mut server = with(&[1]);
        server.close_sent(1, 5);
        server.skipped(1);
        assert!(server.is_expected(1), "it is closed again before it is prepared again");
        assert_eq!(server.touch(1, site(6)), Availability::Stale);
    }

    #[test]
    fn a_stale_statement_counts_and_is_not_used() {
        let mut server = with(&[1]);
        server.mark_stale(1);
        assert_eq!(server.touch(1, site(0)), Availability::Stale);
        assert!(server.is_expected(1) && server.count() == 1, "the server has it");
    }

    #[test]
    fn one_whose_description_differs_is_not_used() {
        let mut server = ServerStatements::default();
        server.parse_sent(1, Effects::NONE, Some(7), site(0));
        server.await_description(1);
        assert_eq!(server.touch(1, site(0)), Availability::Unresolved, "in its own segment too");
        server.answered(1, true);
        server.described(1, false);
        assert_eq!(server.touch(1, site(0)), Availability::Differs);
        server.forget_difference(1);
        assert_eq!(server.touch(1, site(0)), Availability::Stale, "what it is now has to be asked");
        server.prepared_anew(1, Some(7), 0);
        assert_eq!(server.touch(1, site(0)), USABLE);
        for _ in ["Close", "Parse"] {
            server.answered(1, true);
        }
        server.described(1, false);
        server.mark_quiet();
        assert_eq!(server.touch(1, site(0)), Availability::Stale, "DDL may have come since");
    }

    #[test]
    fn one_whose_description_was_skipped_is_not_used() {
        let mut server = ServerStatements::default();
        server.parse_sent(1, Effects::NONE, Some(7), site(5));
        server.answered(1, true);
        server.skipped(1);
        assert_eq!((server.touch(1, site(6)), server.count()), (Availability::Stale, 1));
    }

    #[test]
    fn what_is_sent_again_keeps_its_last_word() {
        let mut server = with(&[1]);
        // The segment that is sent again closes it at its end.
        server.close_sent(1, 5);
        server.prepared_anew(1, Some(7), 5);
        for there in [false, true] {
            server.answered(1, there);
        }
        server.described(1, true);
        server.answered(1, false);
        assert_eq!((server.touch(1, site(6)), server.count()), (Availability::Missing, 0));
    }

    #[test]
    fn a_statement_is_verified_until_the_server_is_exportable() {
        let mut server = with(&[1]);
        let verified = |server: &mut ServerStatements| match server.touch(1, site(0)) {
            Availability::Usable(traits) => traits.verified,
            _ => false,
        };
        assert!(verified(&mut server));
        server.mark_quiet();
        assert!(!verified(&mut server));
        server.verify(1);
        assert!(verified(&mut server));
    }

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

    #[test]
    fn what_was_used_under_other_settings_is_that_clients() {
        let mut server = with(&[1]);
        assert_eq!(server.touch(1, UseSite { settings: Some(8), ..site(1) }), USABLE);
        assert_eq!(server.touch(1, site(2)), USABLE, "as with PostgreSQL");
        assert_eq!(server.touch(1, UseSite { parses: true, ..site(2) }), Availability::Stale);
        let other = UseSite { client: 2, ..site(2) };
        assert_eq!(server.touch(1, other), Availability::Stale);
        server.parse_sent(1, Effects::NONE, Some(7), other);
        assert_eq!(server.touch(1, site(2)), USABLE);
        assert_eq!(server.touch(1, UseSite { settings: None, ..site(2) }), USABLE, "they are not known");
        assert_eq!(server.touch(1, other), Availability::Stale);
    }

    #[test]
    fn a_change_that_is_reported_later_counts_from_its_segment_on() {
        let mut server = with(&[1, 2]);
        server.touch(1, site(4));
        server.touch(2, site(5));
        server.settings_changed(5);
        let other = UseSite { client: 2, ..site(6) };
        assert_eq!((server.touch(1, other), server.touch(2, other)), (USABLE, Availability::Stale));
        assert_eq!(server.touch(2, site(6)), USABLE);
    }

    #[test]
    fn what_no_other_client_is_given_is_never_another() {
        let mut server = with(&[]);
        server.parse_sent(1, Effects::NONE, None, site(0));
        server.answered(1, true);
        server.described(1, true);
        server.touch(1, UseSite { settings: None, ..site(1) });
        server.settings_changed(0);
        assert_eq!(server.touch(1, UseSite { parses: true, ..site(1) }), USABLE);
    }
}
