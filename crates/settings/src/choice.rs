//! Values that are words: the enums of the settings, with the words of PgBouncer's files.
//! Never decides what a mode or a type does.

use crate::codec::bounded;
use crate::value::{BadValue, Codec, Kind};
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
    const KIND: Kind = Kind::Threads;
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

/// An enum whose values are words.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* };)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The words of a file, in the order of the values.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word of a file and of the console.
            pub const fn word(self) -> &'static str {
                match self { $($identifier::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.word())
            }
        }

        impl Codec for $name {
            type Value = Self;
            const KIND: Kind = Kind::Choice(Self::WORDS);
            fn read(text: &str) -> Result<Self, BadValue> {
                let word = text.to_ascii_lowercase();
                match word.as_str() {
                    $($word => Ok($identifier::$variant),)*
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
    /// When a server connection goes back to its pool.
    PoolMode {
        /// When the client leaves.
        #[default]
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transactions of several statements are refused.
        Statement = "statement",
    };

    /// How clients prove who they are.
    AuthType {
        /// Not at all, and the name is ignored too: every database must force a user.
        Any = "any",
        /// Not at all, but the name must be known.
        Trust = "trust",
        /// By the password in clear.
        Plain = "plain",
        /// By MD5, or by SCRAM where the stored secret is a SCRAM one.
        #[default]
        Md5 = "md5",
        /// By SCRAM-SHA-256 (RFC 7677).
        ScramSha256 = "scram-sha-256",
        /// By a client certificate whose common name is the user's.
        Cert = "cert",
        /// As the first matching line of `auth_hba_file` says.
        Hba = "hba",
        /// Weir's own: by the system user at the other end of the unix socket.
        Peer = "peer",
        /// By a directory, which is given the password in clear (`auth_ldap_options`).
        Ldap = "ldap",
        /// By PAM, service `pgbouncer`, which is given the password in clear.
        Pam = "pam",
    };

    /// What asks the kernel for bytes.
    IoDriver {
        /// io_uring where it works, else epoll.
        #[default]
        Auto = "auto",
        /// Readiness.
        Epoll = "epoll",
        /// Completion.
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

    /// What part of the system lines sent to syslog are from.
    SyslogFacility {
        /// A daemon.
        #[default]
        Daemon = "daemon",
        /// Security.
        Auth = "auth",
        /// Security, not for everybody's eyes.
        Authpriv = "authpriv",
        /// A user's program.
        User = "user",
        /// As the site decides.
        Local0 = "local0",
        /// As the site decides.
        Local1 = "local1",
        /// As the site decides.
        Local2 = "local2",
        /// As the site decides.
        Local3 = "local3",
        /// As the site decides.
        Local4 = "local4",
        /// As the site decides.
        Local5 = "local5",
        /// As the site decides.
        Local6 = "local6",
        /// As the site decides.
        Local7 = "local7",
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
