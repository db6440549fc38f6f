//! Turns the settings into rustls configurations: one [`ClientTlsConfig`], and a [`ServerTlsConfig`] each towards servers and towards nodes of a fleet.
//!
//! All or nothing: on an error the previous configuration stays in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DistinguishedName, ServerConfig};
use settings::{Config, Global, PemFiles, SslMode, TlsFiles};

use crate::certificate::end_point;
use crate::keys::{self, SettingNames};
use crate::protocols::Protocols;
use crate::verifier::{ClientVerifier, ServerVerifier};
use crate::{SetupFault, ciphers};

/// PostgreSQL's ALPN protocol name.
const ALPN: &[u8] = b"postgresql";

/// TLS in all directions.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Towards clients.
    pub clients: Arc<ClientTlsConfig>,
    /// Towards servers.
    pub servers: Arc<ServerTlsConfig>,
    /// Towards other nodes of the fleet.
    pub peers: Arc<ServerTlsConfig>,
    /// Settings that are not supported, for the log.
    pub warnings: Vec<String>,
    clock: Clock,
    sources: Sources,
}

/// Towards clients, where we are the TLS server.
#[derive(Debug)]
pub struct ClientTlsConfig {
    /// Whether clients may or must use TLS.
    pub mode: SslMode,
    pub(crate) config: Option<Arc<ServerConfig>>,
    pub(crate) end_point: Option<Vec<u8>>,
}

/// Towards servers or other nodes, where we are the TLS client.
#[derive(Debug)]
pub struct ServerTlsConfig {
    /// Whether TLS is requested from them, and how they are verified.
    pub mode: SslMode,
    pub(crate) config: Option<Arc<ClientConfig>>,
}

/// The settings a [`TlsConfig`] was built from, to detect changes.
#[derive(Clone, Debug, PartialEq)]
struct Sources {
    client: Side,
    server: Side,
    peer: Side,
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

impl Sources {
    fn of(config: &Config) -> Sources {
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
        let TlsFiles { client, server, peer, .. } = config.tls_files.clone();
        Sources {
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
            peer: Side {
                mode: match (config.global.fleet.is_some(), &peer.ca) {
                    (false, _) => SslMode::Disable,
                    (true, None) => SslMode::Prefer,
                    (true, Some(_)) => SslMode::VerifyFull,
                },
                protocols: None,
                ciphers: None,
                ciphers13: None,
                curve: None,
                files: peer,
            },
        }
    }
}

impl TlsConfig {
    /// Builds both configurations.
    ///
    /// # Errors
    /// [`SetupFault`]: which setting, and why.
    pub fn new(config: &Config) -> Result<TlsConfig, SetupFault> {
        let sources = Sources::of(config);
        let clock = Clock::default();
        let mut warnings = Vec::new();
        let clients = Arc::new(client_config(&sources.client, &clock, &mut warnings)?);
        let servers = Arc::new(server_config(&sources.server, keys::SERVER, &clock, &mut warnings)?);
        let peers = Arc::new(server_config(&sources.peer, keys::PEER, &clock, &mut warnings)?);
        Ok(TlsConfig { clients, servers, peers, warnings, clock, sources })
    }

    /// No TLS anywhere.
    #[must_use]
    pub fn none() -> TlsConfig {
        let side = Side {
            mode: SslMode::Disable,
            protocols: None,
            ciphers: None,
            ciphers13: None,
            curve: None,
            files: PemFiles::default(),
        };
        let none = Arc::new(ServerTlsConfig { mode: SslMode::Disable, config: None });
        TlsConfig {
            clients: Arc::new(ClientTlsConfig { mode: SslMode::Disable, config: None, end_point: None }),
            servers: Arc::clone(&none),
            peers: none,
            warnings: Vec::new(),
            clock: Clock::default(),
            sources: Sources { client: side.clone(), server: side.clone(), peer: side },
        }
    }

    /// Built from the same settings as `config` has.
    #[must_use]
    pub fn is_built_from(&self, config: &Config) -> bool {
        self.sources == Sources::of(config)
    }

    /// Both have the same settings towards servers.
    #[must_use]
    pub fn has_same_servers(&self, other: &TlsConfig) -> bool {
        self.sources.server == other.sources.server
    }

    /// Sets the time for certificate validation, in microseconds since 1970.
    pub fn set_time(&self, wall_us: u64) {
        self.clock.set(wall_us / 1_000_000);
    }
}

fn client_config(
    side: &Side,
    clock: &Clock,
    warnings: &mut Vec<String>,
) -> Result<ClientTlsConfig, SetupFault> {
    let names = keys::CLIENT;
    if side.mode == SslMode::Disable {
        return Ok(ClientTlsConfig { mode: side.mode, config: None, end_point: None });
    }
    let (provider, protocols) = provider(side, names, warnings)?;
    let pair = keys::key_pair(&side.files, names, &provider)?.ok_or(SetupFault::NoKeyPair)?;
    let roots = keys::roots(&side.files, names)?;
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()))
        .with_protocol_versions(&protocols.versions())
        .map_err(refused)?;
    let required = side.mode >= SslMode::VerifyCa;
    // As in PgBouncer, lower modes request a certificate too: an HBA rule may need it.
    let builder = match roots {
        Some(roots) => {
            // Bytes of a whole Name, header included: what the type's own reading expects.
            let hints = roots.iter().map(|root| DistinguishedName::from(root.subject.clone())).collect();
            builder.with_client_cert_verifier(Arc::new(ClientVerifier { required, algorithms, roots, hints }))
        }
        None if required => return Err(SetupFault::NoRoots(names.side)),
        None => builder.with_no_client_auth(),
    };
    let end_point = pair.cert.first().and_then(|der: &CertificateDer<'_>| end_point(der));
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.ignore_client_order = true;
    // As PostgreSQL: no session is ever resumed, so that no key lives longer than its connection.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(ClientTlsConfig { mode: side.mode, config: Some(Arc::new(config)), end_point })
}

fn server_config(
    side: &Side,
    names: SettingNames,
    clock: &Clock,
    warnings: &mut Vec<String>,
) -> Result<ServerTlsConfig, SetupFault> {
    if side.mode == SslMode::Disable {
        return Ok(ServerTlsConfig { mode: side.mode, config: None });
    }
    let (mut provider, protocols) = provider(side, names, warnings)?;
    // PostgreSQL's own preference (ssl_ecdh_curve): another first choice would cost a round trip.
    provider.kx_groups = vec![ring::kx_group::SECP256R1, ring::kx_group::X25519, ring::kx_group::SECP384R1];
    let pair = keys::key_pair(&side.files, names, &provider)?;
    let mut roots = keys::roots(&side.files, names)?;
    if side.mode < SslMode::VerifyCa {
        roots = None;
    } else if roots.is_none() {
        return Err(SetupFault::NoRoots(names.side));
    }
    let algorithms = provider.signature_verification_algorithms;
    let verifier = ServerVerifier { algorithms, roots, checks_name: side.mode == SslMode::VerifyFull };
    let builder = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()))
        .with_protocol_versions(&protocols.versions())
        .map_err(refused)?
        .dangerous() // required by rustls for any custom verifier
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match pair {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(ServerTlsConfig { mode: side.mode, config: Some(Arc::new(config)) })
}

/// Suites, versions and groups of one side.
fn provider(
    side: &Side,
    names: SettingNames,
    warnings: &mut Vec<String>,
) -> Result<(CryptoProvider, Protocols), SetupFault> {
    let mut protocols = Protocols::read(side.protocols.as_deref().unwrap_or_default())?;
    let chosen = ciphers::tls12(side.ciphers.as_deref().unwrap_or_default())?;
    let chosen13 = ciphers::tls13(side.ciphers13.as_deref())?;
    if protocols.old_named {
        warnings.push(format!("{}_protocols: TLS below 1.2 is not supported and is ignored", names.side));
    }
    for word in chosen.unsupported.iter().chain(&chosen13.unsupported) {
        warnings.push(format!("{}_ciphers: \"{word}\" is not supported and is ignored", names.side));
    }
    if protocols.tls12 && chosen.suites.is_empty() {
        if !protocols.tls13 {
            return Err(SetupFault::Ciphers(side.ciphers.clone().unwrap_or_default()));
        }
        protocols.tls12 = false;
        warnings.push(format!("{}_ciphers leave no cipher for TLSv1.2: only TLSv1.3 is enabled", names.side));
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

/// The time of handshakes, in seconds since 1970: set by the owner before each, read by rustls to verify certificates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Sets the current time.
    pub(crate) fn set(&self, unix_s: u64) {
        self.0.store(unix_s, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let told = std::time::Duration::from_secs(self.0.load(Ordering::Relaxed));
        Some(UnixTime::since_unix_epoch(told))
    }
}
