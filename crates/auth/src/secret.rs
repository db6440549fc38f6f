//! The stored secret that clients are checked against, and the credentials for servers. Every `Debug` prints `***`.

use crate::scram;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// A user's stored secret, as auth_file or `pg_authid.rolpassword` has it. Equality is for noticing a changed file;
/// it is not constant in time and never decides a login.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The password itself.
    Plain(Zeroizing<String>),
    /// 32 lower-case hexadecimal digits of `md5(password ‖ user)`.
    Md5(Zeroizing<[u8; 32]>),
    /// A SCRAM-SHA-256 verifier.
    Scram(Verifier),
}

/// The kinds of stored secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain password.
    Plain,
    /// PostgreSQL's MD5 digits.
    Md5,
    /// A SCRAM verifier.
    Scram,
}

impl Secret {
    /// Reads a secret as PostgreSQL writes it: `md5` and 32 hexadecimal digits,
    /// `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, and anything else as a plain password.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Some(verifier) = Verifier::parse(text) {
            return Self::Scram(verifier);
        }
        match md5_digits(text) {
            Some(digits) => Self::Md5(Zeroizing::new(digits)),
            None => Self::Plain(Zeroizing::new(text.to_owned())),
        }
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Plain(_) => Kind::Plain,
            Self::Md5(_) => Kind::Md5,
            Self::Scram(_) => Kind::Scram,
        }
    }

    /// An empty password is always rejected, as in PgBouncer and PostgreSQL.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(password) if password.is_empty())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// What a SCRAM server keeps of a password (RFC 5802 section 3): enough to check a proof, not to make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// PBKDF2 rounds, at least 1.
    pub iterations: u32,
    /// The salt, at least one byte.
    pub salt: Vec<u8>,
    /// `H(ClientKey)`.
    pub stored_key: [u8; 32],
    /// The key the server signs with.
    pub server_key: [u8; 32],
}

impl Verifier {
    /// Reads `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, the last three in base64; `None` if it is not
    /// exactly that.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let verifier = Self {
            iterations: scram::parse_iterations(iterations)?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: scram::decode_key(stored_key)?,
            server_key: scram::decode_key(server_key)?,
        };
        (!verifier.salt.is_empty()).then_some(verifier)
    }

    /// The verifier for SaltedPassword (RFC 5802 section 3), as a server that stores it would keep it.
    #[must_use]
    pub fn from_salted_password(salted_password: &[u8; 32], salt: Vec<u8>, iterations: u32) -> Self {
        let stored_key = scram::hash(&[&scram::client_key(salted_password)]);
        Self { iterations, salt, stored_key, server_key: scram::server_key(salted_password) }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// Our credentials towards a server.
#[derive(Clone, Default)]
pub enum Credentials {
    /// None: only servers with `trust` accept the login.
    #[default]
    None,
    /// A password: answers every method.
    Plain(Zeroizing<String>),
    /// MD5 digits: answer the MD5 method.
    Md5(Zeroizing<[u8; 32]>),
    /// A SCRAM verifier without keys: answers no method.
    Verifier,
    /// Keys from a client's own SCRAM login: answer SCRAM with the same salt and iterations.
    Keys(ScramKeys),
}

impl Credentials {
    /// The best a stored secret and the keys of an earlier SCRAM login give. Keys that belong to another
    /// verifier (the password was changed since) are left out.
    #[must_use]
    pub fn from_secret(secret: Option<&Secret>, keys: Option<&ScramKeys>) -> Self {
        match (secret, keys) {
            (Some(Secret::Plain(password)), _) => Self::Plain(password.clone()),
            (Some(Secret::Md5(digits)), _) => Self::Md5(digits.clone()),
            (Some(Secret::Scram(verifier)), Some(keys)) if keys.fit(verifier) => Self::Keys(keys.clone()),
            (Some(Secret::Scram(_)), _) => Self::Verifier,
            (None, Some(keys)) => Self::Keys(keys.clone()),
            (None, None) => Self::None,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// ClientKey and ServerKey (RFC 5802 section 3), with the salt and rounds they hold for. ClientKey comes out of a
/// client's own proof; it is as good as the password towards servers that store the same verifier.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// Makes proofs.
    pub client_key: [u8; 32],
    /// Checks the server's signature.
    pub server_key: [u8; 32],
    /// The salt both were made with.
    pub salt: Vec<u8>,
    /// The rounds both were made with.
    pub iterations: u32,
}

impl ScramKeys {
    fn fit(&self, verifier: &Verifier) -> bool {
        let stored_key = scram::hash(&[&self.client_key]);
        let same_password =
            stored_key.ct_eq(&verifier.stored_key) & self.server_key.ct_eq(&verifier.server_key);
        bool::from(same_password) && self.salt == verifier.salt && self.iterations == verifier.iterations
    }
}

impl Drop for ScramKeys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

fn md5_digits(text: &str) -> Option<[u8; 32]> {
    let digits: [u8; 32] = text.strip_prefix("md5")?.as_bytes().try_into().ok()?;
    digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(Secret::parse("hunter2").kind(), Kind::Plain);
        assert_eq!(Secret::parse("md5d41d8cd98f00b204e9800998ecf8427e").kind(), Kind::Md5);
        assert_eq!(Secret::parse(VERIFIER).kind(), Kind::Scram);
    }

    #[test]
    fn what_is_almost_a_hash_is_a_password() {
        let nearly = [
            "md5d41d8cd98f00b204e9800998ecf8427",
            "md5D41D8CD98F00B204E9800998ECF8427E",
            "md5d41d8cd98f00b204e9800998ecf8427é",
            "SCRAM-SHA-256$",
            "SCRAM-SHA-256$0:W22Z$AA==:AA==",
            &VERIFIER.replace("4096", "-1"),
            &VERIFIER.replace("4096", "99999999999"),
            &VERIFIER[..VERIFIER.len() - 4],
            &VERIFIER.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
        ];
        for text in nearly {
            assert_eq!(Secret::parse(text).kind(), Kind::Plain, "{text}");
        }
    }

    #[test]
    fn the_rfc_7677_password_has_this_verifier() {
        let Secret::Scram(stored) = Secret::parse(VERIFIER) else { panic!("not a verifier") };
        let salted = scram::salted_password(b"pencil", &stored.salt, stored.iterations);
        assert!(Verifier::from_salted_password(&salted, stored.salt.clone(), 4096) == stored);
    }

    #[test]
    fn debug_shows_nothing() {
        for text in ["hunter2", VERIFIER] {
            assert_eq!(format!("{:?}", Secret::parse(text)), "***");
            assert_eq!(format!("{:?}", Credentials::from_secret(Some(&Secret::parse(text)), None)), "***");
        }
    }
}
