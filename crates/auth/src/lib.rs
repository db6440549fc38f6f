//! Authentication exchanges as state machines, both ways: towards our clients ([`ClientLogin`]) and towards
//! PostgreSQL ([`ServerLogin`]). A machine is handed message bodies and answers with a [`Step`].
//!
//! It never does I/O, never reads a clock and keeps no entropy of its own; the one slow computation (PBKDF2) is
//! handed out as a [`Question`], so that no event loop ever waits for it.
#![forbid(unsafe_code)]

mod cache;
mod check;
mod client_login;
pub mod directory;
mod fault;
pub mod hba;
mod md5;
mod mock;
mod permutation;
pub mod probe;
pub mod scram;
mod secret;
mod server_login;

pub use cache::{DerivedCache, ServerKeyCache};
pub use check::{Authority, Check, Verdict};
pub use client_login::{ClientLogin, Shown};
pub use fault::{CertificateFault, ClientFault, Fault, Malformed, ServerFault};
pub use mock::MockKey;
pub use permutation::KeyedPermutation;
pub use secret::{Credentials, Kind, ScramKeys, Secret, Verifier};
pub use server_login::ServerLogin;
pub use zeroize::Zeroizing;

use std::fmt;

/// Longest accepted body of an authentication message, in bytes: PostgreSQL's 64 KiB token (`libpq/auth.h`,
/// `PG_MAX_AUTH_TOKEN_LENGTH`) and room for the mechanism's name and the length before it.
pub const MAX_BODY: usize = 64 * 1024 + 256;

/// Most PBKDF2 rounds a server may demand of us. More would let a hostile server keep a helper thread busy.
pub const MAX_ITERATIONS: u32 = 1_000_000;

/// How a client has to prove itself: PgBouncer's `auth_type` without those that need more than a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Any known user passes.
    Trust,
    /// Anybody passes, known or not.
    Any,
    /// The password in clear text.
    Plain,
    /// PostgreSQL's salted MD5; SCRAM where the stored secret is a SCRAM verifier.
    Md5,
    /// SCRAM-SHA-256 (RFC 5802, RFC 7677).
    Scram,
}

/// What the owner of an exchange does next.
#[derive(Debug)]
pub enum Step {
    /// Send these bytes (whole protocol messages, possibly none) and wait for the peer's next message.
    Send(Vec<u8>),
    /// Have this computed elsewhere and bring the result to `answer`; the peer's messages wait until then.
    Ask(Question),
    /// The exchange succeeded.
    Accept(Accepted),
    /// The exchange failed; nothing more can come of it.
    Reject(Fault),
}

/// What is too slow for an event loop.
pub enum Question {
    /// `Hi(password, salt, iterations)` of RFC 5802 section 2.2, which is PBKDF2-HMAC-SHA-256 with 32 bytes.
    Pbkdf2 {
        /// The password after SASLprep.
        password: Zeroizing<Vec<u8>>,
        /// The salt, as many bytes as its maker chose.
        salt: Vec<u8>,
        /// Rounds, at least 1.
        iterations: u32,
    },
    /// What the system calls a user, by its number.
    Account {
        /// The number.
        user_id: u32,
    },
    /// Whether a directory or PAM knows this user by this password.
    Check(Box<Check>),
}

impl Question {
    /// Computes the answer; takes milliseconds, so it is called on a helper thread. What cannot be computed is answered
    /// as on a machine that knows nobody: whoever has a machine asks it instead.
    #[must_use]
    pub fn solve(&self) -> Answer {
        match self {
            Self::Pbkdf2 { password, salt, iterations } => {
                Answer::SaltedPassword(scram::salted_password(password, salt, *iterations))
            }
            Self::Account { .. } => Answer::Account(None),
            Self::Check(_) => Answer::Verdict(Verdict::Refused("nobody here can tell".to_owned())),
        }
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pbkdf2 { iterations, .. } => {
                write!(formatter, "Pbkdf2 {{ iterations: {iterations}, *** }}")
            }
            Self::Account { user_id } => write!(formatter, "Account {{ user_id: {user_id} }}"),
            Self::Check(check) => check.fmt(formatter),
        }
    }
}

/// The answer to a [`Question`] of the same kind.
pub enum Answer {
    /// To [`Question::Pbkdf2`]: SaltedPassword of RFC 5802 section 3.
    SaltedPassword([u8; 32]),
    /// To [`Question::Account`]: the name, if there is one.
    Account(Option<String>),
    /// To [`Question::Check`].
    Verdict(Verdict),
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaltedPassword(_) => formatter.write_str("SaltedPassword(***)"),
            Self::Account(name) => write!(formatter, "Account({name:?})"),
            Self::Verdict(verdict) => verdict.fmt(formatter),
        }
    }
}

/// What a successful exchange leaves behind.
#[derive(Default)]
pub struct Accepted {
    /// Last bytes for the peer (AuthenticationSASLFinal), possibly none; never AuthenticationOk.
    pub send: Vec<u8>,
    /// Keys recovered from a SCRAM login against a stored verifier: they can log in to a server with the same
    /// salt and iterations.
    pub keys: Option<ScramKeys>,
    /// The password a client sent in clear text and that somebody else than a stored secret confirmed, if it is UTF-8.
    pub password: Option<Zeroizing<String>>,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, password) = (self.keys.is_some(), self.password.is_some());
        write!(
            formatter,
            "Accepted {{ send: {} bytes, keys: {keys}, password: {password} }}",
            self.send.len()
        )
    }
}

/// A source of unpredictable bytes, given by the owner: the kernel's in production, a seed's in tests.
pub trait Entropy {
    /// Fills the whole slice.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// The bytes that one of `wire`'s encoders writes.
fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}
