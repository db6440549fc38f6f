//! The names whose description the client has asked for and not got yet.
//!
//! Owns when a client comes to read by another description than the one that it holds: with the answer that has it, and not if that is
//! an error. Until then its name stands for the statement that it holds.

use super::{ClientStatements, NameSelector};
use crate::{StatementId, StatementRegistry};

/// Whether the client has asked for descriptions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DescribeHistory {
    /// It has asked for a description: it may still read rows by that one.
    pub(crate) describes: bool,
}

/// A Describe of a name, or of the portal that is bound from it.
#[derive(Debug)]
struct PendingDescribe {
    name: Box<[u8]>,
    from: StatementId,
    /// What is described; held.
    to: StatementId,
    /// Its number among the owed replies, once it is sent.
    number: Option<u64>,
}

/// Those that are not answered, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct PendingDescribes(Vec<PendingDescribe>);

impl ClientStatements {
    /// The client asks for the description of a name that stands for `from`, and the server will describe `to`.
    pub(crate) fn expect_describe(
        &mut self,
        name: &[u8],
        from: StatementId,
        to: StatementId,
        number: Option<u64>,
        registry: &mut StatementRegistry,
    ) {
        self.drop_describes(registry, |describe| describe.number.is_none());
        registry.hold(to);
        self.describes.0.push(PendingDescribe { name: name.into(), from, to, number });
    }

    /// The Describe itself is sent under this number; None if it is skipped.
    #[inline]
    pub(crate) fn describe_sent(&mut self, number: Option<u64>, registry: &mut StatementRegistry) {
        if !self.describes.0.is_empty() {
            self.number_describe(number, registry);
        }
    }

    #[cold]
    #[inline(never)]
    fn number_describe(&mut self, number: Option<u64>, registry: &mut StatementRegistry) {
        if let Some(last) = self.describes.0.last_mut().filter(|last| last.number.is_none()) {
            last.number = number;
        }
        self.drop_describes(registry, |describe| describe.number.is_none());
    }

    /// The server describes another statement than was expected.
    pub(crate) fn redirect_describe(
        &mut self,
        old: StatementId,
        new: StatementId,
        registry: &mut StatementRegistry,
    ) {
        for describe in self.describes.0.iter_mut().filter(|describe| describe.to == old) {
            registry.hold(new);
            registry.release(old);
            describe.to = new;
        }
    }

    /// The client has asked for the description of this statement.
    pub(crate) fn has_pending_describe(&self, statement: StatementId) -> bool {
        self.describes.0.iter().any(|describe| describe.to == statement)
    }

    /// The only name that stands for this statement.
    pub(crate) fn only_name(&self, statement: StatementId) -> Option<Box<[u8]>> {
        let mut names = self.names.iter().filter(|(_, entry)| entry.expected == Some(statement));
        let (name, _) = names.next()?;
        names.next().is_none().then(|| name.clone())
    }

    /// The Describe of this number is answered: the client reads by that.
    #[inline]
    pub(crate) fn describe_answered(&mut self, number: u64, registry: &mut StatementRegistry) {
        if !self.describes.0.is_empty() {
            self.apply_describe(number, registry);
        }
    }

    #[cold]
    #[inline(never)]
    fn apply_describe(&mut self, number: u64, registry: &mut StatementRegistry) {
        while let Some(at) = self.describes.0.iter().position(|describe| describe.number == Some(number)) {
            let describe = self.describes.0.remove(at);
            self.replace(describe.from, describe.to, NameSelector::Only(&describe.name), registry);
            registry.release(describe.to);
        }
    }

    /// An error has come: what has a smaller number than `answered`, or none yet, is not described.
    pub(crate) fn drop_describes_before(&mut self, answered: u64, registry: &mut StatementRegistry) {
        self.drop_describes(registry, |describe| describe.number.is_none_or(|number| number < answered));
    }

    fn drop_describes(
        &mut self,
        registry: &mut StatementRegistry,
        is_gone: impl Fn(&PendingDescribe) -> bool,
    ) {
        self.describes.0.retain(|describe| {
            let goes = is_gone(describe);
            if goes {
                registry.release(describe.to);
            }
            !goes
        });
    }

    /// The client has disconnected.
    pub(super) fn drop_all_describes(&mut self, registry: &mut StatementRegistry) {
        self.drop_describes(registry, |_| true);
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
        let mut registry = StatementRegistry::default();
        let mut client = with(b"a", &mut registry);
        let old = client.expected(b"a").unwrap();
        registry.retire(old);
        let new = registry.successor(old, None, true).unwrap();
        let description = Description::read(vec![], None, true);
        let newest = registry.successor(old, description.as_ref(), true).unwrap();
        for is_told in [false, true] {
            client.expect_describe(b"a", old, new, None, &mut registry);
            client.describe_sent(Some(7), &mut registry);
            client.redirect_describe(new, newest, &mut registry);
            assert!(client.has_pending_describe(newest) && client.find(b"a", 0) == Lookup::Is(old));
            client.describe_answered(6, &mut registry);
            if is_told {
                client.describe_answered(7, &mut registry);
            }
            client.drop_describes_before(8, &mut registry);
            assert_eq!(client.find(b"a", 0), Lookup::Is(if is_told { newest } else { old }));
            assert!(!client.has_pending_describe(newest));
        }
        assert_eq!(client.only_name(newest).as_deref(), Some(&b"a"[..]));
        assert!(registry.rest(old).is_none(), "no client has it");
        client.expect_describe(b"a", newest, newest, Some(9), &mut registry);
        client.forget_all(&mut registry);
        assert!(registry.is_unused(newest));
    }
}
