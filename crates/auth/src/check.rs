//! A password that somebody else has to check, and what came of it.
//! Owns the types alone: the asking is done by helper threads of `driver`.

use crate::fault::ClientFault;
use settings::ldap::Options;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Who decides about a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// An LDAP directory.
    Directory(Arc<Options>),
    /// The system's PAM, under PgBouncer's service name.
    Pam,
}

impl Authority {
    /// What a client is told whom it does not know.
    #[must_use]
    pub fn refusal(&self) -> ClientFault {
        match self {
            Self::Directory(_) => ClientFault::Directory,
            Self::Pam => ClientFault::Pam,
        }
    }
}

/// Whether this user has this password.
pub struct Check {
    /// Who knows.
    pub authority: Authority,
    /// The name the client gave.
    pub user: String,
    /// The client's address without its port, or `unix`.
    pub remote: String,
    /// What the client sent; never empty, without NUL.
    pub password: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Check")
            .field("authority", &self.authority)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// What an authority said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The user is who it says.
    Passed,
    /// It is not, or that could not be found out. The words are for the log.
    Refused(String),
}
