//! The settings of a session that Weir does not follow one by one: those that a client has set besides the tracked parameters.
//!
//! Owns their order, and the statements that give one session another's. Values are shared between clients that have the same ones.
//! The role is one of them: it is set last and reset first, because it decides what else may be set.

use std::sync::Arc;

use crate::reported::push_hex;

/// The setting that SET ROLE changes.
const ROLE: &str = "role";

/// Ends each name and each value; PostgreSQL has it in neither.
const END: char = '\0';

/// Names and values, sorted by name; each name once. One allocation, however many they are: many clients have settings of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Name, value, name, value …, each with its [`END`]. Not empty.
    list: Option<Arc<str>>,
}

impl SessionSettings {
    /// Of names and values in any order; of equal names the last one counts.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> SessionSettings {
        let is_possible = |(name, value): &(String, String)| !name.contains(END) && !value.contains(END);
        let sorted: std::collections::BTreeMap<String, String> =
            pairs.into_iter().filter(is_possible).collect();
        let mut list = String::new();
        for text in sorted.iter().flat_map(|(name, value)| [name, value]) {
            list.push_str(text);
            list.push(END);
        }
        SessionSettings { list: (!list.is_empty()).then(|| list.into()) }
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.list.as_deref().unwrap_or_default().split_terminator(END);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// How long names and values are together.
    pub(crate) fn bytes(&self) -> usize {
        self.list.as_deref().map_or(0, str::len)
    }

    /// The value of a setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// These, and those of `startup` that are not among them.
    #[must_use]
    pub fn over(&self, startup: &SessionSettings) -> SessionSettings {
        if startup.iter().all(|(name, _)| self.get(name).is_some()) {
            return self.clone();
        }
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        SessionSettings::new(startup.iter().map(owned).chain(self.iter().map(owned)))
    }

    /// These, but for those of these names.
    #[must_use]
    pub(crate) fn without(&self, names: &[String]) -> SessionSettings {
        let is_kept = |name: &str| !names.iter().any(|other| other.eq_ignore_ascii_case(name));
        if self.iter().all(|(name, _)| is_kept(name)) {
            return self.clone();
        }
        let kept = self.iter().filter(|(name, _)| is_kept(name));
        SessionSettings::new(kept.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    /// A session with `now` has these, and whatever else is set there, none of them has to be set again: a change of the user resets the role.
    pub(crate) fn leave_nothing_to_set(&self, now: &SessionSettings) -> bool {
        self == now && self.get(ROLE).is_none()
    }

    /// What gives a session with `now`, as the user that has logged in, these settings, all but the role.
    pub(crate) fn push_before(&self, now: &SessionSettings, sets: &mut String) {
        if now.get(ROLE).is_some() {
            sets.push_str("RESET ROLE;");
        }
        for (name, _) in now.iter().filter(|(name, _)| *name != ROLE && self.get(name).is_none()) {
            sets.push_str("RESET ");
            push_name(sets, name);
            sets.push(';');
        }
        let differing = self.iter().filter(|(name, value)| *name != ROLE && now.get(name) != Some(value));
        for (index, (name, value)) in differing.enumerate() {
            sets.push_str(if index == 0 { "SELECT " } else { "," });
            push_set_config(sets, name, value);
        }
        if sets.ends_with(')') {
            sets.push(';');
        }
    }

    /// Sets the role, behind all else.
    pub(crate) fn push_role(&self, sets: &mut String) {
        if let Some(role) = self.get(ROLE) {
            sets.push_str("SELECT ");
            push_set_config(sets, ROLE, role);
            sets.push(';');
        }
    }
}

fn push_set_config(sets: &mut String, name: &str, value: &str) {
    sets.push_str("pg_catalog.set_config(");
    push_text(sets, name);
    sets.push(',');
    push_text(sets, value);
    sets.push_str(",false)");
}

/// A name of settings, part by part in quotes.
fn push_name(sets: &mut String, name: &str) {
    for (index, part) in name.split('.').enumerate() {
        sets.push_str(if index > 0 { ".\"" } else { "\"" });
        sets.push_str(&part.replace('"', "\"\""));
        sets.push('"');
    }
}

/// A string that reads the same under every client_encoding and standard_conforming_strings.
fn push_text(sets: &mut String, text: &str) {
    if text.bytes().all(|byte| byte.is_ascii() && !matches!(byte, b'\\' | b'\'')) {
        sets.extend(["'", text, "'"]);
        return;
    }
    sets.push_str("pg_catalog.convert_from(pg_catalog.decode('");
    push_hex(sets, text.as_bytes());
    sets.push_str("','hex'),'UTF8')");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> SessionSettings {
        SessionSettings::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn sets(wanted: &SessionSettings, now: &SessionSettings) -> String {
        let mut sets = String::new();
        wanted.push_before(now, &mut sets);
        wanted.push_role(&mut sets);
        sets
    }

    #[test]
    fn a_session_gets_what_it_lacks_and_loses_what_is_anothers() {
        let now = of(&[("app.tenant", "1"), ("work_mem", "4096")]);
        assert_eq!(
            sets(&of(&[("work_mem", "4096"), ("lock_timeout", "5")]), &now),
            "RESET \"app\".\"tenant\";SELECT pg_catalog.set_config('lock_timeout','5',false);"
        );
        assert_eq!(sets(&now, &now), "");
        assert_eq!(sets(&SessionSettings::default(), &now), "RESET \"app\".\"tenant\";RESET \"work_mem\";");
    }

    #[test]
    fn the_role_is_reset_first_and_set_last() {
        let now = of(&[("role", "a"), ("work_mem", "1")]);
        assert_eq!(
            sets(&of(&[("role", "b"), ("zero_damaged_pages", "on")]), &now),
            "RESET ROLE;RESET \"work_mem\";\
             SELECT pg_catalog.set_config('zero_damaged_pages','on',false);\
             SELECT pg_catalog.set_config('role','b',false);"
        );
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let sets = sets(&of(&[("a.b", "x'; DROP TABLE t; --\\"), ("c\"; drop.d", "\u{e4}")]), &of(&[]));
        assert!(!sets.contains("DROP") && sets.is_ascii() && !sets.contains('\\'), "{sets}");
        let mut name = String::new();
        push_name(&mut name, "c\"; drop.d");
        assert_eq!(name, "\"c\"\"; drop\".\"d\"");
    }

    #[test]
    fn startup_values_count_where_nothing_was_set() {
        let startup = of(&[("work_mem", "1MB"), ("lock_timeout", "1")]);
        let all = of(&[("work_mem", "4096")]).over(&startup);
        assert_eq!(all, of(&[("lock_timeout", "1"), ("work_mem", "4096")]));
        assert_eq!(all.over(&startup), all);
    }
}
