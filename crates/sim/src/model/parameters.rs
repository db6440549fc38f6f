//! A session's parameters: SET, RESET, roll-back with the transaction, and what is reported of them.
//!
//! PostgreSQL 14 and later reports a changed parameter once, before the next ReadyForQuery.

use std::collections::{BTreeMap, BTreeSet};

use crate::sql::Statement;

/// The parameters that the model knows; all but the last are reported (protocol chapter, "Asynchronous Operations").
pub(crate) const NAMES: [&str; 7] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "standard_conforming_strings",
    "search_path",
];

/// How many of [`NAMES`] are reported.
const REPORTED: usize = 6;

const DEFAULTS: [&str; 7] = ["", "UTF8", "ISO, MDY", "postgres", "Etc/UTC", "on", "\"$user\", public"];

/// Others that the model knows, and their defaults; besides, there are custom ones, with a dot in their names.
const OTHERS: [(&str, &str); 3] = [("lock_timeout", "0"), ("extra_float_digits", "1"), ("jit", "on")];

/// The values of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    /// In the order of [`NAMES`].
    known: [String; 7],
    /// Which of them were set in the session, as bits.
    set: u8,
    /// Of [`OTHERS`] and custom ones, those that were set.
    others: BTreeMap<String, String>,
}

impl Values {
    /// A value, or without one that of `initial`.
    fn put(&mut self, name: &str, value: Option<&str>, initial: &Values) {
        match (index(name), value) {
            (Some(at), Some(value)) => {
                self.known[at] = canonical(name, value);
                self.set |= 1 << at;
            }
            (Some(at), None) => {
                self.known[at].clone_from(&initial.known[at]);
                self.set &= !(1 << at);
            }
            (None, value) => {
                match value.or(initial.others.get(name).map(String::as_str)) {
                    Some(value) => self.others.insert(name.to_owned(), value.to_owned()),
                    None => self.others.remove(name),
                };
            }
        }
    }
}

/// What a savepoint goes back to.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    values: Values,
    lasting: Option<Box<Values>>,
}

/// The parameters of one session.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// What RESET goes back to.
    initial: Values,
    values: Values,
    /// What to go back to if the transaction fails; None while it has changed nothing.
    saved: Option<Box<Values>>,
    /// What stays if the transaction ends well; None while that is what is in force (no SET LOCAL).
    lasting: Option<Box<Values>>,
    reported: [String; 7],
    /// Whether anything may differ from what was reported.
    changed: bool,
    /// Custom ones that exist, with a value or without one.
    custom: BTreeSet<String>,
}

impl Parameters {
    /// The parameters of a session that asked for these in its startup packet; None for one that does not exist.
    pub(crate) fn new<'a>(asked: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Parameters> {
        let known = DEFAULTS.map(str::to_owned);
        let mut initial = Values { known, set: 0, others: BTreeMap::new() };
        let mut custom = BTreeSet::new();
        for (name, value) in asked {
            match index(name) {
                Some(at) => initial.known[at] = canonical(name, value),
                None if is_other(name) => {
                    note_custom(&mut custom, name);
                    initial.others.insert(name.to_owned(), value.to_owned());
                }
                None => return None,
            }
        }
        let values = initial.clone();
        Some(Parameters {
            initial,
            reported: values.known.clone(),
            values,
            saved: None,
            lasting: None,
            changed: false,
            custom,
        })
    }

    /// All that are reported at login.
    pub(crate) fn greeting(&self) -> impl Iterator<Item = (&'static str, &str)> {
        NAMES.into_iter().zip(self.values.known.iter().map(String::as_str)).take(REPORTED)
    }

    /// One value.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        if let Some(at) = index(name) {
            return Some(&self.values.known[at]);
        }
        let other = self.values.others.get(name).map(String::as_str);
        let default = || OTHERS.iter().find(|(other, _)| *other == name).map(|(_, default)| *default);
        other.or_else(default).or_else(|| self.custom.contains(name).then_some(""))
    }

    /// Those that pg_settings shows with the session as their source. Custom ones do not stand there.
    pub(crate) fn of_session(&self) -> impl Iterator<Item = (&str, &str)> {
        let Values { known, set, others } = &self.values;
        let known = NAMES.into_iter().zip(known).enumerate().filter(move |(at, _)| set & (1 << at) != 0);
        let others = others
            .iter()
            .filter(|(name, value)| !name.contains('.') && self.initial.others.get(*name) != Some(*value));
        let known = known.map(|(_, (name, value))| (name, value.as_str()));
        known.chain(others.map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// The two values that every row tells.
    pub(crate) fn in_rows(&self) -> (&str, &str) {
        (&self.values.known[0], &self.values.known[4])
    }

    /// SET, or RESET without a value; false for one that does not exist.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> bool {
        if index(name).is_none() && !is_other(name) {
            return false;
        }
        self.save();
        note_custom(&mut self.custom, name);
        self.values.put(name, value, &self.initial);
        if let Some(lasting) = &mut self.lasting {
            lasting.put(name, value, &self.initial);
        }
        true
    }

    /// SET LOCAL; false for one that does not exist.
    pub(crate) fn set_local(&mut self, name: &str, value: &str) -> bool {
        if index(name).is_none() && !is_other(name) {
            return false;
        }
        self.save();
        note_custom(&mut self.custom, name);
        let values = &self.values;
        self.lasting.get_or_insert_with(|| Box::new(values.clone()));
        self.values.put(name, Some(value), &self.initial);
        true
    }

    /// SAVEPOINT.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { values: self.values.clone(), lasting: self.lasting.clone() }
    }

    /// ROLLBACK TO SAVEPOINT.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.save();
        self.values.clone_from(&snapshot.values);
        self.lasting.clone_from(&snapshot.lasting);
    }

    /// Nothing has been set since login, or all of it has been reset.
    pub(crate) fn are_initial(&self) -> bool {
        self.values == self.initial
    }

    /// RESET ALL.
    pub(crate) fn reset_all(&mut self) {
        self.save();
        self.values.clone_from(&self.initial);
        self.lasting = None;
    }

    /// A statement that sets or resets.
    pub(crate) fn run(&mut self, statement: &Statement) {
        match statement {
            Statement::Set(name, value) => drop(self.set(name, value.as_deref())),
            Statement::Reset(name) => drop(self.set(name, None)),
            Statement::ResetAll | Statement::DiscardAll => self.reset_all(),
            Statement::SetLocal(name, value) | Statement::SetConfig(name, value, true) => {
                let _ = self.set_local(name, value);
            }
            Statement::SetConfig(name, value, false) => drop(self.set(name, Some(value))),
            _ => {}
        }
    }

    /// The transaction ended well: what it set stays.
    pub(crate) fn commit(&mut self) {
        if let Some(lasting) = self.lasting.take() {
            self.values = *lasting;
            self.changed = true;
        }
        self.saved = None;
    }

    /// The transaction failed: what it set is undone.
    pub(crate) fn roll_back(&mut self) {
        self.lasting = None;
        if let Some(saved) = self.saved.take() {
            self.values = *saved;
        }
    }

    /// What has to be reported before ReadyForQuery.
    pub(crate) fn report(&mut self) -> Vec<(&'static str, String)> {
        if !std::mem::take(&mut self.changed) {
            return Vec::new();
        }
        // A transaction that is still open may roll back later.
        self.changed = self.saved.is_some();
        let mut news = Vec::new();
        let values = NAMES.iter().zip(&self.values.known).zip(&mut self.reported);
        for ((name, value), reported) in values.take(REPORTED) {
            if value != reported {
                reported.clone_from(value);
                news.push((*name, value.clone()));
            }
        }
        news
    }

    fn save(&mut self) {
        self.changed = true;
        if self.saved.is_none() {
            self.saved = Some(Box::new(self.values.clone()));
        }
    }
}

fn index(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))
}

/// Whether it may be set besides those of [`NAMES`].
fn is_other(name: &str) -> bool {
    name.contains('.') || OTHERS.iter().any(|(other, _)| *other == name)
}

fn note_custom(custom: &mut BTreeSet<String>, name: &str) {
    if name.contains('.') && !custom.contains(name) {
        custom.insert(name.to_owned());
    }
}

fn canonical(name: &str, value: &str) -> String {
    if name.eq_ignore_ascii_case("DateStyle") && value.eq_ignore_ascii_case("ISO") {
        return "ISO, MDY".to_owned();
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_failed_transaction_set_is_undone_and_reported_again() {
        let mut parameters = Parameters::new([("application_name", "psql")].into_iter()).unwrap();
        assert!(parameters.set("TIMEZONE", Some("Asia/Tokyo")));
        assert_eq!(parameters.report(), [("TimeZone", "Asia/Tokyo".to_owned())]);
        parameters.roll_back();
        assert_eq!(parameters.report(), [("TimeZone", "Etc/UTC".to_owned())]);
        assert_eq!(parameters.report(), []);
        assert_eq!(parameters.value("application_name"), Some("psql"));
    }

    #[test]
    fn a_custom_one_is_empty_once_it_is_reset_and_pg_settings_shows_no_custom_ones() {
        let mut parameters = Parameters::new([("lock_timeout", "5ms")].into_iter()).unwrap();
        assert_eq!((parameters.value("app.tenant"), parameters.value("lock_timeout")), (None, Some("5ms")));
        assert!(parameters.set("app.tenant", Some("a")) && parameters.set("lock_timeout", Some("1ms")));
        assert_eq!(parameters.of_session().collect::<Vec<_>>(), [("lock_timeout", "1ms")]);
        parameters.roll_back();
        assert_eq!(
            (parameters.value("app.tenant"), parameters.value("lock_timeout")),
            (Some(""), Some("5ms"))
        );
        assert!(parameters.set_local("extra_float_digits", "3"));
        parameters.commit();
        assert_eq!(parameters.value("extra_float_digits"), Some("1"));
        assert_eq!(parameters.of_session().count(), 0);
    }

    #[test]
    fn reset_goes_back_to_the_startup_packet() {
        let mut parameters = Parameters::new([("application_name", "psql")].into_iter()).unwrap();
        parameters.set("application_name", Some("other"));
        parameters.reset_all();
        assert_eq!(parameters.value("application_name"), Some("psql"));
        assert!(!parameters.set("nonsense", None));
        assert!(Parameters::new([("nonsense", "1")].into_iter()).is_none());
    }
}
