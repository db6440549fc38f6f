//! TLS of the control panel: a key pair, for browsers.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use settings::{Pem, PemFiles};

use crate::SetupFault;
use crate::keys::{self, SettingNames};

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
}
