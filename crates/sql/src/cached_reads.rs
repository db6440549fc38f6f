//! Whether the answer to a read depends on rows, settings and values alone, so that it may be used again (`query_cache`), and by which names it depends on rows.
//!
//! Owns what of PostgreSQL's own is no such thing: the time, other sessions, the catalog. In doubt nothing is kept. That a text only reads is
//! [`crate::routing`]'s to say; what users have made is for the caller to look up by the names.

use crate::lexer::{Kind, Lexer, Token};
use crate::routing::built_in;
use crate::statement::{ANALYSED_BYTES, calls, is_word, split};

/// The names in a text whose answer may be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedRead {
    /// Each word and quoted name once, in lower case as far as it is ASCII: those of relations are among them.
    pub names: Vec<String>,
    /// Runs of operator characters.
    pub operators: Vec<String>,
}

/// Words of the grammar whose value is another one at another time, catalogs, and columns of the system's that change with locks.
const WORDS: &[&str] = &[
    "cmax",
    "cmin",
    "ctid",
    "current_date",
    "current_time",
    "current_timestamp",
    "information_schema",
    "localtime",
    "localtimestamp",
    // JSON functions and XMLTABLE read texts as values of the types that they return.
    "returning",
    "tablesample",
    // Its offset is the day's.
    "timetz",
    "uescape",
    "xmax",
    "xmin",
    "xmltable",
];

/// Types of times, of which `now` is one.
const TIMES: &[&str] = &[
    "date",
    "datemultirange",
    "daterange",
    "time",
    "timestamp",
    "timestamptz",
    "tsmultirange",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
];

/// Functions that only read, and depend on the time, on privileges or on the catalog, or read texts as times or types.
const FUNCTIONS: &[&str] = &[
    "age",
    "col_description",
    "date",
    "datemultirange",
    "daterange",
    "format_type",
    "json_populate_record",
    "json_populate_recordset",
    "json_table",
    "json_to_record",
    "json_to_recordset",
    "json_value",
    "jsonb_populate_record",
    "jsonb_populate_recordset",
    "jsonb_to_record",
    "jsonb_to_recordset",
    "now",
    "obj_description",
    "regclass",
    "shobj_description",
    "statement_timestamp",
    "timestamptz",
    "transaction_timestamp",
    "tsmultirange",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
];

/// Types of PostgreSQL's own as which a text means the same at any time. Not those of times, of which `now` is one, nor those of users, which may be made of them.
const TIMELESS: &[&str] = &[
    "bigint",
    "bit",
    "bool",
    "boolean",
    "bpchar",
    "bytea",
    "char",
    "character",
    "cidr",
    "dec",
    "decimal",
    "double",
    "float",
    "float4",
    "float8",
    "inet",
    "int",
    "int2",
    "int4",
    "int4multirange",
    "int4range",
    "int8",
    "int8multirange",
    "int8range",
    "integer",
    "interval",
    "json",
    "jsonb",
    "jsonpath",
    "macaddr",
    "macaddr8",
    "money",
    "name",
    "national",
    "nchar",
    "numeric",
    "nummultirange",
    "numrange",
    "oid",
    "real",
    "smallint",
    "text",
    "tsquery",
    "tsvector",
    "uuid",
    "varbit",
    "varchar",
    "xml",
];

/// What PostgreSQL reads as the current time or day (PostgreSQL: Date/Time Types, "Special Values").
const SPECIAL: &[&str] = &["now", "today", "tomorrow", "yesterday"];

/// PostgreSQL's NAMEDATALEN less its end: longer names are cut.
const NAME_BYTES: usize = 63;

/// The names by which the answer to this text, up to a NUL, may be kept; None if it is not to be. The text only reads.
///
/// ```
/// let read = sql::cached_read(b"SELECT abalance FROM pgbench_accounts WHERE aid = 1").unwrap();
/// assert!(read.names.iter().any(|name| name == "pgbench_accounts"));
/// assert!(sql::cached_read(b"SELECT * FROM t WHERE due < now()").is_none());
/// assert!(sql::cached_read(b"SELECT * FROM t WHERE due = 'today'").is_none());
/// ```
#[must_use]
pub fn cached_read(text: &[u8]) -> Option<CachedRead> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= ANALYSED_BYTES)?;
    // What it means depends on a setting.
    if text.contains('\\') {
        return None;
    }
    let tokens: Vec<Token<'_>> = Lexer::new(text).collect();
    let statement = split(&tokens).next()?;
    if is_word(*statement.first()?, "explain") || !statement.iter().any(reads_relations) {
        return None;
    }
    let found = calls::of(statement);
    let is_kept = |name: &str| built_in::is_cached(name) && !FUNCTIONS.contains(&name);
    if found.hides_names || !found.names.iter().all(|call| is_kept(&call.name)) {
        return None;
    }
    let is_called = |field: &[Token<'_>]| may_call(field) || makes_time_of_function(field, statement);
    if casts(statement).any(|cast| cast.makes_time()) || statement.windows(3).any(is_called) {
        return None;
    }
    let mut read = CachedRead::default();
    for token in statement {
        match token.kind {
            Kind::Word | Kind::Quoted => note(&mut read.names, name(*token)?),
            Kind::Operator => note(&mut read.operators, token.text.to_owned()),
            // `'to'` and, in the next line, `'day'` are one string.
            Kind::Value if token.is_parted => return None,
            // PostgreSQL has no such value, and users may have such an operator.
            Kind::Value if token.text == "?" => note(&mut read.operators, token.text.to_owned()),
            Kind::Value if has_special_time(token.text.as_bytes()) => return None,
            _ => {}
        }
    }
    Some(read)
}

fn reads_relations(token: &Token<'_>) -> bool {
    is_word(*token, "from") || is_word(*token, "table")
}

fn note(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// In lower case and without quotes; None if it is not known, is cut, or is not to be in a text that is kept.
fn name(token: Token<'_>) -> Option<String> {
    let text = token.text;
    let name = if token.kind == Kind::Word {
        text.to_ascii_lowercase()
    } else {
        text.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\"").to_ascii_lowercase()
    };
    let is_refused = name.starts_with(built_in::PREFIX) || WORDS.contains(&name.as_str());
    // Other letters are made lower case as the server's locale has it.
    (!is_refused && name.is_ascii() && name.len() <= NAME_BYTES).then_some(name)
}

/// A cast, as `value::type` or `CAST(value AS type)`.
struct Cast<'a, 'b> {
    /// The last token of the value.
    value: Option<&'a Token<'b>>,
    /// The one before, if that may be of the same value.
    before: Option<&'a Token<'b>>,
    /// The first token of the type.
    to: Option<&'a Token<'b>>,
    /// That is the name of its schema.
    has_schema: bool,
}

impl Cast<'_, '_> {
    /// A text of a row may stand for the time at which it is read, `today` for example: something else than one constant is cast to a type that is not known to have none.
    fn makes_time(&self) -> bool {
        let is_timeless =
            |to: &Token<'_>| to.kind == Kind::Word && TIMELESS.iter().any(|word| is_word(*to, word));
        let is_operator = self.before.is_some_and(|before| before.kind == Kind::Operator);
        let is_constant = self.value.is_some_and(|value| value.kind == Kind::Value) && !is_operator;
        !is_constant && (self.has_schema || !self.to.is_some_and(is_timeless))
    }
}

/// All casts, but for those of the form `type 'value'` and `function(value)`.
fn casts<'a, 'b>(tokens: &'a [Token<'b>]) -> impl Iterator<Item = Cast<'a, 'b>> {
    // Of each open parenthesis, whether it is CAST's: others have names behind AS.
    let mut open = Vec::new();
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
        let is_cast = match token.kind {
            Kind::Open => {
                open.push(before(1).is_some_and(|word| is_word(*word, "cast")));
                false
            }
            Kind::Close => {
                open.pop();
                false
            }
            Kind::Cast => true,
            _ => is_word(*token, "as") && open.last() == Some(&true),
        };
        // `::` has the value next to it alone, and `CAST('to' || 'day' AS date)` all of them.
        let (value, of_many) = (before(1), token.kind != Kind::Cast);
        let has_schema = tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Dot);
        is_cast.then(|| Cast {
            value,
            before: before(2).filter(|_| of_many),
            to: tokens.get(at + 1),
            has_schema,
        })
    })
}

/// `(value).name` and the like: a field, or a function or type of that name with this value.
fn may_call(tokens: &[Token<'_>]) -> bool {
    let is_name = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted);
    matches!(tokens, [value, dot, name] if dot.kind == Kind::Dot && is_name(name) && !is_name(value))
}

/// `name.type` where the name is that of a function's result, as `unnest(texts) name`: a cast of that.
fn makes_time_of_function(field: &[Token<'_>], statement: &[Token<'_>]) -> bool {
    let [function, dot, to] = field else { return false };
    let is_name = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted);
    let is_field = dot.kind == Kind::Dot && is_name(function) && is_name(to);
    let is_time = is_field && name(*to).is_none_or(|to| TIMES.contains(&to.trim_start_matches('_')));
    is_time
        && statement.iter().enumerate().any(|(at, alias)| {
            let before = |count: usize| at.checked_sub(count).and_then(|at| statement.get(at));
            let behind_as = usize::from(before(1).is_some_and(|word| is_word(*word, "as")));
            let is_of_result = before(1 + behind_as).is_some_and(|token| token.kind == Kind::Close);
            let is_called = statement.get(at + 1).is_some_and(|next| next.kind == Kind::Open);
            (is_of_result || is_called) && name(*alias) == name(*function)
        })
}

/// A text, or bytes with texts in it, may be read as the time at which it is read.
#[must_use]
pub fn has_special_time(bytes: &[u8]) -> bool {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    // Behind a control character, or two zeros and another byte, it is none, but the end of a text's length.
    let is_of_word = |at: usize| {
        let before = |count: usize| at.checked_sub(count).and_then(|at| bytes.get(at));
        let is_length =
            before(2).is_some_and(|byte| *byte < b' ') || before(3) == Some(&0) && before(4) == Some(&0);
        is_letter(before(1)) && !is_length
    };
    SPECIAL.iter().any(|word| {
        bytes.windows(word.len()).enumerate().any(|(at, window)| {
            window.eq_ignore_ascii_case(word.as_bytes())
                && !is_of_word(at)
                && !is_letter(bytes.get(at + word.len()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_rows_settings_and_values_alone_is_kept() {
        for text in [
            "select a from t",
            "SELECT count(*), sum(b) FROM s.t WHERE c = $1 AND d > 7 GROUP BY e ORDER BY 2 LIMIT 10",
            "with x as (select a from t) select * from x join u using (a)",
            "table t",
            "select lower(a), b from t where 'x' = a and false is not true",
            "select a from t where d = '2026-11-26'::date and e < date '2026-11-27'",
            "select a from t where d = cast($1 as timestamptz)",
            "select date, time from t",
            "select a from snow where b = 'snow'",
            "select a::int, cast(b as varchar(10)), (c || 'x')::text as day from t",
            "select a from t where d = cast('2026-11-26' as my.day) and e = '(1,2)'::pair",
            "select cast((select max(a) as ts from t) as bigint) from t",
            "select (t).* from t",
            "select current_user, a from t",
        ] {
            assert!(cached_read(text.as_bytes()).is_some(), "{text}");
        }
        let read = cached_read(b"SELECT A.\"B\" || 'c' FROM \"T t\" a\0").unwrap_or_default();
        assert_eq!(read.names, ["select", "a", "b", "from", "t t"]);
        assert_eq!(read.operators, ["||"]);
    }

    #[test]
    fn what_depends_on_anything_else_is_not_kept() {
        for text in [
            "select 1",
            "select now() from t",
            "select age(d) from t",
            "select a from t where d < current_date",
            "select a from t where d < LOCALTIMESTAMP",
            "select a from t where d = 'Today'",
            "select a from t where d = 'to'\n'day'",
            "select a::date from t",
            "select cast(a as timestamp with time zone) from t",
            "select date(a) from t",
            "select a::my_day from t",
            "select a::my.day from t",
            "select a::\"text\" from t",
            "select a::tstzrange from t",
            "select cast(a as pair) from t",
            "select cast((select max(a) as b from t) as pair) from t",
            "select cast('to' || 'day' as my_day) from t",
            "select a::text::my_day from t",
            "select array[a]::my_day[] from t",
            "select tstzrange(a) from t",
            "select daterange(a) from t",
            "select (a).my_day from t",
            "select (a).mine from t",
            "select (array[a])[1].mine from t",
            "select $1.mine from t",
            "select json_query(j, '$.d' returning timestamptz) from t",
            "select d from t, xmltable('/d' passing x columns d timestamptz path '.')",
            "select a from t tablesample system (10)",
            "select a from pg_class",
            "select a from \"pg_class\"",
            "select a from information_schema.tables",
            "select mine(a) from t",
            "select has_table_privilege('t', 'select') from t",
            "select to_regclass('t') from t",
            "select to_regclass(a) from t",
            "select pg_sleep(1) from t",
            "select random() from t",
            "select a from t where b = e'\\x'",
            "select a from t\u{e9}",
            "select a from u&\"t\"",
            "select a from u&'!0074' uescape '!'",
            "explain select a from t",
            "select a from \"t",
            "select xmax, ctid from t",
            "select g.timestamptz from t, unnest(b) g",
            "select g.\"date\" from lower(a) as g, t",
            "select unnest.timestamptz from t, unnest(b)",
            "select g._date from t, unnest(b) g",
            "select g.time from (select a from t) g",
            "select a::json.moment from t",
            "select cast(a as text.moment) from t",
        ] {
            assert_eq!(cached_read(text.as_bytes()), None, "{text}");
        }
        let long = format!("select a from {}", "x".repeat(64));
        assert_eq!(cached_read(long.as_bytes()), None);
    }

    #[test]
    fn words_for_the_time_are_found_among_bytes() {
        for bytes in [
            &b"now"[..],
            b"\0\0\0\x05today\0",
            b"\0\0\0Anow   ",
            b"\0\0\x01znow ",
            b"\0\0 Anow ",
            b"[TODAY,)",
            b"{1,yesterday}",
            b"x now",
        ] {
            assert!(has_special_time(bytes), "{bytes:?}");
        }
        for bytes in [&b""[..], b"know", b"snow", b"nowhere", b"todays", b"no w"] {
            assert!(!has_special_time(bytes), "{bytes:?}");
        }
    }
}
