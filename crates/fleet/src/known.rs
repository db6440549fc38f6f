//! Which revision of an object is known, and what a swap of it has to expect.
//!
//! The watch and the answers to swaps have a revision twice, and late: a lower one than that which is known is not new. A snapshot is authoritative about what was written
//! before it: a store that was restored from a backup has lower revisions than those that are known. The answers to swaps are not believed there until they are
//! higher than all before, as they may come from before; the watch shows the same.

use std::collections::BTreeSet;

use crate::store::{Object, Revision};

/// See the module's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    seen: Revision,
    /// What a swap has to expect.
    expected: Revision,
    /// Of all times, those of snapshots included.
    highest: Revision,
    /// Of the last write that was answered since a snapshot was asked for.
    written: Revision,
    /// A snapshot is read that is authoritative.
    is_reading: bool,
}

impl Known {
    /// The revision that is known, that of a removal included.
    pub(crate) fn seen(&self) -> Revision {
        self.seen
    }

    /// What a swap has to expect: the object's revision, or that it is absent.
    pub(crate) fn expected(&self) -> Revision {
        self.expected
    }

    /// The object is there, as far as that is known.
    pub(crate) fn is_there(&self) -> bool {
        self.expected != Revision::ABSENT
    }

    /// The watch, or a snapshot, has this revision. False if it is not new.
    pub(crate) fn hear(&mut self, revision: Revision, is_there: bool) -> bool {
        let is_new = revision > self.seen || self.is_reading;
        if is_new {
            self.seen = revision;
            self.highest = self.highest.max(revision);
            self.expected = if is_there { revision } else { Revision::ABSENT };
        }
        is_new
    }

    /// A write of this node was carried out, with this revision. False if it is not new.
    pub(crate) fn wrote(&mut self, revision: Revision, is_there: bool) -> bool {
        let is_new = revision > self.highest;
        if is_new {
            self.written = revision;
            self.hear(revision, is_there);
        }
        is_new
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.written = Revision::ABSENT;
    }

    /// It has come, with this revision; the caller passes its object to [`Known::hear`] next.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.is_reading = self.written <= revision;
        self.highest = self.highest.max(revision);
    }

    /// It has been read. True if the object is not in it, and was not written since.
    pub(crate) fn after_snapshot(&mut self, is_present: bool) -> bool {
        let is_gone = std::mem::take(&mut self.is_reading) && !is_present;
        if is_gone {
            (self.seen, self.expected) = (Revision::ABSENT, Revision::ABSENT);
        }
        is_gone
    }
}

/// Of which nodes a snapshot has objects `[KIND, NODE]`.
pub(crate) fn nodes_of<'a>(objects: &'a [Object], kind: &str) -> BTreeSet<&'a str> {
    let node = |object: &'a Object| match object.name.0.as_slice() {
        [first, node] if first == kind => Some(node.as_str()),
        _ => None,
    };
    objects.iter().filter_map(node).collect()
}

/// Whether a snapshot has the object `[NAME]`.
pub(crate) fn has_object(objects: &[Object], name: &str) -> bool {
    objects.iter().any(|object| matches!(object.name.0.as_slice(), [only] if only == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(revision: u64) -> Known {
        let mut known = Known::default();
        assert!(known.hear(Revision(revision), true));
        known
    }

    /// A snapshot that has the object with this revision, or not at all. Whether that was new, or the object gone.
    fn read(known: &mut Known, snapshot: u64, object: Option<u64>) -> bool {
        known.at_snapshot(Revision(snapshot));
        let is_new = object.is_some_and(|revision| known.hear(Revision(revision), true));
        known.after_snapshot(object.is_some()) || is_new
    }

    #[test]
    fn a_revision_that_comes_twice_or_late_is_not_new() {
        let mut known = known(7);
        assert!(!known.hear(Revision(7), true) && !known.hear(Revision(6), false));
        assert!(!known.wrote(Revision(6), true), "a later change has been heard of");
        assert_eq!((known.seen(), known.expected()), (Revision(7), Revision(7)));
        assert!(known.hear(Revision(8), false) && !known.is_there());
        assert_eq!((known.seen(), known.expected()), (Revision(8), Revision::ABSENT));
    }

    #[test]
    fn a_snapshot_is_authoritative() {
        let mut known = known(7);
        known.before_snapshot();
        assert!(read(&mut known, 3, Some(2)));
        assert_eq!(known.expected(), Revision(2));
        assert!(!known.hear(Revision(1), true), "from now on later ones are new");
        known.before_snapshot();
        assert!(read(&mut known, 4, None));
        assert_eq!((known.seen(), known.expected()), (Revision::ABSENT, Revision::ABSENT));
        assert!(!known.after_snapshot(false), "no snapshot was read");
    }

    #[test]
    fn an_answer_from_before_a_store_was_restored_is_not_believed() {
        for object in [Some(3), None] {
            let mut known = known(7);
            known.before_snapshot();
            assert!(!known.wrote(Revision(6), true));
            assert!(read(&mut known, 3, object));
            assert!(!known.wrote(Revision(7), true));
            assert_eq!(known.seen(), Revision(object.unwrap_or(0)));
            assert!(known.hear(Revision(4), true));
            assert!(known.wrote(Revision(8), true));
        }
    }

    #[test]
    fn a_write_that_a_snapshot_does_not_have_is_later() {
        for object in [Some(7), None] {
            let mut known = known(7);
            known.before_snapshot();
            assert!(known.wrote(Revision(9), true));
            assert!(!read(&mut known, 8, object));
            assert_eq!(known.expected(), Revision(9));
        }
    }

    #[test]
    fn a_write_before_a_snapshot_may_have_been_undone_since() {
        for (is_answered, is_late) in [(true, false), (false, true)] {
            let mut known = known(7);
            known.before_snapshot();
            assert!(!is_answered || known.wrote(Revision(9), true));
            assert!(read(&mut known, 12, None), "it was removed by 10, 11 or 12");
            assert!(!is_late || !known.wrote(Revision(9), true));
            assert!(!known.is_there());
            assert!(known.hear(Revision(13), true));
        }
    }
}
