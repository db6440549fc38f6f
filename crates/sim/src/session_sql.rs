//! The SQL about what a session holds besides the tracked parameters, and what the pooler itself says to follow it
//! (`session_state = virtual`).
//!
//! Owns the texts and how they are read. What they do is the model's (`model::holdings`, `model::session_statement`). The pooler's question is read by its
//! construction: parts joined by UNION ALL, each beginning with the letter that its rows begin with.

use std::fmt;

use crate::sequence_sql::SequenceStatement;

/// The setting that a function sets of which no text names it.
pub(crate) const HIDDEN: &str = "app.hidden";

/// What the trigger of the table `audited` sets.
pub(crate) const BY_TRIGGER: (&str, &str) = ("lock_timeout", "7s");

const LOCKS: &str = "count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
const CURSORS: &str = "string_agg(name, ',' ORDER BY name) FROM pg_cursors WHERE is_holdable";
const CHANNELS: &str = "string_agg(c, ',' ORDER BY c) FROM pg_listening_channels() c";
const PREPARED: &str = "string_agg(name, ',' ORDER BY name) FROM pg_prepared_statements WHERE from_sql";
const RELATIONS: &str = "WITH RECURSIVE code(";

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionStatement {
    /// `SELECT coalesce(current_setting('name', true), '')`: what was never set and what was reset is the same.
    CurrentSetting(String),
    /// `SELECT change_session('name', 'value')`: a function that sets.
    ChangeSession(String, String),
    /// `SELECT hide_setting('value')`: a function that sets [`HIDDEN`].
    HideSetting(String),
    /// `SELECT take_lock(key)`: a function that takes an advisory lock of the session.
    TakeLock(u32),
    /// `INSERT INTO audited VALUES ('value')`: a trigger sets [`BY_TRIGGER`].
    Audited(String),
    /// `CREATE TEMP TABLE name (a int)`.
    CreateTemporary(String),
    /// `DROP TABLE pg_temp.name`.
    DropTemporary(String),
    /// `SELECT coalesce(to_regclass('pg_temp.name')::text, '')`.
    FindTemporary(String),
    /// `DECLARE name CURSOR WITH HOLD FOR SELECT 1`.
    Declare(String),
    /// `CLOSE name`.
    Close(String),
    /// The names of all cursors WITH HOLD.
    Cursors,
    /// `SELECT pg_advisory_lock(key)`.
    Lock(u32),
    /// `SELECT pg_advisory_unlock(key)`.
    Unlock(u32),
    /// `SELECT pg_advisory_unlock_all()`.
    UnlockAll,
    /// The number of advisory locks.
    Locks,
    /// `LISTEN name`.
    Listen(String),
    /// `UNLISTEN name`; without a name: `UNLISTEN *`.
    Unlisten(Option<String>),
    /// `NOTIFY name, 'payload'`.
    Notify(String, String),
    /// The names of all channels.
    Channels,
    /// The names of all statements that SQL has prepared.
    Prepared,
    /// `DISCARD TEMP`.
    DiscardTemporary,
    /// `DISCARD PLANS` or `DISCARD SEQUENCES`.
    DiscardOther(String),
    /// What is about sequences.
    Sequence(SequenceStatement),
    /// The pooler's question for session state.
    Question(Box<Question>),
    /// The pooler's question for tables whose use changes a session.
    Relations,
    /// The pooler gives a session settings.
    SetConfigs(Vec<(String, String)>),
}

/// What the pooler asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    /// All settings of the session.
    pub(crate) all: bool,
    /// These settings, in whatever way they were set.
    pub(crate) named: Vec<String>,
    /// Kinds of other state, by the letters of their rows.
    pub(crate) kinds: Vec<String>,
    text: String,
}

impl fmt::Display for SessionStatement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SessionStatement::*;
        match self {
            CurrentSetting(name) => write!(out, "SELECT coalesce(current_setting('{name}', true), '')"),
            ChangeSession(name, value) => write!(out, "SELECT change_session('{name}', '{value}')"),
            HideSetting(value) => write!(out, "SELECT hide_setting('{value}')"),
            TakeLock(key) => write!(out, "SELECT take_lock({key})"),
            Audited(value) => write!(out, "INSERT INTO audited VALUES ('{value}')"),
            CreateTemporary(name) => write!(out, "CREATE TEMP TABLE {name} (a int)"),
            DropTemporary(name) => write!(out, "DROP TABLE pg_temp.{name}"),
            FindTemporary(name) => write!(out, "SELECT coalesce(to_regclass('pg_temp.{name}')::text, '')"),
            Declare(name) => write!(out, "DECLARE {name} CURSOR WITH HOLD FOR SELECT 1"),
            Close(name) => write!(out, "CLOSE {name}"),
            Cursors => write!(out, "SELECT {CURSORS}"),
            Lock(key) => write!(out, "SELECT pg_advisory_lock({key})"),
            Unlock(key) => write!(out, "SELECT pg_advisory_unlock({key})"),
            UnlockAll => out.write_str("SELECT pg_advisory_unlock_all()"),
            Locks => write!(out, "SELECT {LOCKS}"),
            Listen(name) => write!(out, "LISTEN {name}"),
            Unlisten(Some(name)) => write!(out, "UNLISTEN {name}"),
            Unlisten(None) => out.write_str("UNLISTEN *"),
            Notify(name, payload) => write!(out, "NOTIFY {name}, '{payload}'"),
            Channels => write!(out, "SELECT {CHANNELS}"),
            Prepared => write!(out, "SELECT {PREPARED}"),
            DiscardTemporary => out.write_str("DISCARD TEMP"),
            DiscardOther(what) => write!(out, "DISCARD {what}"),
            Sequence(statement) => write!(out, "{statement}"),
            Question(question) => out.write_str(&question.text),
            Relations => out.write_str(RELATIONS),
            SetConfigs(pairs) => {
                let calls = pairs
                    .iter()
                    .map(|(name, value)| format!("pg_catalog.set_config('{name}','{value}',false)"));
                write!(out, "SELECT {}", calls.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl SessionStatement {
    /// Whether it has a result with columns.
    pub(crate) fn returns_rows(&self) -> bool {
        use SessionStatement::*;
        if let Sequence(statement) = self {
            return statement.returns_rows();
        }
        !matches!(
            self,
            Audited(_)
                | CreateTemporary(_)
                | DropTemporary(_)
                | Declare(_)
                | Close(_)
                | Listen(_)
                | Unlisten(_)
                | Notify(..)
                | DiscardTemporary
                | DiscardOther(_)
        )
    }

    /// How many columns its rows have.
    pub(crate) fn columns(&self) -> u16 {
        match self {
            SessionStatement::Question(_) => 3,
            SessionStatement::SetConfigs(pairs) => u16::try_from(pairs.len()).unwrap_or(u16::MAX),
            _ => 1,
        }
    }

    /// Reads a statement that begins with this word in capital letters, and goes on with this.
    pub(crate) fn parse(verb: &str, rest: &str) -> Option<SessionStatement> {
        use SessionStatement::*;
        if let Some(statement) = SequenceStatement::parse(verb, rest) {
            return Some(Sequence(statement));
        }
        let name = || rest.to_owned();
        Some(match verb {
            "SELECT" => return parse_select(rest),
            "INSERT" => Audited(between(rest, "INTO audited VALUES ('", "')")?.to_owned()),
            "CREATE" => CreateTemporary(between(rest, "TEMP TABLE ", " (a int)")?.to_owned()),
            "DROP" => DropTemporary(rest.strip_prefix("TABLE pg_temp.")?.to_owned()),
            "DECLARE" => Declare(between(rest, "", " CURSOR WITH HOLD FOR SELECT 1")?.to_owned()),
            "CLOSE" => Close(name()),
            "LISTEN" => Listen(unquoted(rest)),
            "UNLISTEN" => Unlisten((rest != "*").then(|| unquoted(rest))),
            "NOTIFY" => {
                let (name, payload) = rest.split_once(',')?;
                Notify(unquoted(name), between(payload.trim(), "'", "'")?.to_owned())
            }
            "DISCARD" if rest == "TEMP" => DiscardTemporary,
            "DISCARD" => DiscardOther(name()),
            "WITH" if rest.starts_with(RELATIONS.strip_prefix("WITH ")?) => Relations,
            "(SELECT" => Question(Box::new(parse_question(format!("(SELECT {rest}"))?)),
            _ => return None,
        })
    }
}

fn parse_select(rest: &str) -> Option<SessionStatement> {
    use SessionStatement::*;
    let fixed = [
        (LOCKS, Locks),
        (CURSORS, Cursors),
        (CHANNELS, Channels),
        (PREPARED, Prepared),
        ("pg_advisory_unlock_all()", UnlockAll),
    ];
    if let Some((_, statement)) = fixed.into_iter().find(|(text, _)| *text == rest) {
        return Some(statement);
    }
    let (function, arguments) = rest.split_once('(').unwrap_or((rest, ""));
    let key = || arguments.strip_suffix(')')?.parse().ok();
    Some(match function {
        "coalesce" => match between(arguments, "current_setting('", "', true), '')") {
            Some(name) => CurrentSetting(name.to_owned()),
            None => FindTemporary(between(arguments, "to_regclass('pg_temp.", "')::text, '')")?.to_owned()),
        },
        "change_session" => {
            let (name, value) = between(arguments, "'", "')")?.split_once("', '")?;
            ChangeSession(name.to_owned(), value.to_owned())
        }
        "hide_setting" => HideSetting(between(arguments, "'", "')")?.to_owned()),
        "take_lock" => TakeLock(key()?),
        "pg_advisory_lock" => Lock(key()?),
        "pg_advisory_unlock" => Unlock(key()?),
        "pg_catalog.set_config" => SetConfigs(parse_set_configs(rest)?),
        _ => Question(Box::new(parse_question(format!("SELECT {rest}"))?)),
    })
}

fn parse_set_configs(rest: &str) -> Option<Vec<(String, String)>> {
    let calls = between(rest, "pg_catalog.set_config('", "',false)")?;
    let pair = |call: &str| {
        let (name, value) = call.split_once("','")?;
        Some((name.to_owned(), value.to_owned()))
    };
    calls.split("',false),pg_catalog.set_config('").map(pair).collect()
}

/// The letter of the rows tells what each part is.
fn parse_question(text: String) -> Option<Question> {
    let mut question = Question { text: text.clone(), ..Question::default() };
    for part in text.split(" UNION ALL ") {
        let part = part.trim_start_matches('(').strip_prefix("SELECT '")?;
        let (letter, asked) = part.split_once("',")?;
        match letter {
            "s" if asked.starts_with("name,") => question.all = true,
            "s" if asked.starts_with("'role',") => {}
            "s" => {
                let (_, names) = asked.split_once("ARRAY['")?;
                let (names, _) = names.split_once("']")?;
                question.named.extend(names.split("','").map(str::to_owned));
            }
            "t" | "h" | "p" | "a" | "l" => question.kinds.push(letter.to_owned()),
            _ => return None,
        }
    }
    Some(question)
}

/// The name that stands in quotes or without.
fn unquoted(name: &str) -> String {
    name.trim_matches('"').to_owned()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{self, Statement};

    #[test]
    fn what_is_written_is_read_back() {
        use SessionStatement::*;
        let name = || "a".to_owned();
        for statement in [
            CurrentSetting("app.tenant".to_owned()),
            ChangeSession("app.tenant".to_owned(), name()),
            HideSetting("c1.2".to_owned()),
            TakeLock(7),
            Audited(name()),
            CreateTemporary(name()),
            DropTemporary(name()),
            FindTemporary(name()),
            Declare(name()),
            Close(name()),
            Cursors,
            Lock(7),
            Unlock(7),
            UnlockAll,
            Locks,
            Listen(name()),
            Unlisten(Some(name())),
            Unlisten(None),
            Notify(name(), "c1.2".to_owned()),
            Channels,
            Prepared,
            DiscardTemporary,
            DiscardOther("PLANS".to_owned()),
            SetConfigs(vec![(name(), name()), ("b.c".to_owned(), String::new())]),
        ] {
            let text = format!("{statement} /*c3.17*/");
            assert_eq!(sql::parse(text.as_bytes()), [Statement::Session(statement)], "{text}");
        }
    }
}
