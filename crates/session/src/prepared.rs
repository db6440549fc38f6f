//! The texts of prepared statements, and the names that all servers share for them.
//!
//! Owns the registry of texts, and which Parse may be answered by a statement that was parsed for another client; each client's names
//! are [`crate::client_statements`]'s, what each server has [`crate::server_statements`]'s. A statement has one description for as long as it lives:
//! once DDL has changed it, those that prepare the same text get another statement ([`successors`]). Never parses SQL.

mod successors;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::analyses::Analyses;
use crate::parse_settings::{Catalog, ParseSettings, SettingsId, SettingsTable};
use crate::resets::reset_by_portal;
use crate::statement_text::{Effects, effects_of_whole, has_clock_literal};
use crate::{Description, Parameters, Reset, Tracked};

pub use takeover::ImportedStatement;

/// A statement's number; never used twice on a shard.
pub type StatementId = u64;

/// Unused texts that are kept for the next client that prepares the same.
const SPARE_STATEMENTS: usize = 4096;

/// How much text they may be.
const SPARE_BYTES: usize = 4 * 1024 * 1024;

/// Which clients a statement may serve.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All whose Parse is sent under these settings.
    Shared(ParseSettings),
    /// The one that parsed it: under which settings, or at which time, is part of its meaning and not known.
    Private,
    /// Those that have it from another process, which did not say under which settings it was parsed.
    Unknown,
}

#[derive(Debug)]
struct Statement {
    /// Parse's body after the name: text, NUL, parameter types.
    rest: Arc<[u8]>,
    scope: Scope,
    clients: u32,
    /// What executing it may change.
    effects: Effects,
    /// What it resets, once that was asked.
    resets: Option<Reset>,
    /// What its clients may read and write by; None until a server has said it. Its types are no more than the text has bytes.
    description: Option<Description>,
}

impl Statement {
    /// How much memory its text and settings take.
    fn bytes(&self) -> usize {
        let settings = if let Scope::Shared(settings) = &self.scope { settings.bytes() } else { 0 };
        self.rest.len() + settings
    }
}

/// All statements of a shard: the same text and types, parsed under the same settings, are one statement.
#[derive(Debug)]
pub struct StatementRegistry {
    /// The shared statements of each text, in the order of their settings.
    by_rest: BTreeMap<Arc<[u8]>, Vec<(SettingsId, StatementId)>>,
    by_id: BTreeMap<StatementId, Statement>,
    /// Those that DDL is known to have changed: no client gets one of them any more.
    retired: BTreeSet<StatementId>,
    settings: SettingsTable,
    last_id: StatementId,
    spare: Spare,
    analyses: Analyses,
}

impl Default for StatementRegistry {
    fn default() -> StatementRegistry {
        StatementRegistry::new(&Tracked::new([]))
    }
}

/// What no client uses.
#[derive(Debug, Default)]
struct Spare {
    statements: usize,
    bytes: usize,
}

impl Spare {
    fn add(&mut self, bytes: usize) {
        self.statements += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: usize) {
        self.statements -= 1;
        self.bytes -= bytes;
    }

    fn is_too_much(&self) -> bool {
        self.statements > SPARE_STATEMENTS || self.bytes > SPARE_BYTES
    }
}

impl StatementRegistry {
    /// No statements yet, of clients and servers whose parameters are these.
    #[must_use]
    pub fn new(tracked: &Tracked) -> StatementRegistry {
        StatementRegistry {
            by_rest: BTreeMap::new(),
            by_id: BTreeMap::new(),
            retired: BTreeSet::new(),
            settings: SettingsTable::new(tracked),
            last_id: 0,
            spare: Spare::default(),
            analyses: Analyses::default(),
        }
    }

    /// What a text, up to a NUL, may change in its session without its command tag showing it.
    #[inline]
    pub(crate) fn session_effects(&mut self, text: &[u8]) -> Effects {
        self.analyses.session_effects(text)
    }

    /// The statement with this rest of a Parse body, used by one client more. It is the client's own unless it is known under which
    /// settings it is parsed, and nothing else of that moment counts.
    pub fn intern(&mut self, rest: &[u8], settings: Option<&ParseSettings>) -> StatementId {
        let known = settings.and_then(|settings| self.find(rest, settings));
        let id = known.unwrap_or_else(|| self.insert(rest, StatementRegistry::scope_of(rest, settings)));
        self.hold(id);
        id
    }

    /// Which clients a statement may serve that is parsed now.
    fn scope_of(rest: &[u8], settings: Option<&ParseSettings>) -> Scope {
        match settings {
            Some(settings) if !has_clock_literal(rest) => Scope::Shared(settings.clone()),
            _ => Scope::Private,
        }
    }

    /// One client more uses it.
    pub(crate) fn hold(&mut self, id: StatementId) {
        if let Some(statement) = self.by_id.get_mut(&id) {
            if statement.clients == 0 {
                self.spare.take(statement.bytes());
            }
            statement.clients += 1;
        }
    }

    fn insert(&mut self, rest: &[u8], scope: Scope) -> StatementId {
        let id = self.next_number();
        self.insert_as(id, rest, scope);
        id
    }

    /// A number that is used nowhere else, on any shard or in any process of a takeover.
    pub(crate) fn next_number(&mut self) -> StatementId {
        self.last_id += 1;
        self.last_id
    }

    fn insert_as(&mut self, id: StatementId, rest: &[u8], scope: Scope) {
        let effects = effects_of_whole(rest);
        let rest: Arc<[u8]> = match self.by_rest.get_key_value(rest) {
            Some((rest, _)) => Arc::clone(rest),
            None => rest.into(),
        };
        let statement = Statement { rest, scope, clients: 0, effects, resets: None, description: None };
        self.spare.add(statement.bytes());
        self.by_id.insert(id, statement);
        self.publish(id);
    }

    /// The statement with this rest of a Parse body that was parsed under these settings, if there is one.
    #[inline]
    pub(crate) fn find(&self, rest: &[u8], settings: &ParseSettings) -> Option<StatementId> {
        let variants = self.by_rest.get(rest)?;
        let at = variants.binary_search_by_key(&settings.id(), |(settings, _)| *settings).ok()?;
        variants.get(at).map(|(_, id)| *id)
    }

    /// Whether a server on which these settings are in force may be sent its Parse.
    pub(crate) fn may_be_parsed(&self, id: StatementId, settings: Option<&ParseSettings>) -> bool {
        match self.by_id.get(&id).map(|statement| &statement.scope) {
            Some(Scope::Shared(own)) => settings.is_some_and(|now| now.id() == own.id()),
            Some(Scope::Private) => true,
            Some(Scope::Unknown) | None => false,
        }
    }

    /// Whether a server with these parameters, all of which are known, may be sent its Parse.
    pub(crate) fn may_be_parsed_with(
        &self,
        id: StatementId,
        parameters: &Parameters,
        catalog: Catalog,
    ) -> bool {
        match self.by_id.get(&id).map(|statement| &statement.scope) {
            Some(Scope::Shared(own)) => self.settings.are_of(own, parameters, catalog),
            Some(Scope::Private) => true,
            Some(Scope::Unknown) | None => false,
        }
    }

    /// The settings under which clients share it; None if it is one client's.
    pub(crate) fn scope(&self, id: StatementId) -> Option<SettingsId> {
        match &self.by_id.get(&id)?.scope {
            Scope::Shared(settings) => Some(settings.id()),
            // No settings have this number: those that it was parsed under are not known.
            Scope::Unknown => Some(0),
            Scope::Private => None,
        }
    }

    /// The settings that are in force with these parameters. `now` are those that were when it was asked last.
    pub(crate) fn settings(
        &mut self,
        now: Option<&ParseSettings>,
        parameters: &Parameters,
        catalog: Catalog,
    ) -> ParseSettings {
        match now {
            Some(now) if self.settings.are_of(now, parameters, catalog) => now.clone(),
            _ => self.settings.intern(parameters, catalog),
        }
    }

    /// The parser reads the parameter at this position.
    pub(crate) fn is_setting(&self, position: usize) -> bool {
        self.settings.has(position)
    }

    /// What executing it may change.
    pub(crate) fn effects(&self, id: StatementId) -> Effects {
        self.by_id.get(&id).map_or(Effects::ALL, |statement| statement.effects)
    }

    /// What executing it resets; its text is read for that when it is asked first. `tracked` is the same each time.
    pub(crate) fn resets(&mut self, id: StatementId, tracked: &Tracked) -> Option<Reset> {
        let statement = self.by_id.get_mut(&id)?;
        let rest = &statement.rest;
        Some(*statement.resets.get_or_insert_with(|| reset_by_portal(rest, tracked)))
    }

    /// How much memory its text and settings take.
    pub(crate) fn bytes(&self, id: StatementId) -> usize {
        self.by_id.get(&id).map_or(0, Statement::bytes)
    }

    /// One client less uses it.
    pub fn release(&mut self, id: StatementId) {
        let Some(statement) = self.by_id.get_mut(&id).filter(|statement| statement.clients > 0) else {
            return;
        };
        statement.clients -= 1;
        if statement.clients > 0 {
            return;
        }
        if matches!(statement.scope, Scope::Private) || self.retired.remove(&id) {
            self.by_id.remove(&id);
            return;
        }
        self.spare.add(statement.bytes());
        if self.spare.is_too_much() {
            self.forget_spares();
        }
    }

    fn forget_spares(&mut self) {
        self.by_id.retain(|_, statement| statement.clients > 0);
        let by_id = &self.by_id;
        self.by_rest.retain(|_, variants| {
            variants.retain(|(_, id)| by_id.contains_key(id));
            !variants.is_empty()
        });
        self.retired.retain(|id| by_id.contains_key(id));
        self.settings.forget_unused();
        self.spare = Spare::default();
    }

    /// How often clients use statements, all together.
    #[must_use]
    pub fn uses(&self) -> u64 {
        self.by_id.values().map(|statement| u64::from(statement.clients)).sum()
    }

    /// No client uses it.
    #[cfg(test)]
    pub(crate) fn is_unused(&self, id: StatementId) -> bool {
        self.by_id.get(&id).is_none_or(|statement| statement.clients == 0)
    }

    /// Parse's body after the name.
    #[must_use]
    pub fn rest(&self, id: StatementId) -> Option<&Arc<[u8]>> {
        self.by_id.get(&id).map(|statement| &statement.rest)
    }
}

/// The name that a statement has on every server: PgBouncer's, so that what looks for those finds these.
#[must_use]
pub fn server_name(id: StatementId) -> ServerName {
    let mut name = ServerName { bytes: [0; SERVER_NAME_BYTES], start: SERVER_NAME_BYTES };
    let mut rest = id;
    loop {
        name.start -= 1;
        name.bytes[name.start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits_at = name.start;
    name.start -= SERVER_NAME_HEAD.len();
    name.bytes[name.start..digits_at].copy_from_slice(SERVER_NAME_HEAD);
    name
}

/// No server has a statement of this number.
pub(crate) const NO_STATEMENT: StatementId = 0;

pub(crate) const SERVER_NAME_HEAD: &[u8] = b"PGBOUNCER_";

/// With all digits of the largest number.
const SERVER_NAME_BYTES: usize = SERVER_NAME_HEAD.len() + 20;

/// See [`server_name`]. Every Bind needs one, so it is no allocation.
#[derive(Clone, Copy, Debug)]
pub struct ServerName {
    bytes: [u8; SERVER_NAME_BYTES],
    start: usize,
}

impl std::ops::Deref for ServerName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HERE: Catalog = Catalog { id: 1, own_types: true };

    #[test]
    fn names_on_servers_end_in_their_number() {
        assert_eq!(&*server_name(0), b"PGBOUNCER_0");
        assert_eq!(&*server_name(1_203), b"PGBOUNCER_1203");
        assert_eq!(&*server_name(u64::MAX), b"PGBOUNCER_18446744073709551615");
    }

    /// A registry, and two combinations of settings.
    fn with_settings() -> (StatementRegistry, ParseSettings, ParseSettings) {
        let tracked = Tracked::new([]);
        let mut registry = StatementRegistry::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        let one = registry.settings(None, &parameters, HERE);
        parameters.set(tracked.position(b"DateStyle").unwrap(), "ISO, DMY");
        let other = registry.settings(Some(&one), &parameters, HERE);
        (registry, one, other)
    }

    #[test]
    fn the_same_text_is_one_statement() {
        let (mut registry, settings, _) = with_settings();
        let one = registry.intern(b"select 1\0\0\0", Some(&settings));
        assert_eq!(registry.intern(b"select 1\0\0\0", Some(&settings)), one);
        assert_ne!(registry.intern(b"select 2\0\0\0", Some(&settings)), one);
    }

    #[test]
    fn the_same_text_under_other_settings_is_another_statement() {
        let (mut registry, mdy, dmy) = with_settings();
        let text = b"select '01/02/2003'::date\0\0\0";
        let one = registry.intern(text, Some(&mdy));
        assert_eq!(registry.find(text, &dmy), None);
        let other = registry.intern(text, Some(&dmy));
        assert_ne!(one, other);
        assert_eq!((registry.find(text, &mdy), registry.find(text, &dmy)), (Some(one), Some(other)));
        assert!(registry.may_be_parsed(one, Some(&mdy)) && !registry.may_be_parsed(one, Some(&dmy)));
        assert!(!registry.may_be_parsed(one, None), "what is in force is not known");
    }

    #[test]
    fn what_depends_on_the_moment_of_its_parse_is_one_clients() {
        let (mut registry, settings, _) = with_settings();
        for (text, settings) in
            [(&b"select 'now'::time\0\0\0"[..], Some(&settings)), (b"select 1\0\0\0", None)]
        {
            let one = registry.intern(text, settings);
            assert_ne!(registry.intern(text, settings), one);
            assert!(registry.may_be_parsed(one, settings) && registry.scope(one).is_none());
            registry.release(one);
            assert!(registry.rest(one).is_none());
        }
    }

    #[test]
    fn unused_texts_do_not_grow_without_bound() {
        let (mut registry, settings, _) = with_settings();
        for number in 0..3 * SPARE_STATEMENTS {
            let id = registry.intern(format!("select {number}").as_bytes(), Some(&settings));
            registry.release(id);
        }
        assert!(registry.by_id.len() <= SPARE_STATEMENTS + 1);
        for number in 0..1000 {
            let id = registry.intern(format!("select {number:>30000}").as_bytes(), Some(&settings));
            registry.release(id);
        }
        let kept: usize = registry.by_id.values().map(|statement| statement.rest.len()).sum();
        assert!(kept <= SPARE_BYTES + 30_100);
    }

    #[test]
    fn a_text_is_read_once_for_what_it_resets() {
        let (tracked, more) = (Tracked::new([]), Tracked::new(["statement_timeout"]));
        let mut registry = StatementRegistry::new(&tracked);
        let settings = registry.settings(None, &Parameters::unknown(&tracked), HERE);
        let named = registry.intern(b"RESET timezone\0\0\0", Some(&settings));
        let other = registry.intern(b"RESET statement_timeout\0\0\0", Some(&settings));
        let timezone = registry.resets(named, &tracked);
        assert!(timezone.is_some_and(|reset| !reset.is_empty()));
        assert!(registry.resets(other, &tracked).is_some_and(Reset::is_of_others));
        for id in [named, other] {
            let known = registry.resets(id, &tracked);
            assert_eq!(registry.resets(id, &more), known, "a second look at the text would find more");
        }
        assert!(!reset_by_portal(b"RESET statement_timeout", &more).is_empty());
        assert_eq!(registry.resets(other + 1, &tracked), None);
    }

    #[test]
    fn unused_settings_do_not_grow_without_bound() {
        let tracked = Tracked::new([]);
        let mut registry = StatementRegistry::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        for number in 0..1000 {
            parameters.set(tracked.position(b"search_path").unwrap(), &format!("{number:>30000}"));
            let settings = registry.settings(None, &parameters, HERE);
            let id = registry.intern(b"select 1", Some(&settings));
            registry.release(id);
        }
        let kept: usize = registry.by_id.values().map(Statement::bytes).sum();
        assert!(kept <= SPARE_BYTES + 30_100);
    }
}
