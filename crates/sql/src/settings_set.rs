//! Which settings a query string sets, where its text shows all of them.
//!
//! Owns what can be concluded from names alone: the values, and whether PostgreSQL accepts them, are not looked at.

use crate::{Backslash, Command, Scope, SetCommand, SettingValue, Statement, statements};

/// The settings that a query string sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsSet {
    /// None for longer than its transaction.
    Local,
    /// These for the session, in lower case.
    Named(Vec<String>),
    /// The text does not show which.
    Unknown,
}

/// Settings that change how later values are read, or what else may be set: what they are set to for one transaction only may show in
/// what another statement of it leaves.
const READ_BY: [&str; 6] = [
    "backslash_quote",
    "client_encoding",
    "escape_string_warning",
    "role",
    "session_authorization",
    "standard_conforming_strings",
];

/// What a query string sets of which [`crate::hidden_effect`] says that it sets settings.
///
/// ```
/// use sql::{SettingsSet, settings_set};
///
/// assert_eq!(settings_set(b"SET app.tenant = '1'"), SettingsSet::Named(vec!["app.tenant".into()]));
/// assert_eq!(settings_set(b"SELECT set_config('app.tenant', $1, true)"), SettingsSet::Local);
/// assert_eq!(settings_set(b"SELECT set_config($1, $2, false)"), SettingsSet::Unknown);
/// ```
#[must_use]
pub fn settings_set(text: &[u8]) -> SettingsSet {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.contains(&b'\\') {
        return SettingsSet::Unknown;
    }
    let mut names = Vec::new();
    for statement in statements(text, Backslash::Literal) {
        if !add(&statement, &mut names) {
            return SettingsSet::Unknown;
        }
    }
    if names.is_empty() { SettingsSet::Local } else { SettingsSet::Named(names) }
}

/// How many names are told; more are unknown, and a text of any length is read in a time that grows with its length alone.
const MOST_NAMES: usize = 64;

/// Adds what this statement sets for the session; false if that is not known.
fn add(statement: &Statement, names: &mut Vec<String>) -> bool {
    let mut note = |name: Option<&str>, scope: Option<Scope>| {
        let Some((name, scope)) = name.zip(scope) else { return false };
        // A change of the user resets the role.
        let also = (name == "session_authorization").then_some("role");
        for name in [name].into_iter().chain(also) {
            if scope == Scope::Session && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if names.len() > MOST_NAMES {
            return false;
        }
        scope == Scope::Session || !READ_BY.contains(&name)
    };
    match &statement.command {
        // Its value afterwards does not tell that it is not set any more.
        Command::Set(SetCommand::Setting { scope: Scope::Session, name, value: SettingValue::Default })
            if name != "session_authorization" =>
        {
            false
        }
        Command::Set(SetCommand::Setting { scope, name, .. }) => note(Some(name), Some(*scope)),
        Command::Set(SetCommand::Transaction) => true,
        Command::Set(_) => false,
        Command::SetConfig(calls) => calls.iter().all(|call| note(call.name.as_deref(), call.scope)),
        // It takes back what was set.
        Command::Rollback { .. } | Command::RollbackTo(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> SettingsSet {
        SettingsSet::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn names_are_those_of_the_session() {
        for (text, expected) in [
            ("SET a = 1", named(&["a"])),
            ("set session Work_Mem to '1MB'; set a.B = 'c'; select 1", named(&["work_mem", "a.b"])),
            ("set time zone 'UTC'", named(&["timezone"])),
            ("set role bob", named(&["role"])),
            ("set session authorization default", named(&["session_authorization", "role"])),
            ("select set_config('A.b', $1, false), set_config('a.b', 'x', false)", named(&["a.b"])),
            ("begin; set local a = 1; set b = 2", named(&["b"])),
        ] {
            assert_eq!(settings_set(text.as_bytes()), expected, "{text}");
        }
        let many: String = (0..=MOST_NAMES).map(|number| format!("set a{number} = 1;")).collect();
        assert_eq!(settings_set(many.as_bytes()), SettingsSet::Unknown);
    }

    #[test]
    fn what_ends_with_the_transaction_leaves_nothing() {
        for text in [
            "SET LOCAL a = 1",
            "select set_config('a.b', $1::text, true)",
            "set transaction isolation level serializable",
            "set constraints all deferred",
        ] {
            assert_eq!(settings_set(text.as_bytes()), SettingsSet::Local, "{text}");
        }
    }

    #[test]
    fn what_the_text_does_not_show_is_unknown() {
        for text in [
            "select set_config($1, $2, true)",
            "select set_config('a', 'b', $1)",
            "select set_config('a', 'b', 'true'::bool)",
            "set local role bob",
            "set local standard_conforming_strings = off",
            "set a = 1; rollback",
            "set session characteristics as transaction read only",
            "set a = 'x\\'",
            "reset a",
            "set a to default",
        ] {
            assert_eq!(settings_set(text.as_bytes()), SettingsSet::Unknown, "{text}");
        }
    }
}
