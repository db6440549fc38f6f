//! The audit, and which backends each node has: the objects `["audit"]` and `["backends", NODE]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::known::{Known, has_object, nodes_of};
use crate::ledger::Context;
use crate::store::{Backend, CallId, NodeId, Object, ObjectName, Request, Revision, SessionId};
use crate::text::{
    Audit, ReportHead, read_audit, read_backend, read_report, read_report_head, write_audit, write_report,
};

/// After a write that was not answered, or that met another one.
const RETRY_US: u64 = 500_000;
/// Nodes whose reports are kept.
const MOST_REPORTS: usize = 1_024;

#[derive(Clone, Debug, Default)]
struct Report {
    known: Known,
    head: Option<ReportHead>,
    contents: Vec<u8>,
}

/// A report as it is written.
type Contents = (ReportHead, Vec<u8>);

/// A write of a report: of the own one, or the removal of that of a node that is gone.
#[derive(Clone, Debug)]
struct Writing {
    call: CallId,
    node: NodeId,
    report: Option<Contents>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    audit_known: Known,
    audit: Option<Audit>,
    calling: Option<(CallId, Audit)>,
    call_retry_us: u64,
    reports: BTreeMap<NodeId, Report>,
    /// A report may be that of a node that is gone.
    may_remove: bool,
    /// What the caller was asked, and its answer.
    asked: Option<ReportHead>,
    answer: Option<Contents>,
    writing: Option<Writing>,
    write_retry_us: u64,
}

impl Reports {
    /// An object as the watch shows it. Err: what of it cannot be read; None: not one of these.
    pub(crate) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        match object.name.0.as_slice() {
            [name] if name == "audit" => Some(self.heard_audit(object)),
            [name, node] if name == "backends" => Some(self.heard_report(node, object)),
            _ => None,
        }
    }

    fn heard_audit(&mut self, object: &Object) -> Result<(), String> {
        if self.audit_known.hear(object.revision, object.contents.is_some()) {
            let read = object.contents.as_deref().map(read_audit).transpose()?;
            // A store that was restored may have an earlier one, to which reports made before have not answered.
            if read.as_ref().map(|audit| audit.number) >= self.audit.as_ref().map(|audit| audit.number) {
                self.audit = read;
            }
        }
        Ok(())
    }

    fn heard_report(&mut self, node: &str, object: &Object) -> Result<(), String> {
        if self.reports.len() >= MOST_REPORTS && !self.reports.contains_key(node) {
            return Err(format!("the backends of more than {MOST_REPORTS} nodes"));
        }
        self.may_remove = true;
        let report = self.reports.entry(node.into()).or_default();
        if report.known.hear(object.revision, object.contents.is_some()) {
            report.contents = object.contents.clone().unwrap_or_default();
            report.head = object.contents.as_deref().map(read_report_head).transpose()?;
        }
        Ok(())
    }

    /// Live nodes that have not answered this audit, or a later one, in their present session.
    pub(crate) fn missing(&self, audit: u64, context: &Context<'_>) -> Vec<NodeId> {
        let is_missing = |(id, session): &(&NodeId, SessionId)| {
            let head = self.reports.get(*id).and_then(|report| report.head);
            !head.is_some_and(|head| head.session == *session && head.audit >= audit)
        };
        live_sessions(context).filter(is_missing).map(|(id, _)| id.clone()).collect()
    }

    /// The backends of all live nodes by their reports.
    pub(crate) fn backends(&self, audit: u64, context: &Context<'_>) -> BTreeSet<(Arc<str>, u32)> {
        let mut all = BTreeSet::new();
        for (id, session) in live_sessions(context) {
            let Some(report) = self.reports.get(id) else { continue };
            let Ok((head, lines)) = read_report(&report.contents) else { continue };
            if head.session == session && head.audit >= audit {
                all.extend(lines.filter_map(read_backend).map(|(server, pid)| (server.into(), pid)));
            }
        }
        all
    }

    /// The highest that is known: a report for it may be there although a restored store does not have the audit.
    fn last_audit(&self) -> u64 {
        let reported = self.reports.values().filter_map(|report| report.head).map(|head| head.audit);
        self.audit.iter().map(|audit| audit.number).chain(reported).max().unwrap_or(0)
    }

    /// Writes a new audit, if none is under way.
    pub(crate) fn call(
        &mut self,
        context: &Context<'_>,
        mut next_call: impl FnMut() -> CallId,
    ) -> Option<Request> {
        if self.calling.is_some() || context.now_us < self.call_retry_us {
            return None;
        }
        let number = self.last_audit() + 1;
        let audit = Audit { number, by: context.id.clone(), session: context.session };
        let call = next_call();
        let contents = Some(write_audit(&audit));
        self.calling = Some((call, audit));
        let name = ObjectName(vec!["audit".to_owned()]);
        Some(Request::Swap { call, name, expected: self.audit_known.expected(), contents })
    }

    /// The number of the audit that has been written by this call.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision) -> Option<u64> {
        if let Some((_, audit)) = self.calling.take_if(|(asked, _)| *asked == call) {
            let number = audit.number;
            if self.audit_known.wrote(revision, true) {
                self.audit = Some(audit);
            }
            return Some(number);
        }
        if let Some(Writing { node, report, .. }) = self.writing.take_if(|writing| writing.call == call) {
            let known = self.reports.entry(node).or_default();
            if known.known.wrote(revision, report.is_some()) {
                (known.head, known.contents) =
                    report.map_or((None, Vec::new()), |(head, contents)| (Some(head), contents));
            }
        }
        None
    }

    /// A write has failed, or it is not known whether it has.
    pub(crate) fn not_swapped(&mut self, call: CallId, now_us: u64) {
        if self.calling.take_if(|(asked, _)| *asked == call).is_some() {
            self.call_retry_us = now_us + RETRY_US;
        }
        if self.writing.take_if(|writing| writing.call == call).is_some() {
            self.write_retry_us = now_us + RETRY_US;
        }
    }

    /// What this node should report and has not.
    fn due(&self, context: &Context<'_>) -> Option<ReportHead> {
        let audit = self.audit.as_ref()?.number;
        let due = ReportHead { session: context.session, audit };
        let written = self.reports.get(context.id).and_then(|report| report.head);
        (context.can_swap && written != Some(due)).then_some(due)
    }

    /// The audit that the caller is to be asked for, once each.
    pub(crate) fn question(&mut self, context: &Context<'_>) -> Option<u64> {
        let due = self.due(context)?;
        if self.asked == Some(due) {
            return None;
        }
        self.asked = Some(due);
        Some(due.audit)
    }

    /// The caller's answer to the last [`crate::BackendsQuestion`].
    pub(crate) fn answer(&mut self, audit: u64, session: SessionId, backends: &[Backend]) {
        let head = ReportHead { session, audit };
        if self.asked == Some(head) {
            self.answer = Some((head, write_report(head, backends)));
        }
    }

    /// Writes the own report, if there is one to write, or removes one of a node that is gone.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        if self.writing.is_some() || context.now_us < self.write_retry_us {
            return None;
        }
        let own = self.own_write(context).cloned().map(|answer| (context.id.clone(), Some(answer)));
        let (node, report) = own.or_else(|| self.removal(context))?;
        let call = next_call();
        let expected = self.reports.entry(node.clone()).or_default().known.expected();
        let name = ObjectName(vec!["backends".to_owned(), node.to_string()]);
        let contents = report.as_ref().map(|(_, contents)| contents.clone());
        self.writing = Some(Writing { call, node, report });
        Some(Request::Swap { call, name, expected, contents })
    }

    fn own_write(&self, context: &Context<'_>) -> Option<&Contents> {
        let due = self.due(context)?;
        self.answer.as_ref().filter(|(head, _)| *head == due)
    }

    /// The first of the live nodes removes the reports of those that are gone.
    fn removal(&mut self, context: &Context<'_>) -> Option<(NodeId, Option<Contents>)> {
        if !self.may_remove || !context.is_first() {
            return None;
        }
        let is_gone = |id: &NodeId| id != context.id && !context.live.contains_key(id);
        let mut gone = self.reports.iter().filter(|(id, report)| is_gone(id) && report.known.is_there());
        let gone = gone.next().map(|(id, _)| (id.clone(), None));
        self.may_remove = gone.is_some();
        gone
    }

    /// A record has vanished.
    pub(crate) fn node_gone(&mut self) {
        self.may_remove = true;
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.audit_known.before_snapshot();
        self.reports.values_mut().for_each(|report| report.known.before_snapshot());
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.audit_known.at_snapshot(revision);
        self.reports.values_mut().for_each(|report| report.known.at_snapshot(revision));
    }

    /// A snapshot has been read, with these objects.
    pub(crate) fn after_snapshot(&mut self, objects: &[Object]) {
        self.may_remove = true;
        let present = nodes_of(objects, "backends");
        let written = self.writing.as_ref().map(|writing| &writing.node);
        self.reports.retain(|id, report| {
            let is_gone = report.known.after_snapshot(present.contains(&**id));
            if is_gone {
                (report.head, report.contents) = (None, Vec::new());
            }
            // The answer to a write may still come, and be older.
            !is_gone || written == Some(id)
        });
        self.audit_known.after_snapshot(has_object(objects, "audit"));
    }

    /// When an audit is tried again, unless one is under way.
    pub(crate) fn call_due_us(&self) -> Option<u64> {
        self.calling.is_none().then_some(self.call_retry_us)
    }

    /// When a write is tried again.
    pub(crate) fn deadline_us(&self, context: &Context<'_>) -> Option<u64> {
        let has_work = self.may_remove && context.is_first() || self.own_write(context).is_some();
        (has_work && self.writing.is_none()).then_some(self.write_retry_us)
    }
}

fn live_sessions<'a>(context: &Context<'a>) -> impl Iterator<Item = (&'a NodeId, SessionId)> {
    let (id, own) = (context.id, context.session);
    let others = context.live.iter().filter(move |(other, _)| *other != id);
    others.map(|(other, record)| (other, record.session)).chain([(id, own)])
}
