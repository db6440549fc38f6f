//! TLS under HTTP/1.1: the panel's key pair, for browsers, and connections to a metrics collector and to the API server of Kubernetes, whose certificates are
//! verified like a server's in mode verify-full.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use settings::{Pem, PemFiles};

use crate::SetupFault;
use crate::keys::{self, SettingNames};
use crate::verifier::ServerVerifier;

/// `http_tls_*`.
const WEB: SettingNames = SettingNames {
    side: "http_tls",
    ca: "http_tls_ca_file",
    cert: "http_tls_cert_file",
    key: "http_tls_key_file",
};

/// TLS 1.2 and 1.3 with this chain and key, for HTTP/1.1; None where neither is named.
///
/// # Errors
/// [`SetupFault`]: which file, and what is wrong with it.
pub fn panel_tls_config(cert: Pem, key: Pem) -> Result<Option<Arc<ServerConfig>>, SetupFault> {
    let provider = ring::default_provider();
    let files = PemFiles { cert, key, ..PemFiles::default() };
    let Some(pair) = keys::key_pair(&files, WEB, &provider)? else { return Ok(None) };
    let builder =
        ServerConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(crate::config::refused)?.with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// `otlp_*`.
const COLLECTOR: SettingNames =
    SettingNames { side: "otlp", ca: "otlp_ca_file", cert: "otlp_cert_file", key: "otlp_key_file" };

/// TLS 1.2 and 1.3 for HTTP/1.1, with these roots.
///
/// # Errors
/// [`SetupFault`]: the roots cannot be read, or there are none.
pub fn collector_tls_config(files: &PemFiles) -> Result<Arc<ClientConfig>, SetupFault> {
    let roots = PemFiles { cert: None, key: None, ..files.clone() };
    https_client(&roots, COLLECTOR, "no system CA bundle was found, and otlp_ca_file is not set")
}

/// `fleet_tls_*`, towards the API server of Kubernetes.
const STORE: SettingNames = SettingNames {
    side: "fleet_tls",
    ca: "fleet_tls_ca_file",
    cert: "fleet_tls_cert_file",
    key: "fleet_tls_key_file",
};

/// The same for the API server of Kubernetes, which is shown the key pair, if there is one.
///
/// # Errors
/// [`SetupFault`]: which file, and what is wrong with it.
pub fn kubernetes_tls_config(files: &PemFiles) -> Result<Arc<ClientConfig>, SetupFault> {
    https_client(files, STORE, "an API server needs a file with its CA's certificate")
}

fn https_client(
    files: &PemFiles,
    names: SettingNames,
    no_roots: &str,
) -> Result<Arc<ClientConfig>, SetupFault> {
    let provider = ring::default_provider();
    let roots = keys::roots(files, names)?;
    let none = || SetupFault::Content { setting: names.ca, reason: no_roots.to_owned() };
    let roots = roots.ok_or_else(none)?;
    let pair = keys::key_pair(files, names, &provider)?;
    let algorithms = provider.signature_verification_algorithms;
    let verifier = ServerVerifier { algorithms, roots: Some(roots), checks_name: true };
    let builder =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(crate::config::refused)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)); // rustls' word
    let mut config = match pair {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pair_is_none() {
        assert!(matches!(panel_tls_config(None, None), Ok(None)));
        let bytes: Arc<[u8]> = Arc::from(&b"no certificate"[..]);
        let fault = panel_tls_config(Some(Ok(bytes)), None).expect_err("half a pair");
        assert!(fault.to_string().contains("http_tls_key_file"), "{fault}");
        let fault = panel_tls_config(Some(Err("gone".to_owned())), Some(Err("gone".to_owned())));
        assert!(fault.is_err_and(|fault| fault.to_string().contains("gone")));
    }

    #[test]
    fn without_roots_there_are_no_terms() {
        let told = |ca| {
            let files = PemFiles { ca, ..PemFiles::default() };
            collector_tls_config(&files).map(drop).expect_err("no roots").to_string()
        };
        assert!(told(None).starts_with("otlp_ca_file: no system CA bundle"));
        assert_eq!(told(Some(Err("gone".to_owned()))), "otlp_ca_file: gone");
        assert!(told(Some(Ok(b"nothing".as_slice().into()))).contains("no certificate"));
        let fault = kubernetes_tls_config(&PemFiles::default()).map(drop).expect_err("no roots");
        assert!(fault.to_string().starts_with("fleet_tls_ca_file: an API server needs"), "{fault}");
    }
}
