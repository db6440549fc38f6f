//! Which backends the node's own connections have, asked of the shards for an audit.
//!
//! Owns that an answer is complete: every shard has given its part.

use std::collections::BTreeSet;

use fleet::{Backend, BackendsQuestion, BudgetKind};
use messages::{BackendRow, ShardId};

use crate::counters::budget;

/// The audit that shards are being asked for.
pub(crate) struct Audit {
    question: BackendsQuestion,
    missing: BTreeSet<ShardId>,
    backends: Vec<Backend>,
}

impl Audit {
    pub(crate) fn new(question: BackendsQuestion, shards: u16) -> Audit {
        Audit { question, missing: (0..shards).map(ShardId).collect(), backends: Vec::new() }
    }

    /// Comes back in the answers.
    pub(crate) fn number(&self) -> u64 {
        self.question.audit
    }

    /// The part of a shard; all of it once the last one is here.
    pub(crate) fn take(&mut self, shard: ShardId, rows: Vec<BackendRow>) -> Option<&[Backend]> {
        if !self.missing.remove(&shard) {
            return None;
        }
        let counted = rows.into_iter().filter(|row| !is_excepted(&self.question, row));
        self.backends.extend(counted.map(|row| Backend { server: row.server, pid: row.pid }));
        self.missing.is_empty().then_some(&self.backends)
    }
}

/// The backend counts in a limit of which the node must not say that it is its own.
fn is_excepted(question: &BackendsQuestion, row: &BackendRow) -> bool {
    let host = row.host.as_deref().unwrap_or_default();
    let names = [
        budget(BudgetKind::Pool, &row.database, &row.user, host),
        budget(BudgetKind::Database, &row.database, "", ""),
        budget(BudgetKind::User, "", &row.user, ""),
    ];
    names.iter().any(|name| question.except.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, database: &str) -> BackendRow {
        BackendRow { server: "h:1".into(), pid, database: database.into(), user: "u".into(), host: None }
    }

    #[test]
    fn it_is_whole_once_every_shard_has_answered_and_leaves_out_what_is_excepted() {
        let except = vec![budget(BudgetKind::Database, "other", "", "")];
        let mut audit = Audit::new(BackendsQuestion { audit: 7, except }, 2);
        assert_eq!(audit.take(ShardId(1), vec![row(10, "app"), row(11, "other")]), None);
        assert_eq!(audit.take(ShardId(1), vec![row(12, "app")]), None, "it has answered already");
        let whole = audit.take(ShardId(0), Vec::new()).map(<[Backend]>::to_vec);
        assert_eq!(whole, Some(vec![Backend { server: "h:1".into(), pid: 10 }]));
    }
}
