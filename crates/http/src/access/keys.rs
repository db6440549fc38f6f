//! `http_auth_file`: who has a password or a token, and what each may do.
//!
//! Lines are `user NAME SCOPES ARGON2` and `token NAME SCOPES SHA256`, as `weir panel` prints them; empty lines and those
//! that begin with `#` are skipped. Never holds a password or a token itself.

use std::fmt;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc};
use subtle::ConstantTimeEq as _;

use crate::access::editing::{Kind, Listed};
use crate::access::scope::Scopes;
use crate::access::token::{self, hex};

/// More lines than anybody has; a file that has more is another file.
const MOST_KEYS: usize = 1_000;

/// Somebody with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// Argon2 in the form of PHC.
    hash: String,
}

/// Somebody with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKey {
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// SHA-256.
    hash: [u8; 32],
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    users: Vec<User>,
    tokens: Vec<TokenKey>,
}

/// What is wrong with a file; whoever wrote it is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadKeys {
    /// The file cannot be read, for this reason.
    Unreadable(String),
    /// This line is not what `weir panel` prints.
    Line(usize, &'static str),
    /// The file has more lines than any could need.
    TooMany,
}

impl fmt::Display for BadKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadKeys::Unreadable(why) => write!(out, "cannot be read: {why}"),
            BadKeys::Line(line, why) => write!(out, "line {line}: {why}"),
            BadKeys::TooMany => write!(out, "has more than {MOST_KEYS} lines"),
        }
    }
}

impl Keys {
    /// The file of this name; no name, nobody.
    ///
    /// # Errors
    /// [`BadKeys`].
    pub(crate) fn of_file(path: &str) -> Result<Keys, BadKeys> {
        if path.is_empty() {
            return Ok(Keys::default());
        }
        let text = std::fs::read_to_string(path).map_err(|why| BadKeys::Unreadable(why.to_string()))?;
        Keys::read(&text)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`BadKeys`].
    pub(crate) fn read(text: &str) -> Result<Keys, BadKeys> {
        let mut keys = Keys::default();
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if keys.users.len() + keys.tokens.len() >= MOST_KEYS {
                return Err(BadKeys::TooMany);
            }
            keys.add(line).map_err(|why| BadKeys::Line(place + 1, why))?;
        }
        Ok(keys)
    }

    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, name, scopes, hash] = words[..] else {
            return Err("should be `user NAME SCOPES HASH` or `token NAME SCOPES HASH`");
        };
        let scopes = Scopes::read(scopes).ok_or("scopes are read, operate, admin and view_credentials")?;
        let name = name.to_owned();
        match kind {
            "user" if self.user(&name).is_some() => Err("this user has a line already"),
            "user" => {
                phc::PasswordHash::new(hash).map_err(|_| "the hash is none of argon2")?;
                self.users.push(User { name, scopes, hash: hash.to_owned() });
                Ok(())
            }
            "token" => {
                let hash = digest(hash).ok_or("the hash is none of SHA-256 (64 hexadecimal digits)")?;
                self.tokens.push(TokenKey { name, scopes, hash });
                Ok(())
            }
            _ => Err("should begin with user or token"),
        }
    }

    /// Everybody, without what they prove it by.
    pub(crate) fn listed(&self) -> Vec<Listed> {
        let users = self.users.iter().map(|user| (Kind::User, &user.name, user.scopes));
        let tokens = self.tokens.iter().map(|token| (Kind::Token, &token.name, token.scopes));
        let all = users.chain(tokens);
        all.map(|(kind, name, scopes)| Listed { kind, name: name.clone(), scopes }).collect()
    }

    /// Nobody has a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    /// A user by name.
    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Whose token this is; all are looked at, in constant time each.
    pub(crate) fn token(&self, text: &str) -> Option<&TokenKey> {
        let hash = token::hash(text);
        let mut found = None;
        for key in &self.tokens {
            if bool::from(key.hash.ct_eq(&hash)) {
                found = Some(key);
            }
        }
        found
    }

    /// This very token is still good.
    pub(crate) fn has_token(&self, key: &TokenKey) -> bool {
        self.tokens.contains(key)
    }
}

impl User {
    /// The password is right. Takes some 20 ms and 19 MiB: never on the thread that serves.
    pub(crate) fn is(&self, password: &str) -> bool {
        verify(&self.hash, password)
    }
}

/// As long as [`User::is`], for a name that nobody has.
pub(crate) fn is_nobody(password: &str) {
    verify(&hash_with(b"nobody's salt...", ""), password);
}

fn verify(hash: &str, password: &str) -> bool {
    let Ok(hash) = phc::PasswordHash::new(hash) else { return false };
    Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

fn hash_with(salt: &[u8], password: &str) -> String {
    let made = Argon2::default().hash_password_with_salt(password.as_bytes(), salt);
    made.map(|hash| hash.to_string()).unwrap_or_default()
}

/// 64 hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Why no line is made; whoever asked is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// Not a name: it is empty, or has a blank.
    Name,
    /// Not scopes.
    Scopes(String),
    /// Too short to be a password.
    Password,
}

impl fmt::Display for NoKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoKey::Name => out.write_str("a name has no blanks, and at least one sign"),
            NoKey::Scopes(text) => {
                write!(out, "\"{text}\": scopes are read, operate, admin and view_credentials, with commas")
            }
            NoKey::Password => write!(out, "a password has at least {SHORTEST_PASSWORD} signs"),
        }
    }
}

/// A shorter password is refused.
const SHORTEST_PASSWORD: usize = 8;

fn checked(name: &str, scopes: &str) -> Result<Scopes, NoKey> {
    if name.is_empty() || name.contains(|sign: char| sign.is_whitespace() || sign.is_control()) {
        return Err(NoKey::Name);
    }
    Scopes::read(scopes).ok_or_else(|| NoKey::Scopes(scopes.to_owned()))
}

/// The line of `http_auth_file` that gives `name` this password.
///
/// # Errors
/// [`NoKey`].
pub fn password_line(name: &str, scopes: &str, password: &str) -> Result<String, NoKey> {
    let scopes = checked(name, scopes)?;
    if password.chars().count() < SHORTEST_PASSWORD {
        return Err(NoKey::Password);
    }
    Ok(format!("user {name} {scopes} {}", hash_with(&token::entropy::<16>(), password)))
}

/// The line of `http_auth_file` that gives `name` a new token, and the token.
///
/// # Errors
/// [`NoKey`].
pub fn token_line(name: &str, scopes: &str) -> Result<(String, String), NoKey> {
    let scopes = checked(name, scopes)?;
    let token = token::Token::random();
    let line = format!("token {name} {scopes} {}", hex(&token::hash(token.reveal())));
    Ok((line, token.reveal().to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let user = password_line("ann", "read,admin", "correct horse").unwrap();
        let (line, token) = token_line("ci", "read").unwrap();
        let keys = Keys::read(&format!("# keys\n\n{user}\n{line}\n")).unwrap();
        let ann = keys.user("ann").unwrap();
        assert!(ann.is("correct horse") && !ann.is("correct horsf") && !ann.is(""));
        assert_eq!(ann.scopes.to_string(), "read,admin");
        assert_eq!(keys.token(&token).map(|key| key.name.as_str()), Some("ci"));
        assert!(keys.token("weir_0").is_none() && keys.user("ci").is_none());
        assert_ne!(user, password_line("ann", "read,admin", "correct horse").unwrap(), "salted");
        is_nobody("x");
    }

    #[test]
    fn a_bad_line_is_told_by_its_number() {
        let user = password_line("ann", "read", "correct horse").unwrap();
        let twice = format!("{user}\n{user}\n");
        for (text, line) in [
            ("user ann read\n", 1),
            ("#\nuser ann root $argon2id$x\n", 2),
            ("user ann read secret\n", 1),
            ("token t read abc\n", 1),
            ("frob t read abc\n", 1),
            (&twice, 2),
        ] {
            assert!(matches!(Keys::read(text), Err(BadKeys::Line(at, _)) if at == line), "{text}");
        }
        assert_eq!(
            Keys::read(&"token a read 00\n".repeat(2)).unwrap_err().to_string().split(':').next(),
            Some("line 1")
        );
        assert!(matches!(Keys::of_file("/nonexistent"), Err(BadKeys::Unreadable(_))));
        assert!(Keys::of_file("").unwrap().is_empty());
    }

    #[test]
    fn a_line_is_made_of_good_words_only() {
        assert_eq!(password_line("a b", "read", "12345678"), Err(NoKey::Name));
        assert_eq!(password_line("", "read", "12345678"), Err(NoKey::Name));
        assert_eq!(password_line("a", "root", "12345678"), Err(NoKey::Scopes("root".into())));
        assert_eq!(password_line("a", "read", "1234567"), Err(NoKey::Password));
    }
}
