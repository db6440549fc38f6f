//! A network: an address and a mask, and which addresses belong to it. `hba` reads how one is written.

use std::fmt;
use std::net::IpAddr;

/// A network: its address and the bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address in it.
    pub address: IpAddr,
    /// One bit for each that counts; of the same family.
    pub mask: IpAddr,
}

impl Network {
    /// The network of one address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        let mask = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::MAX.into()),
            IpAddr::V6(_) => IpAddr::V6(u128::MAX.into()),
        };
        Self { address, mask }
    }

    /// Whether an address belongs to it; one of another family never does.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (base, mask) = (bits(self.address), bits(self.mask));
        address.is_ipv4() == self.address.is_ipv4() && bits(address) & mask == base & mask
    }

    /// The address has no bits where the mask has none.
    pub(crate) fn is_canonical(&self) -> bool {
        bits(self.address) & !bits(self.mask) == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} / {}", self.address, self.mask)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
