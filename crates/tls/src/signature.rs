//! Signatures: of certificates by certificates, and of handshakes by keys.
//!
//! Verifies with the raw key, because rustls' own entry point requires version 3. Owns the choice of the algorithm.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};

use crate::Certificate;

/// `child` carries `issuer`'s signature.
pub(crate) fn is_signed_by(
    algorithms: &WebPkiSupportedAlgorithms,
    child: &Certificate,
    issuer: &Certificate,
) -> bool {
    algorithms.all.iter().any(|algorithm| {
        algorithm.signature_alg_id().as_ref() == child.signature_algorithm
            && algorithm.public_key_alg_id().as_ref() == issuer.key_algorithm
            && algorithm.verify_signature(&issuer.key, &child.signed, &child.signature).is_ok()
    })
}

/// The handshake's signature is by the certificate's key. `first_only` is TLS 1.3's rule that a scheme names its curve.
pub(crate) fn of_handshake(
    algorithms: &WebPkiSupportedAlgorithms,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    first_only: bool,
) -> Result<HandshakeSignatureValid, Error> {
    let certificate = Certificate::read(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (_, candidates) = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme)
        .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let count = if first_only { 1 } else { candidates.len() };
    let fits = candidates.iter().take(count).any(|algorithm| {
        algorithm.public_key_alg_id().as_ref() == certificate.key_algorithm
            && algorithm.verify_signature(&certificate.key, message, signed.signature()).is_ok()
    });
    if fits { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
}
