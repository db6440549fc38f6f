//! The names whose description the client is being told.
//!
//! Owns when a client comes to read by another description than the one that it holds: with the answer that has it, and not if that is
//! an error. Until then its name stands for the statement that it holds.

use super::{ClientStatements, Whose};
use crate::{Registry, StatementId};

/// A Describe of a name, or of the portal that is bound from it.
#[derive(Debug)]
struct Reading {
    name: Box<[u8]>,
    from: StatementId,
    /// What is described; held.
    to: StatementId,
    /// Its number among the owed replies, once it is sent.
    number: Option<u64>,
}

/// Those that are not answered, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct Readings(Vec<Reading>);

impl ClientStatements {
    /// The client asks for the description of a name that stands for `from`, and the server will describe `to`.
    pub(crate) fn will_read(
        &mut self,
        name: &[u8],
        from: StatementId,
        to: StatementId,
        number: Option<u64>,
        registry: &mut Registry,
    ) {
        self.unread(registry, |reading| reading.number.is_none());
        registry.hold(to);
        self.readings.0.push(Reading { name: name.into(), from, to, number });
    }

    /// The Describe itself is sent under this number; None if it is skipped.
    #[inline]
    pub(crate) fn describe_sent(&mut self, number: Option<u64>, registry: &mut Registry) {
        if !self.readings.0.is_empty() {
            self.number_reading(number, registry);
        }
    }

    #[cold]
    #[inline(never)]
    fn number_reading(&mut self, number: Option<u64>, registry: &mut Registry) {
        if let Some(last) = self.readings.0.last_mut().filter(|last| last.number.is_none()) {
            last.number = number;
        }
        self.unread(registry, |reading| reading.number.is_none());
    }

    /// The server describes another statement than was thought.
    pub(crate) fn will_read_instead(&mut self, old: StatementId, new: StatementId, registry: &mut Registry) {
        for reading in self.readings.0.iter_mut().filter(|reading| reading.to == old) {
            registry.hold(new);
            registry.release(old);
            reading.to = new;
        }
    }

    /// The client is being told the description of this statement.
    pub(crate) fn is_reading(&self, statement: StatementId) -> bool {
        self.readings.0.iter().any(|reading| reading.to == statement)
    }

    /// The only name that stands for this statement.
    pub(crate) fn only_name(&self, statement: StatementId) -> Option<Box<[u8]>> {
        let mut names = self.names.iter().filter(|(_, entry)| entry.expected == Some(statement));
        let (name, _) = names.next()?;
        names.next().is_none().then(|| name.clone())
    }

    /// The Describe of this number is answered: the client reads by that.
    #[inline]
    pub(crate) fn read(&mut self, number: u64, registry: &mut Registry) {
        if !self.readings.0.is_empty() {
            self.read_now(number, registry);
        }
    }

    #[cold]
    #[inline(never)]
    fn read_now(&mut self, number: u64, registry: &mut Registry) {
        while let Some(at) = self.readings.0.iter().position(|reading| reading.number == Some(number)) {
            let reading = self.readings.0.remove(at);
            self.replace(reading.from, reading.to, Whose::This(&reading.name), registry);
            registry.release(reading.to);
        }
    }

    /// An error has come: what has a smaller number than `answered`, or none yet, is not described.
    pub(crate) fn read_nothing_before(&mut self, answered: u64, registry: &mut Registry) {
        self.unread(registry, |reading| reading.number.is_none_or(|number| number < answered));
    }

    fn unread(&mut self, registry: &mut Registry, is_gone: impl Fn(&Reading) -> bool) {
        self.readings.0.retain(|reading| {
            let goes = is_gone(reading);
            if goes {
                registry.release(reading.to);
            }
            !goes
        });
    }

    /// The client leaves.
    pub(super) fn read_no_more(&mut self, registry: &mut Registry) {
        self.unread(registry, |_| true);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::with;
    use super::*;
    use crate::{Description, Lookup};

    #[test]
    fn a_name_changes_with_the_description_that_the_client_gets() {
        let mut registry = Registry::default();
        let mut client = with(b"a", &mut registry);
        let old = client.expected(b"a").unwrap();
        registry.retire(old);
        let new = registry.successor(old, None, true).unwrap();
        let description = Description::read(vec![], None, true);
        let newest = registry.successor(old, description.as_ref(), true).unwrap();
        for is_told in [false, true] {
            client.will_read(b"a", old, new, None, &mut registry);
            client.describe_sent(Some(7), &mut registry);
            client.will_read_instead(new, newest, &mut registry);
            assert!(client.is_reading(newest) && client.find(b"a", 0) == Lookup::Is(old));
            client.read(6, &mut registry);
            if is_told {
                client.read(7, &mut registry);
            }
            client.read_nothing_before(8, &mut registry);
            assert_eq!(client.find(b"a", 0), Lookup::Is(if is_told { newest } else { old }));
            assert!(!client.is_reading(newest));
        }
        assert_eq!(client.only_name(newest).as_deref(), Some(&b"a"[..]));
        assert!(registry.rest(old).is_none(), "no client has it");
        client.will_read(b"a", newest, newest, Some(9), &mut registry);
        client.forget_all(&mut registry);
        assert!(registry.is_unused(newest));
    }
}
