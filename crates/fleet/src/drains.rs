//! Orders to drain a node, given at another one: the objects `["drain", NODE]`.
//!
//! An order is for one session of the node. The node carries it out and removes the object; whether it drains stands in its record from then on. An order
//! for another session is removed unread.

use std::collections::{BTreeMap, VecDeque};

use crate::config::{DrainError, DrainOrder};
use crate::known::{Known, nodes_of};
use crate::ledger::Context;
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision, SessionId};
use crate::text::{read_drain, write_drain};

/// After a write that was not answered, or that met another one.
const RETRY_US: u64 = 500_000;
/// Attempts to write an order that meets others.
const ATTEMPTS: u8 = 5;
/// Orders that wait to be written, and objects that are known.
const MOST: usize = 1_024;

/// An order that is to be written.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    node: NodeId,
    order: DrainOrder,
    attempts: u8,
}

/// An object as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    known: Known,
    is_foreign: bool,
}

impl Order {
    /// What a swap of it has to expect. That one of it cannot be read is treated as its absence, so that the swap fails.
    fn expected(&self) -> Revision {
        if self.is_foreign { Revision::ABSENT } else { self.known.expected() }
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    /// Objects by node. One that cannot be read is left alone.
    known: BTreeMap<NodeId, Order>,
    pending: VecDeque<Pending>,
    writing: Option<(CallId, Pending)>,
    results: VecDeque<(u64, Result<(), DrainError>)>,
    /// What this node has been ordered.
    ordered: Option<DrainOrder>,
    removing: Option<CallId>,
    retry_us: u64,
}

impl Drains {
    /// Gives an order; [`Drains::next_result`] answers with the number.
    pub(crate) fn order(&mut self, number: u64, node: NodeId, order: DrainOrder, context: &Context<'_>) {
        if !context.can_swap {
            return self.results.push_back((number, Err(DrainError::NoStore)));
        }
        if !context.live.contains_key(&node) || self.pending.len() >= MOST {
            return self.results.push_back((number, Err(DrainError::NoSuchNode)));
        }
        self.pending.push_back(Pending { number, node, order, attempts: ATTEMPTS });
    }

    /// What became of an order.
    pub(crate) fn next_result(&mut self) -> Option<(u64, Result<(), DrainError>)> {
        self.results.pop_front()
    }

    /// What this node is to do, once.
    pub(crate) fn take_ordered(&mut self) -> Option<DrainOrder> {
        self.ordered.take()
    }

    /// An object as the watch shows it. Err: what of it cannot be read; None: not one of these.
    pub(crate) fn heard(
        &mut self,
        object: &Object,
        id: &NodeId,
        session: SessionId,
    ) -> Option<Result<(), String>> {
        let [name, node] = object.name.0.as_slice() else { return None };
        if name != "drain" {
            return None;
        }
        let is_own = **node == **id;
        if self.known.len() >= MOST && !is_own && !self.known.contains_key(node.as_str()) {
            self.known.retain(|_, order| order.expected() != Revision::ABSENT);
            if self.known.len() >= MOST {
                return Some(Err(format!("orders for more than {MOST} nodes")));
            }
        }
        let known = self.known.entry(node.as_str().into()).or_default();
        if !known.known.hear(object.revision, object.contents.is_some()) {
            return Some(Ok(()));
        }
        let read = object.contents.as_deref().map(read_drain).transpose();
        known.is_foreign = read.is_err();
        Some(read.map(|order| match order {
            Some((ordered, order)) if is_own && ordered == session => self.ordered = Some(order),
            _ => {}
        }))
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.known.values_mut().for_each(|order| order.known.before_snapshot());
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.known.values_mut().for_each(|order| order.known.at_snapshot(revision));
    }

    /// A snapshot has been read, with these objects.
    pub(crate) fn after_snapshot(&mut self, objects: &[Object], own: &NodeId) {
        let present = nodes_of(objects, "drain");
        // The answer to a write may still come, and be older.
        let written = self.writing.as_ref().map(|(_, pending)| &pending.node);
        let is_removing = self.removing.is_some();
        self.known.retain(|id, order| {
            let is_gone = order.known.after_snapshot(present.contains(&**id));
            !is_gone || written == Some(id) || is_removing && **id == **own
        });
    }

    /// The next write.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        if self.writing.is_some() || self.removing.is_some() || context.now_us < self.retry_us {
            return None;
        }
        let own = self.known.get(context.id).map_or(Revision::ABSENT, Order::expected);
        if own != Revision::ABSENT {
            let call = next_call();
            self.removing = Some(call);
            return Some(swap(call, context.id, own, None));
        }
        while let Some(pending) = self.pending.pop_front() {
            let Some(record) = context.live.get(&pending.node) else {
                self.results.push_back((pending.number, Err(DrainError::NoSuchNode)));
                continue;
            };
            let call = next_call();
            let contents = write_drain(record.session, pending.order, context.id);
            let expected = self.known.entry(pending.node.clone()).or_default().expected();
            let request = swap(call, &pending.node, expected, Some(contents));
            self.writing = Some((call, pending));
            return Some(request);
        }
        None
    }

    /// A write has been carried out, perhaps one of these.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision, id: &NodeId) {
        if let Some((_, pending)) = self.writing.take_if(|(asked, _)| *asked == call) {
            self.wrote(&pending.node, revision, true);
            self.results.push_back((pending.number, Ok(())));
        }
        if self.removing.take_if(|asked| *asked == call).is_some() {
            self.wrote(id, revision, false);
        }
    }

    fn wrote(&mut self, node: &NodeId, revision: Revision, is_there: bool) {
        let order = self.known.entry(node.clone()).or_default();
        if order.known.wrote(revision, is_there) {
            order.is_foreign = false;
        }
    }

    /// A write has failed, or it is not known whether it has (`why`).
    pub(crate) fn not_swapped(&mut self, call: CallId, why: Option<&str>, now_us: u64) {
        if let Some((_, mut pending)) = self.writing.take_if(|(asked, _)| *asked == call) {
            pending.attempts -= 1;
            match why {
                Some(why) => {
                    self.results.push_back((pending.number, Err(DrainError::Unanswered(why.to_owned()))));
                }
                None if pending.attempts == 0 => {
                    self.results.push_back((pending.number, Err(DrainError::Contended)));
                }
                None => self.pending.push_front(pending),
            }
            self.retry_us = now_us + RETRY_US;
        }
        if self.removing.take_if(|asked| *asked == call).is_some() {
            self.retry_us = now_us + RETRY_US;
        }
    }

    /// When something is tried again.
    pub(crate) fn deadline_us(&self, context: &Context<'_>) -> Option<u64> {
        let has_own = self.known.get(context.id).is_some_and(|order| order.expected() != Revision::ABSENT);
        let is_busy = self.writing.is_some() || self.removing.is_some();
        ((has_own || !self.pending.is_empty()) && !is_busy).then_some(self.retry_us)
    }
}

fn swap(call: CallId, node: &NodeId, expected: Revision, contents: Option<Vec<u8>>) -> Request {
    let name = ObjectName(vec!["drain".to_owned(), node.to_string()]);
    Request::Swap { call, name, expected, contents }
}
