//! Addresses of HBA rules: networks by prefix length or mask. Owns how they are written. The machine's own networks
//! (`samehost`, `samenet`) come from [`crate::Files`].

use crate::hba::RuleError;
use crate::network::Network;
use std::net::IpAddr;

/// The addresses that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Any.
    All,
    /// One of these networks.
    Networks(Vec<Network>),
}

impl Network {
    /// `address/bits`, or an address that `next` gives the mask for.
    pub(crate) fn parse<'a>(text: &str, next: impl FnOnce() -> Option<&'a str>) -> Result<Self, RuleError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| RuleError::Address(address.to_owned()))?;
        let mask = match prefix {
            Some(prefix) => mask_of(address, prefix).ok_or(RuleError::Prefix)?,
            None => {
                let mask = next().ok_or(RuleError::NoMask)?;
                let read = mask.parse().ok().filter(|mask: &IpAddr| mask.is_ipv4() == address.is_ipv4());
                read.ok_or_else(|| RuleError::Mask(mask.to_owned()))?
            }
        };
        Ok(Self { address, mask })
    }
}

impl Addresses {
    /// Whether an address matches.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        match self {
            Addresses::All => true,
            Addresses::Networks(networks) => networks.iter().any(|network| network.contains(address)),
        }
    }
}

/// The mask of a prefix length in decimal digits.
fn mask_of(address: IpAddr, prefix: &str) -> Option<IpAddr> {
    let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let length: u32 = prefix.parse().ok().filter(|_| is_number)?;
    match address {
        IpAddr::V4(_) => {
            let zeros = 32_u32.checked_sub(length)?;
            Some(IpAddr::V4(u32::MAX.checked_shl(zeros).unwrap_or(0).into()))
        }
        IpAddr::V6(_) => {
            let zeros = 128_u32.checked_sub(length)?;
            Some(IpAddr::V6(u128::MAX.checked_shl(zeros).unwrap_or(0).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn network(text: &str) -> Result<Network, RuleError> {
        let (address, mask) =
            text.split_once(' ').map_or((text, None), |(address, mask)| (address, Some(mask)));
        Network::parse(address, || mask)
    }

    #[test]
    fn prefixes_and_masks_mean_the_same() {
        for (one, other) in [
            ("10.1.0.0/16", "10.1.0.0 255.255.0.0"),
            ("0.0.0.0/0", "0.0.0.0 0.0.0.0"),
            ("10.1.2.3/32", "10.1.2.3 255.255.255.255"),
            ("fe80::/10", "fe80:: ffc0::"),
            ("::/0", ":: ::"),
            ("::1/128", "::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            assert_eq!(network(one), network(other), "{one}");
        }
    }

    #[test]
    fn what_is_inside() {
        let inside = |text: &str, address: &str| network(text).unwrap().contains(address.parse().unwrap());
        assert!(inside("10.1.0.0/17", "10.1.127.255") && !inside("10.1.0.0/17", "10.1.128.0"));
        assert!(inside("0.0.0.0/0", "255.255.255.255") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("fe80::/10", "fe80::1") && !inside("::/0", "127.0.0.1"));
        assert!(inside("::1/128", "::1") && !inside("::1/128", "::2"));
    }

    #[test]
    fn what_is_no_network_is_reported() {
        assert_eq!(network("10.0.0.1"), Err(RuleError::NoMask));
        assert_eq!(network("example.org"), Err(RuleError::Address("example.org".to_owned())));
        assert_eq!(network("10.0.0.0 ::"), Err(RuleError::Mask("::".to_owned())));
        for text in ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+1", "::/129", "::/99999999999"] {
            assert_eq!(network(text), Err(RuleError::Prefix), "{text}");
        }
        assert!(
            !network("10.0.0.1/8").unwrap().is_canonical() && network("10.0.0.0/8").unwrap().is_canonical()
        );
    }
}
