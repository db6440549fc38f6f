//! The address of a server that is a fleet's store: a host with a port.

use std::fmt;
use std::net::Ipv6Addr;

/// One address: of a member of an etcd cluster, or of an API server of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEndpoint {
    /// A name, or an address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// The host is missing.
    NoHost,
    /// A host with characters that no host has, or brackets that do not match.
    Host(String),
    /// A port that is none.
    Port(String),
}

impl StoreEndpoint {
    /// `HOST`, `HOST:PORT`, `[IPV6]`, or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// [`EndpointError`], with the part that is wrong.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<StoreEndpoint, EndpointError> {
        let wrong = || EndpointError::Host(text.to_owned());
        let (host, behind) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, behind) = rest.split_once(']').ok_or_else(wrong)?;
                let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
                (address.to_string(), behind)
            }
            None => {
                let (host, behind) = text.split_at(text.find(':').unwrap_or(text.len()));
                if host.is_empty() {
                    return Err(EndpointError::NoHost);
                }
                if !host.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter)) {
                    return Err(wrong());
                }
                (host.to_owned(), behind)
            }
        };
        let port = match (behind, behind.strip_prefix(':')) {
            ("", _) => default_port,
            (_, Some(digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| EndpointError::Port(text.to_owned()))?,
            (_, Some(_)) => return Err(EndpointError::Port(text.to_owned())),
            (_, None) => return Err(wrong()),
        };
        Ok(StoreEndpoint { host, port })
    }
}

impl fmt::Display for StoreEndpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointError::NoHost => out.write_str("a host is missing"),
            EndpointError::Host(host) => {
                write!(out, "\"{host}\" is no host: a name, an IPv4 address, or an IPv6 address in brackets")
            }
            EndpointError::Port(host) => write!(out, "\"{host}\" has a port that is none of 1 to 65535"),
        }
    }
}
