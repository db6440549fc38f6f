//! A pooler's file with places to fill: ports and directories, and what a scenario wants of it (an authentication,
//! TLS, a unix socket to the server, many pools). The file itself is the subject's own and stands in the repository.

use std::path::Path;

/// The server's key and certificate, by their names in the lab's directory.
pub const KEY_FILE: &str = "server.key";
/// See [`KEY_FILE`].
pub const CERTIFICATE_FILE: &str = "server.crt";

/// What a scenario wants of a pooler's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// TCP in both directions, trust authentication.
    #[default]
    Plain,
    /// The server by its unix socket.
    Unix,
    /// Clients log in by SCRAM.
    Scram,
    /// Clients must use TLS.
    Tls,
    /// Clients must use TLS and log in by SCRAM.
    ScramTls,
    /// Many pools of one server connection each.
    Pools,
}

impl Variant {
    /// As file names and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Unix => "unix",
            Self::Scram => "scram",
            Self::Tls => "tls",
            Self::ScramTls => "scram-tls",
            Self::Pools => "pools",
        }
    }

    /// Whether clients need a password.
    #[must_use]
    pub fn has_password(self) -> bool {
        matches!(self, Self::Scram | Self::ScramTls)
    }

    /// Whether clients need TLS.
    #[must_use]
    pub fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::ScramTls)
    }

    /// The places that a file must have, or else it cannot become this.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Unix | Self::Pools => &["@DATABASES@"],
            Self::Scram => &["@AUTH_TYPE@"],
            Self::Tls => &["@TLS@"],
            Self::ScramTls => &["@AUTH_TYPE@", "@TLS@"],
        }
    }
}

/// What is put in.
#[derive(Clone, Debug)]
pub struct Filling<'a> {
    /// The pooler's own port.
    pub port: u16,
    /// The server's.
    pub postgres_port: u16,
    /// The lab's directory.
    pub directory: &'a Path,
    /// Role and database.
    pub role: &'a str,
    /// What the scenario wants.
    pub variant: Variant,
    /// How many pools [`Variant::Pools`] has.
    pub pools: u32,
}

impl Filling<'_> {
    /// The filled file; `None` when it has no place for what the variant wants.
    #[must_use]
    pub fn fill(&self, template: &str) -> Option<String> {
        if !self.variant.needs().iter().all(|place| template.contains(place)) {
            return None;
        }
        let auth_type = if self.variant.has_password() { "scram-sha-256" } else { "trust" };
        let text = template
            .replace("@PORT@", &self.port.to_string())
            .replace("@POSTGRES_PORT@", &self.postgres_port.to_string())
            .replace("@DATABASES@", &self.databases())
            .replace("@AUTH_TYPE@", auth_type)
            .replace("@TLS@", &self.tls())
            .replace("@DIR@", &self.directory.display().to_string());
        Some(text)
    }

    fn databases(&self) -> String {
        let host = if self.variant == Variant::Unix { "@DIR@" } else { "127.0.0.1" };
        let server = format!("host={host} port={} dbname={}", self.postgres_port, self.role);
        let mut lines = vec![format!("{} = {server}", self.role)];
        if self.variant == Variant::Pools {
            lines.extend((0..self.pools).map(|number| format!("{} = {server} pool_size=1", pool(number))));
        }
        lines.join("\n")
    }

    fn tls(&self) -> String {
        if !self.variant.has_tls() {
            return String::new();
        }
        format!(
            "client_tls_sslmode = require\nclient_tls_key_file = @DIR@/{KEY_FILE}\n\
             client_tls_cert_file = @DIR@/{CERTIFICATE_FILE}"
        )
    }
}

/// The name of one of many pools.
#[must_use]
pub fn pool(number: u32) -> String {
    format!("pool{number:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "@DATABASES@\nport=@PORT@ log=@DIR@/x auth=@AUTH_TYPE@\n@TLS@";

    fn filled(variant: Variant, template: &str) -> Option<String> {
        let directory = Path::new("/d");
        Filling { port: 1, postgres_port: 2, directory, role: "bench", variant, pools: 2 }.fill(template)
    }

    #[test]
    fn the_plain_file_has_trust_and_one_database() {
        let text = filled(Variant::Plain, TEMPLATE);
        assert_eq!(
            text.as_deref(),
            Some("bench = host=127.0.0.1 port=2 dbname=bench\nport=1 log=/d/x auth=trust\n")
        );
    }

    #[test]
    fn a_variant_changes_what_it_names() {
        let unix = filled(Variant::Unix, TEMPLATE).unwrap_or_default();
        assert!(unix.starts_with("bench = host=/d port=2 dbname=bench\n"), "{unix}");
        let both = filled(Variant::ScramTls, TEMPLATE).unwrap_or_default();
        assert!(both.contains("auth=scram-sha-256\nclient_tls_sslmode = require\n"), "{both}");
        assert!(both.contains("client_tls_key_file = /d/server.key\n"), "{both}");
        let pools = filled(Variant::Pools, TEMPLATE).unwrap_or_default();
        assert!(pools.contains("\npool001 = host=127.0.0.1 port=2 dbname=bench pool_size=1\n"), "{pools}");
    }

    #[test]
    fn a_file_without_the_place_cannot_become_the_variant() {
        assert!(filled(Variant::Plain, "port=@PORT@").is_some());
        assert_eq!(filled(Variant::Tls, "port=@PORT@ @AUTH_TYPE@"), None);
        assert_eq!(filled(Variant::ScramTls, "@TLS@"), None);
        assert_eq!(filled(Variant::Pools, "@PORT@"), None);
    }
}
