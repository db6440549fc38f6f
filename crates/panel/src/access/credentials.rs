//! `http_auth_file`: users and tokens, and the scopes of each.
//!
//! Lines are `user NAME SCOPES ARGON2` and `token NAME SCOPES SHA256`, as `weir panel` prints them; empty lines and those
//! that begin with `#` are skipped. Never holds a password or a token itself.

use std::fmt;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc};
use subtle::ConstantTimeEq as _;

use crate::access::auth_file::{CredentialInfo, CredentialKind};
use crate::access::scope::Scopes;
use crate::access::token::{self, hex};

/// A file with more lines is not an `http_auth_file`.
const MAX_CREDENTIALS: usize = 1_000;

/// A user with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasswordCredential {
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// Argon2 in the form of PHC.
    hash: String,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenCredential {
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// SHA-256.
    hash: [u8; 32],
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PanelCredentials {
    users: Vec<PasswordCredential>,
    tokens: Vec<TokenCredential>,
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthFileError {
    /// The file cannot be read, for this reason.
    Unreadable(String),
    /// This line is not what `weir panel` prints.
    Line(usize, &'static str),
    /// The file has more lines than any could need.
    TooMany,
}

impl fmt::Display for AuthFileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthFileError::Unreadable(why) => write!(out, "cannot be read: {why}"),
            AuthFileError::Line(line, why) => write!(out, "line {line}: {why}"),
            AuthFileError::TooMany => write!(out, "has more than {MAX_CREDENTIALS} lines"),
        }
    }
}

impl PanelCredentials {
    /// The file at this path; no path, no credentials.
    ///
    /// # Errors
    /// [`AuthFileError`].
    pub(crate) fn of_file(path: &str) -> Result<PanelCredentials, AuthFileError> {
        if path.is_empty() {
            return Ok(PanelCredentials::default());
        }
        let text = std::fs::read_to_string(path).map_err(|why| AuthFileError::Unreadable(why.to_string()))?;
        PanelCredentials::read(&text)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`AuthFileError`].
    pub(crate) fn read(text: &str) -> Result<PanelCredentials, AuthFileError> {
        let mut credentials = PanelCredentials::default();
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if credentials.users.len() + credentials.tokens.len() >= MAX_CREDENTIALS {
                return Err(AuthFileError::TooMany);
            }
            credentials.add(line).map_err(|why| AuthFileError::Line(place + 1, why))?;
        }
        Ok(credentials)
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
                phc::PasswordHash::new(hash).map_err(|_| "the hash is not an Argon2 hash")?;
                self.users.push(PasswordCredential { name, scopes, hash: hash.to_owned() });
                Ok(())
            }
            "token" => {
                let hash = digest(hash).ok_or("the hash is not a SHA-256 hash (64 hexadecimal digits)")?;
                self.tokens.push(TokenCredential { name, scopes, hash });
                Ok(())
            }
            _ => Err("should begin with user or token"),
        }
    }

    /// All of them, without hashes.
    pub(crate) fn list(&self) -> Vec<CredentialInfo> {
        let users = self.users.iter().map(|user| (CredentialKind::User, &user.name, user.scopes));
        let tokens = self.tokens.iter().map(|token| (CredentialKind::Token, &token.name, token.scopes));
        let all = users.chain(tokens);
        all.map(|(kind, name, scopes)| CredentialInfo { kind, name: name.clone(), scopes }).collect()
    }

    /// The file has no user and no token.
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    /// A user by name.
    pub(crate) fn user(&self, name: &str) -> Option<&PasswordCredential> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Whose token this is; all are looked at, in constant time each.
    pub(crate) fn token(&self, text: &str) -> Option<&TokenCredential> {
        let hash = token::hash(text);
        let mut found = None;
        for credential in &self.tokens {
            if bool::from(credential.hash.ct_eq(&hash)) {
                found = Some(credential);
            }
        }
        found
    }

    /// This very token is still good.
    pub(crate) fn has_token(&self, credential: &TokenCredential) -> bool {
        self.tokens.contains(credential)
    }
}

impl PasswordCredential {
    /// The password is right. Takes some 20 ms and 19 MiB: never on the thread that serves.
    pub(crate) fn is(&self, password: &str) -> bool {
        verify(&self.hash, password)
    }
}

/// Takes as long as [`PasswordCredential::is`], for a user that does not exist.
pub(crate) fn verify_dummy(password: &str) {
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

/// Why a line cannot be made; the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// Not a name: it is empty, or has a blank.
    Name,
    /// Not scopes.
    Scopes(String),
    /// Too short to be a password.
    Password,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialError::Name => out.write_str("a name is at least one character, without blanks"),
            CredentialError::Scopes(text) => {
                write!(out, "\"{text}\": scopes are read, operate, admin and view_credentials, with commas")
            }
            CredentialError::Password => {
                write!(out, "a password has at least {MIN_PASSWORD_CHARS} characters")
            }
        }
    }
}

/// A shorter password is refused.
const MIN_PASSWORD_CHARS: usize = 8;

fn checked(name: &str, scopes: &str) -> Result<Scopes, CredentialError> {
    if name.is_empty() || name.contains(|sign: char| sign.is_whitespace() || sign.is_control()) {
        return Err(CredentialError::Name);
    }
    Scopes::read(scopes).ok_or_else(|| CredentialError::Scopes(scopes.to_owned()))
}

/// The line of `http_auth_file` that gives `name` this password.
///
/// # Errors
/// [`CredentialError`].
pub fn password_line(name: &str, scopes: &str, password: &str) -> Result<String, CredentialError> {
    let scopes = checked(name, scopes)?;
    if password.chars().count() < MIN_PASSWORD_CHARS {
        return Err(CredentialError::Password);
    }
    Ok(format!("user {name} {scopes} {}", hash_with(&token::entropy::<16>(), password)))
}

/// The line of `http_auth_file` that gives `name` a new token, and the token.
///
/// # Errors
/// [`CredentialError`].
pub fn token_line(name: &str, scopes: &str) -> Result<(String, String), CredentialError> {
    let scopes = checked(name, scopes)?;
    let token = token::PanelToken::random();
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
        let credentials = PanelCredentials::read(&format!("# keys\n\n{user}\n{line}\n")).unwrap();
        let ann = credentials.user("ann").unwrap();
        assert!(ann.is("correct horse") && !ann.is("correct horsf") && !ann.is(""));
        assert_eq!(ann.scopes.to_string(), "read,admin");
        assert_eq!(credentials.token(&token).map(|credential| credential.name.as_str()), Some("ci"));
        assert!(credentials.token("weir_0").is_none() && credentials.user("ci").is_none());
        assert_ne!(user, password_line("ann", "read,admin", "correct horse").unwrap(), "salted");
        verify_dummy("x");
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
            assert!(
                matches!(PanelCredentials::read(text), Err(AuthFileError::Line(at, _)) if at == line),
                "{text}"
            );
        }
        assert_eq!(
            PanelCredentials::read(&"token a read 00\n".repeat(2)).unwrap_err().to_string().split(':').next(),
            Some("line 1")
        );
        assert!(matches!(PanelCredentials::of_file("/nonexistent"), Err(AuthFileError::Unreadable(_))));
        assert!(PanelCredentials::of_file("").unwrap().is_empty());
    }

    #[test]
    fn a_line_is_made_of_good_words_only() {
        assert_eq!(password_line("a b", "read", "12345678"), Err(CredentialError::Name));
        assert_eq!(password_line("", "read", "12345678"), Err(CredentialError::Name));
        assert_eq!(password_line("a", "root", "12345678"), Err(CredentialError::Scopes("root".into())));
        assert_eq!(password_line("a", "read", "1234567"), Err(CredentialError::Password));
    }
}
