//! What was really done: which request's row was committed, how often, by which server process.
//!
//! The table that the models' INSERT and COPY write to. The judge compares it with what clients were told.

use std::collections::BTreeMap;

use crate::sql::Tag;

/// All that was ever committed, over every crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    applied: BTreeMap<Tag, u32>,
    /// What was committed since it was last asked.
    new: Vec<Tag>,
    /// Requests that were applied more than once.
    twice: Vec<Tag>,
    /// Statements that servers ran, of any kind: the simulator's measure of work.
    pub(crate) statements: u64,
    /// Transactions that servers ended.
    pub(crate) transactions: u64,
}

impl Ledger {
    /// A transaction with these rows was committed.
    pub(crate) fn commit(&mut self, rows: &mut Vec<Tag>) {
        for tag in rows.drain(..) {
            self.new.push(tag);
            let times = self.applied.entry(tag).or_insert(0);
            *times += 1;
            if *times == 2 {
                self.twice.push(tag);
            }
        }
    }

    /// What was committed since this was asked last.
    pub(crate) fn take_new(&mut self) -> Vec<Tag> {
        std::mem::take(&mut self.new)
    }

    /// How often a request was applied.
    pub(crate) fn times(&self, tag: Tag) -> u32 {
        self.applied.get(&tag).copied().unwrap_or(0)
    }

    /// A request that was applied twice, once for each.
    pub(crate) fn take_twice(&mut self) -> Option<Tag> {
        self.twice.pop()
    }
}
