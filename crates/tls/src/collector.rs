//! TLS towards the metrics collector: its certificate is verified like a server's in mode verify-full.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use settings::PemFiles;

use crate::SetupFault;
use crate::keys::{self, SettingNames};
use crate::verifier::ServerVerifier;

/// `otlp_*`.
const COLLECTOR: SettingNames =
    SettingNames { side: "otlp", ca: "otlp_ca_file", cert: "otlp_cert_file", key: "otlp_key_file" };

/// TLS 1.2 and 1.3 for HTTP/1.1, with these roots.
///
/// # Errors
/// [`SetupFault`]: the roots cannot be read, or there are none.
pub fn collector_tls_config(files: &PemFiles) -> Result<Arc<ClientConfig>, SetupFault> {
    let provider = ring::default_provider();
    let roots = keys::roots(files, COLLECTOR)?;
    let none = || "no system CA bundle was found, and otlp_ca_file is not set".to_owned();
    let roots = roots.ok_or_else(|| SetupFault::Content { setting: COLLECTOR.ca, reason: none() })?;
    let algorithms = provider.signature_verification_algorithms;
    let verifier = ServerVerifier { algorithms, roots: Some(roots), checks_name: true };
    let builder =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(crate::config::refused)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)); // rustls' word
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_roots_there_are_no_terms() {
        let told = |ca| {
            let files = PemFiles { ca, ..PemFiles::default() };
            collector_tls_config(&files).map(drop).expect_err("no roots").to_string()
        };
        assert!(told(None).starts_with("otlp_ca_file: no system CA bundle"));
        assert_eq!(told(Some(Err("gone".to_owned()))), "otlp_ca_file: gone");
        assert!(told(Some(Ok(b"nothing".as_slice().into()))).contains("no certificate"));
    }
}
