//! Authentication exchanges as state machines, towards clients ([`ClientLogin`]) and towards PostgreSQL
//! ([`ServerLogin`]). Input is message bodies, output a [`Step`].
//!
//! It never does I/O, never reads a clock and keeps no entropy of its own; the one slow computation (PBKDF2) is
//! returned as an [`OffloadedTask`], so that the event loop does not block.
#![forbid(unsafe_code)]

mod cache;
mod client_login;
mod fault;
pub mod hba;
pub mod ldap;
mod md5;
mod mock;
mod password_check;
mod permutation;
pub mod probe;
pub mod scram;
mod secret;
mod server_login;

pub use cache::{DerivedCache, ServerKeyCache};
pub use client_login::{ClientLogin, PresentedCertificate};
pub use fault::{CertificateFault, ClientFault, Fault, Malformed, ServerFault};
pub use mock::MockKey;
pub use password_check::{AuthBackend, CheckResult, PasswordCheck};
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

/// How a client authenticates: the values of PgBouncer's `auth_type` that need only messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Any known user passes.
    Trust,
    /// Any user passes, known or not.
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
    /// Run this task off the event loop and pass the result to `answer`; the peer's messages wait until then.
    Ask(OffloadedTask),
    /// The exchange succeeded.
    Accept(Accepted),
    /// The exchange failed.
    Reject(Fault),
}

/// A task too slow for the event loop.
pub enum OffloadedTask {
    /// `Hi(password, salt, iterations)` of RFC 5802 section 2.2, which is PBKDF2-HMAC-SHA-256 with 32 bytes.
    Pbkdf2 {
        /// The password after SASLprep.
        password: Zeroizing<Vec<u8>>,
        /// The salt, as many bytes as its maker chose.
        salt: Vec<u8>,
        /// Rounds, at least 1.
        iterations: u32,
    },
    /// The system user name for a user id.
    Account {
        /// The number.
        user_id: u32,
    },
    /// A password check by LDAP or PAM.
    Check(Box<PasswordCheck>),
}

impl OffloadedTask {
    /// Runs the task; takes milliseconds, so it is called on a helper thread. Tasks that need the system fail here: the caller
    /// that has one runs them itself.
    #[must_use]
    pub fn solve(&self) -> TaskResult {
        match self {
            Self::Pbkdf2 { password, salt, iterations } => {
                TaskResult::SaltedPassword(scram::salted_password(password, salt, *iterations))
            }
            Self::Account { .. } => TaskResult::Account(None),
            Self::Check(_) => {
                TaskResult::Checked(CheckResult::Refused("no authentication backend".to_owned()))
            }
        }
    }
}

impl fmt::Debug for OffloadedTask {
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

/// The result of an [`OffloadedTask`] of the same kind.
pub enum TaskResult {
    /// To [`OffloadedTask::Pbkdf2`]: SaltedPassword of RFC 5802 section 3.
    SaltedPassword([u8; 32]),
    /// To [`OffloadedTask::Account`]: the name, if there is one.
    Account(Option<String>),
    /// To [`OffloadedTask::Check`].
    Checked(CheckResult),
}

impl fmt::Debug for TaskResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaltedPassword(_) => formatter.write_str("SaltedPassword(***)"),
            Self::Account(name) => write!(formatter, "Account({name:?})"),
            Self::Checked(verdict) => verdict.fmt(formatter),
        }
    }
}

/// The outcome of a successful exchange.
#[derive(Default)]
pub struct Accepted {
    /// Last bytes for the peer (AuthenticationSASLFinal), possibly none; never AuthenticationOk.
    pub send: Vec<u8>,
    /// Keys recovered from a SCRAM login against a stored verifier: they can log in to a server with the same
    /// salt and iterations.
    pub keys: Option<ScramKeys>,
    /// The cleartext password of a client, if an external backend confirmed it and it is UTF-8.
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
