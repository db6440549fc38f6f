//! What a pool knows of the names in its database that decide whether a statement only reads (`read_write_split`), and of statements that were decided by them.
//!
//! Owns that nothing is taken for a read while they are not known, and how many statements are remembered. When the names are asked for is [`Refresh`]'s.

use std::collections::HashMap;

use session::{StatementId, StatementRegistry, TextJudge, TextRouting};
use sql::{Routing, RoutingNames, SeenTexts, routing_at_a_glance};

use crate::local_pools::refresh::Refresh;

/// How many shapes of texts are remembered, of 4 KiB each at most; one more, and all are forgotten.
const MAX_SHAPES: usize = 1024;

/// Places for prepared statements, each in that of its number.
const STATEMENTS: usize = 1024;

/// At least so long passes between two questions, and ten times as long as the last one took.
const PAUSE_US: u64 = 1_000_000;

/// How long an answer is relied on, if no client of the pool is seen to change the schema: others may, and procedures.
const VALID_US: u64 = 60_000_000;

#[derive(Debug)]
pub(crate) struct KnownNames {
    names: RoutingNames,
    /// What texts are that were told at a glance.
    seen: SeenTexts<TextRouting>,
    /// What texts are that were not told at a glance, by their shapes.
    decided: HashMap<Box<[u8]>, Routing>,
    /// What prepared statements are; empty until there is one.
    statements: Vec<Option<(StatementId, TextRouting)>>,
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
            seen: SeenTexts::default(),
            decided: HashMap::default(),
            statements: Vec::new(),
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
        self.seen.clear();
        self.decided.clear();
        self.statements.clear();
    }

    /// A standby has refused this text: the primary gets those of its shape. False if that cannot be remembered.
    pub(crate) fn refused(&mut self, text: &[u8]) -> bool {
        if routing_at_a_glance(text, &self.names).is_some() || !sql::shape(text, &mut self.shape) {
            return false;
        }
        self.remember(Routing::Write);
        self.statements.clear();
        true
    }

    fn remember(&mut self, routing: Routing) {
        if self.decided.len() >= MAX_SHAPES {
            self.decided.clear();
        }
        self.decided.insert(self.shape.as_slice().into(), routing);
    }

    /// A text that is like none that was seen.
    #[inline(never)]
    fn judge_text(&mut self, text: &[u8]) -> TextRouting {
        let mut is_glance = false;
        let found = TextRouting::of(text, |text| {
            let at_a_glance = routing_at_a_glance(text, &self.names);
            is_glance = at_a_glance.is_some();
            at_a_glance.unwrap_or_else(|| self.by_shape(text))
        });
        if is_glance {
            self.seen.remember(text, found);
        }
        found
    }

    /// A prepared statement that is not in its place.
    #[cold]
    fn judge_statement(&mut self, statement: StatementId, place: usize, text: &[u8]) -> TextRouting {
        let found = self.text(text);
        self.statements.resize(STATEMENTS, None);
        self.statements[place] = Some((statement, found));
        found
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

impl TextJudge for KnownNames {
    #[inline]
    fn text(&mut self, text: &[u8]) -> TextRouting {
        self.seen.find(text).unwrap_or_else(|| self.judge_text(text))
    }

    #[inline]
    fn statement(&mut self, statement: StatementId, registry: &StatementRegistry) -> Option<TextRouting> {
        let place = usize::try_from(statement % STATEMENTS as u64).unwrap_or_default();
        match self.statements.get(place) {
            Some(Some((remembered, known))) if *remembered == statement => Some(*known),
            _ => registry.rest(statement).map(|text| self.judge_statement(statement, place, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &[u8] = b"SELECT a FROM t WHERE mine(a, 7)";

    fn is(routing: Routing) -> TextRouting {
        TextRouting::of(b"", |_| routing)
    }

    fn names() -> RoutingNames {
        RoutingNames::new(["mine".into()], [], [])
    }

    #[test]
    fn names_are_known_until_the_schema_changes() {
        const LATER: u64 = 10 * PAUSE_US;
        let mut known = KnownNames::default();
        assert!(known.is_due(1) && known.text(b"SELECT 1") == is(Routing::Write));
        known.asked(0, 1);
        assert!(!known.is_due(1));
        known.answered(names(), 2);
        assert_eq!([known.text(CALL), known.text(CALL)], [is(Routing::Read); 2]);
        known.expire_if_changed(0);
        assert_eq!(known.text(CALL), is(Routing::Read));
        known.expire_if_changed(1);
        assert!(known.text(CALL) == is(Routing::Write) && !known.is_due(3), "not at once");
        assert!(known.is_due(LATER), "the schema has changed");
        known.asked(1, LATER);
        known.expire_if_changed(2);
        known.answered(names(), LATER + 1);
        assert!(
            known.text(CALL) == is(Routing::Write) && known.is_due(2 * LATER),
            "it has changed meanwhile"
        );
        known.asked(2, 2 * LATER);
        assert!(known.unanswered(2 * LATER + 1) && !known.unanswered(2 * LATER + 1), "said once");
        assert!(!known.is_due(2 * LATER + 1) && known.text(b"SELECT 1") == is(Routing::Write));
    }

    #[test]
    fn prepared_statements_are_remembered_until_what_decides_them_changes() {
        let mut known = KnownNames::default();
        // Its first statement, whose number is the same in all of them.
        let judged = |known: &mut KnownNames, text: &[u8]| {
            let mut registry = StatementRegistry::default();
            let statement = registry.intern(text, None);
            known.statement(statement, &registry).expect("it is there")
        };
        let (reads, writes) = (is(Routing::Read), is(Routing::Write));
        assert_eq!(judged(&mut known, CALL), writes, "no names are known");
        known.asked(0, 1);
        known.answered(names(), 2);
        assert_eq!(
            [judged(&mut known, CALL), judged(&mut known, b"DELETE FROM t")],
            [reads; 2],
            "by its number"
        );
        assert!(known.refused(CALL));
        assert_eq!(judged(&mut known, CALL), writes);
        known.asked(0, 10 * PAUSE_US);
        known.answered(names(), 10 * PAUSE_US);
        assert_eq!(judged(&mut known, CALL), reads);
        known.expire_if_changed(1);
        assert_eq!(judged(&mut known, CALL), writes);
        known.asked(1, 30 * PAUSE_US);
        known.answered(names(), 30 * PAUSE_US);
        let mut registry = StatementRegistry::default();
        let numbers: Vec<StatementId> = (0..=STATEMENTS)
            .map(|number| registry.intern(format!("DELETE FROM t{number}").as_bytes(), None))
            .collect();
        let of_its_place = numbers[STATEMENTS];
        assert_eq!(of_its_place, numbers[0] + STATEMENTS as u64);
        assert_eq!(
            [judged(&mut known, CALL), known.statement(of_its_place, &registry).expect("too")],
            [reads, writes]
        );
        assert_eq!(judged(&mut known, b"DELETE FROM t"), writes, "forgotten");
    }

    #[test]
    fn texts_of_one_shape_are_decided_once() {
        let mut known = KnownNames::default();
        known.asked(0, 1);
        known.answered(names(), 2);
        for number in 0..100 {
            let text = format!("SELECT a FROM t WHERE mine(a, {number})");
            assert_eq!(known.text(text.as_bytes()), is(Routing::Read));
            let _ = known.text(format!("SELECT f{}(1)", number % 3).as_bytes());
        }
        assert_eq!(known.decided.len(), 4);
    }

    #[test]
    fn texts_that_are_told_at_a_glance_are_remembered_until_what_decides_them_changes() {
        let mut known = KnownNames::default();
        let text = |number: u64| format!("SELECT a FROM live WHERE number = {number}");
        let judged = |known: &mut KnownNames, number| known.text(text(number).as_bytes());
        assert_eq!([judged(&mut known, 1), judged(&mut known, 22)], [is(Routing::Write); 2]);
        known.asked(0, 1);
        known.answered(names(), 2);
        assert_eq!([judged(&mut known, 1), judged(&mut known, 22)], [is(Routing::Read); 2]);
        assert!(known.seen.find(text(333).as_bytes()).is_some());
        known.asked(0, 10 * PAUSE_US);
        known.answered(RoutingNames::new([], ["live".into()], []), 10 * PAUSE_US);
        assert_eq!([judged(&mut known, 1), judged(&mut known, 22)], [is(Routing::Write); 2]);
        let hinted = text(1).replace("WHERE", "/* weir: primary */ WHERE");
        assert_ne!(known.text(hinted.as_bytes()), is(Routing::Write), "a comment says so");
        assert!(known.seen.find(hinted.as_bytes()).is_none());
    }
}
