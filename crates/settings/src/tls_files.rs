//! The key and certificate files of the TLS settings, unparsed.
//!
//! They are read with every load and every SET, so that a file replaced under the same name takes effect. An unreadable
//! file is no error here: crate `tls` knows whether it is needed.

use crate::files::{Files, reason};
use crate::topology::PatroniUrls;
use crate::{Global, SslMode};
use std::fmt;
use std::sync::Arc;

/// A file's bytes, or path and reason why there are none; None where no file is named.
pub type Pem = Option<Result<Arc<[u8]>, String>>;

/// The system's CA bundle on Debian, Red Hat, SUSE, Alpine. The first readable one is used.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The files of all sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// `client_tls_*_file`.
    pub client: PemFiles,
    /// `server_tls_*_file`.
    pub server: PemFiles,
    /// `fleet_peer_tls_ca_file`, with `fleet_tls_cert_file` and its key, in a fleet.
    pub peer: PemFiles,
    /// `otlp_ca_file`, or the system's roots, where `otlp_endpoint`, `alert_webhook` or Patroni (`topology`) is reached under TLS.
    pub collector: PemFiles,
}

/// One side's files.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PemFiles {
    /// Roots.
    pub ca: Pem,
    /// They are the system's, because servers are to be checked and no file is named (as in PgBouncer).
    pub ca_is_systems: bool,
    /// The own certificate, with its chain.
    pub cert: Pem,
    /// Its key.
    pub key: Pem,
}

impl TlsFiles {
    /// Reads what the settings name.
    pub fn read(files: &dyn Files, global: &Global, patronis: &[PatroniUrls]) -> TlsFiles {
        let read = |path: &Option<String>| -> Pem {
            let path = path.as_deref().filter(|path| !path.is_empty())?;
            let bytes = files.read(path).map(Arc::from);
            Some(bytes.map_err(|error| format!("failed to open {path}: {}", reason(&error))))
        };
        let (ca, ca_is_systems) = match read(&global.server_tls_ca_file) {
            None if global.server_tls_sslmode >= SslMode::VerifyCa => (system_roots(files), true),
            named => (named, false),
        };
        let is_sealed = global.otlp_endpoint.as_ref().is_some_and(|endpoint| endpoint.is_https)
            || global.alert_webhook.as_ref().is_some_and(|hook| hook.endpoint.is_https)
            || patronis.iter().any(|urls| urls.iter().any(|url| url.endpoint.is_https));
        let collector = match read(&global.otlp_ca_file) {
            _ if !is_sealed => PemFiles::default(),
            None => PemFiles { ca: system_roots(files), ca_is_systems: true, ..PemFiles::default() },
            ca => PemFiles { ca, ..PemFiles::default() },
        };
        let peer = match global.fleet.is_some() {
            false => PemFiles::default(),
            true => {
                // One without the other is reported where the store is reached by them.
                let pair = read(&global.fleet_tls_cert_file).zip(read(&global.fleet_tls_key_file));
                let (cert, key) = pair.unzip();
                PemFiles { ca: read(&global.fleet_peer_tls_ca_file), ca_is_systems: false, cert, key }
            }
        };
        TlsFiles {
            peer,
            collector,
            client: PemFiles {
                ca: read(&global.client_tls_ca_file),
                ca_is_systems: false,
                cert: read(&global.client_tls_cert_file),
                key: read(&global.client_tls_key_file),
            },
            server: PemFiles {
                ca,
                ca_is_systems,
                cert: read(&global.server_tls_cert_file),
                key: read(&global.server_tls_key_file),
            },
        }
    }
}

fn system_roots(files: &dyn Files) -> Pem {
    SYSTEM_ROOTS.iter().find_map(|path| files.read(path).ok()).map(|bytes| Ok(Arc::from(bytes)))
}

/// Shows which files are set, never their content.
impl fmt::Debug for PemFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |pem: &Pem| match pem {
            None => "none",
            Some(Ok(_)) => "read",
            Some(Err(_)) => "unreadable",
        };
        let Self { ca, cert, key, .. } = self;
        write!(out, "PemFiles {{ ca: {}, cert: {}, key: {} }}", word(ca), word(cert), word(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;
    use crate::{load, reload};

    #[test]
    fn files_are_read_again_under_the_same_name() {
        let ini = ("w.ini", "[pgbouncer]\nclient_tls_key_file = k\nserver_tls_ca_file = gone");
        let old = load(&Memory(&[ini, ("k", "one")]), "w.ini", &[]).unwrap();
        assert_eq!(old.tls_files.client.key.as_ref().unwrap().as_deref(), Ok(&b"one"[..]));
        let missing = "failed to open gone: No such file or directory".to_owned();
        assert_eq!(old.tls_files.server.ca, Some(Err(missing)));
        assert_eq!(old.tls_files.client.ca, None);
        let new = reload(&Memory(&[ini, ("k", "two")]), "w.ini", &[], &old).unwrap();
        assert_ne!(new.tls_files, old.tls_files);
        assert!(!format!("{new:?}").contains("two"));
    }

    #[test]
    fn servers_are_checked_by_the_systems_roots_where_none_are_named() {
        let system = (SYSTEM_ROOTS[1], "system's");
        for (value, expected) in [
            ("server_tls_sslmode = verify-full", Some("system's")),
            ("server_tls_sslmode = verify-ca\nserver_tls_ca_file = mine", Some("mine")),
            ("server_tls_sslmode = require", None),
        ] {
            let text = format!("[pgbouncer]\n{value}");
            let files = [("w.ini", &*text), system, ("mine", "mine")];
            let config = load(&Memory(&files), "w.ini", &[]).unwrap();
            let found = config.tls_files.server.ca.map(|bytes| bytes.unwrap().to_vec());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{value}");
            assert_eq!(config.tls_files.server.ca_is_systems, expected == Some("system's"));
            assert_eq!(config.tls_files.client.ca, None);
        }
    }
}
