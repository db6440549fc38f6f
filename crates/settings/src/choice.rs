//! Enum-valued settings, with PgBouncer's spelling of each value.
//! Never decides what a mode or a type does.

use crate::codec::bounded;
use crate::value::{BadValue, Codec, ValueKind};
use std::fmt;

/// How many shard threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threads {
    /// As many as the process may use processors.
    #[default]
    Auto,
    /// This many, at least one.
    Count(u32),
}

impl Codec for Threads {
    type Value = Self;
    const KIND: ValueKind = ValueKind::Threads;
    fn read(text: &str) -> Result<Self, BadValue> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Threads::Auto);
        }
        bounded(text, 1, 1024).map(Threads::Count)
    }
    fn show(value: &Self) -> Option<String> {
        Some(match value {
            Threads::Auto => "auto".to_owned(),
            Threads::Count(count) => count.to_string(),
        })
    }
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* };)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The spelling of each value, in declaration order.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The spelling in files and in the console.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.word())
            }
        }

        impl Codec for $name {
            type Value = Self;
            const KIND: ValueKind = ValueKind::Choice(Self::WORDS);
            fn read(text: &str) -> Result<Self, BadValue> {
                let word = text.to_ascii_lowercase();
                match word.as_str() {
                    $($word => Ok($name::$variant),)*
                    _ => Err(BadValue::NotAChoice(Self::WORDS)),
                }
            }
            fn show(value: &Self) -> Option<String> {
                Some(value.word().to_owned())
            }
        }
    )*};
}

choices! {
    /// When a server connection is returned to its pool.
    PoolMode {
        /// When the client disconnects.
        #[default]
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transactions of several statements are refused.
        Statement = "statement",
    };

    /// What becomes of what a client leaves in its session, where it does not keep its server connection.
    SessionState {
        /// It stays on the server connection, as with PgBouncer.
        #[default]
        Off = "off",
        /// It follows the client.
        Virtual = "virtual",
    };

    /// What becomes of a client whose session is to keep a server connection while `max_pinned` is reached.
    PinAction {
        /// A request that is known to do so waits; what is found out afterwards ends the client.
        #[default]
        Wait = "wait",
        /// The client ends, once it is known.
        Error = "error",
    };

    /// How clients authenticate.
    AuthType {
        /// No authentication, and the user name is ignored: every database must force a user.
        Any = "any",
        /// No authentication, but the user must be known.
        Trust = "trust",
        /// Cleartext password.
        Plain = "plain",
        /// MD5, or SCRAM where the stored secret is a SCRAM verifier.
        #[default]
        Md5 = "md5",
        /// SCRAM-SHA-256 (RFC 7677).
        ScramSha256 = "scram-sha-256",
        /// Client certificate whose common name is the user name.
        Cert = "cert",
        /// By the first matching line of `auth_hba_file`.
        Hba = "hba",
        /// Weir's own: the operating system user of the peer on a unix socket.
        Peer = "peer",
        /// LDAP, with the cleartext password (`auth_ldap_options`).
        Ldap = "ldap",
        /// PAM, service `pgbouncer`, with the cleartext password.
        Pam = "pam",
    };

    /// The kernel interface used for I/O.
    IoDriver {
        /// io_uring where it works, else epoll.
        #[default]
        Auto = "auto",
        /// epoll (readiness).
        Epoll = "epoll",
        /// io_uring (completion).
        IoUring = "io_uring",
    };

    /// Whether a connection may or must use TLS, and how its other side is checked.
    SslMode {
        /// No TLS.
        #[default]
        Disable = "disable",
        /// TLS where the other side wants it.
        Allow = "allow",
        /// TLS where the other side has it.
        Prefer = "prefer",
        /// Nothing without TLS.
        Require = "require",
        /// TLS, and a certificate that a known root has signed.
        VerifyCa = "verify-ca",
        /// The same, and the certificate is for the host's name.
        VerifyFull = "verify-full",
    };

    /// The syslog facility.
    SyslogFacility {
        /// System daemons.
        #[default]
        Daemon = "daemon",
        /// Authentication messages.
        Auth = "auth",
        /// Private authentication messages.
        Authpriv = "authpriv",
        /// User-level messages.
        User = "user",
        /// Local use.
        Local0 = "local0",
        /// Local use.
        Local1 = "local1",
        /// Local use.
        Local2 = "local2",
        /// Local use.
        Local3 = "local3",
        /// Local use.
        Local4 = "local4",
        /// Local use.
        Local5 = "local5",
        /// Local use.
        Local6 = "local6",
        /// Local use.
        Local7 = "local7",
    };

    /// Which of an entry's hosts its connections go to, by libpq's words.
    TargetSessionAttrs {
        /// All.
        #[default]
        Any = "any",
        /// Those whose sessions accept writes: primaries without `default_transaction_read_only`.
        ReadWrite = "read-write",
        /// All others.
        ReadOnly = "read-only",
        /// Servers that are not in recovery.
        Primary = "primary",
        /// Servers in recovery.
        Standby = "standby",
        /// Servers in recovery, as long as there are any; else all.
        PreferStandby = "prefer-standby",
    };

    /// After which writes a standby has to have replayed them before it serves a client's reads.
    ReadConsistency {
        /// Those of the same client.
        #[default]
        Session = "session",
        /// Those of all clients of the entry.
        Database = "database",
        /// None.
        Eventual = "eventual",
    };

    /// How long a client that has written reads from the primary only.
    ReadAfterWrite {
        /// As long as its transaction.
        #[default]
        Transaction = "transaction",
        /// As long as its session.
        Session = "session",
        /// Always, whether it has written or not.
        AlwaysPrimary = "always_primary",
    };

    /// How pools share `max_db_connections` and `max_user_connections`.
    ConnectionSharing {
        /// First come, first served.
        #[default]
        None = "none",
        /// A pool gets what it is guaranteed, and what is left first come, first served.
        Guaranteed = "guaranteed",
        /// What is left is shared by demand.
        Demand = "demand",
    };

    /// In which order clients that wait get servers.
    QueueOrder {
        /// Who came first.
        #[default]
        Fifo = "fifo",
        /// Whose subject has had least server time for its weight.
        Fair = "fair",
    };

    /// Whether clients that wait have classes.
    QueuePriority {
        /// No.
        #[default]
        None = "none",
        /// Those that their users or databases say.
        Settings = "settings",
        /// Those that they ask for themselves, or else as with `settings`.
        Comment = "comment",
    };

    /// The class of a client that waits.
    Priority {
        /// Comes before the others, within limits.
        High = "high",
        /// What nothing else is said of.
        #[default]
        Normal = "normal",
        /// Comes behind the others, within limits.
        Low = "low",
    };

    /// Whose server time a fair queue counts.
    QueueBy {
        /// The user that the client has logged in as.
        #[default]
        User = "user",
        /// The client's application_name.
        ApplicationName = "application_name",
        /// The address that the client comes from.
        ClientAddr = "client_addr",
    };

    /// How one of several hosts is chosen.
    LoadBalance {
        /// Each new connection goes to the next host.
        #[default]
        RoundRobin = "round-robin",
        /// The first host is used until it cannot be reached.
        Disable = "disable",
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_ignore_case_and_name_what_is_allowed() {
        assert_eq!(PoolMode::read("TRANSACTION"), Ok(PoolMode::Transaction));
        assert_eq!(IoDriver::read("io_uring"), Ok(IoDriver::IoUring));
        assert_eq!(PoolMode::read("tx"), Err(BadValue::NotAChoice(PoolMode::WORDS)));
        assert_eq!(AuthType::read("CERT"), Ok(AuthType::Cert));
        assert_eq!(Threads::read("auto"), Ok(Threads::Auto));
        assert_eq!(Threads::read("4"), Ok(Threads::Count(4)));
        for text in ["0", "many", "5000"] {
            assert!(Threads::read(text).is_err(), "{text}");
        }
    }
}
