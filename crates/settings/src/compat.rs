//! How each setting compares with PgBouncer 1.25.2's of the same name: the same, better, or different, and why.
//!
//! Owns the texts that `weir check` and docs/pgbouncer.md use.

use crate::table::{Effect, Scope, SettingInfo};

/// How a setting, view or option compares with PgBouncer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// The same behaviour.
    Same,
    /// Compatible, with an improvement.
    Better(&'static str),
    /// Behaves differently: how, and why.
    Different(&'static str),
    /// PgBouncer does not have it.
    Own,
}

use Compat::{Better, Different, Own};
use Scope::{Database, Global};

/// Every setting that is not [`Compat::Same`].
const ROWS: &[(Scope, &str, Compat)] = &[
    (Global, "auth_failure_delay", Own),
    (
        Global,
        "auth_hba_file",
        Better("rules may also name samehost, samenet, +role and samerole (where auth_user can ask)"),
    ),
    (
        Global,
        "auth_ldap_options",
        Better(
            "names, values or whole pairs may be quoted, as in pg_hba.conf; invalid options are reported at start, too; SHOW CONFIG hides the password",
        ),
    ),
    (
        Global,
        "auth_query",
        Better(
            "logins that wait for the same query share one result; a server connection that clients have used is first cleaned by DISCARD ALL, and search_path is pg_catalog, then the role's own, then pg_temp, so that no object of a client replaces one that is named without a schema",
        ),
    ),
    (Global, "auth_type", Better("SCRAM binds to the TLS channel (SCRAM-SHA-256-PLUS), in both directions")),
    (
        Global,
        "client_tls_ciphers",
        Different("names that rustls does not have for TLS 1.2 and 1.3 are ignored with a warning"),
    ),
    (
        Global,
        "client_tls_dheparams",
        Different("there is no finite-field Diffie-Hellman: key exchange is by elliptic curves"),
    ),
    (Global, "client_tls_protocols", Different("TLS below 1.2 is not supported: naming it gives a warning")),
    (Global, "alert_budget", Own),
    (Global, "alert_errors", Own),
    (Global, "alert_wait", Own),
    (Global, "alert_webhook", Own),
    (Global, "http_addr", Own),
    (Global, "http_allowed_hosts", Own),
    (Global, "http_audit_file", Own),
    (Global, "http_auth_file", Own),
    (Global, "http_lab", Own),
    (Global, "http_metrics_open", Own),
    (Global, "http_port", Own),
    (Global, "http_tls_cert_file", Own),
    (Global, "http_tls_key_file", Own),
    (Global, "io_driver", Own),
    (Global, "otlp_ca_file", Own),
    (Global, "otlp_endpoint", Own),
    (Global, "otlp_headers", Own),
    (Global, "otlp_interval", Own),
    (Global, "pools_file", Own),
    (Global, "server_socket_dir", Own),
    (Global, "state_dir", Own),
    (
        Global,
        "max_client_conn",
        Better(
            "exact over all threads; clients that have not logged in yet count in max_login_conn, not here",
        ),
    ),
    (Global, "max_login_conn", Own),
    (Global, "max_login_conn_per_address", Own),
    (Global, "max_db_client_connections", Better("exact over all threads")),
    (Global, "max_db_connections", Better("exact over all threads, as PostgreSQL counts them")),
    (
        Global,
        "max_prepared_statements",
        Better(
            "\"cached plan must not change result type\" does not reach a client where preparing again is safe; a name that is unknown or taken gets PostgreSQL's error in its place, and the session continues",
        ),
    ),
    (Global, "max_user_client_connections", Better("exact over all threads")),
    (Global, "max_user_connections", Better("exact over all threads, as PostgreSQL counts them")),
    (
        Global,
        "server_login_retry",
        Different(
            "the pause after a failed login begins at 0.1 s and doubles up to this; clients wait meanwhile (query_wait_timeout), where PgBouncer refuses them",
        ),
    ),
    (
        Global,
        "server_reset_query",
        Better("if it fails, Weir closes the connection, so that no other client gets its session state"),
    ),
    (
        Global,
        "server_tls_ciphers",
        Different("names that rustls does not have for TLS 1.2 and 1.3 are ignored with a warning"),
    ),
    (Global, "server_tls_protocols", Different("TLS below 1.2 is not supported: naming it gives a warning")),
    (Global, "so_reuseport", Better("works as in PgBouncer; one process uses every core without it")),
    (
        Global,
        "tcp_defer_accept",
        Different("1 means one second instead of 45, so that a silent client is visible while it waits"),
    ),
    (Global, "spread_busy_percent", Own),
    (Global, "spread_min_servers", Own),
    (Global, "threads", Own),
    (Global, "track_queries", Own),
    (
        Global,
        "track_extra_parameters",
        Better(
            "all that PostgreSQL reports is tracked without being named, as in PgBouncer 1.26; RESET, DISCARD ALL and SET TO DEFAULT restore the values of the startup packet, as in PostgreSQL, except for what follows them in the same query string or pipeline segment",
        ),
    ),
    (Database, "max_db_client_connections", Better("exact over all threads")),
    (Database, "max_db_connections", Better("exact over all threads, as PostgreSQL counts them")),
];

impl SettingInfo {
    /// How this setting compares with PgBouncer's.
    #[must_use]
    pub fn compat(&self) -> Compat {
        if let Effect::Inert(why) = self.effect {
            return Different(why);
        }
        let row = ROWS.iter().find(|(scope, name, _)| (*scope, *name) == (self.scope, self.name));
        row.map_or(Compat::Same, |(_, _, compat)| *compat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual_rows;

    #[test]
    fn every_comparison_is_of_a_setting_that_exists() {
        for (scope, name, _) in ROWS {
            assert!(manual_rows().iter().any(|info| (info.scope, info.name) == (*scope, *name)), "{name}");
        }
    }
}
