//! What a session holds besides its parameters, as PostgreSQL's catalog shows it: the query that asks for it, and the answer.
//!
//! Owns which kinds of state there are. Settings can be given to another server connection; the other kinds cannot, and keep a client on
//! the one that has them. What a query string may change is the `sql` crate's to say.

use crate::internal_result::Row;
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
            Pin::Libraries => "library",
            Pin::UnnamedStatement => "unnamed_statement",
            Pin::Settings => "setting",
        }
    }

    /// The same as in the answer of PostgreSQL.
    const KINDS: [(&'static [u8], Pin); 5] = [
        (b"t", Pin::TemporaryObjects),
        (b"h", Pin::HeldCursors),
        (b"p", Pin::PreparedStatements),
        (b"a", Pin::AdvisoryLocks),
        (b"l", Pin::Channels),
    ];
}

/// What a session holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// What was set in the session: tracked parameters that no server reports, and all others that are not reported.
    pub settings: SessionSettings,
    /// The first kind of state that was found and that cannot move.
    pub pin: Option<Pin>,
}

/// The parameters of a transaction, and those that are followed in another way or only shown.
const NOT_OF_THE_SESSION: [&str; 7] = [
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
const MAX_BYTES: usize = 32 * 1024;

/// The query for all of it. `names` are custom parameters that the client may have set. No name in it is looked up by search_path, and
/// the answer is ASCII whatever client_encoding is.
pub(crate) fn query<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const HEX: &str = "pg_catalog.encode(pg_catalog.convert_to(";
    let mut sql = format!(
        "SELECT 's',name,{HEX}setting,'UTF8'),'hex') FROM pg_catalog.pg_settings \
         WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text \
         UNION ALL SELECT 's','role',{HEX}pg_catalog.current_setting('role'),'UTF8'),'hex') \
         WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'::pg_catalog.text \
         UNION ALL SELECT 't','','' WHERE CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
         THEN false ELSE EXISTS (SELECT FROM pg_catalog.pg_depend \
         WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
         AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) END \
         UNION ALL SELECT 'h','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) \
         UNION ALL SELECT 'p','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql) \
         UNION ALL SELECT 'a','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks \
         WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
         UNION ALL SELECT 'l','','' WHERE EXISTS (SELECT FROM pg_catalog.pg_listening_channels())"
    );
    let mut names = names.into_iter().peekable();
    if names.peek().is_some() {
        sql.push_str(" UNION ALL SELECT 's',n,");
        sql.push_str(HEX);
        sql.push_str("pg_catalog.current_setting(n,true),'UTF8'),'hex') FROM pg_catalog.unnest(ARRAY[");
        for (index, name) in names.enumerate() {
            sql.extend([if index > 0 { ",'" } else { "'" }, name, "'"]);
        }
        sql.push_str(
            "]::pg_catalog.text[]) n WHERE pg_catalog.current_setting(n,true) IS NOT NULL \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) n)",
        );
    }
    sql
}

/// Reads the answer to [`query`]. None if it is none.
pub(crate) fn read(rows: Vec<Row>) -> Option<SessionState> {
    let (mut pin, mut settings, mut bytes) = (None, Vec::new(), 0);
    for row in rows {
        let [Some(kind), Some(name), Some(value)] = <[_; 3]>::try_from(row).ok()? else { return None };
        if let Some((_, found)) = Pin::KINDS.iter().find(|(known, _)| *known == kind) {
            pin = pin.or(Some(*found));
            continue;
        }
        match (String::from_utf8(name).ok().filter(|name| can_be_set(name)), text_of(&value)) {
            (Some(name), _) if NOT_OF_THE_SESSION[..6].contains(&&*name) => {}
            (Some(name), Some(value)) if bytes + name.len() + value.len() <= MAX_BYTES => {
                bytes += name.len() + value.len();
                settings.push((name, value));
            }
            _ => pin = pin.or(Some(Pin::Settings)),
        }
    }
    Some(SessionState { settings: SessionSettings::new(settings), pin })
}

/// The text that these digits stand for, unless it is too long to be kept for a client.
fn text_of(digits: &[u8]) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok().filter(|text| text.len() <= MAX_VALUE_BYTES)
}

fn can_be_set(name: &str) -> bool {
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
                None => others.push((name.to_owned(), value.to_owned())),
            }
        }
        SessionSettings::new(others)
    }
}

/// What stands in a message and may be the name of a custom parameter: words with a dot.
pub(crate) fn custom_names(message: &[u8]) -> impl Iterator<Item = &str> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
    let words = message.split(move |byte| !is_part(byte));
    words.filter_map(|word| std::str::from_utf8(word).ok()).filter(|word| is_custom_name(word))
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
            row("t", "", ""),
        ];
        let state = read(rows).expect("an answer");
        assert_eq!(
            state.settings.iter().collect::<Vec<_>>(),
            [("app.name", "\u{e4} ' x"), ("work_mem", "4096")]
        );
        assert_eq!(state.pin, Some(Pin::TemporaryObjects));
        assert_eq!(read(Vec::new()), Some(SessionState::default()));
    }

    #[test]
    fn what_cannot_be_set_again_pins() {
        for row in [row("s", "it's", "1"), row("s", "a", &"x".repeat(MAX_VALUE_BYTES + 1))] {
            assert_eq!(read(vec![row]).expect("an answer").pin, Some(Pin::Settings));
        }
        let many = (0..100).map(|number| row("s", &format!("a.b{number}"), &"x".repeat(1000))).collect();
        let state = read(many).expect("an answer");
        assert_eq!((state.pin, state.settings.iter().count()), (Some(Pin::Settings), 32));
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
    fn a_name_of_a_startup_packet_cannot_leave_its_quotes() {
        assert!(
            is_custom_name("app.tenant")
                && !is_custom_name("a.b'; DROP TABLE t; --")
                && !is_custom_name("a.b'")
        );
    }

    #[test]
    fn the_query_names_everything_by_its_schema() {
        let sql = query(["app.tenant"]);
        assert!(sql.contains("ARRAY['app.tenant']") && sql.is_ascii());
        for name in
            ["pg_settings", "encode(", "convert_to(", "current_setting(", "pg_depend", "pg_locks", "unnest("]
        {
            let all = sql.matches(name).count();
            assert_eq!(sql.matches(&format!("pg_catalog.{name}")).count(), all, "{name}");
        }
    }
}
