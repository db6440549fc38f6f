//! What the settings mean to rustls: one [`ClientTerms`] and one [`ServerTerms`] out of texts and files.
//!
//! Owns which setting leads to what, and what cannot be had. All or nothing: a fault leaves the terms before in force.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DistinguishedName, ServerConfig};
use settings::{Config, Global, PemFiles, SslMode, TlsFiles};

use crate::certificate::end_point;
use crate::clock::Clock;
use crate::keys::{self, Names};
use crate::protocols::Protocols;
use crate::verifier::{OfClients, OfServers};
use crate::{SetupFault, ciphers};

/// What PostgreSQL's protocol is called in ALPN.
const ALPN: &[u8] = b"postgresql";

/// Both sides' terms.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Towards clients.
    pub clients: Arc<ClientTerms>,
    /// Towards servers.
    pub servers: Arc<ServerTerms>,
    /// What was asked for and cannot be had, for the log.
    pub warnings: Vec<String>,
    clock: Clock,
    said: Said,
}

/// Towards clients, where we are the TLS server.
#[derive(Debug)]
pub struct ClientTerms {
    /// Whether clients may or must use TLS.
    pub mode: SslMode,
    pub(crate) config: Option<Arc<ServerConfig>>,
    pub(crate) end_point: Option<Vec<u8>>,
}

/// Towards servers, where we are the TLS client.
#[derive(Debug)]
pub struct ServerTerms {
    /// Whether servers are asked for TLS, and how they are checked.
    pub mode: SslMode,
    pub(crate) config: Option<Arc<ClientConfig>>,
}

/// All that terms are made of, to see whether new ones would differ.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    client: Side,
    server: Side,
}

#[derive(Clone, Debug, PartialEq)]
struct Side {
    mode: SslMode,
    protocols: Option<String>,
    ciphers: Option<String>,
    ciphers13: Option<String>,
    curve: Option<String>,
    files: PemFiles,
}

impl Said {
    fn of(config: &Config) -> Said {
        let Global {
            client_tls_sslmode,
            client_tls_protocols,
            client_tls_ciphers,
            client_tls13_ciphers,
            client_tls_ecdhcurve,
            server_tls_sslmode,
            server_tls_protocols,
            server_tls_ciphers,
            server_tls13_ciphers,
            ..
        } = config.global.clone();
        let TlsFiles { client, server, .. } = config.tls_files.clone();
        Said {
            client: Side {
                mode: client_tls_sslmode,
                protocols: client_tls_protocols,
                ciphers: client_tls_ciphers,
                ciphers13: client_tls13_ciphers,
                curve: client_tls_ecdhcurve,
                files: client,
            },
            server: Side {
                mode: server_tls_sslmode,
                protocols: server_tls_protocols,
                ciphers: server_tls_ciphers,
                ciphers13: server_tls13_ciphers,
                curve: None,
                files: server,
            },
        }
    }
}

impl Terms {
    /// Both sides' terms, or the first thing that is wrong.
    ///
    /// # Errors
    /// [`SetupFault`]: whose setting, and why.
    pub fn new(config: &Config) -> Result<Terms, SetupFault> {
        let said = Said::of(config);
        let clock = Clock::default();
        let mut warnings = Vec::new();
        let clients = Arc::new(client_terms(&said.client, &clock, &mut warnings)?);
        let servers = Arc::new(server_terms(&said.server, &clock, &mut warnings)?);
        Ok(Terms { clients, servers, warnings, clock, said })
    }

    /// No TLS anywhere.
    #[must_use]
    pub fn none() -> Terms {
        let side = Side {
            mode: SslMode::Disable,
            protocols: None,
            ciphers: None,
            ciphers13: None,
            curve: None,
            files: PemFiles::default(),
        };
        Terms {
            clients: Arc::new(ClientTerms { mode: SslMode::Disable, config: None, end_point: None }),
            servers: Arc::new(ServerTerms { mode: SslMode::Disable, config: None }),
            warnings: Vec::new(),
            clock: Clock::default(),
            said: Said { client: side.clone(), server: side },
        }
    }

    /// The configuration says the same as these terms.
    #[must_use]
    pub fn are_of(&self, config: &Config) -> bool {
        self.said == Said::of(config)
    }

    /// Servers get the same treatment by both.
    #[must_use]
    pub fn same_servers(&self, other: &Terms) -> bool {
        self.said.server == other.said.server
    }

    /// It is now this late, in microseconds since 1970: certificates are judged by it.
    pub fn tell_time(&self, wall_us: u64) {
        self.clock.set(wall_us / 1_000_000);
    }
}

fn client_terms(side: &Side, clock: &Clock, warnings: &mut Vec<String>) -> Result<ClientTerms, SetupFault> {
    let names = keys::CLIENT;
    if side.mode == SslMode::Disable {
        return Ok(ClientTerms { mode: side.mode, config: None, end_point: None });
    }
    let (provider, protocols) = provider(side, names, warnings)?;
    let pair = keys::key_pair(&side.files, names, &provider)?.ok_or(SetupFault::NoKeyPair)?;
    let roots = keys::roots(&side.files, names)?;
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()))
        .with_protocol_versions(&protocols.versions())
        .map_err(refused)?;
    let demands = side.mode >= SslMode::VerifyCa;
    // As PgBouncer: the modes below ask too, for an HBA rule may want what a client can show.
    let builder = match roots {
        Some(roots) => {
            // Bytes of a whole Name, header included: what the type's own reading expects.
            let hints = roots.iter().map(|root| DistinguishedName::from(root.subject.clone())).collect();
            builder.with_client_cert_verifier(Arc::new(OfClients { demands, algorithms, roots, hints }))
        }
        None if demands => return Err(SetupFault::NoRoots(names.side)),
        None => builder.with_no_client_auth(),
    };
    let end_point = pair.cert.first().and_then(|der: &CertificateDer<'_>| end_point(der));
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.ignore_client_order = true;
    // As PostgreSQL: no session is ever resumed, so that no key lives longer than its connection.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(ClientTerms { mode: side.mode, config: Some(Arc::new(config)), end_point })
}

fn server_terms(side: &Side, clock: &Clock, warnings: &mut Vec<String>) -> Result<ServerTerms, SetupFault> {
    let names = keys::SERVER;
    if side.mode == SslMode::Disable {
        return Ok(ServerTerms { mode: side.mode, config: None });
    }
    let (mut provider, protocols) = provider(side, names, warnings)?;
    // PostgreSQL's own preference (ssl_ecdh_curve): any other first guess would cost a round trip.
    provider.kx_groups = vec![ring::kx_group::SECP256R1, ring::kx_group::X25519, ring::kx_group::SECP384R1];
    let pair = keys::key_pair(&side.files, names, &provider)?;
    let mut roots = keys::roots(&side.files, names)?;
    if side.mode < SslMode::VerifyCa {
        roots = None;
    } else if roots.is_none() {
        return Err(SetupFault::NoRoots(names.side));
    }
    let algorithms = provider.signature_verification_algorithms;
    let verifier = OfServers { algorithms, roots, checks_name: side.mode == SslMode::VerifyFull };
    let builder = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()))
        .with_protocol_versions(&protocols.versions())
        .map_err(refused)?
        .dangerous() // rustls' word for "a verifier of one's own"
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match pair {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(ServerTerms { mode: side.mode, config: Some(Arc::new(config)) })
}

/// Suites, versions and groups of one side.
fn provider(
    side: &Side,
    names: Names,
    warnings: &mut Vec<String>,
) -> Result<(CryptoProvider, Protocols), SetupFault> {
    let mut protocols = Protocols::read(side.protocols.as_deref().unwrap_or_default())?;
    let chosen = ciphers::tls12(side.ciphers.as_deref().unwrap_or_default())?;
    let chosen13 = ciphers::tls13(side.ciphers13.as_deref())?;
    if protocols.old_named {
        warnings.push(format!("{}_protocols: TLS below 1.2 is not supported and left out", names.side));
    }
    for word in chosen.lacking.iter().chain(&chosen13.lacking) {
        warnings.push(format!("{}_ciphers: \"{word}\" is not supported and left out", names.side));
    }
    if protocols.tls12 && chosen.suites.is_empty() {
        if !protocols.tls13 {
            return Err(SetupFault::Ciphers(side.ciphers.clone().unwrap_or_default()));
        }
        protocols.tls12 = false;
        warnings.push(format!("{}_ciphers leave no cipher for TLSv1.2: only TLSv1.3 is spoken", names.side));
    }
    let mut provider = ring::default_provider();
    provider.cipher_suites = [chosen13.suites, chosen.suites].concat();
    provider.kx_groups = groups(side.curve.as_deref().unwrap_or_default())?;
    Ok((provider, protocols))
}

/// `auto`, or the curve that may be used.
fn groups(curve: &str) -> Result<Vec<&'static dyn SupportedKxGroup>, SetupFault> {
    use ring::kx_group::{SECP256R1, SECP384R1, X25519};
    Ok(match curve.to_ascii_lowercase().as_str() {
        "" | "auto" | "none" => vec![X25519, SECP256R1, SECP384R1],
        "prime256v1" | "secp256r1" | "p-256" => vec![SECP256R1],
        "secp384r1" | "p-384" => vec![SECP384R1],
        "x25519" => vec![X25519],
        _ => return Err(SetupFault::Curve(curve.to_owned())),
    })
}

pub(crate) fn refused(error: rustls::Error) -> SetupFault {
    SetupFault::Refused(error.to_string())
}
