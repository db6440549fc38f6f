//! Errors of the configuration ([`SetupFault`]) and of a peer ([`HandshakeFault`]).
//!
//! The texts are OpenSSL's where it has one: operators search their logs for those.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why the TLS settings are invalid. Displays as the end of "TLS setup failed: ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupFault {
    /// A file cannot be read; the system's words.
    Unreadable {
        /// The setting that names it.
        setting: &'static str,
        /// Path and reason.
        reason: String,
    },
    /// A file has no usable key or certificate.
    Content {
        /// The setting that names it.
        setting: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Modes above `disable` need key and certificate towards clients.
    NoKeyPair,
    /// `verify-ca` and `verify-full` need roots.
    NoRoots(&'static str),
    /// One of key and certificate is given without the other.
    HalfPair(&'static str),
    /// Key and certificate do not belong together.
    Mismatch(&'static str),
    /// The list of versions is not one.
    Protocols(String),
    /// No cipher of a list is supported.
    Ciphers(String),
    /// An invalid name in a list of TLS 1.3 suites.
    Ciphers13(String),
    /// Unknown curve.
    Curve(String),
    /// rustls refuses the combination.
    Refused(String),
}

impl fmt::Display for SetupFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupFault::Unreadable { setting, reason } | SetupFault::Content { setting, reason } => {
                write!(out, "{setting}: {reason}")
            }
            SetupFault::NoKeyPair => out.write_str(
                "to allow TLS connections from clients, client_tls_key_file and client_tls_cert_file must be set",
            ),
            SetupFault::NoRoots(side) => write!(out, "{side}_sslmode requires {side}_ca_file"),
            SetupFault::HalfPair(side) => {
                write!(out, "{side}_key_file and {side}_cert_file must be set together")
            }
            SetupFault::Mismatch(side) => {
                write!(out, "key values mismatch: {side}_key_file is not the key of {side}_cert_file")
            }
            SetupFault::Protocols(text) => write!(out, "invalid protocol list: {text}"),
            SetupFault::Ciphers(text) => write!(out, "failed to set ciphers: {text}"),
            SetupFault::Ciphers13(text) => write!(out, "failed to set the TLSv1.3 cipher suites: {text}"),
            SetupFault::Curve(name) => write!(out, "failed to set ecdhcurve: {name}"),
            SetupFault::Refused(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for SetupFault {}

/// Why a connection cannot be secured, or its records cannot be read. Displays as the end of
/// "TLS handshake error: handshake failed: ".
#[derive(Clone, Debug, PartialEq)]
pub enum HandshakeFault {
    /// An error of rustls.
    Protocol(Error),
    /// More bytes came than any handshake has.
    TooLong,
    /// The host name is not valid in a certificate.
    HostName(String),
    /// TLS is disabled: a bug of the caller.
    NotConfigured,
}

impl From<Error> for HandshakeFault {
    fn from(error: Error) -> HandshakeFault {
        HandshakeFault::Protocol(error)
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeFault::Protocol(error) => protocol(error, out),
            HandshakeFault::TooLong => out.write_str("excessive message size"),
            HandshakeFault::HostName(name) => write!(out, "invalid host name \"{name}\""),
            HandshakeFault::NotConfigured => out.write_str("TLS is not configured"),
        }
    }
}

impl std::error::Error for HandshakeFault {}

fn protocol(error: &Error, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::InvalidCertificate(why) => write!(out, "certificate verify failed: {}", certificate(why)),
        Error::NoCertificatesPresented => out.write_str("peer did not return a certificate"),
        Error::PeerIncompatible(why) => match why {
            PeerIncompatible::NoCipherSuitesInCommon => out.write_str("no shared cipher"),
            PeerIncompatible::NoKxGroupsInCommon => out.write_str("no shared group"),
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired => out.write_str("unsupported protocol"),
            other => write!(out, "{other:?}"),
        },
        Error::AlertReceived(alert) => write!(out, "tlsv1 alert {}", alert_words(*alert)),
        Error::NoApplicationProtocol => out.write_str("no application protocol"),
        Error::InvalidMessage(_) => out.write_str("wrong version number or broken record"),
        other => write!(out, "{other}"),
    }
}

/// OpenSSL's text for an error of `chain`.
fn certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid"
        }
        CertificateError::UnknownIssuer => "unable to get local issuer certificate",
        CertificateError::BadSignature => "certificate signature failure",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "unsuitable certificate purpose"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "hostname mismatch"
        }
        CertificateError::UnhandledCriticalExtension => "unhandled critical extension",
        CertificateError::BadEncoding => "certificate cannot be decoded",
        CertificateError::ApplicationVerificationFailure => "invalid CA certificate",
        _ => "certificate rejected",
    }
}

/// An alert in OpenSSL's spelling: the standard's with spaces.
fn alert_words(alert: AlertDescription) -> String {
    let name = format!("{alert:?}");
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words.replace("c a", "ca")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_have_openssls_words() {
        let sources = |error: Error| HandshakeFault::from(error).to_string();
        assert_eq!(
            sources(CertificateError::UnknownIssuer.into()),
            "certificate verify failed: unable to get local issuer certificate"
        );
        assert_eq!(sources(Error::AlertReceived(AlertDescription::UnknownCA)), "tlsv1 alert unknown ca");
        assert_eq!(
            sources(Error::AlertReceived(AlertDescription::CertificateExpired)),
            "tlsv1 alert certificate expired"
        );
        assert_eq!(sources(Error::NoCertificatesPresented), "peer did not return a certificate");
    }
}
