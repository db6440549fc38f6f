//! The functions that a statement calls by name, and what those of PostgreSQL change that leave something in the session or
//! depend on the server that runs them.
//!
//! A name is not a proof: a function of the same name in another schema may be meant. Whoever relies on [`Changes::NONE`] asks the
//! catalog once for each fingerprint.

use super::cursor::{is_word, name_of};
use super::{Access, Changes};
use crate::lexer::{Kind, Token};

/// A function as it is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionName {
    /// Its schema, if that is named.
    pub schema: Option<String>,
    /// Its name, as PostgreSQL folds it.
    pub name: String,
}

/// What calling functions means for a statement.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(super) access: Access,
    pub(super) changes: Changes,
    pub(crate) names: Vec<FunctionName>,
    /// Those that it calls, or fields that it reads, as `(a).name`, `a[1].name` or `$1.name`.
    pub(super) attributes: Vec<FunctionName>,
    /// There are others, whose names the text does not show, or too many.
    pub(crate) hides_names: bool,
}

/// Functions of one statement whose names are kept; what others do is not known.
const MAX_CALLS: usize = 64;
/// How far behind ON CONFLICT its DO is looked for, in tokens.
const CONFLICT_TOKENS: usize = 128;

/// Words that cannot name a function: the reserved keywords of PostgreSQL 15 to 18 and those that only name columns (appendix "SQL Key Words"),
/// as far as a parenthesis may follow them.
const NOT_CALLED: &str = "
    all and any array as between bigint bit boolean case cast char character check coalesce dec decimal
    default distinct else except exists extract fetch float for from greatest group grouping having in
    int integer intersect interval into lateral least limit national nchar not nullif numeric offset on
    only or order overlay position precision primary real references returning row select smallint some
    substring symmetric table then time timestamp to treat trim union unique using values varchar
    variadic when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlparse
    xmlpi xmlroot xmlserialize xmltable
";

/// Words that name no function behind these others.
const NOT_CALLED_BEHIND: &[(&str, &[&str])] = &[
    ("by", &["group", "order", "partition"]),
    ("first", &["fetch"]),
    ("next", &["fetch"]),
    ("sets", &["grouping"]),
    ("varying", &["bit", "char", "character", "nchar"]),
    ("zone", &["time"]),
];

/// Words that name no function in front of what begins with these.
const NOT_CALLED_BEFORE: &[(&str, &[&str])] =
    &[("filter", &["where"]), ("join", &["select", "table", "values", "with"])];

/// What a function changes whose name is known, if it changes anything, and what it makes of the access.
const CHANGING: &[(&str, Changes, Access)] = &[
    ("set_config", Changes::SETTINGS, Access::Reads),
    ("nextval", Changes::SEQUENCES, Access::Writes),
    ("setval", Changes::SEQUENCES, Access::Writes),
    ("currval", Changes::SEQUENCES, Access::Unknown),
    ("lastval", Changes::SEQUENCES, Access::Unknown),
    ("pg_notify", Changes::NONE, Access::Writes),
    ("pg_advisory_lock", Changes::LOCKS, Access::Unknown),
    ("pg_advisory_lock_shared", Changes::LOCKS, Access::Unknown),
    ("pg_try_advisory_lock", Changes::LOCKS, Access::Unknown),
    ("pg_try_advisory_lock_shared", Changes::LOCKS, Access::Unknown),
    ("pg_advisory_unlock", Changes::LOCKS, Access::Unknown),
    ("pg_advisory_unlock_shared", Changes::LOCKS, Access::Unknown),
    ("pg_advisory_unlock_all", Changes::LOCKS, Access::Unknown),
    ("pg_advisory_xact_lock", Changes::NONE, Access::Unknown),
    ("pg_advisory_xact_lock_shared", Changes::NONE, Access::Unknown),
    ("pg_try_advisory_xact_lock", Changes::NONE, Access::Unknown),
    ("pg_try_advisory_xact_lock_shared", Changes::NONE, Access::Unknown),
    ("pg_listening_channels", Changes::CHANNELS, Access::Unknown),
    ("pg_my_temp_schema", Changes::TEMPORARY, Access::Unknown),
    ("txid_current", Changes::NONE, Access::Writes),
    ("pg_current_xact_id", Changes::NONE, Access::Writes),
    ("pg_backend_pid", Changes::NONE, Access::Unknown),
    ("pg_is_in_recovery", Changes::NONE, Access::Unknown),
    ("pg_last_wal_receive_lsn", Changes::NONE, Access::Unknown),
    ("pg_last_wal_replay_lsn", Changes::NONE, Access::Unknown),
    ("inet_server_addr", Changes::NONE, Access::Unknown),
    ("inet_server_port", Changes::NONE, Access::Unknown),
];

/// The function of PostgreSQL that runs SQL given as its only argument.
const RUNS_TEXT: &str = "ts_stat";

/// Functions of PostgreSQL that neither write nor leave anything in the session, whatever their arguments: the common ones. Those that
/// run SQL given as text (`query_to_xml`, `ts_stat`) are not among them.
const HARMLESS: &str = "
    abs age array_agg array_append array_cat array_length array_lower array_ndims array_position
    array_prepend array_remove array_replace array_to_json array_to_string array_upper ascii avg bit_and
    bit_length bit_or bool_and bool_or btrim cardinality ceil ceiling char_length character_length chr
    clock_timestamp col_description concat concat_ws convert_from convert_to corr count cume_dist
    current_database current_schema current_schemas current_setting date_bin date_part date_trunc decode
    degrees dense_rank div encode every exp first_value floor format format_type gen_random_uuid
    generate_series generate_subscripts has_column_privilege has_database_privilege has_schema_privilege
    has_table_privilege initcap json_agg json_array_elements json_array_elements_text json_array_length
    json_build_array json_build_object json_each json_each_text json_extract_path json_extract_path_text
    json_object_agg json_object_keys json_populate_record json_populate_recordset json_to_record
    json_to_recordset json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
    jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object_agg jsonb_object_keys
    jsonb_path_exists jsonb_path_query jsonb_path_query_array jsonb_path_query_first
    jsonb_populate_record jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_strip_nulls
    jsonb_to_record jsonb_to_recordset jsonb_typeof justify_days justify_hours justify_interval lag
    last_value lead left length ln log lower lpad ltrim make_date make_interval make_time make_timestamp
    make_timestamptz max md5 min mod mode now nth_value ntile num_nonnulls num_nulls obj_description
    octet_length percent_rank percentile_cont percentile_disc pg_column_size pg_database_size
    pg_encoding_to_char pg_get_constraintdef pg_get_expr pg_get_functiondef pg_get_indexdef
    pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_indexes_size pg_relation_size
    pg_size_pretty pg_sleep pg_table_is_visible pg_table_size pg_total_relation_size pg_type_is_visible
    pg_typeof phraseto_tsquery pi plainto_tsquery power quote_ident quote_literal quote_nullable radians
    random rank regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regexp_substr repeat replace reverse right round
    row_number row_to_json rpad rtrim setweight sha224 sha256 sha384 sha512 sign split_part sqrt
    starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array
    string_to_table strpos substr sum timeofday to_char to_date to_json to_jsonb to_number to_regclass
    to_regtype to_timestamp to_tsquery to_tsvector transaction_timestamp translate trunc ts_headline
    ts_rank ts_rank_cd unnest upper var_pop var_samp variance version websearch_to_tsquery width_bucket
    xmlagg
";

/// All calls in these tokens.
pub(crate) fn of(tokens: &[Token<'_>]) -> Calls {
    let mut calls = Calls {
        access: Access::Reads,
        changes: Changes::NONE,
        names: Vec::new(),
        attributes: Vec::new(),
        hides_names: false,
    };
    // Whether a function is called with each of the open parentheses.
    let mut open = Vec::new();
    let mut closed_a_call = false;
    // The last name in the notation of a field: another one behind it is one of its value.
    let mut field = None;
    for (at, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Open {
            let function = called(&tokens[..at], &tokens[at + 1..], closed_a_call);
            // `f(x) FILTER (WHERE ...)` is still that call, `1 OPERATOR(pg_catalog.+) 2` is none.
            let filters = closed_a_call && tokens.get(at + 1).is_some_and(|first| is_word(*first, "where"));
            let is_operator = at.checked_sub(1).is_some_and(|name| is_word(tokens[name], "operator"));
            open.push(function.is_some() && !is_operator || filters);
            if let Some(function) = function {
                calls.add(function, |calls| &mut calls.names);
            }
        }
        if is_called_as_field(&tokens[..at], *token, field)
            && tokens.get(at + 1).is_none_or(|next| next.kind != Kind::Open)
        {
            field = Some(at);
            let name = name_of(*token).map(|name| FunctionName { schema: None, name });
            calls.add(name, |calls| &mut calls.attributes);
        }
        closed_a_call = match token.kind {
            Kind::Close => open.pop().unwrap_or(false),
            // `f(x) OVER (...)`
            Kind::Word => closed_a_call && is_among(token.text, &["filter", "over"]),
            _ => false,
        };
    }
    calls
}

impl Calls {
    /// All functions that it calls or may call.
    pub(super) fn all_names(mut self) -> Vec<FunctionName> {
        self.attributes.retain(|name| !self.names.contains(name));
        self.names.append(&mut self.attributes);
        self.names
    }

    fn add(&mut self, function: Option<FunctionName>, list: impl Fn(&mut Calls) -> &mut Vec<FunctionName>) {
        let Some(function) = function else {
            // A name that the text does not show.
            self.hides_names = true;
            return self.change(Changes::FUNCTIONS, Access::Unknown);
        };
        if list(self).contains(&function) {
            return;
        }
        if list(self).len() == MAX_CALLS {
            self.hides_names = true;
            return self.change(Changes::FUNCTIONS, Access::Unknown);
        }
        let is_postgresqls = function.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
        let name = function.name.as_str();
        let known = CHANGING.iter().find(|(known, ..)| is_postgresqls && *known == name);
        if let Some((_, changes, access)) = known {
            self.change(*changes, *access);
        } else if !is_postgresqls || !HARMLESS.split_ascii_whitespace().any(|known| known == name) {
            self.change(Changes::FUNCTIONS, Access::Unknown);
        }
        list(self).push(function);
    }

    fn change(&mut self, changes: Changes, access: Access) {
        self.changes = self.changes.and(changes);
        self.access = self.access.max(access);
    }
}

/// The name behind these tokens may be a function in the notation of a field (PostgreSQL: SQL Functions on Composite Types): of a value, of another `field`, or of
/// the result of a function in FROM, by its alias. Other names behind those of tables are taken for columns.
fn is_called_as_field(before: &[Token<'_>], name: Token<'_>, field: Option<usize>) -> bool {
    let [rest @ .., value, dot] = before else { return false };
    if dot.kind != Kind::Dot || !matches!(name.kind, Kind::Word | Kind::Quoted) {
        return false;
    }
    match value.kind {
        Kind::Close | Kind::CloseBracket => true,
        Kind::Value => value.text.starts_with('$') && !value.text.ends_with('$'),
        _ if field == Some(rest.len()) => true,
        Kind::Word | Kind::Quoted => match name_of(name) {
            Some(name) => name == RUNS_TEXT || CHANGING.iter().any(|(known, ..)| *known == name),
            None => name.text.get(1..2) == Some("&"), // U&"..."
        },
        _ => false,
    }
}

/// The function whose arguments begin between these tokens; `behind_call`: what stands there last belongs to a call. None if none is
/// called, `Some(None)` if the text does not show its name.
fn called(before: &[Token<'_>], after: &[Token<'_>], behind_call: bool) -> Option<Option<FunctionName>> {
    let (name, before) = before.split_last()?;
    let is_name = matches!(name.kind, Kind::Word | Kind::Quoted);
    if !is_name || name.kind == Kind::Word && is_syntax(name.text, before.last(), after, behind_call) {
        return None;
    }
    let (schema, before) = match before {
        [before @ .., schema, dot] if dot.kind == Kind::Dot => (Some(*schema), before),
        _ => (None, before),
    };
    // `::numeric(10, 2)`, `AS t (a, b)`, `INTO t (a, b)`, `WITH t (a, b)`.
    let is_other = before.last().is_some_and(|token| {
        let words = &["as", "into", "recursive", "with"];
        token.kind == Kind::Cast || token.kind == Kind::Word && is_among(token.text, words)
    });
    if is_other {
        return None;
    }
    let Some(schema) = schema else {
        return Some(name_of(*name).map(|name| FunctionName { schema: None, name }));
    };
    // A part of the name that the text does not show hides all of it.
    Some(
        name_of(schema).zip(name_of(*name)).map(|(schema, name)| FunctionName { schema: Some(schema), name }),
    )
}

/// The word is no name of a function where it stands.
fn is_syntax(word: &str, before: Option<&Token<'_>>, after: &[Token<'_>], behind_call: bool) -> bool {
    if before.is_some_and(|before| before.kind == Kind::Dot) {
        return false;
    }
    let among = |token: Option<&Token<'_>>, words: &[&str]| {
        token.is_some_and(|token| token.kind == Kind::Word && is_among(token.text, words))
    };
    let listed =
        |(known, words): &(&str, &[&str]), token| word.eq_ignore_ascii_case(known) && among(token, words);
    is_listed(word, NOT_CALLED)
        || NOT_CALLED_BEHIND.iter().any(|row| listed(row, before))
        || NOT_CALLED_BEFORE.iter().any(|row| listed(row, after.first()))
        || is_among(word, &["over"]) && behind_call
        || is_among(word, &["conflict"])
            && among(before, &["on"])
            && among(behind_parentheses(after), &["do"])
}

/// What stands behind the parenthesis that closes.
fn behind_parentheses<'a, 'b>(after: &'a [Token<'b>]) -> Option<&'a Token<'b>> {
    let mut depth = 1_usize;
    let close = after.iter().take(CONFLICT_TOKENS).position(|token| {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    after.get(close + 1)
}

/// In whatever case.
fn is_listed(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|known| word.eq_ignore_ascii_case(known))
}

fn is_among(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_names_nothing_that_changes() {
        let words: Vec<&str> = HARMLESS.split_ascii_whitespace().collect();
        assert!(words.is_sorted());
        let both = CHANGING.iter().filter(|(name, ..)| words.contains(name)).count();
        assert_eq!(both, 0);
    }
}
