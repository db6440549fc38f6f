//! Texts that change nothing unseen in their session, told at one glance, because each query is asked.
//!
//! Owns what is seen without tokens: one SELECT, UPDATE or DELETE without a parenthesis, an INSERT of rows of plain values, and the commands that begin
//! and end a transaction. A text that is not seen to be plain may change nothing all the same: that is `hidden`'s to judge.

use std::ffi::CStr;

use memchr::{memchr_iter, memchr2_iter, memchr3_iter};

/// The text, up to a NUL if it has one, is one statement in which nothing is called. If not, it may be such a text all the same.
///
/// ```
/// use sql::plainly_hides_nothing;
///
/// assert!(plainly_hides_nothing(b"SELECT abalance FROM pgbench_accounts WHERE aid = 1;"));
/// assert!(plainly_hides_nothing(b"INSERT INTO t (a, b) VALUES (1, 'x'), (2, NULL)"));
/// assert!(plainly_hides_nothing(b"COMMIT"));
/// assert!(!plainly_hides_nothing(b"INSERT INTO t VALUES (mine(1))"));
/// ```
#[inline]
#[must_use]
pub fn plainly_hides_nothing(text: &[u8]) -> bool {
    let text = statement(text);
    match Beginning::of(text) {
        Beginning::Select => !has_any_sign(text) && !has_into(text),
        Beginning::Modify => !has_any_sign(text) && !names_settings(text),
        Beginning::Insert => inserts_plain_values(text),
        Beginning::Other => is_of_transaction(text),
    }
}

/// What stands before the NUL, without the semicolon behind it.
#[inline]
pub(crate) fn statement(text: &[u8]) -> &[u8] {
    let text = match text {
        // A Query; a Parse without types of parameters; a Parse with them.
        [text @ .., 0, 0, 0] | [text @ .., 0] => text,
        text => CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes),
    };
    text.strip_suffix(b";").unwrap_or(text)
}

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    Select,
    /// UPDATE or DELETE.
    Modify,
    Insert,
    Other,
}

impl Beginning {
    /// The first word with a blank behind it, in whatever case; one comparison for each word.
    #[inline]
    pub(crate) fn of(text: &[u8]) -> Beginning {
        const CASE: u64 = u64::from_be_bytes([0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0, 0]);
        const BLANK_ONLY: u64 = u64::from_be_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]);
        const SELECT: u64 = u64::from_be_bytes(*b"select \0");
        const UPDATE: u64 = u64::from_be_bytes(*b"update \0");
        const DELETE: u64 = u64::from_be_bytes(*b"delete \0");
        const INSERT: u64 = u64::from_be_bytes(*b"insert \0");
        let Some(head) = text.first_chunk::<8>() else { return Beginning::Other };
        match (u64::from_be_bytes(*head) | CASE) & BLANK_ONLY {
            SELECT => Beginning::Select,
            UPDATE | DELETE => Beginning::Modify,
            INSERT => Beginning::Insert,
            _ => Beginning::Other,
        }
    }
}

/// It names the view pg_settings, whose rule for UPDATE sets parameters.
#[inline]
pub(crate) fn names_settings(text: &[u8]) -> bool {
    memchr_iter(b'_', text).any(|at| {
        let name = at.checked_sub(2).and_then(|start| text.get(start..at + 9));
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"pg_settings"))
    })
}

/// Which signs stand somewhere in a text: one pass over its bytes, by the processor's wide registers.
#[derive(Clone, Copy, Default)]
struct Signs {
    /// `(`, `;` or `&`.
    calls: bool,
    /// `]` or `$`.
    values: bool,
    /// `.`, or `-` and `/`, which begin comments.
    dots: bool,
}

impl Signs {
    #[inline]
    fn of(text: &[u8]) -> Signs {
        const PLACES: usize = 16;
        let (mut calls, mut values, mut dots) = ([0_u8; PLACES], [0_u8; PLACES], [0_u8; PLACES]);
        let mut note = |part: &[u8; PLACES]| {
            for (place, byte) in part.iter().enumerate() {
                calls[place] |= u8::from(*byte == b'(') | u8::from(*byte == b';') | u8::from(*byte == b'&');
                values[place] |= u8::from(*byte == b']') | u8::from(*byte == b'$');
                // They stand next to each other in ASCII.
                dots[place] |= u8::from(byte.wrapping_sub(b'-') < 3);
            }
        };
        let (parts, rest) = text.as_chunks::<PLACES>();
        parts.iter().for_each(&mut note);
        if let Some(last) = text.last_chunk::<PLACES>() {
            note(last);
        } else {
            let mut last = [0; PLACES];
            last[..rest.len()].copy_from_slice(rest);
            note(&last);
        }
        let any = |found: [u8; PLACES]| u128::from_ne_bytes(found) != 0;
        Signs { calls: any(calls), values: any(values), dots: any(dots) }
    }
}

/// A parenthesis, a further statement, the sign of `U&"..."`, or a function in the notation of a field, as `a[1].f` and `$1.f`.
#[inline]
pub(crate) fn has_any_sign(text: &[u8]) -> bool {
    let signs = Signs::of(text);
    signs.calls || signs.values && signs.dots && has_field(text)
}

/// A dot, or a comment that may stand in front of one, is behind a bracket that closes or behind a parameter.
fn has_field(text: &[u8]) -> bool {
    memchr2_iter(b']', b'$', text).any(|at| {
        let behind = &text[at + 1..];
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let blanks = behind[digits..].iter().take_while(is_blank).count();
        matches!(behind[digits + blanks..], [b'.' | b'-' | b'/', ..])
    })
}

/// The letters INTO stand somewhere, in whatever case.
#[inline]
pub(crate) fn has_into(text: &[u8]) -> bool {
    /// Places that are looked at together, by the processor's wide registers.
    const PLACES: usize = 16;
    const WINDOW: usize = PLACES + 3;
    let into = |[i, n, t, o]: [u8; 4]| {
        ((i | 0x20) == b'i') & ((n | 0x20) == b'n') & ((t | 0x20) == b't') & ((o | 0x20) == b'o')
    };
    let in_window = |window: &[u8; WINDOW]| {
        let mut found = [0_u8; PLACES];
        for (place, found) in found.iter_mut().enumerate() {
            *found = u8::from(into([window[place], window[place + 1], window[place + 2], window[place + 3]]));
        }
        u128::from_ne_bytes(found) != 0
    };
    let Some(last) = text.last_chunk::<WINDOW>() else {
        return text.array_windows::<4>().any(|letters| into(*letters));
    };
    let mut rest = text;
    while let Some(window) = rest.first_chunk::<WINDOW>() {
        if in_window(window) {
            return true;
        }
        rest = &rest[PLACES..];
    }
    in_window(last)
}

/// `INSERT INTO name VALUES (…), (…)`, perhaps with a list of columns, and no other parenthesis; no comment either, which could stand between a name and
/// what is called.
fn inserts_plain_values(text: &[u8]) -> bool {
    const INTO: usize = b"insert into ".len();
    let has_comment =
        || memchr2_iter(b'-', b'/', text).any(|at| matches!(text[at..], [b'-', b'-', ..] | [b'/', b'*', ..]));
    let signs = Signs::of(text);
    if !text.get(6..INTO).is_some_and(|into| into.eq_ignore_ascii_case(b" into "))
        || signs.dots && (has_comment() || signs.values && has_field(text))
    {
        return false;
    }
    let mut is_first = true;
    memchr3_iter(b'(', b';', b'&', text).all(|at| {
        let before = text[..at].trim_ascii_end();
        let is_first = std::mem::replace(&mut is_first, false);
        text[at] == b'(' && (begins_row(before) || is_first && is_name(&before[INTO.min(before.len())..]))
    })
}

/// VALUES, or another row and a comma, is what stands before.
fn begins_row(before: &[u8]) -> bool {
    match before {
        [before @ .., b','] => before.trim_ascii_end().ends_with(b")"),
        _ => before.split_last_chunk::<6>().is_some_and(|(before, word)| {
            word.eq_ignore_ascii_case(b"values")
                && before.last().is_some_and(|byte| matches!(byte, b' ' | b')' | b'\n'))
                && !before.trim_ascii_end().ends_with(b".")
        }),
    }
}

/// The name of a table, perhaps with its schema's, without quotes.
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

/// BEGIN, END, COMMIT or ROLLBACK.
pub(crate) fn is_of_transaction(text: &[u8]) -> bool {
    match text.len() {
        3 => text.eq_ignore_ascii_case(b"end"),
        5 => text.eq_ignore_ascii_case(b"begin"),
        6 => text.eq_ignore_ascii_case(b"commit"),
        8 => text.eq_ignore_ascii_case(b"rollback"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_texts_are_seen_at_one_glance() {
        for text in [
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
            "select 1 ",
            "UPDATE pgbench_accounts SET abalance = abalance + -5 WHERE aid = 1;\0",
            "DELETE FROM t WHERE a = $1\0\0\x01\0\0\0\x17",
            "SELECT a FROM t WHERE a = $1;\0\0\0",
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 2, 3, -4, CURRENT_TIMESTAMP);",
            "insert into s.t values (1, 'a') , (2, 'b')",
            "insert into t (a)values(1) returning a",
            "select a[1], b[2:3] from t where c = $1",
            "BEGIN;",
            "End",
            "commit\0",
            "rollback;\0",
        ] {
            assert!(plainly_hides_nothing(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_may_call_something_is_not_plain() {
        for text in [
            "SELECT mine()",
            "SELECT a, b FROM pgbench_accounts WHERE aid = 12345 ; SELECT 1",
            "SELECT a, b inTO temporary_table_of_mine FROM t",
            "SELECT a, b, c, d, e, f, g, h, i, j, k, l, m, n FROM t into",
            "select into",
            "INSERT INTO t (a) VALUES (mine(1))",
            "INSERT INTO t VALUES (1, (2))",
            "INSERT INTO t VALUES (1), (mine (1))",
            "INSERT INTO t SELECT mine(1)",
            "INSERT INTO t (a) SELECT s.values (1)",
            "INSERT INTO t (a) SELECT s. values (1)",
            "INSERT INTO t (a) VALUES (1) RETURNING f --\n values\n (1)",
            "INSERT INTO t (a) VALUES (1) RETURNING f /* values */ (1)",
            "INSERT INTO t (a) VALUES (1); CALL p",
            "INSERT INTO \"t\" (a) VALUES (1)",
            "INSERT INTO t AS u (a) VALUES (1)",
            "CALL mine",
            "select a[1].mine from t",
            "select a[1] \u{b}. mine from t",
            "select a[1]/**/.mine from t",
            "update t set a = $1.mine",
            "select $12 .mine",
            "update pg_settings set setting = 'a'",
            "UPDATE  \"pg_catalog\".pg_settings SET setting = 'a'",
            "update only pg_settings set setting = 'a'",
            "update /**/ pg_settings set setting = 'a'",
            "update app.pg_catalog.pg_settings set setting = 'a'",
            "update \u{b}pg_settings set setting = 'a'",
            "insert into t (a) values ($1.mine)",
            "insert into t (a) values (1) returning b[2].mine",
            "begin work",
            "",
            "\0",
        ] {
            assert!(!plainly_hides_nothing(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn into_is_found_wherever_it_stands() {
        for before in 0..70 {
            for after in 0..40 {
                let text = format!("{}iNtO{}", "n".repeat(before), "t".repeat(after));
                assert!(has_into(text.as_bytes()), "{text}");
                assert!(!has_into(text.replace('O', "").as_bytes()), "{text}");
            }
        }
    }
}
