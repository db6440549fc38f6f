//! Who logs in, from where and how: one value that every way of connecting takes. A password is answered by SCRAM
//! with keys that are derived once, so that ten thousand logins cost the lab no ten thousand derivations.

use std::net::Ipv4Addr;
use std::sync::Arc;

use auth::{Credentials, Entropy, ServerKeyCache, ServerLogin, Step};
use rustls::ClientConfig;

use crate::error::{LabError, Result};

/// One login.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The role.
    pub user: &'a str,
    /// The database, or the pool.
    pub database: &'a str,
    /// What the client calls itself.
    pub application_name: &'a str,
    /// The address it comes from, one of 127.0.0.0/8.
    pub source: Ipv4Addr,
    /// TLS, where it is wanted.
    pub tls: Option<&'a Arc<ClientConfig>>,
}

impl<'a> Login<'a> {
    /// From 127.0.0.1 and without TLS.
    #[must_use]
    pub fn plain(user: &'a str, database: &'a str) -> Self {
        Self { user, database, application_name: "weir-bench", source: Ipv4Addr::LOCALHOST, tls: None }
    }
}

/// A password with what was derived from it.
#[derive(Debug, Default)]
pub struct Keyring {
    credentials: Credentials,
    cache: ServerKeyCache,
}

impl Keyring {
    /// For logins with this password.
    #[must_use]
    pub fn new(password: &str) -> Self {
        let credentials = Credentials::Plain(password.to_owned().into());
        Self { credentials, cache: ServerKeyCache::new(8) }
    }

    /// The exchange of one login.
    pub(super) fn exchange(&self, user: &str) -> ServerLogin {
        ServerLogin::new(user, &self.credentials)
    }

    /// What to answer to the body of an `R` message: nothing once the server is content.
    pub(super) fn answer(&mut self, exchange: &mut ServerLogin, body: &[u8]) -> Result<Vec<u8>> {
        let mut step = exchange.message(body, &mut Kernel, &self.cache);
        loop {
            step = match step {
                Step::Send(bytes) => return Ok(bytes),
                Step::Accept(_) => return Ok(Vec::new()),
                Step::Ask(question) => exchange.answer(question.solve(), &mut self.cache),
                Step::Reject(fault) => return Err(LabError::Peer(format!("logging in: {fault}"))),
            };
        }
    }
}

/// The kernel's entropy.
struct Kernel;

impl Entropy for Kernel {
    fn fill(&mut self, bytes: &mut [u8]) {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
        }
    }
}
