//! The session parameters that follow a client from server to server.
//!
//! Owns which are tracked, a client's and a server's values, and the SET that makes one like the other. Values are
//! shared: a server that was made like its client holds the same list, so the hot path compares two pointers.

use std::sync::Arc;

/// The parameters that are always tracked, as PostgreSQL spells them.
const ALWAYS: [&str; 5] =
    ["client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name"];

/// Position of application_name in every [`Tracked`].
pub const APPLICATION_NAME: usize = 4;

/// Which parameters are tracked: the fixed ones and `track_extra_parameters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    names: Arc<[Arc<str>]>,
}

impl Tracked {
    /// The fixed ones and these. Names that could not stand in a SET are left out (the settings refuse them before).
    #[must_use]
    pub fn new<'a>(extra: impl IntoIterator<Item = &'a str>) -> Tracked {
        let mut names: Vec<Arc<str>> = ALWAYS.iter().map(|name| Arc::from(*name)).collect();
        for name in extra {
            let speakable = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
            if speakable && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(Arc::from(name));
            }
        }
        Tracked { names: names.into() }
    }

    /// Where a parameter stands, if it is tracked. Names are compared without regard to case, as PostgreSQL does.
    #[must_use]
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The name at a position.
    #[must_use]
    pub fn name(&self, position: usize) -> &str {
        self.names.get(position).map_or("", |name| name)
    }

    /// How many are tracked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

/// One side's values, by position in [`Tracked`]; None where nothing was ever said.
#[derive(Clone, Debug)]
pub struct Parameters {
    values: Arc<[Option<Arc<str>>]>,
}

impl Parameters {
    /// Nothing said yet.
    #[must_use]
    pub fn unknown(tracked: &Tracked) -> Parameters {
        Parameters { values: vec![None; tracked.count()].into() }
    }

    /// The value at a position.
    #[must_use]
    pub fn value(&self, position: usize) -> Option<&Arc<str>> {
        self.values.get(position).and_then(Option::as_ref)
    }

    /// Sets one value. Does nothing, and keeps sharing, if it is that already.
    pub fn set(&mut self, position: usize, value: &str) {
        if self.value(position).is_some_and(|now| &**now == value) || position >= self.values.len() {
            return;
        }
        let mut values = self.values.to_vec();
        if let Some(slot) = values.get_mut(position) {
            *slot = Some(Arc::from(value));
        }
        self.values = values.into();
    }

    /// The same values (same list, or equal ones).
    #[inline]
    #[must_use]
    pub fn same(&self, other: &Parameters) -> bool {
        Arc::ptr_eq(&self.values, &other.values) || self.values == other.values
    }

    /// Exactly the same list: the hot path's question.
    #[inline]
    #[must_use]
    pub fn shared_with(&self, other: &Parameters) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }

    /// The statements that give a server with `now` these values; None if it has them.
    #[must_use]
    pub fn sets_from(&self, now: &Parameters, tracked: &Tracked) -> Option<String> {
        let mut sets = String::new();
        for (position, value) in self.values.iter().enumerate() {
            let Some(value) = value else { continue };
            if now.value(position) != Some(value) {
                push_set(&mut sets, tracked.name(position), value);
            }
        }
        (!sets.is_empty()).then_some(sets)
    }
}

/// Appends one SET. All SETs that Weir makes are escaped here and nowhere else; E'' reads the same whatever
/// standard_conforming_strings says.
fn push_set(sets: &mut String, name: &str, value: &str) {
    sets.push_str("SET ");
    sets.push_str(name);
    sets.push('=');
    if value.contains('\\') {
        sets.push('E');
    }
    sets.push('\'');
    for character in value.chars() {
        match character {
            '\'' => sets.push_str("''"),
            '\\' => sets.push_str("\\\\"),
            other => sets.push(other),
        }
    }
    sets.push_str("';");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_join_the_fixed_ones_once() {
        let tracked = Tracked::new(["IntervalStyle", "datestyle", "bad name", ""]);
        assert_eq!(tracked.count(), 6);
        assert_eq!(tracked.position(b"INTERVALSTYLE"), Some(5));
        assert_eq!(tracked.name(APPLICATION_NAME), "application_name");
    }

    #[test]
    fn equal_values_ask_for_nothing() {
        let tracked = Tracked::new([]);
        let mut client = Parameters::unknown(&tracked);
        let server = client.clone();
        assert!(client.sets_from(&server, &tracked).is_none());
        client.set(APPLICATION_NAME, "a");
        assert!(!client.shared_with(&server));
        assert_eq!(client.sets_from(&server, &tracked).as_deref(), Some("SET application_name='a';"));
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let tracked = Tracked::new([]);
        let mut client = Parameters::unknown(&tracked);
        client.set(APPLICATION_NAME, r"a'; DROP TABLE x; --\");
        let sets = client.sets_from(&Parameters::unknown(&tracked), &tracked);
        assert_eq!(sets.as_deref(), Some(r"SET application_name=E'a''; DROP TABLE x; --\\';"));
    }
}
