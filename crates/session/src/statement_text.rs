//! What the text of a statement shows before PostgreSQL has parsed it: which command it is, and whether it holds a literal that
//! PostgreSQL evaluates at Parse. Reads words, never grammar; in doubt it assumes the larger effect.

use sql::{HiddenEffect, JudgedEffect};

/// What executing statements may change; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects(u16);

impl Effects {
    pub(crate) const NONE: Effects = Effects(0);
    /// A portal was bound.
    pub(crate) const BOUND: Effects = Effects(1);
    /// It may call functions, and so run anything.
    pub(crate) const CALLS: Effects = Effects(2);
    /// It may change parameters of the session.
    pub(crate) const SETTINGS: Effects = Effects(4);
    /// It may change which statements are prepared.
    pub(crate) const STATEMENTS: Effects = Effects(8);
    /// Not all that it runs was looked at: it may change parameters and change them back before its segment ends.
    pub(crate) const UNSEEN: Effects = Effects(16);
    /// It may change anything in the session without its command tag showing it ([`sql::hidden_effect`]).
    pub(crate) const HIDDEN: Effects = Effects(32);
    /// It sets parameters of the session to values that stand in its text or are bound.
    pub(crate) const SETS_VALUES: Effects = Effects(64);
    /// It may take or release advisory locks of the session.
    pub(crate) const LOCKS: Effects = Effects(128);
    /// It may name prepared statements by SQL.
    pub(crate) const NAMES: Effects = Effects(256);
    /// It may set, if only for its transaction, what a text is read by and no server reports.
    pub(crate) const READS: Effects = Effects(512);
    /// It may call `nextval` or `setval`, or writes and asks for what that has left.
    pub(crate) const SEQUENCES: Effects = Effects(1024);
    /// It asks for what `nextval` has left in the session, by `currval` or `lastval`.
    pub(crate) const SEQUENCE_VALUES: Effects = Effects(2048);
    /// It may be a COPY from the client.
    pub(crate) const COPIES: Effects = Effects(4096);
    /// What may have to be done before it is sent.
    pub(crate) const PREPARED_FOR: Effects = Effects::NAMES.and(Effects::SEQUENCE_VALUES);
    /// What of these [`sql::hidden_effect`] finds.
    pub(crate) const SESSION: Effects = Effects::HIDDEN.and(Effects::SETS_VALUES).and(Effects::LOCKS);
    /// What a text may change that is not looked at: all of these.
    pub(crate) const ANYTHING: Effects = Effects::HIDDEN.and(Effects::SEQUENCES);
    /// What is noted of a statement before it is executed.
    pub(crate) const NOTED: Effects = Effects::SESSION.and(Effects::READS).and(Effects::SEQUENCES);
    /// What follows in the same session may meet something else than what was there before.
    pub(crate) const ALTERING: Effects = Effects::SETTINGS.and(Effects::STATEMENTS);
    /// Those of a statement whose text is not known.
    pub(crate) const ALL: Effects = Effects::CALLS
        .and(Effects::ALTERING)
        .and(Effects::UNSEEN)
        .and(Effects::ANYTHING)
        .and(Effects::COPIES);

    #[inline]
    pub(crate) const fn and(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// Any of `others` is among these.
    #[inline]
    pub(crate) const fn any(self, others: Effects) -> bool {
        self.0 & others.0 != 0
    }

    /// The effects of a statement of which only the first words were looked at.
    #[inline]
    pub(crate) const fn unseen_calls(self) -> Effects {
        if self.any(Effects::CALLS) { self.and(Effects::UNSEEN) } else { self }
    }

    /// Those that come of calling functions.
    #[inline]
    pub(crate) const fn calls(self) -> Effects {
        Effects(self.0 & Effects::CALLS.and(Effects::UNSEEN).0)
    }

    /// Those that a command tag does not show.
    fn of_hidden(effect: HiddenEffect) -> Effects {
        match effect {
            HiddenEffect::None => Effects::NONE,
            HiddenEffect::Settings => Effects::SETS_VALUES,
            HiddenEffect::Locks => Effects::LOCKS,
            HiddenEffect::Anything => Effects::ANYTHING,
        }
    }

    /// What was found in a whole text.
    pub(crate) fn of_judged(found: JudgedEffect) -> Effects {
        let effects = Effects::of_hidden(found.effect);
        let effects = if found.calls_nextval { effects.and(Effects::SEQUENCES) } else { effects };
        if found.asks_for_values { effects.and(Effects::SEQUENCE_VALUES) } else { effects }
    }

    /// Whether a text that sets parameters may set one that the parser reads and that a server may not report, or one that changes those.
    pub(crate) fn of_reading(text: &[u8]) -> Effects {
        let is_named = |word: &&[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        let may = READ_BY_PARSER.iter().any(is_named)
            || is_named(&&b"set_config"[..]) && sql::settings_set(text) == sql::SettingsSet::Unknown;
        if may { Effects::READS } else { Effects::NONE }
    }

    /// Whether it names prepared statements.
    pub(crate) fn of_names(text: &[u8]) -> Effects {
        if sql::may_name_statements(text) { Effects::NAMES } else { Effects::NONE }
    }

    #[inline]
    pub(crate) fn add(&mut self, other: Effects) {
        self.0 |= other.0;
    }
}

/// Words of such parameters ([`crate::parse_settings`]).
const READ_BY_PARSER: [&[u8]; 10] = [
    b"search_path",
    b"schema",
    b"role",
    b"authorization",
    b"array_nulls",
    b"backslash_quote",
    b"lc_monetary",
    b"timezone_abbreviations",
    b"transform_null_equals",
    b"xml",
];

const SETS: Effects = Effects::CALLS.and(Effects::SETTINGS);

/// The longest word that is looked for.
const WORD_BYTES: usize = b"deallocate".len();

/// What a statement of the extended protocol, which is one command, may change. None if more of the text is needed.
#[inline]
pub(crate) fn effects(text: &[u8]) -> Option<Effects> {
    // Most are a SELECT of something that is not set_config().
    if let Some(&[head @ .., next]) = text.first_chunk::<8>()
        && is_select(head)
        && matches!(next.to_ascii_lowercase(), b'a'..=b'o' | b'q' | b'r' | b't'..=b'z' | b'0'..=b'9' | b'*' | b'$')
    {
        return Some(Effects::CALLS);
    }
    effects_of_command(text)
}

/// `select ` in whatever case; one comparison, because each statement is asked.
#[inline(always)]
fn is_select([s, e, l, e2, c, t, blank]: [u8; 7]) -> bool {
    const CASE: u64 = u64::from_be_bytes([0, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0]);
    u64::from_be_bytes([0, s, e, l, e2, c, t, blank]) | CASE == u64::from_be_bytes(*b"\0select ")
}

#[inline(never)]
fn effects_of_command(text: &[u8]) -> Option<Effects> {
    let text = skip_blanks(text)?;
    let (word, behind) = first_word(text)?;
    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
    let any = |known: &[&[u8]]| known.iter().any(|known| is(known));
    if is(b"select") {
        return selected(behind);
    }
    Some(if any(&[b"deallocate", b"discard", b"prepare"]) {
        SETS.and(Effects::STATEMENTS)
    } else if any(&[b"set", b"reset", b"commit", b"end", b"rollback", b"abort", b"do", b"call"]) {
        SETS
    } else if any(&[b"begin", b"start", b"savepoint", b"release"]) || text.first() == Some(&0) {
        Effects::NONE
    } else if any(&[b"copy", b"execute"]) {
        Effects::CALLS.and(Effects::COPIES)
    } else {
        Effects::CALLS
    })
}

/// The effects of SELECT, by what comes first in its list.
fn selected(list: &[u8]) -> Option<Effects> {
    let list = skip_blanks(list)?;
    for head in [&b"set_config"[..], b"pg_catalog.set_config"] {
        let here = list.get(..head.len()).unwrap_or(list);
        if here.eq_ignore_ascii_case(&head[..here.len()]) {
            return (here.len() == head.len()).then_some(SETS);
        }
    }
    Some(Effects::CALLS)
}

/// The text from its first word on. Its end is a NUL.
fn skip_blanks(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = match text {
            [] => return None,
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b';' | b'(', rest @ ..] => rest,
            [b'-' | b'/'] => return None,
            [b'-', b'-', ..] => {
                let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0))?;
                &text[end..]
            }
            [b'/', b'*', rest @ ..] => skip_comment(rest)?,
            _ => return Some(text),
        }
    }
}

/// What is behind a comment, which may hold others.
fn skip_comment(mut text: &[u8]) -> Option<&[u8]> {
    let mut depth = 1_u32;
    loop {
        text = match text {
            [] => return None,
            [0, ..] => return Some(text),
            [b'*', b'/', rest @ ..] => {
                depth -= 1;
                if depth == 0 {
                    return Some(rest);
                }
                rest
            }
            [b'/', b'*', rest @ ..] => {
                depth += 1;
                rest
            }
            [_, rest @ ..] => rest,
        }
    }
}

/// The letters that the text begins with, and what is behind them. None if they may go on.
fn first_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().take(WORD_BYTES + 1).position(|byte| !byte.is_ascii_alphabetic() && *byte != b'_');
    match end {
        Some(end) => Some(text.split_at(end)),
        None if text.len() > WORD_BYTES => Some((&[], text)),
        None => None,
    }
}

/// What a statement may change whose text, up to a NUL, is here whole and is looked through once.
pub(crate) fn effects_of_whole(text: &[u8]) -> Effects {
    let known = effects(text).unwrap_or(Effects::CALLS);
    let hidden = match sql::plainly_hides_nothing(text) {
        true => Effects::NONE,
        false => Effects::of_judged(sql::judged_effect(text)),
    };
    let known = known.and(hidden).and(Effects::of_names(text));
    let known = if known.any(Effects::SETTINGS) { known.and(Effects::of_reading(text)) } else { known };
    let has = |word| contains_word(text, word).next().is_some();
    match has(b"set_config") {
        true => known.and(SETS),
        false if runs_other_sql(text) || has(b"execute") || has(b"pg_settings") => known.unseen_calls(),
        false => known,
    }
}

/// The text does not tell what it runs: the query of a cursor, or functions whose names are escaped.
fn runs_other_sql(text: &[u8]) -> bool {
    let word = skip_blanks(text).and_then(first_word).map_or(&b""[..], |(word, _)| word);
    let is_cursor = [&b"fetch"[..], b"move"].iter().any(|known| word.eq_ignore_ascii_case(known));
    is_cursor || text.windows(3).any(|part| part.eq_ignore_ascii_case(b"u&\""))
}

/// Whether the text may hold a literal that stands for the time of Parse ('now', 'tomorrow 12:00').
pub(crate) fn has_clock_literal(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = &text[..end];
    let Some(quote) = text.iter().position(|byte| matches!(byte, b'\'' | b'$')) else { return false };
    let text = &text[quote..];
    let is_call = |behind: usize| text[behind..].trim_ascii_start().starts_with(b"(");
    [&b"now"[..], b"today", b"tomorrow", b"yesterday"]
        .iter()
        .any(|word| contains_word(text, word).any(|at| !is_call(at + word.len())))
}

/// Where a word, of whatever case, stands in a text.
fn contains_word<'a>(text: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let stands_alone = move |at: usize| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !before.is_some_and(is_part) && !text.get(at + word.len()).is_some_and(is_part)
    };
    let found = text.windows(word.len()).enumerate();
    found
        .filter(|(_, part)| part.eq_ignore_ascii_case(word))
        .map(|(at, _)| at)
        .filter(move |at| stands_alone(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Effects = SETS.and(Effects::STATEMENTS);

    #[test]
    fn a_command_is_known_by_its_first_word() {
        for (text, known) in [
            (&b"deallocate all\0\0\0"[..], Some(ALL)),
            (b"  \nDISCARD ALL\0", Some(ALL)),
            (b"Prepare x as select 1\0", Some(ALL)),
            (b";deallocate all\0", Some(ALL)),
            (b" ; -- why\n; /* a /* b */ c */ deallocate all\0", Some(ALL)),
            (b"/* why */ select 1\0", Some(Effects::CALLS)),
            (b"-- why\nselect 1\0", Some(Effects::CALLS)),
            (b"-- deallocate all\0", Some(Effects::NONE)),
            (b"/* deallocate all\0", Some(Effects::NONE)),
            (b"SET TimeZone = 'UTC'\0", Some(SETS)),
            (b"set_x\0", Some(Effects::CALLS)),
            (b"rollback\0", Some(SETS)),
            (b"select set_config('a', 'b', true)\0", Some(SETS)),
            (b"select  pg_catalog.SET_CONFIG('a', 'b', true)\0", Some(SETS)),
            (b"select sum(x) from t\0", Some(Effects::CALLS)),
            (b"select * from t\0", Some(Effects::CALLS)),
            (b"(select 1)\0", Some(Effects::CALLS)),
            (b"delete from deallocate\0", Some(Effects::CALLS)),
            (b"begin\0", Some(Effects::NONE)),
            (b"\0", Some(Effects::NONE)),
            (b"select s", None),
            (b"select pg_cat", None),
            (b"select", None),
            (b"de", None),
            (b"/", None),
            (b"-- a", None),
            (b"/* a", None),
            (b"  ", None),
            (b"", None),
        ] {
            assert_eq!(effects(text), known, "{}", String::from_utf8_lossy(text));
        }
        let seen = effects_of_whole(b"with x as (select Set_Config('a', 'b', true)) table x\0");
        assert_eq!(seen, SETS.and(Effects::ANYTHING), "a function in a common table expression");
    }

    #[test]
    fn what_the_parser_reads_and_no_server_reports_is_known() {
        for (text, reads) in [
            (&b"SET LOCAL search_path = a"[..], true),
            (b"set schema 'a'", true),
            (b"select set_config('Search_Path', $1, true)", true),
            (b"select set_config($1, $2, true)", true),
            (b"set role a", true),
            (b"set local statement_timeout = 1", false),
            (b"select set_config('a.b', $1, true)", false),
            (b"rollback", false),
            (b"select search_path from t", false),
        ] {
            let found = effects_of_whole(text).any(Effects::READS);
            assert_eq!(found, reads, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_command_that_runs_other_sql_is_known_by_its_whole_text() {
        for (text, runs) in [
            (&b"-- next\n Fetch 10 from c\0"[..], true),
            (b"move c\0", true),
            (b"EXECUTE e(1)\0", true),
            (b"create table t as execute e\0", true),
            (b"select 1, u&\"\\0073et_config\"('a', 'b', true)\0", true),
            (b"update Pg_Settings set setting = 'b' where name = 'a'\0", true),
            (b"select * from t fetch first 10 rows only\0", false),
            (b"select a from executed\0", false),
            (b"select U&'\\0061'\0", false),
        ] {
            let known = if runs { Effects::CALLS.and(Effects::UNSEEN) } else { Effects::CALLS };
            let others = Effects::NOTED.and(Effects::NAMES).and(Effects::COPIES);
            let seen = Effects(effects_of_whole(text).0 & !others.0);
            assert_eq!(seen, known, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn what_may_copy_from_the_client_is_known_by_its_first_word() {
        for (text, copies) in [
            (&b"copy t from stdin\0"[..], true),
            (b" /* all */ COPY t FROM STDIN\0", true),
            (b"execute c\0", true),
            (b"select copy from t\0", false),
            (b"insert into copy values (1)\0", false),
        ] {
            let found = effects_of_whole(text).any(Effects::COPIES);
            assert_eq!(found, copies, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_literal_of_the_time_of_parse_is_known_and_a_function_is_none() {
        for (text, known) in [
            (&b"select 'now'::timestamptz\0"[..], true),
            (b"select date 'Today'\0", true),
            (b"select ' tomorrow 12:00'::timestamp\0", true),
            (b"select $$yesterday$$::date\0", true),
            (b"select now(), 'x'\0", false),
            (b"select 'x', now ()\0", false),
            (b"select 'known', 'nowhere'\0", false),
            (b"select today from t\0", false),
            (b"select 'x'\0now\0\0", false),
        ] {
            assert_eq!(has_clock_literal(text), known, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_long_text_of_such_words_is_looked_through_once() {
        let mut text = b"now ".repeat(1 << 20); // Minutes, if each word had what is before it looked through.
        text.extend(b"'\0");
        assert!(!has_clock_literal(&text));
    }
}
