//! The ports of an entry's hosts, as libpq has them: one for all, or one for each.
//!
//! Owns that there is at least one. That there are as many as hosts is checked where both are known (`resolver`).

use std::fmt;

use crate::codec::Port;
use crate::value::{BadValue, Codec, ValueKind};

/// TCP ports, or the numbers in the names of unix sockets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    first: u16,
    others: Vec<u16>,
}

/// PostgreSQL's own port.
impl Default for Ports {
    fn default() -> Self {
        Ports::one(5432)
    }
}

impl Ports {
    /// This port for all hosts.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self { first: port, others: Vec::new() }
    }

    /// The port of the first host.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The port of the host at this place, counted from 0.
    #[must_use]
    pub fn of(&self, host: usize) -> u16 {
        let other = host.checked_sub(1).and_then(|place| self.others.get(place));
        other.copied().unwrap_or(self.first)
    }

    /// Whether they can belong to so many hosts.
    #[must_use]
    pub fn fit(&self, hosts: usize) -> bool {
        self.others.is_empty() || self.others.len() + 1 == hosts
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.first)?;
        self.others.iter().try_for_each(|port| write!(out, ",{port}"))
    }
}

/// Ports with commas between them.
pub(crate) struct PortList;
impl Codec for PortList {
    type Value = Ports;
    const KIND: ValueKind = ValueKind::Ports;
    fn read(text: &str) -> Result<Ports, BadValue> {
        let mut ports = text.split(',').map(|port| Port::read(port.trim()));
        let first = ports.next().unwrap_or(Err(BadValue::Empty))?;
        Ok(Ports { first, others: ports.collect::<Result<_, _>>()? })
    }
    fn show(value: &Ports) -> Option<String> {
        Some(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_port_is_that_of_all_hosts_and_several_are_one_for_each() {
        let all = PortList::read("5433").unwrap();
        assert_eq!((all.of(0), all.of(2), all.fit(3)), (5433, 5433, true));
        let each = PortList::read("5432, 5433,6000").unwrap();
        assert_eq!([each.first(), each.of(0), each.of(1), each.of(2)], [5432, 5432, 5433, 6000]);
        assert!(each.fit(3) && !each.fit(2) && !each.fit(1));
        assert_eq!(each.to_string(), "5432,5433,6000");
        assert!(["", "5432,", "5432,x", "0", "1,70000"].iter().all(|text| PortList::read(text).is_err()));
    }
}
