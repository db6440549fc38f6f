//! What a session of a cluster's server answers to Weir's own questions, and what it refuses because it is in recovery.

use super::replication::{PAGE_BYTES, Replica, SEGMENT_BYTES, SYSTEM};
use super::reply;
use super::session::{Session, SessionContext, Status};
use crate::cluster_sql::ClusterQuestion;
use crate::session_sql::SessionStatement;
use crate::sql::{Statement, Tag};

/// PostgreSQL's code for what writes in a transaction that may not.
pub(super) const READ_ONLY: (&str, &str) = ("25006", "cannot execute it in a read-only transaction");

impl Session {
    /// Answers one of Weir's questions.
    pub(super) fn answer_cluster(&mut self, question: ClusterQuestion, near: &mut SessionContext<'_>) {
        let Some(replica) = near.replica else {
            return self.fail("42883", "function does not exist", None, near);
        };
        let row = match question {
            ClusterQuestion::Identity => {
                let timeline = (!replica.is_standby).then(|| format!("{:08X}", replica.at.timeline));
                vec![Some(SYSTEM.to_string()), timeline]
            }
            ClusterQuestion::Names => vec![Some("end".to_owned()), Some(String::new())],
            ClusterQuestion::Position { sizes, timelines } => position(replica, sizes, timelines),
        };
        let values: Vec<Option<&[u8]>> =
            row.iter().map(|value| value.as_ref().map(String::as_bytes)).collect();
        reply::row_with_nulls(&mut self.out, &values);
        self.chatter(near);
        self.done("SELECT 1");
    }

    /// What a server in recovery must not be asked for by a client. (Weir's own have no tag.)
    pub(super) fn judge_on_standby(
        &self,
        statement: &Statement,
        tag: Option<Tag>,
        near: &mut SessionContext<'_>,
    ) {
        let is_standby = near.replica.is_some_and(|replica| replica.is_standby);
        if !is_standby || self.status != Status::Idle {
            return;
        }
        let is_one_of_several = self.work.as_ref().is_some_and(|work| work.simple && work.several);
        let is_allowed = match tag {
            Some(_) => statement.only_reads() && !is_one_of_several,
            None => !statement.writes(),
        };
        if !is_allowed {
            near.strange.push(("I19", format!("`{statement}` of {tag:?} was executed on a standby")));
        }
    }

    /// Whether the transaction that a statement is part of may not write.
    pub(super) fn refuses_writes(&self, near: &SessionContext<'_>) -> bool {
        self.is_read_only || near.replica.is_some_and(|replica| replica.is_standby)
    }
}

fn position(replica: Replica, sizes: bool, timelines: bool) -> Vec<Option<String>> {
    let Replica { is_standby, at, receives, restart_point } = replica;
    let lsn = if is_standby { at.lsn } else { replica.insert_lsn() };
    let mut row = vec![Some(if is_standby { "t" } else { "f" }.to_owned()), Some(lsn.to_string())];
    if timelines {
        let known = receives.into_iter().chain([restart_point]).map(|number| number.to_string());
        row.push(is_standby.then(|| known.collect::<Vec<_>>().join(" ")));
    }
    if sizes {
        row.extend([None, Some(PAGE_BYTES.to_string()), Some(SEGMENT_BYTES.to_string())]);
    }
    row
}

impl Statement {
    /// Whether a standby refuses it.
    pub(super) fn writes(&self) -> bool {
        use SessionStatement::{Audited, CreateTemporary, DropTemporary, Listen, Notify, Sequence};
        match self {
            Statement::Insert(_) | Statement::CopyIn => true,
            Statement::Session(statement) => {
                matches!(
                    statement,
                    Audited(_) | CreateTemporary(_) | DropTemporary(_) | Listen(_) | Notify(..) | Sequence(_)
                )
            }
            _ => false,
        }
    }

    /// Whether it is known to read, or begins a transaction that does.
    fn only_reads(&self) -> bool {
        use Statement::{BeginReadOnly, DivideByZero, Empty, Select, SelectNumber, Stamp};
        matches!(self, Select(..) | SelectNumber(_) | Stamp(_) | DivideByZero | Empty | BeginReadOnly)
    }

    /// Whether it stands for a read of the table.
    pub(super) fn reads_table(&self) -> bool {
        matches!(self, Statement::Select(..) | Statement::Stamp(_))
    }
}
