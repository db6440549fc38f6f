//! What a pool knows of the names in its database that decide whether a statement only reads (`read_write_split`), and of statements that were decided by them.
//!
//! Owns that nothing is taken for a read while they are not known, and how many statements are remembered. When the names are asked for is [`Refresh`]'s.

use std::collections::HashMap;

use sql::{Routing, RoutingNames, routing_at_a_glance};

use crate::local_pools::refresh::Refresh;

/// How many shapes of texts are remembered, of 4 KiB each at most; one more, and all are forgotten.
const MAX_SHAPES: usize = 1024;

/// At least so long passes between two questions, and ten times as long as the last one took.
const PAUSE_US: u64 = 1_000_000;

/// How long an answer is relied on, if no client of the pool is seen to change the schema: others may, and procedures.
const VALID_US: u64 = 60_000_000;

#[derive(Debug)]
pub(crate) struct KnownNames {
    names: RoutingNames,
    /// What texts are that were not told at a glance, by their shapes.
    decided: HashMap<Box<[u8]>, Routing>,
    /// The shape of the text that is looked up.
    shape: Vec<u8>,
    refresh: Refresh,
    /// How often the schema had changed when the names were asked for, over all shards.
    changes: u64,
    /// When they were asked for, and may be again.
    asked_us: u64,
    again_us: u64,
    /// The last question was answered with an error.
    is_refused: bool,
}

impl Default for KnownNames {
    fn default() -> KnownNames {
        KnownNames {
            names: RoutingNames::unknown(),
            decided: HashMap::default(),
            shape: Vec::new(),
            refresh: Refresh::default(),
            changes: 0,
            asked_us: 0,
            again_us: 0,
            is_refused: false,
        }
    }
}

impl KnownNames {
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.again_us && (self.refresh.is_due(now_us) || now_us >= self.asked_us + VALID_US)
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.names.is_unknown()
    }

    /// A server is asked now; the schema has changed so often.
    pub(crate) fn asked(&mut self, changes: u64, now_us: u64) {
        self.refresh.asked(now_us);
        (self.changes, self.asked_us) = (changes, now_us);
        self.again_us = now_us + PAUSE_US;
    }

    /// It cannot be known now; true if it could be before.
    pub(crate) fn unanswered(&mut self, now_us: u64) -> bool {
        self.refresh.unanswered(now_us);
        self.set(RoutingNames::unknown());
        !std::mem::replace(&mut self.is_refused, true)
    }

    /// PostgreSQL has answered. What has expired since it was asked stays due.
    pub(crate) fn answered(&mut self, names: RoutingNames, now_us: u64) {
        self.is_refused = false;
        self.again_us = now_us + PAUSE_US.max(10 * now_us.saturating_sub(self.asked_us));
        if self.refresh.answered(now_us) {
            self.set(names);
        }
    }

    /// The names are not known any more if the schema has changed since they were asked for.
    #[inline]
    pub(crate) fn expire_if_changed(&mut self, changes: u64) {
        if changes != self.changes {
            self.changes = changes;
            self.refresh.expire();
            self.set(RoutingNames::unknown());
        }
    }

    fn set(&mut self, names: RoutingNames) {
        self.names = names;
        self.decided.clear();
    }

    /// Where this text, up to a NUL, may run.
    #[inline]
    pub(crate) fn routing(&mut self, text: &[u8]) -> Routing {
        routing_at_a_glance(text, &self.names).unwrap_or_else(|| self.by_shape(text))
    }

    /// A standby has refused this text: the primary gets those of its shape. False if that cannot be remembered.
    pub(crate) fn refused(&mut self, text: &[u8]) -> bool {
        if routing_at_a_glance(text, &self.names).is_some() || !sql::shape(text, &mut self.shape) {
            return false;
        }
        self.remember(Routing::Write);
        true
    }

    fn remember(&mut self, routing: Routing) {
        if self.decided.len() >= MAX_SHAPES {
            self.decided.clear();
        }
        self.decided.insert(self.shape.as_slice().into(), routing);
    }

    #[inline(never)]
    fn by_shape(&mut self, text: &[u8]) -> Routing {
        if !sql::shape(text, &mut self.shape) {
            return sql::routing(text, &self.names);
        }
        if let Some(decided) = self.decided.get(&*self.shape) {
            return *decided;
        }
        let found = sql::routing(text, &self.names);
        self.remember(found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &[u8] = b"SELECT a FROM t WHERE mine(a, 7)";

    fn names() -> RoutingNames {
        RoutingNames::new(["mine".into()], [], [])
    }

    #[test]
    fn names_are_known_until_the_schema_changes() {
        const LATER: u64 = 10 * PAUSE_US;
        let mut known = KnownNames::default();
        assert!(known.is_due(1) && known.routing(b"SELECT 1") == Routing::Write);
        known.asked(0, 1);
        assert!(!known.is_due(1));
        known.answered(names(), 2);
        assert_eq!([known.routing(CALL), known.routing(CALL)], [Routing::Read; 2]);
        known.expire_if_changed(0);
        assert_eq!(known.routing(CALL), Routing::Read);
        known.expire_if_changed(1);
        assert!(known.routing(CALL) == Routing::Write && !known.is_due(3), "not at once");
        assert!(known.is_due(LATER), "the schema has changed");
        known.asked(1, LATER);
        known.expire_if_changed(2);
        known.answered(names(), LATER + 1);
        assert!(known.routing(CALL) == Routing::Write && known.is_due(2 * LATER), "it has changed meanwhile");
        known.asked(2, 2 * LATER);
        assert!(known.unanswered(2 * LATER + 1) && !known.unanswered(2 * LATER + 1), "said once");
        assert!(!known.is_due(2 * LATER + 1) && known.routing(b"SELECT 1") == Routing::Write);
    }

    #[test]
    fn texts_of_one_shape_are_decided_once() {
        let mut known = KnownNames::default();
        known.asked(0, 1);
        known.answered(names(), 2);
        for number in 0..100 {
            let text = format!("SELECT a FROM t WHERE mine(a, {number})");
            assert_eq!(known.routing(text.as_bytes()), Routing::Read);
            let _ = known.routing(format!("SELECT f{}(1)", number % 3).as_bytes());
        }
        assert_eq!(known.decided.len(), 4);
    }
}
