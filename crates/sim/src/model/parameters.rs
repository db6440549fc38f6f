//! A session's parameters: SET, RESET, roll-back with the transaction, and what is reported of them.
//!
//! PostgreSQL 14 and later reports a changed parameter once, before the next ReadyForQuery.

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

/// Values in the order of [`NAMES`].
type Values = [String; 7];

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
    reported: Values,
    /// Whether anything may differ from what was reported.
    changed: bool,
}

impl Parameters {
    /// The parameters of a session that asked for these in its startup packet; None for one that does not exist.
    pub(crate) fn new<'a>(asked: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Parameters> {
        let mut initial = DEFAULTS.map(str::to_owned);
        for (name, value) in asked {
            initial[index(name)?] = canonical(name, value);
        }
        let values = initial.clone();
        Some(Parameters {
            initial,
            reported: values.clone(),
            values,
            saved: None,
            lasting: None,
            changed: false,
        })
    }

    /// All that are reported at login.
    pub(crate) fn greeting(&self) -> impl Iterator<Item = (&'static str, &str)> {
        NAMES.into_iter().zip(self.values.iter().map(String::as_str)).take(REPORTED)
    }

    /// One value.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        Some(&self.values[index(name)?])
    }

    /// The two values that every row tells.
    pub(crate) fn in_rows(&self) -> (&str, &str) {
        (&self.values[0], &self.values[4])
    }

    /// SET, or RESET without a value; false for one that does not exist.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> bool {
        let Some(at) = index(name) else { return false };
        self.save();
        self.values[at] = value.map_or_else(|| self.initial[at].clone(), |value| canonical(name, value));
        if let Some(lasting) = &mut self.lasting {
            lasting[at].clone_from(&self.values[at]);
        }
        true
    }

    /// SET LOCAL; false for one that does not exist.
    pub(crate) fn set_local(&mut self, name: &str, value: &str) -> bool {
        let Some(at) = index(name) else { return false };
        self.save();
        let values = &self.values;
        self.lasting.get_or_insert_with(|| Box::new(values.clone()));
        self.values[at] = canonical(name, value);
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
        for ((name, value), reported) in NAMES.iter().zip(&self.values).zip(&mut self.reported).take(REPORTED)
        {
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
    fn reset_goes_back_to_the_startup_packet() {
        let mut parameters = Parameters::new([("application_name", "psql")].into_iter()).unwrap();
        parameters.set("application_name", Some("other"));
        parameters.reset_all();
        assert_eq!(parameters.value("application_name"), Some("psql"));
        assert!(!parameters.set("nonsense", None));
        assert!(Parameters::new([("nonsense", "1")].into_iter()).is_none());
    }
}
