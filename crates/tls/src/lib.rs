//! TLS in both directions, without sockets: the configuration ([`TlsConfig`]) and a connection ([`TlsConnection`]).
//!
//! The protocol itself is rustls. Owned here: OpenSSL's names of ciphers, versions and errors, and the checking of
//! certificates as libpq and OpenSSL do it (X.509 v1 and common names included, which PostgreSQL's users have). Never
//! reads a file or a clock: files come with the configuration, the time with every handshake. Entropy of keys and
//! nonces is rustls' own source.
#![forbid(unsafe_code)]

mod certificate;
mod chain;
mod ciphers;
mod config;
mod connection;
mod fault;
mod hostname;
mod keys;
mod panel;
pub mod probe;
mod protocols;
mod signature;
mod verifier;

pub use certificate::{Certificate, PeerCertificate};
pub use config::{ClientTlsConfig, ServerTlsConfig, TlsConfig};
pub use connection::{NegotiatedTls, Progress, TlsConnection};
pub use fault::{HandshakeFault, SetupFault};
pub use panel::{collector_tls_config, kubernetes_tls_config, panel_tls_config};
