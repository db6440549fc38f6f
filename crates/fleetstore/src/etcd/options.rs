//! What settings say of the store in etcd.

use std::fmt;
use std::time::Duration;

use fleet::NodeId;

use settings::EtcdUrl;

/// The store, and who uses it.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `fleet`.
    pub url: EtcdUrl,
    /// None: without TLS.
    pub tls: Option<EtcdTls>,
    /// `fleet_node`.
    pub node: NodeId,
    /// Seconds for which a lease is asked; etcd may grant longer ones, and its answer counts. At least 1.
    pub lease_s: u32,
    /// For the answer to any request but a watch.
    pub request_timeout: Duration,
}

impl EtcdOptions {
    /// The timeout where no setting says otherwise.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
}

/// Certificates, in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Roots by which members' certificates are checked (`fleet_tls_ca_file`).
    pub ca: Vec<u8>,
    /// The client's certificate and key (`fleet_tls_cert_file`, `fleet_tls_key_file`).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why the options cannot be used: a file's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// The CA file has no certificate, or one that cannot be read.
    Ca(String),
    /// The client's certificate or key cannot be used.
    Identity(String),
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EtcdTls(identity: {})", self.identity.is_some())
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::Ca(why) => write!(out, "fleet_tls_ca_file: {why}"),
            OptionsError::Identity(why) => write!(out, "fleet_tls_cert_file, fleet_tls_key_file: {why}"),
        }
    }
}

impl std::error::Error for OptionsError {}
