//! The lines of a file in PgBouncer's ini dialect: sections, assignments, `%include`, comments.
//! Owns where a statement begins and ends. Never knows which names exist nor what a value means.
//!
//! A comment is a whole line (`;` or `#` first); after a value it is part of the value, as in PgBouncer.

use crate::quote::unquote;
use std::borrow::Cow;
use std::fmt;

/// One statement of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Statement<'a> {
    /// `[name]`
    Section(&'a str),
    /// `%include path`
    Include(&'a str),
    /// `key = value`, where the value goes to the end of the line.
    Assign {
        /// Bare, or between quotes, which are gone here.
        key: Cow<'a, str>,
        /// Without the blanks around it.
        value: &'a str,
    },
}

/// Why a line is no statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Bytes that are not UTF-8, or a zero byte.
    NotText,
    /// `[` without `]`.
    NoBracket,
    /// A quote without a second one.
    NoQuote,
    /// Neither a name nor anything else that may begin a line.
    NoName,
    /// A name without `=`.
    NoEquals,
}

impl fmt::Display for Syntax {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Syntax::NotText => "syntax error: not UTF-8 text",
            Syntax::NoBracket => "syntax error: \"[\" without \"]\"",
            Syntax::NoQuote => "syntax error: name in quotes does not end",
            Syntax::NoName => "syntax error: expected a section, a name or a comment",
            Syntax::NoEquals => "syntax error: expected \"=\" after the name",
        })
    }
}

/// What stands in a line, with its number from 1 on.
pub(crate) type Line<'a> = (u32, Result<Statement<'a>, Syntax>);

/// Every statement of a file, and every line that is none.
pub(crate) fn statements(bytes: &[u8]) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let mut rest = line.trim_ascii();
        while !matches!(rest.first(), None | Some(b';' | b'#')) {
            let (statement, after) = statement(rest);
            found.push((number, statement));
            rest = after.trim_ascii();
        }
    }
    found
}

/// The first statement of a line that has one, and what follows it: only a section leaves anything.
fn statement(line: &[u8]) -> (Result<Statement<'_>, Syntax>, &[u8]) {
    let (line, text) = match std::str::from_utf8(line) {
        Ok(text) if !text.contains('\0') => (line, text),
        _ => return (Err(Syntax::NotText), b""),
    };
    if let Some(inside) = text.strip_prefix('[') {
        return match inside.find(']') {
            Some(end) => (Ok(Statement::Section(&inside[..end])), &line[end + 2..]),
            None => (Err(Syntax::NoBracket), b""),
        };
    }
    if let Some(path) = text.strip_prefix("%include").filter(|path| path.starts_with([' ', '\t'])) {
        return (Ok(Statement::Include(path.trim_matches([' ', '\t']))), b"");
    }
    (assignment(text), b"")
}

/// `key = value` or `'quoted key' = value`, or with the key quoted as SQL quotes names (PgBouncer's manual says so of
/// databases; its parser takes single quotes).
fn assignment(text: &str) -> Result<Statement<'_>, Syntax> {
    let (key, rest) = if let Some(quoted) = text.strip_prefix('"') {
        let (key, rest) = unquote(quoted, '"').ok_or(Syntax::NoQuote)?;
        (Cow::Owned(key), rest)
    } else if let Some(quoted) = text.strip_prefix('\'') {
        let (key, rest) = quoted.split_once('\'').ok_or(Syntax::NoQuote)?;
        (Cow::Borrowed(key), rest)
    } else {
        let end = text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len());
        let (key, rest) = text.split_at(end);
        (Cow::Borrowed(key), rest)
    };
    if key.is_empty() {
        return Err(Syntax::NoName);
    }
    let value = rest.trim_start_matches([' ', '\t']).strip_prefix('=').ok_or(Syntax::NoEquals)?;
    Ok(Statement::Assign { key, value: value.trim_start_matches([' ', '\t']) })
}

/// What a name may consist of without quotes.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-*".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Result<Statement<'_>, Syntax> {
        let mut found = statements(text.as_bytes());
        assert_eq!(found.len(), 1, "{text:?}");
        found.remove(0).1
    }

    fn assign<'a>(key: &'a str, value: &'a str) -> Result<Statement<'a>, Syntax> {
        Ok(Statement::Assign { key: key.into(), value })
    }

    #[test]
    fn blanks_around_names_and_values_do_not_count() {
        assert_eq!(only("    a = b c \r"), assign("a", "b c"));
        assert_eq!(only("p1="), assign("p1", ""));
        assert_eq!(only("p1 = "), assign("p1", ""));
        assert_eq!(only("\t[databases]\t"), Ok(Statement::Section("databases")));
    }

    #[test]
    fn names_may_be_odd_or_quoted() {
        assert_eq!(only("a-b.c_1 = x"), assign("a-b.c_1", "x"));
        assert_eq!(only("* = host=h"), assign("*", "host=h"));
        assert_eq!(only("'name with = sign' = x"), assign("name with = sign", "x"));
        assert_eq!(only(r#""Mixed ""Case"" é" = x"#), assign(r#"Mixed "Case" é"#, "x"));
        assert_eq!(only(r#""open = x"#), Err(Syntax::NoQuote));
        assert_eq!(only(r#""" = x"#), Err(Syntax::NoName));
    }

    #[test]
    fn a_comment_is_a_whole_line() {
        assert!(statements(b"; a = b\n  # c = d\n\n   \n").is_empty());
        assert_eq!(only("a = b ; c # d"), assign("a", "b ; c # d"));
    }

    #[test]
    fn a_section_may_be_followed_on_its_line() {
        let found = statements(b"[users] a = b\n[x];comment");
        assert_eq!(found[0], (1, Ok(Statement::Section("users"))));
        assert_eq!(found[1], (1, assign("a", "b")));
        assert_eq!(found[2], (2, Ok(Statement::Section("x"))));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn include_needs_a_blank_after_it() {
        assert_eq!(only("%include  /etc/a b.ini "), Ok(Statement::Include("/etc/a b.ini")));
        assert_eq!(only("%includes x"), Err(Syntax::NoName));
    }

    #[test]
    fn every_fault_is_named_and_numbered() {
        let text = b"[a\n'b = c\n= d\ne\n f g = h\n\xff = 1\na = \0\nok = 1";
        let faults: Vec<_> = statements(text).into_iter().map(|(line, found)| (line, found.err())).collect();
        let expected = [
            (1, Some(Syntax::NoBracket)),
            (2, Some(Syntax::NoQuote)),
            (3, Some(Syntax::NoName)),
            (4, Some(Syntax::NoEquals)),
            (5, Some(Syntax::NoEquals)),
            (6, Some(Syntax::NotText)),
            (7, Some(Syntax::NotText)),
            (8, None),
        ];
        assert_eq!(faults, expected);
    }
}
