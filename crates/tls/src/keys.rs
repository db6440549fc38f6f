//! Certificates and keys from PEM data.
//!
//! Owns which kinds are accepted. Reads no file: the bytes come with the configuration.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use settings::{Pem, PemFiles};

use crate::{Certificate, SetupFault};

/// The names of one side's settings, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettingNames {
    pub(crate) side: &'static str,
    pub(crate) ca: &'static str,
    pub(crate) cert: &'static str,
    pub(crate) key: &'static str,
}

/// `client_tls_*`.
pub(crate) const CLIENT: SettingNames = SettingNames {
    side: "client_tls",
    ca: "client_tls_ca_file",
    cert: "client_tls_cert_file",
    key: "client_tls_key_file",
};

/// `server_tls_*`.
pub(crate) const SERVER: SettingNames = SettingNames {
    side: "server_tls",
    ca: "server_tls_ca_file",
    cert: "server_tls_cert_file",
    key: "server_tls_key_file",
};

/// `fleet_peer_tls_ca_file`, with what the store is shown.
pub(crate) const PEER: SettingNames = SettingNames {
    side: "fleet_peer_tls",
    ca: "fleet_peer_tls_ca_file",
    cert: "fleet_tls_cert_file",
    key: "fleet_tls_key_file",
};

/// The bytes of a file; None where none is named.
///
/// # Errors
/// [`SetupFault::Unreadable`].
fn bytes<'a>(pem: &'a Pem, setting: &'static str) -> Result<Option<&'a [u8]>, SetupFault> {
    match pem {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(reason)) => Err(SetupFault::Unreadable { setting, reason: reason.clone() }),
    }
}

/// The roots of a side; None where there are none. Of the system's, those that cannot be decoded are left out.
///
/// # Errors
/// [`SetupFault`] if the file is not readable or has no certificate.
pub(crate) fn roots(files: &PemFiles, names: SettingNames) -> Result<Option<Arc<[Certificate]>>, SetupFault> {
    let Some(bytes) = bytes(&files.ca, names.ca)? else { return Ok(None) };
    let mut roots = Vec::new();
    for der in certificates(bytes, names.ca)? {
        match decoded(&der, names.ca) {
            Ok(root) => roots.push(root),
            Err(_) if files.ca_is_systems => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(Some(roots.into()))
}

/// Key and chain of a side; None where neither is named.
///
/// # Errors
/// [`SetupFault`] for whatever is wrong with one of them, or with both together.
pub(crate) fn key_pair(
    files: &PemFiles,
    names: SettingNames,
    provider: &CryptoProvider,
) -> Result<Option<Arc<CertifiedKey>>, SetupFault> {
    let (chain, key) = match (bytes(&files.cert, names.cert)?, bytes(&files.key, names.key)?) {
        (None, None) => return Ok(None),
        (Some(chain), Some(key)) => (chain, key),
        _ => return Err(SetupFault::HalfPair(names.side)),
    };
    let chain = certificates(chain, names.cert)?;
    let bad_key = |reason: String| SetupFault::Content { setting: names.key, reason };
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| bad_key(format!("no private key in PEM format without a passphrase ({error})")))?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| bad_key(error.to_string()))?;
    let Some(own) = chain.first() else { return Err(SetupFault::HalfPair(names.side)) };
    let own = decoded(own, names.cert)?;
    if key.public_key().is_some_and(|public| public.as_ref() != own.key_info) {
        return Err(SetupFault::Mismatch(names.side));
    }
    Ok(Some(Arc::new(CertifiedKey::new(chain, key))))
}

fn certificates(pem: &[u8], setting: &'static str) -> Result<Vec<CertificateDer<'static>>, SetupFault> {
    let content = |reason: String| SetupFault::Content { setting, reason };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| content(error.to_string()))?;
    if all.is_empty() { Err(content("no certificate in PEM format".to_owned())) } else { Ok(all) }
}

fn decoded(der: &CertificateDer<'_>, setting: &'static str) -> Result<Certificate, SetupFault> {
    let content = |reason: String| SetupFault::Content { setting, reason };
    Certificate::read(der).map_err(|error| content(format!("a certificate cannot be decoded: {error}")))
}
