//! TLS, both ways and without sockets: what was configured ([`Terms`]), and one connection's records ([`Session`]).
//!
//! The protocol itself is rustls. Owned here: OpenSSL's names of ciphers, versions and errors, and the checking of
//! certificates as libpq and OpenSSL do it (X.509 v1 and common names included, which PostgreSQL's users have). Never
//! reads a file or a clock: files come with the configuration, the time with every handshake. Entropy of keys and
//! nonces is rustls' own source.
#![forbid(unsafe_code)]

mod certificate;
mod chain;
mod ciphers;
mod clock;
mod collector;
mod fault;
mod hostname;
mod keys;
pub mod probe;
mod protocols;
mod session;
mod signature;
mod terms;
mod verifier;
mod web;

pub use certificate::{Certificate, PeerCertificate};
pub use collector::collector_terms;
pub use fault::{HandshakeFault, SetupFault};
pub use session::{Agreed, Progress, Session};
pub use terms::{ClientTerms, ServerTerms, Terms};
pub use web::web_terms;
