//! The parameters under which PostgreSQL parses a statement, and the pool whose tables it names. A literal such as '03/04/2024'::date
//! becomes a constant at Parse, and the lexer reads a string by standard_conforming_strings, so that one text under two values of these
//! is two statements.
//!
//! Owns which parameters these are, and the number of each combination of their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sql_statements::ReadBy;
use crate::{Parameters, Tracked};

/// Parameters that the parser reads, if they are tracked. The fixed ones of [`Tracked`] come first, the others are tracked on demand
/// (`track_extra_parameters`).
const PARSING: [&str; 12] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "IntervalStyle",
    "search_path",
    "array_nulls",
    "backslash_quote",
    "lc_monetary",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmloption",
];

/// What SQL's PREPARE is read by besides, if the state of sessions is followed.
const PREPARING: [&str; 2] = ["session_authorization", "role"];

impl ReadBy {
    /// Those of a session with these parameters.
    #[must_use]
    pub fn of(parameters: &Parameters, tracked: &Tracked) -> ReadBy {
        let value = |name: &&str| match tracked.position(name.as_bytes()) {
            Some(position) => parameters.value(position).cloned(),
            None => parameters.others().get(name).map(Arc::from),
        };
        ReadBy::new(PARSING.iter().chain(&PREPARING).map(value))
    }
}

/// The number of a combination of values; never used twice on a shard.
pub(crate) type SettingsId = u64;

type Values = Arc<[Option<Arc<str>>]>;

/// Where the names in a text are looked up: the servers of one pool, that is of one database for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// The pool's number; never used twice on a shard.
    pub id: u64,
    /// All servers number the types that they have made themselves (extensions, CREATE TYPE) alike, because they are one.
    pub own_types: bool,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog { id: 0, own_types: true }
    }
}

/// One combination of values, in one pool.
#[derive(Clone, Debug)]
pub struct ParseSettings {
    id: SettingsId,
    catalog: u64,
    values: Values,
    bytes: usize,
}

impl ParseSettings {
    #[inline]
    pub(crate) fn id(&self) -> SettingsId {
        self.id
    }

    /// How much memory its values take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// All combinations that statements of a shard were parsed under.
#[derive(Debug)]
pub(crate) struct SettingsTable {
    /// Where the parameters stand in every [`Parameters`].
    positions: Vec<usize>,
    known: BTreeMap<(u64, Values), ParseSettings>,
    last_id: SettingsId,
    /// From this number on, those that nothing refers to are dropped.
    most: usize,
}

/// Fewer combinations than this are not worth looking through.
const COMBINATIONS_MIN: usize = 64;

impl SettingsTable {
    pub(crate) fn new(tracked: &Tracked) -> SettingsTable {
        let positions = PARSING.iter().filter_map(|name| tracked.position(name.as_bytes())).collect();
        SettingsTable { positions, known: BTreeMap::new(), last_id: 0, most: COMBINATIONS_MIN }
    }

    /// The parser reads the parameter at this position.
    pub(crate) fn has(&self, position: usize) -> bool {
        self.positions.contains(&position)
    }

    /// These are the values of `parameters`, in this pool.
    pub(crate) fn are_of(&self, settings: &ParseSettings, parameters: &Parameters, catalog: Catalog) -> bool {
        let mut pairs = self.positions.iter().zip(settings.values.iter());
        settings.catalog == catalog.id
            && pairs.all(|(position, value)| parameters.value(*position) == value.as_ref())
    }

    /// The combination that is in force with these parameters.
    pub(crate) fn intern(&mut self, parameters: &Parameters, catalog: Catalog) -> ParseSettings {
        let values = self.positions.iter().map(|position| parameters.value(*position).cloned()).collect();
        self.intern_values(values, catalog)
    }

    fn intern_values(&mut self, values: Values, catalog: Catalog) -> ParseSettings {
        let key = (catalog.id, values);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        if self.known.len() >= self.most {
            self.forget_unused();
            self.most = COMBINATIONS_MIN.max(2 * self.known.len());
        }
        self.last_id += 1;
        let values = Arc::clone(&key.1);
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        let settings = ParseSettings { id: self.last_id, catalog: catalog.id, values, bytes };
        self.known.insert(key, settings.clone());
        settings
    }

    /// Drops the combinations that nothing refers to.
    pub(crate) fn forget_unused(&mut self) {
        const OWN_REFERENCES: usize = 2; // The key and the value of `known`.
        self.known.retain(|(_, values), _| Arc::strong_count(values) > OWN_REFERENCES);
    }

    /// The names and values, as another process reads them with [`SettingsTable::read`].
    pub(crate) fn write(&self, settings: &ParseSettings, tracked: &Tracked) -> Vec<u8> {
        let mut out = Vec::new();
        for (position, value) in self.positions.iter().zip(settings.values.iter()) {
            out.extend_from_slice(tracked.name(*position).as_bytes());
            if let Some(value) = value {
                out.push(b'=');
                out.extend_from_slice(value.as_bytes());
            }
            out.push(0);
        }
        out
    }

    /// None if the other process knew other parameters.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        tracked: &Tracked,
        catalog: Catalog,
    ) -> Option<ParseSettings> {
        let mut values = vec![None; self.positions.len()];
        let mut missing = values.len();
        for pair in bytes.strip_suffix(&[0])?.split(|byte| *byte == 0) {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let position = tracked.position(halves.next()?)?;
            let slot = self.positions.iter().position(|known| *known == position)?;
            if let Some(value) = halves.next() {
                values[slot] = Some(Arc::from(std::str::from_utf8(value).ok()?));
            }
            missing = missing.checked_sub(1)?;
        }
        (missing == 0).then(|| self.intern_values(values.into(), catalog))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HERE: Catalog = Catalog { id: 1, own_types: true };

    #[test]
    fn only_what_the_parser_reads_makes_a_difference() {
        let tracked = Tracked::new([]);
        let mut table = SettingsTable::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        let first = table.intern(&parameters, HERE);
        parameters.set(tracked.position(b"application_name").unwrap(), "psql");
        assert_eq!(table.intern(&parameters, HERE).id(), first.id());
        assert!(table.are_of(&first, &parameters, HERE));
        parameters.set(tracked.position(b"datestyle").unwrap(), "ISO, DMY");
        assert_ne!(table.intern(&parameters, HERE).id(), first.id());
        assert!(!table.are_of(&first, &parameters, HERE));
    }

    #[test]
    fn the_same_settings_in_another_pool_are_others() {
        let tracked = Tracked::new([]);
        let mut table = SettingsTable::new(&tracked);
        let parameters = Parameters::unknown(&tracked);
        let there = Catalog { id: 2, own_types: true };
        let first = table.intern(&parameters, HERE);
        assert_ne!(table.intern(&parameters, there).id(), first.id());
        assert!(table.are_of(&first, &parameters, HERE) && !table.are_of(&first, &parameters, there));
    }

    #[test]
    fn unused_combinations_are_dropped() {
        let tracked = Tracked::new([]);
        let mut table = SettingsTable::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        let used = table.intern(&parameters, HERE);
        for number in 0..100 {
            parameters.set(tracked.position(b"search_path").unwrap(), &number.to_string());
            table.intern(&parameters, HERE);
        }
        table.forget_unused();
        assert_eq!(table.known.len(), 1);
        assert_eq!(table.intern(&Parameters::unknown(&tracked), HERE).id(), used.id());
    }

    #[test]
    fn a_client_that_changes_its_settings_all_the_time_takes_no_memory() {
        let tracked = Tracked::new([]);
        let mut table = SettingsTable::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        for number in 0..10_000 {
            parameters.set(tracked.position(b"timezone").unwrap(), &number.to_string());
            table.intern(&parameters, HERE);
        }
        assert!(table.known.len() <= COMBINATIONS_MIN, "{}", table.known.len());
    }

    #[test]
    fn another_process_reads_what_one_writes() {
        let tracked = Tracked::new([]);
        let mut parameters = Parameters::unknown(&tracked);
        parameters.set(tracked.position(b"search_path").unwrap(), "a=b, c");
        parameters.set(tracked.position(b"timezone").unwrap(), "");
        let mut table = SettingsTable::new(&tracked);
        let settings = table.intern(&parameters, HERE);
        let written = table.write(&settings, &tracked);
        assert_eq!(table.read(&written, &tracked, HERE).unwrap().id(), settings.id());
        let more = Tracked::new(["xmloption"]);
        assert!(SettingsTable::new(&more).read(&written, &more, HERE).is_none(), "it knew fewer");
        for cut in 0..written.len() {
            assert!(
                table.read(&written[..cut], &tracked, HERE).is_none_or(|read| read.id() != settings.id())
            );
        }
    }
}
