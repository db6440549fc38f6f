//! The file `auth_file`: lines of `"user" "secret"`, as PgBouncer and `pg_shadow` write them.
//! Owns quoting and which line counts. Never looks into a secret and never puts one into a message.

use crate::files::{Files, reason};
use crate::finding::{Finding, Origin};
use crate::identifier::{truncate_identifier, unquote};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The longest user name that is read, in bytes, as in PgBouncer; it is truncated as in PostgreSQL.
pub const USER_BYTES: usize = 127;
/// The longest secret, in bytes.
const SECRET_BYTES: usize = 65_535;

/// The content of an `auth_file`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Userlist {
    /// User, truncated as in PostgreSQL, to secret (plain, `md5...` or `SCRAM-SHA-256$...`); of two lines for one user
    /// the later counts.
    pub secrets: BTreeMap<String, String>,
    /// Lines that were skipped, and why.
    pub warnings: Vec<Finding>,
}

/// Counts the secrets instead of showing them.
impl fmt::Debug for Userlist {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Userlist")
            .field("secrets", &self.secrets.len())
            .field("warnings", &self.warnings)
            .finish()
    }
}

impl Userlist {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A warning if it cannot be read: PgBouncer logs that and keeps the secrets it has.
    pub fn read(files: &dyn Files, path: &str) -> Result<Self, Finding> {
        let file: Arc<str> = path.into();
        match files.read(path) {
            Ok(bytes) => Ok(Self::parse(&file, &bytes)),
            Err(error) => {
                let at = Origin { file, line: 0 };
                Err(Finding::warning(&at, format!("could not open auth_file {path}: {}", reason(&error))))
            }
        }
    }

    /// Reads the bytes of a file; `file` names it in warnings.
    pub fn parse(file: &Arc<str>, bytes: &[u8]) -> Self {
        let mut list = Self::default();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if matches!(line.first(), None | Some(b';')) {
                continue;
            }
            match entry(line) {
                Ok((user, secret)) => {
                    list.secrets.insert(truncate_identifier(&user).to_owned(), secret);
                }
                Err(broken) => {
                    let at =
                        Origin { file: file.clone(), line: u32::try_from(index + 1).unwrap_or(u32::MAX) };
                    list.warnings.push(Finding::warning(&at, broken.to_string()));
                }
            }
        }
        list
    }
}

/// An error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineError {
    NotText,
    Quotes,
    LongName,
    LongSecret,
}

impl fmt::Display for LineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::NotText => out.write_str("broken auth file: not UTF-8 text"),
            LineError::Quotes => out.write_str("broken auth file: expected \"user\" \"secret\""),
            LineError::LongName => write!(out, "username too long in auth file (over {USER_BYTES} bytes)"),
            LineError::LongSecret => {
                write!(out, "password too long in auth file (over {SECRET_BYTES} bytes)")
            }
        }
    }
}

/// The user and the secret of a line; what follows them is ignored, as PgBouncer does.
fn entry(line: &[u8]) -> Result<(String, String), LineError> {
    let text =
        std::str::from_utf8(line).ok().filter(|text| !text.contains('\0')).ok_or(LineError::NotText)?;
    let after_quote = text.strip_prefix('"').ok_or(LineError::Quotes)?;
    let (user, rest) = unquote(after_quote, '"').ok_or(LineError::Quotes)?;
    let (_, after_quote) = rest.split_once('"').ok_or(LineError::Quotes)?;
    let (secret, _) = unquote(after_quote, '"').ok_or(LineError::Quotes)?;
    if user.len() > USER_BYTES {
        return Err(LineError::LongName);
    }
    if secret.len() > SECRET_BYTES {
        return Err(LineError::LongSecret);
    }
    Ok((user, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Userlist {
        Userlist::parse(&"users.txt".into(), text.as_bytes())
    }

    fn warnings(text: &str) -> Vec<String> {
        parse(text).warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn secrets_are_kept_as_written() {
        let list = parse(
            "; comment\n\n\"a\" \"plain\"\n  \"b\"\t\"md5abc\" rest\r\n\"c\" \"SCRAM-SHA-256$4096:s$k:v\"\n\"d\" \"\"",
        );
        let expected = [("a", "plain"), ("b", "md5abc"), ("c", "SCRAM-SHA-256$4096:s$k:v"), ("d", "")];
        let expected = expected.map(|(user, secret)| (user.to_owned(), secret.to_owned()));
        assert_eq!(list.secrets, BTreeMap::from(expected));
        assert!(list.warnings.is_empty());
    }

    #[test]
    fn doubled_quotes_are_one_and_the_later_line_counts() {
        let list = parse("\"a\"\"b\" \"x\"\"\"\n\"a\"\"b\" \"y\"\"\"");
        assert_eq!(list.secrets.get("a\"b").map(String::as_str), Some("y\""));
        assert_eq!(list.secrets.len(), 1);
    }

    #[test]
    fn a_bad_line_is_reported_and_skipped() {
        let text = "\"a\" \"1\"\nb \"2\"\n\"c\" 3\n\"d\" \"4\n\"e\" \"5\"";
        assert_eq!(parse(text).secrets.keys().collect::<Vec<_>>(), ["a", "e"]);
        let expected =
            [2, 3, 4].map(|line| format!("users.txt:{line}: broken auth file: expected \"user\" \"secret\""));
        assert_eq!(warnings(text), expected);
    }

    #[test]
    fn lengths_have_an_end() {
        let fits = format!("\"{}\" \"{}\"", "u".repeat(USER_BYTES), "s".repeat(SECRET_BYTES));
        assert_eq!(parse(&fits).secrets.len(), 1);
        let long_name = format!("\"{}\" \"s\"", "u".repeat(USER_BYTES + 1));
        assert_eq!(warnings(&long_name), ["users.txt:1: username too long in auth file (over 127 bytes)"]);
        let long_secret = format!("\"u\" \"{}\"", "s".repeat(SECRET_BYTES + 1));
        assert_eq!(
            warnings(&long_secret),
            ["users.txt:1: password too long in auth file (over 65535 bytes)"]
        );
    }

    #[test]
    fn a_secret_never_shows_in_debug() {
        assert!(!format!("{:?}", parse("\"a\" \"hidden\"")).contains("hidden"));
    }
}
