//! Certificate verifiers for rustls, towards clients and servers, in every mode.
//!
//! Owns what each mode requires. `chain` and `hostname` verify; signatures are checked in every mode.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::chain::{self, ChainVerifier};
use crate::{Certificate, hostname, signature};

/// Handshake signature verification, the same for both roles.
macro_rules! handshake_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            signature::of_handshake(&self.algorithms, message, cert, dss, false)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            signature::of_handshake(&self.algorithms, message, cert, dss, true)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

/// Certificates that a peer may send.
const MAX_SENT: usize = 16;

/// Checks a server's certificate.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    /// None: the mode does not verify servers.
    pub(crate) roots: Option<Arc<[Certificate]>>,
    pub(crate) checks_name: bool,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let leaf = verified_leaf(&self.algorithms, roots, end_entity, intermediates, chain::SERVER, now)?;
            if self.checks_name && !hostname::matches(&leaf, &server_name.to_str()) {
                return Err(CertificateError::NotValidForName.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    handshake_signatures!();
}

/// Requests a client's certificate and verifies it.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    /// A client without one is rejected.
    pub(crate) required: bool,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) roots: Arc<[Certificate]>,
    /// Subjects of the roots, sent to clients as hints.
    pub(crate) hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verified_leaf(&self.algorithms, &self.roots, end_entity, intermediates, chain::CLIENT, now)?;
        Ok(ClientCertVerified::assertion())
    }

    handshake_signatures!();
}

/// Decodes and verifies the certificates of a peer; returns its own.
fn verified_leaf(
    algorithms: &WebPkiSupportedAlgorithms,
    roots: &[Certificate],
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    purpose: x509_cert::der::asn1::ObjectIdentifier,
    now: UnixTime,
) -> Result<Certificate, Error> {
    let leaf = Certificate::read(end_entity).map_err(|_| CertificateError::BadEncoding)?;
    // What cannot be decoded cannot be part of a path, and is no reason to refuse one without it.
    let sent: Vec<Certificate> =
        intermediates.iter().take(MAX_SENT).filter_map(|der| Certificate::read(der).ok()).collect();
    let judge = ChainVerifier { algorithms, roots, sent: &sent, purpose, now_s: now.as_secs() };
    judge.verify(&leaf)?;
    Ok(leaf)
}
