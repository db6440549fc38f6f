//! The value of an entry of `[databases]` and `[users]`: `key=value key = 'value'`, as a connection string.
//! Owns quoting. Never knows which keys exist.

use crate::quote::unquote;
use std::fmt;

/// Why a text is no list of pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Something that should be a key is not followed by `=`.
    NoEquals(String),
    /// Nothing stands before `=`.
    NoKey,
    /// A key has no value, or the empty one, which PgBouncer does not allow here.
    NoValue(String),
    /// A value begins with a quote and does not end with one.
    NoQuote(String),
    /// A quoted value is followed by something else than a blank.
    AfterQuote(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::NoEquals(key) => write!(out, "syntax error: expected \"=\" after \"{key}\""),
            Broken::NoKey => out.write_str("syntax error: expected a name before \"=\""),
            Broken::NoValue(key) => write!(out, "syntax error: {key} has no value"),
            Broken::NoQuote(key) => write!(out, "syntax error: the quoted value of {key} does not end"),
            Broken::AfterQuote(key) => {
                write!(out, "syntax error: expected a blank after the quoted value of {key}")
            }
        }
    }
}

/// A blank between pairs.
const BLANK: [char; 2] = [' ', '\t'];

/// The pairs of a text in their order, values without their quotes.
pub(crate) fn pairs(text: &str) -> Result<Vec<(&str, String)>, Broken> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (key, after_key) =
            rest.split_at(rest.find(|byte| byte == '=' || BLANK.contains(&byte)).unwrap_or(rest.len()));
        if key.is_empty() {
            return Err(Broken::NoKey);
        }
        let after_key = after_key.trim_start_matches(BLANK);
        let value = after_key.strip_prefix('=').ok_or_else(|| Broken::NoEquals(key.to_owned()))?;
        let (value, after_value) = value_of(key, value.trim_start_matches(BLANK))?;
        found.push((key, value));
        rest = after_value.trim_start_matches(BLANK);
    }
    Ok(found)
}

/// The value at the beginning of a text, and what follows it.
fn value_of<'a>(key: &str, text: &'a str) -> Result<(String, &'a str), Broken> {
    let (value, rest) = match text.strip_prefix('\'') {
        Some(quoted) => {
            let (value, rest) = unquote(quoted, '\'').ok_or_else(|| Broken::NoQuote(key.to_owned()))?;
            if !rest.is_empty() && !rest.starts_with(BLANK) {
                return Err(Broken::AfterQuote(key.to_owned()));
            }
            (value, rest)
        }
        None => {
            let (value, rest) = text.split_at(text.find(BLANK).unwrap_or(text.len()));
            (value.to_owned(), rest)
        }
    };
    if value.is_empty() { Err(Broken::NoValue(key.to_owned())) } else { Ok((value, rest)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spelled(text: &str) -> Vec<(String, String)> {
        pairs(text).unwrap().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn blanks_may_stand_anywhere_between() {
        let expected = [pair("host", "h"), pair("port", "1"), pair("dbname", "d")];
        assert_eq!(spelled(" host=h port = 1\tdbname= d "), expected);
        assert!(spelled("").is_empty());
    }

    #[test]
    fn quotes_hold_blanks_and_doubled_quotes() {
        assert_eq!(
            spelled("connect_query='set x = ''y''' a=b"),
            [pair("connect_query", "set x = 'y'"), pair("a", "b")]
        );
        assert_eq!(spelled("password=it's"), [pair("password", "it's")]);
    }

    #[test]
    fn every_fault_names_its_key() {
        assert_eq!(pairs("host"), Err(Broken::NoEquals("host".to_owned())));
        assert_eq!(pairs("a=b host x=y"), Err(Broken::NoEquals("host".to_owned())));
        assert_eq!(pairs("=b"), Err(Broken::NoKey));
        assert_eq!(pairs("a="), Err(Broken::NoValue("a".to_owned())));
        assert_eq!(pairs("a=''"), Err(Broken::NoValue("a".to_owned())));
        assert_eq!(pairs("a='b"), Err(Broken::NoQuote("a".to_owned())));
        assert_eq!(pairs("a='b'c=d"), Err(Broken::AfterQuote("a".to_owned())));
    }
}
