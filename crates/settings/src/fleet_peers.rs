//! The nodes of a fleet that cancel requests are forwarded to, and the spelling of their addresses. Who has which number is the fleet's to decide.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::Peer;
use crate::value::{BadValue, Codec, ValueKind};

/// The numbers of a fleet's nodes, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPeers {
    /// This node's; 0 while it has none.
    pub own: u32,
    /// All that have one, by number; this node is among them.
    pub nodes: BTreeMap<u32, FleetPeer>,
}

/// A node of the fleet that has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPeer {
    /// Its id.
    pub node: Arc<str>,
    /// Where it is reached; None while it is not there, or says nothing that can be an address.
    pub peer: Option<Peer>,
}

impl FleetPeer {
    /// A node that is reached at `address`, as `fleet_address` has it; None if it is gone.
    #[must_use]
    pub fn new(node: Arc<str>, address: Option<&str>) -> FleetPeer {
        let address = address.and_then(host_and_port);
        let peer = address.map(|(host, port)| Peer { host: Some(host), port, pool_size: None });
        FleetPeer { node, peer }
    }
}

/// Where other nodes reach this one (`fleet_address`): `host:port`, or `[address]:port` for one of IPv6.
pub(crate) struct FleetAddress;

impl Codec for FleetAddress {
    type Value = Option<String>;
    const KIND: ValueKind = ValueKind::Text;

    fn read(text: &str) -> Result<Option<String>, BadValue> {
        match text.trim() {
            "" => Ok(None),
            text if host_and_port(text).is_some() => Ok(Some(text.to_owned())),
            _ => Err(BadValue::NotAnAddress),
        }
    }

    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_string(),
        None => host.to_owned(),
    };
    let is_name = host.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
    let is_address = is_name || host.parse::<Ipv6Addr>().is_ok() && text.starts_with('[');
    (!host.is_empty() && is_address && port > 0).then_some((host, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("weir-0.weir:6432", "weir-0.weir", 6432),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("[::1]:65535", "::1", 65535),
        ] {
            assert_eq!(host_and_port(text), Some((host.to_owned(), port)), "{text}");
            assert_eq!(FleetAddress::read(text), Ok(Some(text.to_owned())));
        }
        for text in ["h", ":1", "h:", "h:0", "h:65536", "h:+1", "a b:1", "::1:5", "[h]:1", "[::1]", "/run:1"]
        {
            assert_eq!(FleetAddress::read(text), Err(BadValue::NotAnAddress), "{text}");
        }
        assert_eq!(FleetAddress::read(" "), Ok(None));
    }
}
