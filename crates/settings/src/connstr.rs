//! The value of an entry of `[databases]` and `[users]`: `key=value key = 'value'`, as a connection string.
//! Owns quoting. Never knows which keys exist.

use crate::identifier::unquote;

/// A syntax error in a list of pairs. Its message never repeats a value or anything that may be part of one: an unquoted
/// password with a blank continues as if it were the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairError {
    why: PairErrorKind,
    /// The text found where a key was expected.
    key: String,
    /// The keys before it.
    before: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairErrorKind {
    /// Something that should be a key is not followed by `=`.
    NoEquals,
    /// No key before `=`.
    NoKey,
    /// A key has no value, or the empty one, which PgBouncer does not allow here.
    NoValue,
    /// A value begins with a quote and does not end with one.
    NoQuote,
    /// A quoted value is followed by something else than a blank.
    AfterQuote,
}

impl PairError {
    /// The message. `is_known` tells which keys exist.
    pub(crate) fn text(&self, is_known: impl Fn(&str) -> bool) -> String {
        let is_key = is_known(&self.key);
        let key = if is_key || may_be_repeated(&self.key, self.before.iter().map(String::as_str)) {
            self.key.as_str()
        } else {
            "an unknown parameter"
        };
        match self.why {
            PairErrorKind::NoEquals if is_key => format!("syntax error: expected \"=\" after \"{key}\""),
            PairErrorKind::NoEquals => {
                let last = self.before.last().filter(|last| is_known(last));
                let place = last.map(|last| format!(" after the value of {last}")).unwrap_or_default();
                format!("syntax error: expected NAME=VALUE{place} (a value with blanks needs quotes)")
            }
            PairErrorKind::NoKey => "syntax error: expected a name before \"=\"".to_owned(),
            PairErrorKind::NoValue => format!("syntax error: {key} has no value"),
            PairErrorKind::NoQuote => format!("syntax error: the quoted value of {key} does not end"),
            PairErrorKind::AfterQuote => {
                format!("syntax error: expected a blank after the quoted value of {key}")
            }
        }
    }
}

/// Whether an error may repeat an unknown key: it looks like one, and is not behind a password, of which it may be a part.
pub(crate) fn may_be_repeated<'a>(key: &str, mut before: impl Iterator<Item = &'a str>) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    key.bytes().all(is_name) && !before.any(|key| key == PASSWORD)
}

/// The key whose value is a secret.
pub(crate) const PASSWORD: &str = "password";

/// A blank between pairs.
const BLANK: [char; 2] = [' ', '\t'];

/// The pairs of a text in their order, values without their quotes.
pub(crate) fn pairs(text: &str) -> Result<Vec<(&str, String)>, PairError> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (key, after_key) =
            rest.split_at(rest.find(|byte| byte == '=' || BLANK.contains(&byte)).unwrap_or(rest.len()));
        match pair(key, after_key) {
            Ok((value, after_value)) => {
                found.push((key, value));
                rest = after_value.trim_start_matches(BLANK);
            }
            Err(why) => {
                let before = found.iter().map(|(key, _)| (*key).to_owned()).collect();
                return Err(PairError { why, key: key.to_owned(), before });
            }
        }
    }
    Ok(found)
}

/// The value of a key, of which this follows, and what follows the value.
fn pair<'a>(key: &str, after_key: &'a str) -> Result<(String, &'a str), PairErrorKind> {
    if key.is_empty() {
        return Err(PairErrorKind::NoKey);
    }
    let value = after_key.trim_start_matches(BLANK).strip_prefix('=').ok_or(PairErrorKind::NoEquals)?;
    let text = value.trim_start_matches(BLANK);
    let (value, rest) = match text.strip_prefix('\'') {
        Some(quoted) => {
            let (value, rest) = unquote(quoted, '\'').ok_or(PairErrorKind::NoQuote)?;
            if !rest.is_empty() && !rest.starts_with(BLANK) {
                return Err(PairErrorKind::AfterQuote);
            }
            (value, rest)
        }
        None => {
            let (value, rest) = text.split_at(text.find(BLANK).unwrap_or(text.len()));
            (value.to_owned(), rest)
        }
    };
    if value.is_empty() { Err(PairErrorKind::NoValue) } else { Ok((value, rest)) }
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

    fn text(of: &str) -> String {
        pairs(of).unwrap_err().text(|key| ["host", "password"].contains(&key))
    }

    #[test]
    fn every_fault_names_its_key() {
        let broken = |text: &str| pairs(text).map_err(|broken| (broken.why, broken.key)).unwrap_err();
        assert_eq!(broken("host"), (PairErrorKind::NoEquals, "host".to_owned()));
        assert_eq!(broken("a=b host x=y"), (PairErrorKind::NoEquals, "host".to_owned()));
        assert_eq!(broken("=b"), (PairErrorKind::NoKey, String::new()));
        assert_eq!(broken("a="), (PairErrorKind::NoValue, "a".to_owned()));
        assert_eq!(broken("a=''"), (PairErrorKind::NoValue, "a".to_owned()));
        assert_eq!(broken("a='b"), (PairErrorKind::NoQuote, "a".to_owned()));
        assert_eq!(broken("a='b'c=d"), (PairErrorKind::AfterQuote, "a".to_owned()));
        assert_eq!(text("host"), "syntax error: expected \"=\" after \"host\"");
        assert_eq!(text("prot="), "syntax error: prot has no value");
        assert_eq!(text("password='x"), "syntax error: the quoted value of password does not end");
    }

    #[test]
    fn what_may_be_a_value_is_not_repeated() {
        for broken in [
            "secret",
            "host=h password=my secret",
            "host=h password=my secret dbname=t",
            "password='it' secret",
            "password='it'secret",
            "password=my secret=",
            "password=my secret='",
            "password=my secret=''",
            "password=my next=1 secret=",
            "postgres://u:secret@h/db",
            "postgres://u:secret@h/db?a=",
            "secret'=",
        ] {
            assert!(!text(broken).contains("secret"), "{broken}: {}", text(broken));
        }
        let expected = "syntax error: expected NAME=VALUE after the value of password (a value with blanks needs quotes)";
        assert_eq!(text("host=h password=my secret"), expected);
    }
}
