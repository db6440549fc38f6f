//! What Weir says of itself when it greets a client, beside what the client's servers say of themselves.
//!
//! Owns PgBouncer 1.26's parameters, by which a driver learns that it talks to a pooler and what that can do, and the
//! administrator's message. Never decides when a client is greeted.

use settings::{Global, PoolMode};
use wire::encode;

/// The version that `pgbouncer.version` tells: that of the PgBouncer whose place Weir takes.
const PGBOUNCER_VERSION: &str = "1.25.2";

/// What a greeting tells of the pooler.
pub(crate) struct About<'a> {
    pub(crate) global: &'a Global,
    /// The pool's.
    pub(crate) mode: PoolMode,
}

impl About<'_> {
    /// ParameterStatus of the pooler's own.
    pub(crate) fn report(&self, out: &mut Vec<u8>) {
        let mode = match self.mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        };
        let statements = self.global.max_prepared_statements.to_string();
        let values = [
            ("pgbouncer.version", PGBOUNCER_VERSION),
            ("pgbouncer.pool_mode", mode),
            ("pgbouncer.max_prepared_statements", &statements),
        ];
        for (name, value) in values {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
    }

    /// `login_notify_message`, as a notice.
    pub(crate) fn notify(&self, out: &mut Vec<u8>) {
        if let Some(message) = &self.global.login_notify_message {
            encode::notice(out, "NOTICE", "00000", message);
        }
    }
}
