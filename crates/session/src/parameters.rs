//! The session parameters that follow a client from server to server.
//!
//! Owns which are tracked, a client's and a server's values, and the SET that makes one like the other. Values are
//! shared: a server that was made like its client holds the same list, so the hot path compares two pointers.
//! Read-only parameters (in_hot_standby) are tracked too and reported to clients; they are never set on a server.

mod sets;

use std::sync::Arc;

use sets::{Place, push_set};

use crate::{SessionSettings, SqlStatements, reported};

/// The parameters that are always tracked, as PostgreSQL spells them: all that it reports and a client may set.
/// Older servers do not report the last ones; see [`Parameters::sets_from`].
const ALWAYS: [&str; 10] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "IntervalStyle",
    "session_authorization",
    "default_transaction_read_only",
    "scram_iterations",
    "search_path",
];

/// Parameters that a server reports and that cannot be set, and that may differ between the servers of one pool.
const READ_ONLY: [&str; 1] = ["in_hot_standby"];

/// Positions in every [`Tracked`] of client_encoding, standard_conforming_strings, DateStyle and TimeZone, which is the
/// order of SHOW FDS.
pub const SHOWN_BY_DESCRIPTOR: [usize; 4] = [0, 3, 1, 2];

/// Position of client_encoding in every [`Tracked`].
pub(crate) const CLIENT_ENCODING: usize = 0;

/// The bit of a position in a set of parameters; none for those from position 64 on.
pub(crate) fn bit(position: usize) -> u64 {
    u32::try_from(position).ok().and_then(|position| 1_u64.checked_shl(position)).unwrap_or(0)
}

/// Position of standard_conforming_strings in every [`Tracked`].
const STANDARD_CONFORMING_STRINGS: usize = 3;

/// Position of session_authorization in every [`Tracked`].
const SESSION_AUTHORIZATION: usize = 6;

/// Position of application_name in every [`Tracked`].
pub const APPLICATION_NAME: usize = 4;

/// Which parameters are tracked: the fixed ones and `track_extra_parameters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    names: Arc<[Arc<str>]>,
    /// What every list of values begins as.
    unknown: Arc<Values>,
}

impl Tracked {
    /// The fixed ones and these. Names that could not stand in a SET are left out (the settings refuse them before).
    #[must_use]
    pub fn new<'a>(extra: impl IntoIterator<Item = &'a str>) -> Tracked {
        let mut names: Vec<Arc<str>> = ALWAYS.iter().map(|name| Arc::from(*name)).collect();
        for name in extra {
            let speakable = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
            let is_read_only = READ_ONLY.iter().any(|fact| fact.eq_ignore_ascii_case(name));
            if speakable && !is_read_only && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(Arc::from(name));
            }
        }
        names.extend(READ_ONLY.iter().map(|name| Arc::from(*name)));
        let unknown = Values {
            tracked: vec![None; names.len()].into(),
            others: SessionSettings::default(),
            prepared: SqlStatements::default(),
        };
        Tracked { unknown: Arc::new(unknown), names: names.into() }
    }

    /// Where a parameter stands, if it is tracked. Names are compared without regard to case, as PostgreSQL does.
    #[must_use]
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Where a parameter stands that a client may set.
    #[must_use]
    pub fn settable(&self, name: &[u8]) -> Option<usize> {
        self.position(name).filter(|position| !self.is_read_only(*position))
    }

    /// Only a server can say it, and no SET changes it.
    #[must_use]
    pub fn is_read_only(&self, position: usize) -> bool {
        position + READ_ONLY.len() >= self.names.len()
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

/// One side's values, by position in [`Tracked`]; None where nothing was ever said. And what else is set in its session, or was prepared by
/// SQL, if that is followed (`session_state = virtual`).
#[derive(Clone, Debug)]
pub struct Parameters {
    values: Arc<Values>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    tracked: Box<[Option<Arc<str>>]>,
    others: SessionSettings,
    prepared: SqlStatements,
}

impl Parameters {
    /// Nothing said yet.
    #[must_use]
    pub fn unknown(tracked: &Tracked) -> Parameters {
        Parameters { values: Arc::clone(&tracked.unknown) }
    }

    /// The value at a position.
    #[must_use]
    pub fn value(&self, position: usize) -> Option<&Arc<str>> {
        self.values.tracked.get(position).and_then(Option::as_ref)
    }

    /// What is set in the session besides tracked parameters.
    #[must_use]
    pub fn others(&self) -> &SessionSettings {
        &self.values.others
    }

    /// What SQL has prepared in the session.
    #[must_use]
    pub fn prepared(&self) -> &SqlStatements {
        &self.values.prepared
    }

    /// Sets what SQL has prepared in the session.
    pub fn set_prepared(&mut self, prepared: SqlStatements) {
        if self.values.prepared != prepared {
            Arc::make_mut(&mut self.values).prepared = prepared;
        }
    }

    /// Takes over all of `other`, but for what SQL has prepared.
    pub fn take_over_settings(&mut self, other: &Parameters) {
        let prepared = self.values.prepared.clone();
        *self = other.clone();
        self.set_prepared(prepared);
    }

    /// Has a list of its own, so that no other side counts as alike without a comparison.
    pub fn unshare(&mut self) {
        self.values = Arc::new(Values::clone(&self.values));
    }

    /// Settings made on both have the same result: what no server reports is the same, and so is how a statement is read.
    pub(crate) fn same_session(&self, other: &Parameters, default_params: &Parameters) -> bool {
        const READ_BY: [usize; 3] = [CLIENT_ENCODING, STANDARD_CONFORMING_STRINGS, SESSION_AUTHORIZATION];
        let unreported =
            (0..self.values.tracked.len()).filter(|position| default_params.value(*position).is_none());
        self.others() == other.others()
            && unreported.chain(READ_BY).all(|position| self.value(position) == other.value(position))
    }

    /// Sets what is set besides tracked parameters.
    pub fn set_others(&mut self, others: SessionSettings) {
        if self.values.others != others {
            Arc::make_mut(&mut self.values).others = others;
        }
    }

    /// The value at a position, if it is stored as text.
    #[must_use]
    pub fn text(&self, position: usize) -> Option<&str> {
        self.value(position).map(|value| &**value).filter(|value| reported::is_text(value))
    }

    /// The position of a value that a server with `now` lacks and that cannot be set there, because its text is not known.
    #[must_use]
    pub fn unrestorable(&self, now: &Parameters, tracked: &Tracked) -> Option<usize> {
        let is_unknown = |value: &Arc<str>| reported::is_unknown(value);
        let mut settable = (0..self.values.tracked.len()).filter(|position| !tracked.is_read_only(*position));
        settable.find(|position| {
            let own = self.value(*position);
            own.is_some_and(is_unknown) && own != now.value(*position)
        })
    }

    /// The values of `wanted` have been set on this server: those that it reported in unknown text are these.
    pub fn resolve_unknown(&mut self, wanted: &Parameters) {
        for position in 0..self.values.tracked.len() {
            if self.value(position).is_some_and(|value| reported::is_unknown(value)) {
                self.take_over(position, wanted);
            }
        }
    }

    /// Sets one value. Does nothing, and keeps sharing, if it is that already.
    pub fn set(&mut self, position: usize, value: &str) {
        if self.value(position).is_some_and(|now| &**now == value) || position >= self.values.tracked.len() {
            return;
        }
        self.replace(position, Some(Arc::from(value)));
    }

    /// A server may have this value or not: whichever client comes next has its own set.
    pub fn doubt(&mut self, position: usize) {
        self.set(position, reported::UNKNOWN);
    }

    /// Sets several values at once, as [`Parameters::set`] does one.
    pub fn set_each<'a>(&mut self, values: impl IntoIterator<Item = (usize, &'a str)>) {
        for (position, value) in values {
            self.set(position, value);
        }
    }

    /// These values, and `self`'s where there is none among them.
    #[must_use]
    pub fn overlaid_by(&self, values: &Parameters) -> Parameters {
        let own = self.values.tracked.iter().enumerate();
        let tracked = own.map(|(position, own)| values.value(position).or(own.as_ref()).cloned()).collect();
        let others = values.others().over(self.others());
        let all = Values { tracked, others, prepared: self.prepared().clone() };
        if all == *self.values { self.clone() } else { Parameters { values: Arc::new(all) } }
    }

    /// Takes over `canonical`'s spelling of what is the same here as in `own`.
    pub fn spell_as(&mut self, own: &Parameters, canonical: &Parameters) {
        for position in own.differing(canonical) {
            if self.value(position).is_some() && self.value(position) == own.value(position) {
                self.take_over(position, canonical);
            }
        }
    }

    /// Takes over what clients can set, tracked or not.
    pub(crate) fn take_over_settable(&mut self, other: &Parameters, tracked: &Tracked) {
        for position in (0..self.values.tracked.len()).filter(|position| !tracked.is_read_only(*position)) {
            self.take_over(position, other);
        }
        self.set_others(other.others().clone());
    }

    /// Takes over from `other` what stands at this position, a value or none.
    pub fn take_over(&mut self, position: usize, other: &Parameters) {
        if self.value(position) != other.value(position) {
            self.replace(position, other.value(position).cloned());
        }
    }

    fn replace(&mut self, position: usize, value: Option<Arc<str>>) {
        if position < self.values.tracked.len() {
            Arc::make_mut(&mut self.values).tracked[position] = value;
        }
    }

    /// Takes over from `other` what a server does not report of itself (what is None in `reported`): after a SET of it,
    /// no report will confirm that the server has it.
    pub fn note_unreported(&mut self, reported: &Parameters, other: &Parameters) {
        for position in 0..self.values.tracked.len() {
            if reported.value(position).is_none() {
                self.take_over(position, other);
            }
        }
        self.set_others(other.others().clone());
    }

    /// Appends what tells these values from others, but for those that no client sets and what SQL has prepared. False if one is not known.
    pub fn append_key(&self, tracked: &Tracked, key: &mut Vec<u8>) -> bool {
        const NONE: u8 = 0xff; // No UTF-8 has it.
        for position in (0..self.values.tracked.len()).filter(|position| !tracked.is_read_only(*position)) {
            match self.value(position) {
                Some(value) if reported::is_unknown(value) => return false,
                Some(value) => key.extend_from_slice(value.as_bytes()),
                None => key.push(NONE),
            }
            key.push(0);
        }
        for (name, value) in self.others().iter() {
            key.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        key.push(NONE);
        true
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

    /// The statements that give a server with `now` these values; None if it has them. A value that another
    /// client set there, and that this side does not have, is reset.
    #[must_use]
    pub fn sets_from(&self, now: &Parameters, tracked: &Tracked) -> Option<String> {
        if self.others().leave_nothing_to_set(now.others()) {
            return self.sets(now, tracked, Place::Outside);
        }
        // What only a superuser may set is set as the user that Weir has logged in as, and the user and the role last.
        let mut sets = "RESET SESSION AUTHORIZATION;".to_owned();
        self.others().push_before(now.others(), &mut sets);
        let mut reset = now.clone();
        reset.set(SESSION_AUTHORIZATION, reported::UNKNOWN);
        sets.push_str(&self.sets(&reset, tracked, Place::Outside).unwrap_or_default());
        self.others().push_role(&mut sets);
        Some(sets)
    }

    /// The statements in a string of one of these functions.
    pub fn statements(sets: &str) -> impl Iterator<Item = &str> {
        sets::statements(sets)
    }

    /// The statements that give a server with `now` these values, whatever else was set there.
    #[must_use]
    pub fn sets_from_any(&self, now: &Parameters, default_params: &Parameters, tracked: &Tracked) -> String {
        let mut reset = default_params.clone();
        reset.take_over(SESSION_AUTHORIZATION, now); // RESET ALL leaves the user and the role.
        let sets = self.sets_from(&reset, tracked).unwrap_or_default();
        format!("RESET ROLE;RESET ALL;{sets}")
    }

    /// Text means the same under both.
    #[must_use]
    pub fn has_encoding_of(&self, other: &Parameters) -> bool {
        self.value(CLIENT_ENCODING) == other.value(CLIENT_ENCODING)
    }

    /// These values where the client has set them, otherwise those that its startup packet gave: of what no server reports.
    pub fn return_to_startup(&mut self, startup: &Parameters, default_params: &Parameters) {
        for position in 0..self.values.tracked.len() {
            let is_default = self.value(position).is_none() && default_params.value(position).is_none();
            if is_default && startup.value(position).is_some() {
                self.take_over(position, startup);
            }
        }
        self.set_others(self.others().over(startup.others()));
    }

    /// The same within a transaction block, where some values (bits by position) are only for the transaction that runs.
    #[must_use]
    pub fn sets_within(&self, now: &Parameters, tracked: &Tracked, local: u64) -> Option<String> {
        self.sets(now, tracked, Place::Block { local })
    }

    fn sets(&self, now: &Parameters, tracked: &Tracked, place: Place) -> Option<String> {
        let mut sets = String::new();
        for (position, name) in tracked.names.iter().enumerate() {
            match (self.value(position), now.value(position)) {
                _ if tracked.is_read_only(position) => {}
                (Some(value), _) if reported::is_unknown(value) => {}
                (Some(value), other) if other != Some(value) => {
                    push_set(&mut sets, name, value, position, place);
                }
                (None, Some(_)) => sets.extend(["RESET ", name, ";"]),
                _ => {}
            }
        }
        (!sets.is_empty()).then_some(sets)
    }

    /// The positions whose values differ from `canonical`'s, where both have one.
    pub fn differing<'a>(&'a self, canonical: &'a Parameters) -> impl Iterator<Item = usize> + 'a {
        (0..self.values.tracked.len()).filter(|position| {
            matches!((self.value(*position), canonical.value(*position)), (Some(own), Some(other)) if own != other)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn extras_join_the_fixed_ones_once() {
        let tracked = Tracked::new(["lc_messages", "datestyle", "bad name", "", "In_Hot_Standby"]);
        assert_eq!(tracked.count(), ALWAYS.len() + 1 + READ_ONLY.len());
        assert_eq!(tracked.position(b"LC_MESSAGES"), Some(ALWAYS.len()));
        assert_eq!(tracked.name(APPLICATION_NAME), "application_name");
    }

    #[test]
    fn facts_are_followed_and_never_set() {
        let tracked = Tracked::new([]);
        let position = tracked.position(b"in_hot_standby").unwrap();
        assert!(tracked.is_read_only(position) && tracked.settable(b"in_hot_standby").is_none());
        let (mut client, mut server) = (Parameters::unknown(&tracked), Parameters::unknown(&tracked));
        client.set(position, "off");
        server.set(position, "on");
        assert_eq!(client.sets_from(&server, &tracked), None);
        assert_eq!(client.differing(&server).collect::<Vec<_>>(), [position]);
    }

    #[test]
    fn what_no_server_reports_is_remembered_and_reset_for_others() {
        let tracked = Tracked::new([]);
        let position = tracked.position(b"search_path").unwrap();
        let default_params = Parameters::unknown(&tracked);
        let (mut client, mut server) = (default_params.clone(), default_params.clone());
        client.set(position, "a");
        assert_eq!(
            client.sets_from(&server, &tracked).as_deref(),
            Some("SELECT pg_catalog.set_config('search_path','a',false);")
        );
        server.note_unreported(&default_params, &client);
        assert_eq!(client.sets_from(&server, &tracked), None);
        let other = default_params.clone();
        assert_eq!(other.sets_from(&server, &tracked).as_deref(), Some("RESET search_path;"));
        server.note_unreported(&default_params, &other);
        assert!(server.same(&default_params));
    }

    #[test]
    fn what_a_client_says_lies_over_what_a_fresh_server_says() {
        let tracked = Tracked::new([]);
        let (mut default_params, mut client) = (Parameters::unknown(&tracked), Parameters::unknown(&tracked));
        default_params.set_each([(0, "UTF8"), (APPLICATION_NAME, ""), (usize::MAX, "nowhere")]);
        assert!(default_params.overlaid_by(&client).shared_with(&default_params), "nothing was said");
        client.set_each([(APPLICATION_NAME, "a")]);
        let all = default_params.overlaid_by(&client);
        assert_eq!(
            [0, APPLICATION_NAME].map(|position| all.value(position).map(|value| &**value)),
            [Some("UTF8"), Some("a")]
        );
        let before = client.clone();
        client.set_each([(APPLICATION_NAME, "a")]);
        assert!(client.shared_with(&before));
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
    fn keys_tell_values_apart() {
        let tracked = Tracked::new([]);
        let key = |parameters: &Parameters| {
            let mut key = Vec::new();
            parameters.append_key(&tracked, &mut key).then_some(key)
        };
        let none = Parameters::unknown(&tracked);
        let mut keys = vec![key(&none)];
        for (position, value) in [(0, ""), (0, "UTF8"), (1, "UTF8"), (APPLICATION_NAME, "a")] {
            let mut parameters = none.clone();
            parameters.set(position, value);
            keys.push(key(&parameters));
        }
        let mut others = none.clone();
        others.set_others(SessionSettings::new([("a.b".to_owned(), "c".to_owned())]));
        keys.push(key(&others));
        keys.sort();
        keys.dedup();
        assert!(keys.len() == 6 && keys.iter().all(Option::is_some));
        let mut standby = none.clone();
        standby.set(tracked.position(b"in_hot_standby").unwrap(), "on");
        assert_eq!(key(&standby), key(&none));
        standby.doubt(0);
        assert_eq!(key(&standby), None);
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let tracked = Tracked::new([]);
        let mut client = Parameters::unknown(&tracked);
        client.set(APPLICATION_NAME, r"a'; DROP TABLE x; --\");
        let sets = client.sets_from(&Parameters::unknown(&tracked), &tracked);
        let digits = "61273b2044524f50205441424c4520783b202d2d5c";
        let decoded = format!("pg_catalog.convert_from(pg_catalog.decode('{digits}','hex'),'UTF8')");
        let expected = format!("SELECT pg_catalog.set_config('application_name',{decoded},false);");
        assert_eq!(sets, Some(expected));
    }

    #[test]
    fn a_block_gets_no_snapshot_by_a_set() {
        let tracked = Tracked::new([]);
        let set = |name: &str, value: &str| {
            let mut client = Parameters::unknown(&tracked);
            let position = tracked.position(name.as_bytes()).unwrap();
            client.set(position, value);
            client.sets_within(&Parameters::unknown(&tracked), &tracked, bit(position)).unwrap()
        };
        for (value, expected) in [
            ("a, b", "'a','b'"),
            (r#" "$user" ,Public"#, "'$user','public'"),
            (r#""a,""b","c d""#, r#"'a,"b','c d'"#),
            (r#""it's""#, "'it''s'"),
            (r#""a\b""#, r"E'a\\b'"),
            ("", "''"),
        ] {
            assert_eq!(set("search_path", value), format!("SET LOCAL search_path={expected};"));
        }
        for value in ["a b", "a,", "\"schem\u{e4}\"", "\"a", ",", "a\"b\""] {
            assert!(set("search_path", value).starts_with("SELECT pg_catalog.set_config("), "{value}");
        }
        assert_eq!(set("application_name", "\\'"), r"SET LOCAL application_name=E'\\''';");
        assert!(set("application_name", "\u{e4}").starts_with("SELECT "), "client_encoding may not have it");
        assert_eq!(set("application_name", "plain"), "SET LOCAL application_name='plain';");
    }

    #[test]
    fn sets_are_ascii_without_a_backslash_whatever_the_values() {
        let tracked = Tracked::new([]);
        for value in ["schem\u{e4}", "\u{4f65}\\'", "a'b", "\\"] {
            for name in ["application_name", "search_path"] {
                let mut client = Parameters::unknown(&tracked);
                client.set(tracked.position(name.as_bytes()).unwrap(), value);
                let sets = client.sets_from(&Parameters::unknown(&tracked), &tracked).unwrap();
                assert!(sets.is_ascii() && !sets.contains('\\'), "{sets}");
            }
        }
    }
}
