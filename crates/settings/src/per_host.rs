//! What an entry says of each of its hosts, as libpq has ports: one number for all, or one for each.
//!
//! Owns that there is at least one. That there are as many as hosts is checked where both are known (`resolver`).

use std::fmt;

use crate::codec::{Port, bounded};
use crate::value::{BadValue, Codec, ValueKind};

/// One number for all hosts, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerHost {
    first: u16,
    others: Vec<u16>,
}

/// TCP ports, or the numbers in the names of unix sockets.
pub type Ports = PerHost;

/// Shares of the reads that hosts get as standbys; 0 is none.
pub type Weights = PerHost;

/// PostgreSQL's own port.
pub(crate) const PORT: u16 = 5432;

impl PerHost {
    /// This one for all hosts.
    #[must_use]
    pub fn one(number: u16) -> Self {
        Self { first: number, others: Vec::new() }
    }

    /// A port for each host; without any, PostgreSQL's own.
    pub(crate) fn each(mut ports: impl Iterator<Item = u16>) -> Self {
        ports.next().map_or_else(|| Self::one(PORT), |first| Self { first, others: ports.collect() })
    }

    /// That of the first host.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.first
    }

    /// That of the host at this place, counted from 0.
    #[must_use]
    pub fn of(&self, host: usize) -> u16 {
        let other = host.checked_sub(1).and_then(|place| self.others.get(place));
        other.copied().unwrap_or(self.first)
    }

    /// Whether they can belong to this many hosts.
    #[must_use]
    pub fn fit(&self, hosts: usize) -> bool {
        self.others.is_empty() || self.others.len() + 1 == hosts
    }
}

impl PerHost {
    /// Numbers with commas between them.
    fn read(text: &str, one: impl Fn(&str) -> Result<u16, BadValue>) -> Result<Self, BadValue> {
        let mut numbers = text.split(',').map(|number| one(number.trim()));
        let first = numbers.next().unwrap_or(Err(BadValue::Empty))?;
        Ok(Self { first, others: numbers.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for PerHost {
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
        Ports::read(text, Port::read)
    }
    fn show(value: &Ports) -> Option<String> {
        Some(value.to_string())
    }
}

/// Weights with commas between them.
pub(crate) struct WeightList;
impl Codec for WeightList {
    type Value = Weights;
    const KIND: ValueKind = ValueKind::Weights;
    fn read(text: &str) -> Result<Weights, BadValue> {
        Weights::read(text, |one| u16::try_from(bounded(one, 0, 1000)?).map_err(|_| BadValue::NotANumber))
    }
    fn show(value: &Weights) -> Option<String> {
        Some(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_number_is_that_of_all_hosts_and_several_are_one_for_each() {
        let all = PortList::read("5433").unwrap();
        assert_eq!((all.of(0), all.of(2), all.fit(3)), (5433, 5433, true));
        let each = PortList::read("5432, 5433,6000").unwrap();
        assert_eq!([each.first(), each.of(0), each.of(1), each.of(2)], [5432, 5432, 5433, 6000]);
        assert!(each.fit(3) && !each.fit(2) && !each.fit(1));
        assert_eq!(each.to_string(), "5432,5433,6000");
        let weights = WeightList::read("2,0, 1000").unwrap();
        assert_eq!([weights.of(0), weights.of(1), weights.of(2)], [2, 0, 1000]);
        assert!(["", "1,", "-1", "0.5", "1001"].iter().all(|text| WeightList::read(text).is_err()));
        assert!(["", "5432,", "5432,x", "0", "1,70000"].iter().all(|text| PortList::read(text).is_err()));
    }
}
