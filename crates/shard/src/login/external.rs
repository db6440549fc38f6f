//! Logins whose password is checked externally: by a directory (LDAP) or PAM.
//!
//! Owns what is passed to them, and how their answer is logged. Never calls them itself: that is done by a helper
//! thread.

use auth::{CheckResult, TaskResult};
use telemetry::Level;

use crate::core::Core;
use crate::{ConnId, Peer};

/// Where a client is, for the records of others.
pub(crate) fn remote(peer: Peer) -> String {
    match peer {
        Peer::Inet { remote, .. } => remote.ip().to_string(),
        Peer::Unix { .. } => "unix".to_owned(),
    }
}

/// Their reasons are for the log alone: a client must not learn whether the name or the password was wrong.
pub(crate) fn log_verdict(core: &mut Core, conn: ConnId, answer: &TaskResult) {
    if let TaskResult::Checked(CheckResult::Refused(reason)) = answer {
        core.log_client(conn, Level::Warning, reason);
    }
}
