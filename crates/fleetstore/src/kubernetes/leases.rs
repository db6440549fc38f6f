//! The Leases that a watch knows, and which of them are over.
//!
//! Owns what a change of them is for the fleet. Never decides that a node is gone: only that its Lease may be deleted, if it still is as it is known.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet::{NodeId, NodeRecord};
use tokio::time::Instant;

use super::objects::{FoundLease, Identity};

/// After an attempt to delete one.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Known {
    lease: FoundLease,
    /// Since when it has been known in this state.
    since: Instant,
    /// It is not deleted before.
    not_before: Instant,
}

/// What has become of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Seen(NodeId, NodeRecord),
    Gone(NodeId),
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// By their names.
    known: BTreeMap<String, Known>,
}

impl Leases {
    /// One as it is now; None where only its end has changed.
    pub(crate) fn seen(&mut self, lease: FoundLease, now: Instant) -> Option<Change> {
        let known = self.known.get(&lease.identity.name);
        if known.is_some_and(|known| known.lease.identity == lease.identity) {
            return None;
        }
        let is_same = known.is_some_and(|known| known.lease.record == lease.record);
        let change = (!is_same).then(|| Change::Seen(lease.node.clone(), lease.record.clone()));
        self.known.insert(lease.identity.name.clone(), Known { lease, since: now, not_before: now });
        change
    }

    /// One is deleted.
    pub(crate) fn deleted(&mut self, name: &str) -> Option<Change> {
        self.known.remove(name).map(|known| Change::Gone(known.lease.node))
    }

    /// All that there are now.
    pub(crate) fn replace(&mut self, all: Vec<FoundLease>, now: Instant) -> Vec<Change> {
        let is_there = |name: &str| all.iter().any(|lease| lease.identity.name == name);
        let gone: Vec<String> = self.known.keys().filter(|name| !is_there(name)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().filter_map(|name| self.deleted(name)).collect();
        changes.extend(all.into_iter().filter_map(|lease| self.seen(lease, now)));
        changes
    }

    /// One that has been as it is for as long as it lasts; not the same one again for a second.
    pub(crate) fn next_over(&mut self, now: Instant) -> Option<Identity> {
        let is_over = |known: &&mut Known| {
            now >= known.not_before && now.saturating_duration_since(known.since) >= known.lease.lasts
        };
        let known = self.known.values_mut().find(is_over)?;
        known.not_before = now + RETRY;
        Some(known.lease.identity.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{Revision, SessionId};

    fn lease(node: &str, revision: u64, session: u64, lasts_s: u64) -> FoundLease {
        let record = NodeRecord {
            session: SessionId(session),
            address: String::new(),
            version: String::new(),
            started_s: 0,
            clients: 0,
            servers: 0,
            is_draining: false,
            pools: fleet::PoolsInUse::default(),
        };
        let identity =
            Identity { name: format!("weir.{node}"), uid: "u".to_owned(), revision: Revision(revision) };
        FoundLease { identity, node: node.into(), record, lasts: Duration::from_secs(lasts_s) }
    }

    fn seen(node: &str, session: u64) -> Change {
        Change::Seen(node.into(), lease(node, 0, session, 1).record)
    }

    #[test]
    fn one_is_over_when_it_has_not_changed_for_as_long_as_it_lasts() {
        let (mut leases, start) = (Leases::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(leases.seen(lease("a", 1, 7, 3), at(0)), Some(seen("a", 7)));
        assert_eq!(leases.next_over(at(2_999)), None);
        // A renewal changes nothing but its end.
        assert_eq!(leases.seen(lease("a", 2, 7, 3), at(2_999)), None);
        assert_eq!(leases.next_over(at(5_998)), None);
        // Heard of again, it is no renewal.
        assert_eq!(leases.seen(lease("a", 2, 7, 3), at(5_998)), None);
        let over = Some(lease("a", 2, 7, 3).identity);
        assert_eq!(leases.next_over(at(5_999)), over);
        assert_eq!((leases.next_over(at(6_998)), leases.next_over(at(6_999))), (None, over));
        assert_eq!(
            (leases.deleted("weir.a"), leases.deleted("weir.a")),
            (Some(Change::Gone("a".into())), None)
        );
        assert_eq!(leases.next_over(at(99_999)), None);
    }

    #[test]
    fn what_a_list_does_not_have_is_gone_and_what_it_has_goes_on() {
        let (mut leases, start) = (Leases::default(), Instant::now());
        let first = vec![lease("a", 1, 7, 3), lease("b", 2, 8, 3), lease("c", 3, 9, 3)];
        assert_eq!(leases.replace(first, start).len(), 3);
        let later = start + Duration::from_secs(2);
        let now = vec![lease("b", 2, 8, 3), lease("c", 5, 10, 3), lease("d", 6, 11, 3)];
        let changes = leases.replace(now, later);
        assert_eq!(changes, [Change::Gone("a".into()), seen("c", 10), seen("d", 11)]);
        assert_eq!(leases.next_over(start + Duration::from_secs(3)), Some(lease("b", 2, 8, 3).identity));
        assert_eq!(leases.next_over(start + Duration::from_secs(3)), None, "c was renewed, d is new");
    }
}
