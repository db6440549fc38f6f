//! What settings say of the store in etcd.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use fleet::NodeId;
use rustls_pki_types::pem::PemObject;
use settings::{EtcdUrl, StoreEndpoint};
use tonic::transport::{Certificate, CertificateDer, ClientTlsConfig, Endpoint, Identity};

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

    /// Whether certificates and keys can be used; connects to nothing.
    ///
    /// # Errors
    /// [`OptionsError`]: they cannot.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.endpoints().map(drop)
    }

    /// The members, with their labels.
    pub(crate) fn endpoints(&self) -> Result<Vec<(String, Endpoint)>, OptionsError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let tls = self.tls.as_ref().map(EtcdTls::client_config).transpose()?;
        let endpoint = |endpoint: &StoreEndpoint| {
            let uri = format!("{scheme}://{endpoint}");
            let made = Endpoint::from_shared(uri).map_err(|why| OptionsError::Host(why.to_string()))?;
            let made = match tls.clone() {
                Some(tls) => {
                    let domain = endpoint.host.clone();
                    made.tls_config(tls.domain_name(domain))
                        .map_err(|why| OptionsError::Identity(cause(&why)))?
                }
                None => made,
            };
            Ok((endpoint.to_string(), made))
        };
        self.url.endpoints.iter().map(endpoint).collect()
    }
}

/// Certificates, in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Roots by which members' certificates are checked (`fleet_tls_ca_file`).
    pub ca: Vec<u8>,
    /// The client's certificate and key (`fleet_tls_cert_file`, `fleet_tls_key_file`).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdTls {
    fn client_config(&self) -> Result<ClientTlsConfig, OptionsError> {
        let certificates = CertificateDer::pem_slice_iter(&self.ca).collect::<Result<Vec<_>, _>>();
        match certificates {
            Ok(found) if found.is_empty() => {
                return Err(OptionsError::Ca("it has no certificate".to_owned()));
            }
            Ok(_) => {}
            Err(why) => return Err(OptionsError::Ca(why.to_string())),
        }
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        Ok(match &self.identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        })
    }
}

/// The innermost reason.
fn cause(why: &(dyn Error + 'static)) -> String {
    why.source().map_or_else(|| why.to_string(), cause)
}

/// Why the options cannot be used: a file's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// The CA file has no certificate, or one that cannot be read.
    Ca(String),
    /// The client's certificate or key cannot be used.
    Identity(String),
    /// A host of the URL cannot be used, or it lacks something.
    Host(String),
    /// A file of `fleet_tls_*` cannot be used; its setting is named.
    Tls(String),
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
            OptionsError::Host(why) => write!(out, "fleet: {why}"),
            OptionsError::Tls(why) => out.write_str(why),
            OptionsError::Identity(why) => write!(out, "fleet_tls_cert_file, fleet_tls_key_file: {why}"),
        }
    }
}

impl Error for OptionsError {}
