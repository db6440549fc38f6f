//! The lines of a file in PgBouncer's ini dialect: sections, assignments, `%include`, comments.
//! Owns where a statement begins and ends. Knows no names and no values.
//!
//! A comment is a whole line (`;` or `#` first); after a value it is part of the value, as in PgBouncer.

use crate::identifier::unquote;
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

/// A syntax error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyntaxError {
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

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SyntaxError::NotText => "syntax error: not UTF-8 text",
            SyntaxError::NoBracket => "syntax error: \"[\" without \"]\"",
            SyntaxError::NoQuote => "syntax error: name in quotes does not end",
            SyntaxError::NoName => "syntax error: expected a section, a name or a comment",
            SyntaxError::NoEquals => "syntax error: expected \"=\" after the name",
        })
    }
}

/// A parsed line with its number, from 1.
pub(crate) type Line<'a> = (u32, Result<Statement<'a>, SyntaxError>);

/// Every statement and every syntax error of a file.
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
fn statement(line: &[u8]) -> (Result<Statement<'_>, SyntaxError>, &[u8]) {
    let (line, text) = match std::str::from_utf8(line) {
        Ok(text) if !text.contains('\0') => (line, text),
        _ => return (Err(SyntaxError::NotText), b""),
    };
    if let Some(inside) = text.strip_prefix('[') {
        return match inside.find(']') {
            Some(end) => (Ok(Statement::Section(&inside[..end])), &line[end + 2..]),
            None => (Err(SyntaxError::NoBracket), b""),
        };
    }
    if let Some(path) = text.strip_prefix("%include").filter(|path| path.starts_with([' ', '\t'])) {
        return (Ok(Statement::Include(path.trim_matches([' ', '\t']))), b"");
    }
    (assignment(text), b"")
}

/// `key = value` or `'quoted key' = value`, or with the key quoted as SQL quotes names (PgBouncer's manual documents that for
/// databases; its parser takes single quotes).
fn assignment(text: &str) -> Result<Statement<'_>, SyntaxError> {
    let (key, rest) = if let Some(quoted) = text.strip_prefix('"') {
        let (key, rest) = unquote(quoted, '"').ok_or(SyntaxError::NoQuote)?;
        (Cow::Owned(key), rest)
    } else if let Some(quoted) = text.strip_prefix('\'') {
        let (key, rest) = quoted.split_once('\'').ok_or(SyntaxError::NoQuote)?;
        (Cow::Borrowed(key), rest)
    } else {
        let end = text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len());
        let (key, rest) = text.split_at(end);
        (Cow::Borrowed(key), rest)
    };
    if key.is_empty() {
        return Err(SyntaxError::NoName);
    }
    let value = rest.trim_start_matches([' ', '\t']).strip_prefix('=').ok_or(SyntaxError::NoEquals)?;
    Ok(Statement::Assign { key, value: value.trim_start_matches([' ', '\t']) })
}

/// What a name may consist of without quotes.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-*".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Result<Statement<'_>, SyntaxError> {
        let mut found = statements(text.as_bytes());
        assert_eq!(found.len(), 1, "{text:?}");
        found.remove(0).1
    }

    fn assign<'a>(key: &'a str, value: &'a str) -> Result<Statement<'a>, SyntaxError> {
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
        assert_eq!(only(r#""open = x"#), Err(SyntaxError::NoQuote));
        assert_eq!(only(r#""" = x"#), Err(SyntaxError::NoName));
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
        assert_eq!(only("%includes x"), Err(SyntaxError::NoName));
    }

    #[test]
    fn every_fault_is_named_and_numbered() {
        let text = b"[a\n'b = c\n= d\ne\n f g = h\n\xff = 1\na = \0\nok = 1";
        let faults: Vec<_> = statements(text).into_iter().map(|(line, found)| (line, found.err())).collect();
        let expected = [
            (1, Some(SyntaxError::NoBracket)),
            (2, Some(SyntaxError::NoQuote)),
            (3, Some(SyntaxError::NoName)),
            (4, Some(SyntaxError::NoEquals)),
            (5, Some(SyntaxError::NoEquals)),
            (6, Some(SyntaxError::NotText)),
            (7, Some(SyntaxError::NotText)),
            (8, None),
        ];
        assert_eq!(faults, expected);
    }
}
