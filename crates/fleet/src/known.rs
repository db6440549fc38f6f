//! Which revision of an object is known, and what a swap of it has to expect.
//!
//! A watch and the answers to swaps may tell of a revision twice, and late: a lower one than that which is known is not new. A snapshot has the word, unless a write has been answered
//! since it was asked for: a store that was restored from a backup has lower revisions. The answers to swaps are not believed there, as they may come from before; the watch shows the same.

use std::collections::BTreeSet;

use crate::store::{Object, Revision};

/// See the module's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    seen: Revision,
    /// Of all times.
    highest: Revision,
    expected: Revision,
    /// A snapshot is asked for, and no write has been answered since.
    is_rereading: bool,
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
        let is_new = revision > self.seen || self.is_rereading;
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
            self.is_rereading = false;
            self.hear(revision, is_there);
        }
        is_new
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.is_rereading = true;
    }

    /// The snapshot has been read; what it has of this object has been heard. True if the object is not in it, and was not written since.
    pub(crate) fn after_snapshot(&mut self, is_present: bool) -> bool {
        let is_gone = std::mem::take(&mut self.is_rereading) && !is_present;
        if is_gone {
            *self = Known { highest: self.highest, ..Known::default() };
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

    #[test]
    fn what_is_told_twice_or_late_is_not_new() {
        let mut known = known(7);
        assert!(!known.hear(Revision(7), true) && !known.hear(Revision(6), false));
        assert!(!known.wrote(Revision(6), true), "a later change has been heard of");
        assert_eq!((known.seen(), known.expected()), (Revision(7), Revision(7)));
        assert!(known.hear(Revision(8), false) && !known.is_there());
        assert_eq!((known.seen(), known.expected()), (Revision(8), Revision::ABSENT));
    }

    #[test]
    fn a_snapshot_has_the_word() {
        let mut known = known(7);
        known.before_snapshot();
        assert!(known.hear(Revision(3), true));
        assert!(!known.after_snapshot(true));
        assert_eq!(known.expected(), Revision(3));
        assert!(!known.hear(Revision(2), true), "from now on later ones are new");
        known.before_snapshot();
        assert!(known.after_snapshot(false));
        assert_eq!((known.seen(), known.expected()), (Revision::ABSENT, Revision::ABSENT));
        assert!(!known.after_snapshot(false), "no snapshot was asked for");
    }

    #[test]
    fn an_answer_from_before_a_store_was_restored_is_not_believed() {
        for is_present in [true, false] {
            let mut known = known(7);
            known.before_snapshot();
            assert!(!known.wrote(Revision(6), true));
            assert_eq!(is_present && known.hear(Revision(3), true), is_present);
            assert_eq!(known.after_snapshot(is_present), !is_present);
            assert!(!known.wrote(Revision(7), true));
            assert_eq!(known.seen(), if is_present { Revision(3) } else { Revision::ABSENT });
            assert!(known.hear(Revision(4), true));
            assert!(known.wrote(Revision(8), true));
        }
    }

    #[test]
    fn a_write_that_was_answered_since_it_was_asked_for_is_later() {
        for is_present in [true, false] {
            let mut known = known(7);
            known.before_snapshot();
            assert!(known.wrote(Revision(8), true));
            assert!(!is_present || !known.hear(Revision(7), true));
            assert!(!known.after_snapshot(is_present));
            assert_eq!(known.expected(), Revision(8));
        }
    }
}
