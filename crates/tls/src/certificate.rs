//! A decoded certificate: subject, signature, validity, purposes.
//!
//! Owns decoding (by `x509-cert`, any version from 1). Validation is in `chain` and `hostname`.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{self, Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::{TbsCertificate, Version};

/// Extensions that `chain` evaluates or may ignore: other critical extensions are rejected.
const UNDERSTOOD: [&str; 5] = [
    "2.5.29.15", // keyUsage
    "2.5.29.17", // subjectAltName
    "2.5.29.19", // basicConstraints
    "2.5.29.32", // certificatePolicies
    "2.5.29.37", // extKeyUsage
];

/// A decoded certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The signed part (tbsCertificate).
    pub(crate) signed: Vec<u8>,
    /// AlgorithmIdentifier of the signature, without its outer header.
    pub(crate) signature_algorithm: Vec<u8>,
    pub(crate) signature: Vec<u8>,
    /// Names as DER, for comparing.
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    /// The subject as text.
    pub(crate) subject_text: String,
    pub(crate) common_name: Option<String>,
    pub(crate) names: AlternativeNames,
    /// SubjectPublicKeyInfo.
    pub(crate) key_info: Vec<u8>,
    /// AlgorithmIdentifier of the key, without its outer header.
    pub(crate) key_algorithm: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// Seconds since 1970, both included.
    pub(crate) not_before_s: u64,
    pub(crate) not_after_s: u64,
    pub(crate) authority: Authority,
    /// Allowed purposes; None allows all.
    pub(crate) purposes: Option<Vec<ObjectIdentifier>>,
    /// Its key may sign or agree in a handshake.
    pub(crate) may_handshake: bool,
    pub(crate) unknown_critical: bool,
}

/// The content of subjectAltName.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AlternativeNames {
    pub(crate) dns: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Whether a certificate may sign others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authority {
    /// A CA, with its path length constraint.
    Yes { path_length: Option<u8> },
    /// Version 1 has no basicConstraints: accepted only as a root, as in OpenSSL.
    RootOnly,
    /// Not a CA.
    No,
}

/// The parts of a peer's certificate that other crates use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// CN of the subject.
    pub common_name: Option<String>,
    /// DNS names and addresses of subjectAltName.
    pub alternative_names: Vec<String>,
    /// The whole subject, as RFC 4514 writes names.
    pub subject: String,
}

impl Certificate {
    /// Decodes.
    ///
    /// # Errors
    /// The decoder's error.
    pub fn read(der: &CertificateDer<'_>) -> Result<Certificate, der::Error> {
        let (signed, algorithm, signature) = parts(der)?;
        let tbs = TbsCertificate::from_der(&signed)?;
        let key_usage = extension::<KeyUsage>(&tbs)?;
        let key_info = tbs.subject_public_key_info();
        let usable =
            |usage: &KeyUsage| usage.digital_signature() || usage.key_encipherment() || usage.key_agreement();
        Ok(Certificate {
            signature_algorithm: contents(&algorithm)?,
            signature,
            issuer: tbs.issuer().to_der()?,
            subject: tbs.subject().to_der()?,
            subject_text: tbs.subject().to_string(),
            common_name: tbs.subject().common_name().ok().flatten().map(|name| name.value().into_owned()),
            names: AlternativeNames::of(&tbs)?,
            key_info: key_info.to_der()?,
            key_algorithm: contents(&key_info.algorithm)?,
            key: key_info.subject_public_key.raw_bytes().to_vec(),
            not_before_s: tbs.validity().not_before.to_unix_duration().as_secs(),
            not_after_s: tbs.validity().not_after.to_unix_duration().as_secs(),
            authority: authority(&tbs, key_usage.as_ref())?,
            purposes: extension::<ExtendedKeyUsage>(&tbs)?.map(|usage| usage.0),
            may_handshake: key_usage.as_ref().is_none_or(usable),
            unknown_critical: tbs.extensions().is_some_and(|all| {
                all.iter().any(|one| one.critical && !UNDERSTOOD.contains(&&*one.extn_id.to_string()))
            }),
            signed,
        })
    }

    /// The parts that other crates use.
    #[must_use]
    pub fn peer(&self) -> PeerCertificate {
        let dns = self.names.dns.iter().cloned();
        PeerCertificate {
            common_name: self.common_name.clone(),
            alternative_names: dns.chain(self.names.addresses.iter().map(ToString::to_string)).collect(),
            subject: self.subject_text.clone(),
        }
    }

    /// Subject and issuer are equal.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }
}

/// `tls-server-end-point` of RFC 5929: the certificate's hash, by the hash of its signature (at least SHA-256). None
/// where the signature has no such hash.
pub(crate) fn end_point(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, algorithm, _) = parts(der).ok()?;
    match algorithm.oid.to_string().as_str() {
        // md5, sha1 and sha256, with RSA, ECDSA or DSA.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2"
        | "1.2.840.10040.4.3"
        | "2.16.840.1.101.3.4.3.2" => Some(Sha256::digest(der).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Sha384::digest(der).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Sha512::digest(der).to_vec()),
        _ => None,
    }
}

impl AlternativeNames {
    fn of(tbs: &TbsCertificate) -> Result<AlternativeNames, der::Error> {
        let mut names = AlternativeNames::default();
        let Some(SubjectAltName(all)) = extension(tbs)? else { return Ok(names) };
        for name in all {
            match name {
                GeneralName::DnsName(name) => names.dns.push(name.as_str().to_owned()),
                GeneralName::IpAddress(bytes) => names.addresses.extend(address(bytes.as_bytes())),
                _ => {}
            }
        }
        Ok(names)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// The three parts of a certificate; the first as the exact bytes that were signed.
fn parts(der: &[u8]) -> Result<(Vec<u8>, AlgorithmIdentifierOwned, Vec<u8>), der::Error> {
    let mut reader = SliceReader::new(der)?;
    let parts = reader.sequence(|inner| {
        let signed = inner.tlv_bytes()?.to_vec();
        let algorithm = AlgorithmIdentifierOwned::decode(inner)?;
        let signature = der::asn1::BitString::decode(inner)?;
        Ok::<_, der::Error>((signed, algorithm, signature.raw_bytes().to_vec()))
    })?;
    reader.finish()?;
    Ok(parts)
}

/// What is in a sequence, without its header.
fn contents(algorithm: &AlgorithmIdentifierOwned) -> Result<Vec<u8>, der::Error> {
    let whole = algorithm.to_der()?;
    let any = der::asn1::AnyRef::from_der(&whole)?;
    Ok(any.value().to_vec())
}

/// One extension; the same twice is an error.
fn extension<T>(tbs: &TbsCertificate) -> Result<Option<T>, der::Error>
where
    T: for<'a> Decode<'a, Error = der::Error> + der::oid::AssociatedOid,
{
    Ok(tbs.get_extension::<T>()?.map(|(_, extension)| extension))
}

/// OpenSSL's `check_ca`, without Netscape's extensions.
fn authority(tbs: &TbsCertificate, key_usage: Option<&KeyUsage>) -> Result<Authority, der::Error> {
    if key_usage.is_some_and(|usage| !usage.key_cert_sign()) {
        return Ok(Authority::No);
    }
    Ok(match extension::<BasicConstraints>(tbs)? {
        Some(constraints) if constraints.ca => {
            Authority::Yes { path_length: constraints.path_len_constraint }
        }
        Some(_) => Authority::No,
        None if tbs.version() == Version::V1 => Authority::RootOnly,
        None if key_usage.is_some() => Authority::Yes { path_length: None },
        None => Authority::No,
    })
}
