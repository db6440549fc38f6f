//! The files of keys and certificates that the settings of TLS name: their bytes, not understood yet.
//!
//! Owns when they are read: with every file and every SET, so that what changed under an old name counts too. A file that
//! cannot be read is no fault here: whether it is needed, `tls` knows.

use crate::Global;
use crate::draft::{Files, reason};
use std::fmt;
use std::sync::Arc;

/// A file's bytes, or path and reason why there are none; None where no file is named.
pub type Pem = Option<Result<Arc<[u8]>, String>>;

/// Both sides' files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// `client_tls_*_file`.
    pub client: PemFiles,
    /// `server_tls_*_file`.
    pub server: PemFiles,
}

/// One side's files.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PemFiles {
    /// Roots.
    pub ca: Pem,
    /// The own certificate, with its chain.
    pub cert: Pem,
    /// Its key.
    pub key: Pem,
}

impl TlsFiles {
    /// Reads what the settings name.
    pub fn read(files: &dyn Files, global: &Global) -> TlsFiles {
        let read = |path: &Option<String>| -> Pem {
            let path = path.as_deref().filter(|path| !path.is_empty())?;
            let bytes = files.read(path).map(Arc::from);
            Some(bytes.map_err(|error| format!("failed to open {path}: {}", reason(&error))))
        };
        TlsFiles {
            client: PemFiles {
                ca: read(&global.client_tls_ca_file),
                cert: read(&global.client_tls_cert_file),
                key: read(&global.client_tls_key_file),
            },
            server: PemFiles {
                ca: read(&global.server_tls_ca_file),
                cert: read(&global.server_tls_cert_file),
                key: read(&global.server_tls_key_file),
            },
        }
    }
}

/// Says which files there are, never what is in them.
impl fmt::Debug for PemFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |pem: &Pem| match pem {
            None => "none",
            Some(Ok(_)) => "read",
            Some(Err(_)) => "unreadable",
        };
        let Self { ca, cert, key } = self;
        write!(out, "PemFiles {{ ca: {}, cert: {}, key: {} }}", word(ca), word(cert), word(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::draft::memory::Memory;
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
}
