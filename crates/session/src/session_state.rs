//! What a session holds besides its parameters, as PostgreSQL's catalog shows it: the query that asks for it, and the answer.
//!
//! Owns which kinds of state there are. Settings can be given to another server connection; the other kinds cannot, and keep a client on
//! the one that has them. What a query string may change is the `sql` crate's to say.

use crate::internal_result::Row;
use crate::sql_statements::{self, Found};
use crate::{Parameters, SessionSettings, Tracked};

/// A kind of state that only the server connection has on which it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Tables and other objects in the session's temporary schema.
    TemporaryObjects,
    /// Cursors WITH HOLD.
    HeldCursors,
    /// Statements prepared by SQL.
    PreparedStatements,
    /// Advisory locks of the session.
    AdvisoryLocks,
    /// Channels that it listens on.
    Channels,
    /// Values of `currval` and `lastval`, in a pool whose clients ask for those of earlier transactions.
    Sequences,
    /// Libraries that were loaded into the server process.
    Libraries,
    /// The unnamed statement, parsed and not bound yet.
    UnnamedStatement,
    /// Settings whose names or values cannot be set by a statement of Weir's.
    Settings,
}

impl Pin {
    /// In one word, for SHOW.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pin::TemporaryObjects => "temporary",
            Pin::HeldCursors => "cursor",
            Pin::PreparedStatements => "prepared",
            Pin::AdvisoryLocks => "advisory_lock",
            Pin::Channels => "listen",
            Pin::Sequences => "sequence",
            Pin::Libraries => "library",
            Pin::UnnamedStatement => "unnamed_statement",
            Pin::Settings => "setting",
        }
    }

    /// All that keep a client, in the order in which they are shown.
    const ALL: [Pin; 9] = [
        Pin::TemporaryObjects,
        Pin::HeldCursors,
        Pin::PreparedStatements,
        Pin::AdvisoryLocks,
        Pin::Channels,
        Pin::Settings,
        Pin::Sequences,
        Pin::Libraries,
        Pin::UnnamedStatement,
    ];
}

/// Pins; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins(u16);

impl Pins {
    const fn bit(pin: Pin) -> u16 {
        1 << pin as u8
    }

    /// This one alone.
    #[must_use]
    pub const fn of(pin: Pin) -> Pins {
        Pins(Pins::bit(pin))
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Pins::default()
    }

    /// This one is among them.
    #[inline]
    #[must_use]
    pub const fn has(self, pin: Pin) -> bool {
        self.0 & Pins::bit(pin) != 0
    }

    /// This one is the only one.
    #[must_use]
    pub fn is_only(self, pin: Pin) -> bool {
        self == Pins::of(pin)
    }

    /// The first of them, in the order in which they are shown.
    #[must_use]
    pub fn first(self) -> Option<Pin> {
        self.iter().next()
    }

    /// All of them, in that order.
    pub fn iter(self) -> impl Iterator<Item = Pin> {
        Pin::ALL.into_iter().filter(move |pin| self.has(*pin))
    }

    /// Those that may last: they count in `max_pinned`. The unnamed statement ends with its client's next message.
    #[must_use]
    pub fn lasting(self) -> Pins {
        self.without(Pin::UnnamedStatement)
    }

    /// All but this one.
    #[must_use]
    pub fn without(self, pin: Pin) -> Pins {
        Pins(self.0 & !Pins::bit(pin))
    }

    /// Adds or removes one.
    #[inline(always)]
    pub(crate) fn set(&mut self, pin: Pin, is_held: bool) {
        self.0 = self.0 & !Pins::bit(pin) | u16::from(is_held) << pin as u8;
    }

    /// Those of these kinds are the ones that were found; the others stay, as do prepared statements, which may follow the client.
    pub(crate) fn replace(&mut self, kinds: Kinds, found: Pins) {
        let asked = kinds.pins().0 & !Pins::bit(Pin::PreparedStatements);
        self.0 = self.0 & !asked | found.0 & asked;
    }
}

/// Kinds of session state that PostgreSQL can be asked for; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// None of them.
    pub const NONE: Kinds = Kinds(0);
    /// Settings.
    pub const SETTINGS: Kinds = Kinds(1);
    /// Tables and other objects in the session's temporary schema.
    pub const TEMPORARY: Kinds = Kinds(1 << 1);
    /// Cursors WITH HOLD.
    pub const CURSORS: Kinds = Kinds(1 << 2);
    /// Statements prepared by SQL.
    pub const PREPARED: Kinds = Kinds(1 << 3);
    /// Advisory locks of the session.
    pub const LOCKS: Kinds = Kinds(1 << 4);
    /// Channels that it listens on.
    pub const CHANNELS: Kinds = Kinds(1 << 5);
    /// All of them.
    pub const ALL: Kinds = Kinds(0x3f);

    /// Each kind but settings: what its rows begin with, what it pins, and the query for it. No name in it is looked up by search_path.
    const ROWS: [(Kinds, &'static str, Pin, &'static str); 5] = [
        (
            Kinds::TEMPORARY,
            "t",
            Pin::TemporaryObjects,
            "SELECT 't','','' WHERE CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
             THEN false ELSE EXISTS (SELECT FROM pg_catalog.pg_depend \
             WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
             AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) END",
        ),
        (
            Kinds::CURSORS,
            "h",
            Pin::HeldCursors,
            "SELECT 'h','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)",
        ),
        (Kinds::PREPARED, "p", Pin::PreparedStatements, sql_statements::QUERY),
        (
            Kinds::LOCKS,
            "a",
            Pin::AdvisoryLocks,
            "SELECT 'a','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks \
             WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
             AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
        ),
        (
            Kinds::CHANNELS,
            "l",
            Pin::Channels,
            "SELECT 'l','',pg_catalog.encode(pg_catalog.convert_to(c,'UTF8'),'hex') \
             FROM (SELECT c FROM pg_catalog.pg_listening_channels() c LIMIT 65) l",
        ),
    ];

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Any of `others` is among these.
    #[must_use]
    pub const fn any(self, others: Kinds) -> bool {
        self.0 & others.0 != 0
    }

    /// What these kinds can pin.
    fn pins(self) -> Pins {
        let mut pins = Pins::default();
        pins.set(Pin::Settings, self.any(Kinds::SETTINGS));
        for (kind, _, pin, _) in Kinds::ROWS {
            pins.set(pin, self.any(kind) || pins.has(pin));
        }
        pins
    }
}

/// What a session holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// What was set in the session: tracked parameters that no server reports, and all others that are not reported.
    pub settings: SessionSettings,
    /// What was found and cannot move.
    pub pins: Pins,
    /// The channels that it listens on.
    pub channels: Channels,
    /// Settings whose values are not kept, because they are too long or too many.
    pub(crate) left_out: Vec<String>,
    /// Statements that SQL has prepared, or the protocol under a name of the client's.
    pub(crate) prepared: Vec<Found>,
}

/// The most channels of a client that a shared connection listens on for it. The query asks for one more.
const MAX_CHANNELS: usize = 64;

/// The channels that a session listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    names: Vec<String>,
    /// Another connection cannot listen in its place: there are too many, or one whose name depends on the encoding.
    stay: bool,
}

impl Channels {
    /// These names, which another connection listens on already.
    #[must_use]
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Channels {
        Channels { names: names.into_iter().map(str::to_owned).collect(), stay: false }
    }

    /// Their names, if another connection can listen in its place.
    #[must_use]
    pub fn movable(&self) -> Option<&[String]> {
        (!self.stay).then_some(&self.names)
    }

    /// Their names, as far as they were asked for.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn add(&mut self, name: Option<Vec<u8>>) {
        let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        match name.and_then(|name| String::from_utf8(name).ok()).filter(is_plain) {
            Some(name) if self.names.len() < MAX_CHANNELS => self.names.push(name),
            _ => self.stay = true,
        }
    }
}

/// The setting of SET ROLE, and its value where there is none.
const ROLE: &str = "role";
const NO_ROLE: &str = "none";

/// The parameters of a transaction, and those that are followed in another way or only shown.
const NOT_OF_THE_SESSION: [&str; 8] = [
    "seed", // it sets the state of random(), and shows no value
    "transaction_isolation",
    "transaction_read_only",
    "transaction_deferrable",
    "session_authorization",
    "is_superuser",
    "in_hot_standby",
    "role",
];

/// Custom parameters do not stand in pg_settings before their library is loaded: they are asked for by name.
pub(crate) const MAX_NAMES: usize = 64;

/// The longest name of a parameter, and the longest value, that is given to another server.
const MAX_NAME_BYTES: usize = 127;
const MAX_VALUE_BYTES: usize = 8 * 1024;

/// All names and values of a client that are given to other servers; with more it keeps the one that has them.
pub(crate) const MAX_BYTES: usize = 32 * 1024;

/// Which settings are asked for.
#[derive(Clone, Debug)]
pub(crate) enum AskedSettings<'a> {
    /// All whose source is the session, and of the custom ones these.
    All(Vec<&'a str>),
    /// Only these, which are set for the session: their values.
    Named(Vec<&'a str>),
}

/// A value in ASCII, whatever client_encoding is.
const HEX: &str = "pg_catalog.encode(pg_catalog.convert_to(";

/// The query for these kinds of state.
pub(crate) fn query(kinds: Kinds, settings: &AskedSettings<'_>) -> String {
    let mut parts = Vec::new();
    if kinds.any(Kinds::SETTINGS) {
        match settings {
            AskedSettings::All(custom) => push_all_settings(&mut parts, custom),
            AskedSettings::Named(names) => parts.push(format!(
                "SELECT 's',n,{HEX}pg_catalog.current_setting(n,true),'UTF8'),'hex') FROM {} \
                 WHERE pg_catalog.current_setting(n,true) IS NOT NULL",
                listed(names)
            )),
        }
    }
    parts.extend(Kinds::ROWS.iter().filter(|(kind, ..)| kinds.any(*kind)).map(|row| row.3.to_owned()));
    parts.join(" UNION ALL ")
}

/// `custom` are parameters that the client may have set and that do not stand in pg_settings.
fn push_all_settings(parts: &mut Vec<String>, custom: &[&str]) {
    parts.push(format!(
        "SELECT 's',name,{HEX}setting,'UTF8'),'hex') FROM pg_catalog.pg_settings \
         WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text \
         UNION ALL SELECT 's','role',{HEX}pg_catalog.current_setting('role'),'UTF8'),'hex') \
         WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'::pg_catalog.text"
    ));
    if !custom.is_empty() {
        parts.push(format!(
            "SELECT 's',n,{HEX}pg_catalog.current_setting(n,true),'UTF8'),'hex') FROM {} \
             WHERE pg_catalog.current_setting(n,true) IS NOT NULL \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) n)",
            listed(custom)
        ));
    }
}

/// Names as the rows `n`. None of them has a quote or a backslash.
fn listed(names: &[&str]) -> String {
    format!("pg_catalog.unnest(ARRAY['{}']::pg_catalog.text[]) n", names.join("','"))
}

/// Reads the answer to [`query`]. None if it is none.
pub(crate) fn read(rows: Vec<Row>) -> Option<SessionState> {
    let (mut pins, mut settings, mut prepared, mut bytes) = (Pins::default(), Vec::new(), Vec::new(), 0);
    let (mut channels, mut left_out) = (Channels::default(), Vec::new());
    for row in rows {
        let [Some(kind), Some(name), Some(value)] = <[_; 3]>::try_from(row).ok()? else { return None };
        if kind == b"p" {
            let name = crate::reported::from_hex(&name).and_then(|name| String::from_utf8(name).ok());
            prepared.push((name?, text_of(&value).filter(|text| !text.is_empty())));
            continue;
        }
        if let Some((_, _, found, _)) = Kinds::ROWS.iter().find(|row| row.1.as_bytes() == kind) {
            pins.set(*found, true);
            if *found == Pin::Channels {
                channels.add(crate::reported::from_hex(&value));
            }
            continue;
        }
        match (String::from_utf8(name).ok().filter(|name| can_be_set(name)), text_of(&value)) {
            (Some(name), _) if NOT_OF_THE_SESSION[..7].contains(&&*name) => {}
            (Some(name), Some(value)) if bytes + name.len() + value.len() <= MAX_BYTES => {
                bytes += name.len() + value.len();
                settings.push((name, value));
            }
            (name, _) => {
                pins.set(Pin::Settings, true);
                left_out.extend(name);
            }
        }
    }
    Some(SessionState { settings: SessionSettings::new(settings), pins, channels, left_out, prepared })
}

/// The text that these digits stand for, unless it is too long to be kept for a client.
fn text_of(digits: &[u8]) -> Option<String> {
    let bytes = crate::reported::from_hex(digits)?;
    String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_VALUE_BYTES)
}

pub(crate) fn can_be_set(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\'' | b'\\' | b'"'))
}

impl SessionState {
    /// The settings that are tracked are put into `parameters`; the others are returned.
    #[must_use]
    pub(crate) fn settle(&self, parameters: &mut Parameters, tracked: &Tracked) -> SessionSettings {
        let mut others = Vec::new();
        for (name, value) in self.settings.iter() {
            match tracked.position(name.as_bytes()) {
                Some(position) => parameters.set(position, value),
                None if name == ROLE && value == NO_ROLE => {}
                None => others.push((name.to_owned(), value.to_owned())),
            }
        }
        SessionSettings::new(others)
    }
}

/// What stands in a message and may be the name of a custom parameter: words with a dot.
pub(crate) fn custom_names(message: &[u8]) -> impl Iterator<Item = &str> {
    dotted_words(message).filter(|word| is_custom_name(word))
}

/// A word is too long to be the name of a custom parameter that is given to another server.
pub(crate) fn has_long_name(message: &[u8]) -> bool {
    dotted_words(message).any(|word| word.len() > MAX_NAME_BYTES)
}

fn dotted_words(message: &[u8]) -> impl Iterator<Item = &str> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
    let words = message.split(move |byte| !is_part(byte));
    words.filter(|word| word.contains(&b'.')).filter_map(|word| std::str::from_utf8(word).ok())
}

/// Custom parameters whose names stand in quotes behind SET, without the quotes: `SET "App"."Tenant"` sets what `SET app.tenant` does. Elsewhere quotes
/// are those of columns, of which drivers write many.
pub(crate) fn quoted_custom_names(message: &[u8]) -> impl Iterator<Item = String> {
    words_behind_set(message)
        .filter(|word| word.contains('"'))
        .map(unquoted)
        .filter(|name| is_custom_name(name))
}

/// Names with a dot behind SET, without quotes: those of custom parameters, and others that PostgreSQL may refuse.
pub(crate) fn names_behind_set(message: &[u8]) -> impl Iterator<Item = String> {
    words_behind_set(message).map(unquoted).filter(|name| name.contains('.'))
}

/// What follows SET, SET SESSION and SET LOCAL, up to a character that is not of a name.
fn words_behind_set(message: &[u8]) -> impl Iterator<Item = String> {
    let words = || message.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let sets = |before: &[u8]| {
        let ends_with = |end: &&[u8]| {
            before.len().checked_sub(end.len()).is_some_and(|at| before[at..].eq_ignore_ascii_case(end))
        };
        [b"set".as_slice(), b"session", b"local"].iter().any(ends_with)
    };
    let is_part = |byte: &u8| {
        byte.is_ascii_alphanumeric() || !byte.is_ascii() || matches!(byte, b'_' | b'$' | b'.' | b'"')
    };
    let named = words().zip(words().skip(1)).filter(move |(before, _)| sets(before));
    named.map(move |(_, word)| {
        let bytes = word.iter().position(|byte| !is_part(byte)).unwrap_or(word.len());
        String::from_utf8_lossy(&word[..bytes]).into_owned()
    })
}

fn unquoted(name: String) -> String {
    if name.contains('"') { name.replace('"', "") } else { name }
}

/// The rule of PostgreSQL for names of custom parameters (`valid_custom_variable_name`), without letters other than ASCII.
pub(crate) fn is_custom_name(word: &str) -> bool {
    let is_identifier =
        |part: &str| part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_plain =
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.'));
    is_plain && word.len() <= MAX_NAME_BYTES && word.contains('.') && word.split('.').all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, name: &str, value: &str) -> Row {
        let digits: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        [kind, name, &digits].map(|text| Some(text.as_bytes().to_vec())).to_vec()
    }

    #[test]
    fn an_answer_is_settings_and_what_cannot_move() {
        let rows = vec![
            row("s", "work_mem", "4096"),
            row("s", "app.name", "\u{e4} ' x"),
            row("s", "transaction_isolation", "serializable"),
            row("s", "seed", "unavailable"),
            row("t", "", ""),
        ];
        let state = read(rows).expect("an answer");
        assert_eq!(
            state.settings.iter().collect::<Vec<_>>(),
            [("app.name", "\u{e4} ' x"), ("work_mem", "4096")]
        );
        assert_eq!(state.pins, Pins::of(Pin::TemporaryObjects));
        assert_eq!(read(Vec::new()), Some(SessionState::default()));
    }

    #[test]
    fn what_cannot_be_set_again_pins() {
        for row in [row("s", "it's", "1"), row("s", "a", &"x".repeat(MAX_VALUE_BYTES + 1))] {
            assert_eq!(read(vec![row]).expect("an answer").pins, Pins::of(Pin::Settings));
        }
        let many = (0..100).map(|number| row("s", &format!("a.b{number}"), &"x".repeat(1000))).collect();
        let state = read(many).expect("an answer");
        assert_eq!((state.pins, state.settings.iter().count()), (Pins::of(Pin::Settings), 32));
        assert_eq!(read(vec![vec![None]]), None);
    }

    #[test]
    fn names_of_custom_parameters_are_found_wherever_they_stand() {
        let found = |text: &str| custom_names(text.as_bytes()).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found("SET app.tenant = '1'"), ["app.tenant"]);
        assert_eq!(found("select set_config('my.app.user', $1, false)"), ["my.app.user"]);
        assert_eq!(found("B\0\0\0\x01\0\0\0\x08app.user\0\0\0\x03abc"), ["app.user"]);
        assert_eq!(found("select 1.5, a. b, .c"), [""; 0]);
    }

    #[test]
    fn names_in_quotes_are_found_behind_set_alone() {
        let found = |text: &str| quoted_custom_names(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(
            found("do $$ begin set \"App\".\"Mixed\"='a'; SET LOCAL \"b\".c TO 1; end $$"),
            ["App.Mixed", "b.c"]
        );
        assert_eq!(found("SELECT f(\"t\".\"id\"), \"t\".\"name\" FROM \"t\""), [""; 0]);
        assert_eq!(found("set \"a.b'; --\""), ["a.b"]);
        assert_eq!(found("set \"plain\" = 1; set"), [""; 0]);
    }

    #[test]
    fn a_name_of_a_startup_packet_cannot_leave_its_quotes() {
        assert!(
            is_custom_name("app.tenant")
                && !is_custom_name("a.b'; DROP TABLE t; --")
                && !is_custom_name("a.b'")
        );
    }

    #[test]
    fn the_query_names_everything_by_its_schema() {
        let sql = query(Kinds::ALL, &AskedSettings::All(vec!["app.tenant"]));
        assert!(sql.contains("ARRAY['app.tenant']") && sql.is_ascii());
        for name in
            ["pg_settings", "encode(", "convert_to(", "current_setting(", "pg_depend", "pg_locks", "unnest("]
        {
            let all = sql.matches(name).count();
            assert_eq!(sql.matches(&format!("pg_catalog.{name}")).count(), all, "{name}");
        }
    }

    #[test]
    fn only_what_may_have_changed_is_asked_for() {
        let named = AskedSettings::Named(vec!["work_mem"]);
        let sql = query(Kinds::SETTINGS, &named);
        assert!(sql.contains("['work_mem']") && !sql.contains("pg_settings") && !sql.contains("pg_locks"));
        let sql = query(Kinds::LOCKS.and(Kinds::CURSORS), &named);
        assert!(sql.contains("pg_locks") && sql.contains("pg_cursors") && !sql.contains("work_mem"), "{sql}");
    }

    #[test]
    fn channels_that_another_connection_can_listen_on_are_named() {
        let state = read(vec![row("l", "", "news"), row("l", "", "My \"x\"")]).expect("an answer");
        assert_eq!(state.pins, Pins::of(Pin::Channels));
        assert_eq!(state.channels.movable(), Some(&["news".to_owned(), "My \"x\"".to_owned()][..]));
        assert_eq!(read(vec![row("l", "", "\u{e4}")]).expect("an answer").channels.movable(), None);
        let many: Vec<Row> = (0..=MAX_CHANNELS).map(|number| row("l", "", &number.to_string())).collect();
        assert!(read(many[1..].to_vec()).expect("an answer").channels.movable().is_some());
        assert_eq!(read(many).expect("an answer").channels.movable(), None);
    }

    #[test]
    fn what_was_not_asked_for_stays() {
        let mut pins = Pins::of(Pin::Channels);
        pins.set(Pin::Libraries, true);
        pins.replace(Kinds::LOCKS, Pins::of(Pin::AdvisoryLocks));
        assert!(pins.has(Pin::Channels) && pins.has(Pin::AdvisoryLocks));
        pins.replace(Kinds::ALL, Pins::default());
        assert_eq!(pins, Pins::of(Pin::Libraries));
    }
}
