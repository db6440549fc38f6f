//! Properties that hold for any input (I11 of ARCHITECTURE.md), for tests and fuzzers.

use rustls::pki_types::CertificateDer;

use crate::Certificate;

/// Any bytes as a certificate: decoded or refused, never a panic; what is decoded has an order of dates to compare and
/// answers every question.
pub fn certificate(bytes: &[u8]) {
    let der = CertificateDer::from(bytes);
    if let Ok(certificate) = Certificate::read(&der) {
        let peer = certificate.peer();
        assert!(peer.subject.is_empty() || !certificate.subject.is_empty());
        let _ = crate::hostname::matches(&certificate, "localhost");
        let _ = crate::hostname::matches(&certificate, "127.0.0.1");
        assert!(crate::certificate::end_point(&der).is_none_or(|hash| hash.len() >= 32));
    }
}
