//! The prepared statements of one server connection, with the order of their use and whether they can be trusted.
//!
//! Owns what the server has as of its last answer, and what it will have once everything sent is executed ([`cached`], and
//! [`unnamed`] for the statement without a name). A Parse or Close counts for what follows it in its segment; in a later segment it counts once it is answered, because
//! PostgreSQL may yet skip it. Never knows a name or a text.

mod cached;
mod unnamed;

use std::collections::BTreeMap;

pub(crate) use cached::{Availability, StatementTraits, UseSite};
pub(crate) use unnamed::UnnamedStatement;

use cached::{CachedStatement, Remains};

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
        self.entries.values().filter(|entry| entry.is_expected()).count()
    }

    /// All of them, the least recently used first.
    #[must_use]
    pub fn by_age(&self) -> Vec<StatementId> {
        let present = self.entries.iter().filter(|(_, entry)| entry.is_expected());
        let mut by_age: Vec<(u64, StatementId)> = present.map(|(id, entry)| (entry.used(), *id)).collect();
        by_age.sort_unstable();
        by_age.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether a message of this segment can use it; if so it is now the last used.
    #[inline]
    pub(crate) fn touch(&mut self, id: StatementId, site: UseSite) -> Availability {
        self.clock += 1;
        match self.entries.get_mut(&id) {
            Some(entry) => entry.touch(site, self.clock, self.quiet_count),
            None => Availability::Missing,
        }
    }

    /// Its name is taken on the server by the time the next message is read: it has to be closed before it is prepared.
    pub(crate) fn is_expected(&self, id: StatementId) -> bool {
        self.entries.get(&id).is_some_and(CachedStatement::is_expected)
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
        let (clock, quiet_count) = (self.clock, self.quiet_count);
        self.entries.entry(id).or_default().parse_sent(effects, scope, site, clock, quiet_count);
    }

    /// What uses it is not sent before its description has come.
    pub(crate) fn await_description(&mut self, id: StatementId) {
        self.change(id, CachedStatement::await_description);
    }

    /// Its description has come: it is the one that its clients know, or another.
    pub(crate) fn described(&mut self, id: StatementId, as_known: bool) {
        let quiet_count = self.quiet_count;
        self.settle(id, |entry| entry.described(as_known, quiet_count));
    }

    /// The client was refused because its description differs: should it come again, that is looked at again.
    pub(crate) fn forget_difference(&mut self, id: StatementId) {
        self.change(id, CachedStatement::forget_difference);
    }

    /// A setting has changed in this segment: what was used in it, or later, was perhaps used under the new settings.
    pub(crate) fn settings_changed(&mut self, segment: u64) {
        self.entries.values_mut().for_each(|entry| entry.settings_changed(segment));
    }

    /// A Close of it is being sent.
    pub(crate) fn close_sent(&mut self, id: StatementId, segment: u64) {
        self.entries.entry(id).or_default().close_sent(segment);
    }

    /// ParseComplete (`there`) or CloseComplete arrived.
    pub(crate) fn answered(&mut self, id: StatementId, there: bool) {
        self.settle(id, |entry| entry.answered(there));
    }

    /// A Parse, Describe or Close of it failed, or was skipped.
    pub(crate) fn skipped(&mut self, id: StatementId) {
        self.settle(id, CachedStatement::skipped);
    }

    fn change(&mut self, id: StatementId, change: impl FnOnce(&mut CachedStatement)) {
        if let Some(entry) = self.entries.get_mut(&id) {
            change(entry);
        }
    }

    /// A reply about it has come, or will not come.
    fn settle(&mut self, id: StatementId, reply: impl FnOnce(&mut CachedStatement) -> Remains) {
        if let Some(entry) = self.entries.get_mut(&id)
            && reply(entry) == Remains::Nothing
        {
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
        self.entries.get(&id).is_some_and(CachedStatement::is_stale)
    }

    /// What has to be closed before one more is prepared in this segment, if there are `limit` or more.
    pub(crate) fn room(&self, limit: usize, segment: u64) -> Room {
        if self.count() < limit {
            return Room::Enough;
        }
        let closable = self.entries.iter().filter(|(_, entry)| entry.can_be_closed(segment));
        let oldest = closable.min_by_key(|(_, entry)| entry.used());
        oldest.map_or(Room::Unresolved, |(id, _)| Room::Evict(*id))
    }

    /// DEALLOCATE ALL or DISCARD ALL was run: only what is yet to be answered remains.
    pub(crate) fn clear(&mut self) {
        self.entries.retain(|_, entry| entry.deallocated() == Remains::Something);
    }

    /// SQL has prepared or deallocated a statement under a name that may be one of these.
    pub(crate) fn distrust_all(&mut self) {
        self.entries.values_mut().for_each(CachedStatement::distrust);
    }

    /// Nothing is owed any more: what was bound before may be stale when it is bound next.
    #[inline]
    pub(crate) fn mark_quiet(&mut self) {
        self.quiet_count += 1;
    }

    /// The server has bound it.
    pub(crate) fn verify(&mut self, id: StatementId) {
        let quiet_count = self.quiet_count;
        self.change(id, |entry| entry.verify(quiet_count));
    }

    /// A Close, a Parse and a Describe of it are sent before messages that were sent already and are sent again: what those do to it
    /// comes last.
    pub(crate) fn prepared_anew(&mut self, id: StatementId, scope: Option<SettingsId>, segment: u64) {
        let (clock, quiet_count) = (self.clock, self.quiet_count);
        let entry = self.entries.entry(id).or_insert_with(|| CachedStatement::used_at(clock));
        entry.prepared_anew(scope, segment, quiet_count);
    }

    /// The server refused to bind it, and the client was told.
    pub(crate) fn mark_stale(&mut self, id: StatementId) {
        self.change(id, CachedStatement::mark_stale);
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
