//! Path validation up to one of the configured roots, by OpenSSL's rules.
//!
//! Owns the search for a path (bounded), dates, authority, purposes. Never looks at names of hosts.

use rustls::CertificateError;
use rustls::crypto::WebPkiSupportedAlgorithms;
use x509_cert::der::asn1::ObjectIdentifier;

use crate::Certificate;
use crate::signature::is_signed_by;

/// Certificates above the peer's own, at most.
const MAX_DEPTH: usize = 10;
/// Signatures verified per handshake, at most.
const MAX_SIGNATURES: usize = 100;

/// extKeyUsage: TLS server.
pub(crate) const SERVER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
/// extKeyUsage: TLS client.
pub(crate) const CLIENT: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
const ANY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

/// Verifies a peer's certificate path.
pub(crate) struct ChainVerifier<'a> {
    pub(crate) algorithms: &'a WebPkiSupportedAlgorithms,
    /// The CA file; certificates in it that are not roots may be intermediates.
    pub(crate) roots: &'a [Certificate],
    /// The intermediates that the peer sent.
    pub(crate) sent: &'a [Certificate],
    pub(crate) purpose: ObjectIdentifier,
    pub(crate) now_s: u64,
}

impl ChainVerifier<'_> {
    /// Verifies the peer's own certificate.
    ///
    /// # Errors
    /// The first error, as OpenSSL names it.
    pub(crate) fn verify(&self, leaf: &Certificate) -> Result<(), CertificateError> {
        let mut path = Path { certificates: vec![leaf], checks_left: MAX_SIGNATURES };
        let purposes = leaf.purposes.as_deref();
        if purposes.is_some_and(|all| !all.contains(&self.purpose) && !all.contains(&ANY))
            || !leaf.may_handshake
        {
            return Err(CertificateError::InvalidPurpose);
        }
        self.extend(&mut path)?;
        path.certificates.iter().try_for_each(|certificate| self.is_in_time(certificate))
    }

    /// Extends the path from its last certificate until a root is reached.
    fn extend<'p>(&'p self, path: &mut Path<'p>) -> Result<(), CertificateError> {
        let Some(&last) = path.certificates.last() else { return Err(CertificateError::BadEncoding) };
        if last.unknown_critical {
            return Err(CertificateError::UnhandledCriticalExtension);
        }
        if last.is_self_issued() && self.roots.contains(last) {
            return Ok(());
        }
        let mut verdict = CertificateError::UnknownIssuer;
        let known = self.roots.iter().chain(self.sent);
        for issuer in known.filter(|issuer| issuer.subject == last.issuer) {
            if path.certificates.len() > MAX_DEPTH || path.certificates.contains(&issuer) {
                continue;
            }
            if path.checks_left == 0 {
                return Err(CertificateError::UnknownIssuer);
            }
            path.checks_left -= 1;
            if !is_signed_by(self.algorithms, last, issuer) {
                verdict = CertificateError::BadSignature;
                continue;
            }
            if !path.allows_issuer(issuer) {
                // rustls has no error for "invalid CA certificate"; `fault` maps this one to OpenSSL's text.
                verdict = CertificateError::ApplicationVerificationFailure;
                continue;
            }
            path.certificates.push(issuer);
            match self.extend(path) {
                Ok(()) => return Ok(()),
                Err(error) => verdict = error,
            }
            path.certificates.pop();
        }
        Err(verdict)
    }

    fn is_in_time(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        if self.now_s < certificate.not_before_s {
            Err(CertificateError::NotValidYet)
        } else if self.now_s > certificate.not_after_s {
            Err(CertificateError::Expired)
        } else {
            Ok(())
        }
    }
}

/// From the peer's own certificate upwards.
struct Path<'a> {
    certificates: Vec<&'a Certificate>,
    checks_left: usize,
}

impl Path<'_> {
    /// `issuer` may issue the certificates in the path.
    fn allows_issuer(&self, issuer: &Certificate) -> bool {
        use crate::certificate::Authority;
        let between = self.certificates.iter().skip(1).filter(|one| !one.is_self_issued()).count();
        match issuer.authority {
            Authority::Yes { path_length } => path_length.is_none_or(|most| between <= usize::from(most)),
            Authority::RootOnly => issuer.is_self_issued(),
            Authority::No => false,
        }
    }
}
