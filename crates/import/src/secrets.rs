//! pool_passwd as a user list of Weir: `user:secret` lines become `"user" "secret"`. Owns which secrets Weir can use. Never puts one
//! into a message.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use settings::{Finding, Origin, Userlist};

/// What became of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The user list.
    pub text: String,
    /// How many users it has.
    pub users: usize,
    /// Some secret is an md5 one.
    pub has_md5: bool,
    /// Lines that were left out, and why.
    pub problems: Vec<Finding>,
}

/// Counts the users instead of showing secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secrets")
            .field("users", &self.users)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

/// Why a line has no place in a user list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NotText,
    NoUser,
    NoSecret,
    Encrypted,
    LooksHashed,
    Twice,
    NotTaken,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Refused::NotText => "not UTF-8 text",
            Refused::NoUser => "expected user:secret",
            Refused::NoSecret => "there is no secret",
            Refused::Encrypted => {
                "encrypted (AES) with a key that only pgpool-II has: add the user's password or its secret of pg_authid to the user list"
            }
            Refused::LooksHashed => {
                "a plain password that looks like a hashed one, which Weir would take it for: add the user's secret of pg_authid to the user list"
            }
            Refused::Twice => "the user is in the file already; the first line counts",
            Refused::NotTaken => "Weir takes no user name of more than 127 bytes, and no secret of more than 65,535",
        })
    }
}

/// A kind of secret that Weir takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Md5,
    Scram,
    Plain,
}

/// Converts a file; `file` names it in problems.
#[must_use]
pub fn userlist(file: &str, bytes: &[u8]) -> Secrets {
    let file: Arc<str> = file.into();
    let mut secrets = Secrets { text: String::new(), users: 0, has_md5: false, problems: Vec::new() };
    let mut seen = BTreeSet::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        // A password may end in a blank.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            continue;
        }
        match entry(line, &mut seen) {
            Ok((text, kind)) => {
                secrets.text.push_str(&text);
                secrets.users += 1;
                secrets.has_md5 |= kind == Kind::Md5;
            }
            Err(refused) => {
                let at = Origin { file: file.clone(), line: u32::try_from(index + 1).unwrap_or(u32::MAX) };
                secrets.problems.push(Finding::warning(&at, refused.to_string()));
            }
        }
    }
    secrets
}

/// A line of the user list.
fn entry<'a>(line: &'a [u8], seen: &mut BTreeSet<&'a str>) -> Result<(String, Kind), Refused> {
    let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0')).ok_or(Refused::NotText)?;
    let (user, written) = text.split_once(':').ok_or(Refused::NoUser)?;
    if user.is_empty() {
        return Err(Refused::NoUser);
    }
    let (secret, kind) = secret(written)?;
    let quoted = |text: &str| text.replace('"', "\"\"");
    let line = format!("\"{}\" \"{}\"\n", quoted(user), quoted(secret));
    let read = Userlist::parse(&"userlist".into(), line.as_bytes());
    if read.secrets.values().next().map(String::as_str) != Some(secret) {
        return Err(Refused::NotTaken);
    }
    if seen.insert(user) { Ok((line, kind)) } else { Err(Refused::Twice) }
}

/// The secret behind its prefix, and its kind.
fn secret(written: &str) -> Result<(&str, Kind), Refused> {
    if written.starts_with("AES") {
        return Err(Refused::Encrypted);
    }
    let (secret, is_plain) = match written.strip_prefix("TEXT") {
        Some(plain) => (plain, true),
        None => (written, false),
    };
    if secret.is_empty() {
        return Err(Refused::NoSecret);
    }
    match hashed(secret) {
        Some(_) if is_plain => Err(Refused::LooksHashed),
        Some(kind) => Ok((secret, kind)),
        None => Ok((secret, Kind::Plain)),
    }
}

/// The kind of a hashed secret, as PostgreSQL stores it.
fn hashed(secret: &str) -> Option<Kind> {
    let is_md5 = |digits: &str| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if secret.strip_prefix("md5").is_some_and(is_md5) {
        Some(Kind::Md5)
    } else {
        secret.starts_with("SCRAM-SHA-256$").then_some(Kind::Scram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "md5a231fcdb710d73268c4f44283487ba22";

    fn lines(text: &str) -> (String, Vec<String>) {
        let secrets = userlist("pool_passwd", text.as_bytes());
        (secrets.text, secrets.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn secrets_that_weir_takes_are_kept() {
        let (text, problems) = lines(&format!(
            "a:{MD5}\n\nb:SCRAM-SHA-256$4096:s$k:v\r\nc:TEXTp\"w:1 \nd:plain\n# comment\ne\"f:TEXTx"
        ));
        let expected = format!(
            "\"a\" \"{MD5}\"\n\"b\" \"SCRAM-SHA-256$4096:s$k:v\"\n\"c\" \"p\"\"w:1 \"\n\"d\" \"plain\"\n\"e\"\"f\" \"x\"\n"
        );
        assert_eq!((text, problems), (expected, vec![]));
        assert!(userlist("x", format!("a:{MD5}").as_bytes()).has_md5);
        assert!(!userlist("x", b"a:TEXTmd5\nb:md5short").has_md5);
    }

    #[test]
    fn others_are_listed_with_their_lines_and_without_their_secrets() {
        let hidden = format!(
            "a:AEShidden==\nb:TEXT{MD5}\nhidden\n:hidden\nc:\nd:TEXT\ne:1\ne:hidden\n{}:hidden",
            "u".repeat(128)
        );
        let (text, problems) = lines(&hidden);
        assert_eq!(text, "\"e\" \"1\"\n");
        let numbers: Vec<&str> = problems.iter().filter_map(|line| line.split(':').nth(1)).collect();
        assert_eq!(numbers, ["1", "2", "3", "4", "5", "6", "8", "9"]);
        assert!(problems[0].contains("AES") && problems[1].contains("looks like"), "{problems:?}");
        assert!(!problems.iter().any(|line| line.contains("hidden") || line.contains(MD5)));
        assert_eq!(userlist("x", b"a:\xff\nb:c\0d").problems.len(), 2);
    }
}
