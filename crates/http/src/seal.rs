//! The panel's TLS: `http_tls_cert_file` and `http_tls_key_file`.
//! Never falls back to plain HTTP: files that are wrong leave what was in force.

use std::sync::Arc;

use settings::{Global, Pem};
use tokio_rustls::TlsAcceptor;

/// What takes connections under TLS; None where the panel is served in the clear.
///
/// # Errors
/// Which file, and what is wrong with it.
pub(crate) fn of(global: &Global) -> Result<Option<TlsAcceptor>, String> {
    let terms = tls::panel_tls_config(pem(&global.http_tls_cert_file), pem(&global.http_tls_key_file));
    Ok(terms.map_err(|fault| fault.to_string())?.map(TlsAcceptor::from))
}

fn pem(path: &Option<String>) -> Pem {
    let path = path.as_deref().filter(|path| !path.is_empty())?;
    Some(std::fs::read(path).map(Arc::from).map_err(|why| format!("failed to open {path}: {why}")))
}
