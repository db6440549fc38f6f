//! A password check by an external backend, and its result. The check itself runs on helper threads of `driver`.

use crate::fault::ClientFault;
use settings::ldap::Options;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The external authentication backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthBackend {
    /// An LDAP directory.
    Ldap(Arc<Options>),
    /// The system's PAM, under PgBouncer's service name.
    Pam,
}

impl AuthBackend {
    /// The error for a client that it rejects.
    #[must_use]
    pub fn refusal(&self) -> ClientFault {
        match self {
            Self::Ldap(_) => ClientFault::Ldap,
            Self::Pam => ClientFault::Pam,
        }
    }
}

/// A password check.
pub struct PasswordCheck {
    /// The backend.
    pub authority: AuthBackend,
    /// The name the client gave.
    pub user: String,
    /// The client's address without its port, or `unix`.
    pub remote: String,
    /// What the client sent; never empty, without NUL.
    pub password: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Check")
            .field("authority", &self.authority)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The result of a password check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The password is correct.
    Passed,
    /// Rejected, or the backend is unavailable. The text is for the log.
    Refused(String),
}
