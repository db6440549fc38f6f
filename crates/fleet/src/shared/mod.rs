//! What nodes use of limits for which no slots are leased: clients, and the usage of quotas. Each node writes its figures into an object of its own,
//! `["usage", NODE]`, and adds up what the others have written.
//!
//! Nothing waits for these objects. A figure is as old as its last write: a node writes a change of a hundredth of a limit, and every change of one of which nine tenths
//! are used, after a second, others after ten. What is used in a period counts until the period is over, whether its node is there or not; what is used at the moment counts
//! while the session that wrote it has a lease, and this node has one, too.

pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::known::{Known, nodes_of};
use crate::ledger::Context;
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision};
use text::{Contents, MOST_BYTES, MOST_FIGURES, MOST_NAME_BYTES};

const NAME: &str = "usage";
/// Between two writes of what others should know soon, and of what they need not.
const WRITE_US: (u64, u64) = (1_000_000, 10_000_000);
/// Long objects are written less often: this many bytes in a second, so that the history that etcd keeps of them stays small.
const BYTES_A_SECOND: u64 = 16 * 1_024;
/// After a write that was not answered, or that met another one.
const RETRY_US: u64 = 1_000_000;
/// After this many of these in a row everything is read again.
const MOST_CONFLICTS: u32 = 5;
/// Objects that are known.
const MOST_OBJECTS: usize = 1_024;
/// Figures of all objects together.
const MOST_ALL_FIGURES: usize = 131_072;
/// The clocks of nodes differ by less.
const CLOCKS_S: u64 = 3_600;

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageKind {
    /// `max_client_conn`.
    Clients,
    /// `max_db_client_connections`.
    Database,
    /// `max_user_client_connections`.
    User,
    /// A quota.
    Quota,
}

/// What a figure is of, the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageName {
    /// Of which limit.
    pub kind: UsageKind,
    /// The database, the user, or the quota's subject and resource; empty for [`UsageKind::Clients`]. Any text: clients choose it.
    pub name: Arc<str>,
    /// Of a quota of a period: when that begins and ends, in seconds since 1970; else zeros, and the figure is what is used at the moment.
    pub period_s: (u64, u64),
}

impl UsageName {
    fn is_of_a_period(&self) -> bool {
        self.period_s.1 > 0
    }
}

/// What this node uses of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageFigure {
    /// Of which.
    pub name: UsageName,
    /// How much, in the limit's unit.
    pub amount: u64,
    /// The limit.
    pub limit: u64,
}

/// All that this node uses of limits that hold for all nodes without slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedUsage {
    /// Limits of clients are shared.
    pub clients: bool,
    /// Quotas are.
    pub quotas: bool,
    /// What is used of those limits that are set.
    pub figures: Vec<UsageFigure>,
    /// How many figures were left out, since there are too many.
    pub left_out: usize,
    /// The time, in seconds since 1970: figures of periods that are over are forgotten.
    pub wall_s: u64,
}

/// What the other nodes use together.
pub type ExternalUsage = BTreeMap<UsageName, u64>;

#[derive(Clone, Debug, Default)]
struct Stored {
    known: Known,
    contents: Option<Contents>,
    /// It cannot be read, and is left alone.
    is_foreign: bool,
}

#[derive(Clone, Debug)]
struct Writing {
    call: CallId,
    node: NodeId,
    expected: Revision,
    contents: Option<Contents>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    clients: bool,
    quotas: bool,
    wall_s: u64,
    /// Amount and limit.
    own: BTreeMap<UsageName, (u64, u64)>,
    /// Of all nodes, this one among them.
    objects: BTreeMap<NodeId, Stored>,
    /// Figures of all of them.
    figures: usize,
    has_read: bool,
    /// What others use may have changed since it was given out.
    has_changed: bool,
    given: Option<ExternalUsage>,
    writing: Option<Writing>,
    /// When the own object was written last, and how long it was.
    written: Option<(u64, usize)>,
    /// When the own object is to be written.
    due_us: Option<u64>,
    /// A node that is gone, and of whose object nothing counts any more.
    spent: Option<NodeId>,
    retry_us: u64,
    conflicts: u32,
    /// Of what the node uses: not in its object, and not given by the caller.
    left_out: usize,
    not_given: usize,
}

impl Shared {
    /// What the node uses.
    pub(crate) fn set(&mut self, usage: SharedUsage, context: &Context<'_>) {
        let SharedUsage { clients, quotas, figures, left_out, wall_s } = usage;
        self.has_changed |= (clients, quotas) != (self.clients, self.quotas);
        (self.clients, self.quotas, self.wall_s) = (clients, quotas, wall_s);
        self.not_given = left_out;
        let of = |UsageFigure { name, amount, limit }| (name, (amount, limit));
        self.own = figures.into_iter().map(of).filter(|(name, _)| self.is_shared(name)).collect();
        self.plan(context);
    }

    fn is_shared(&self, name: &UsageName) -> bool {
        if name.kind == UsageKind::Quota { self.quotas } else { self.clients }
    }

    /// Sessions have begun or ended.
    pub(crate) fn touch(&mut self) {
        self.has_changed = true;
    }

    /// How many of the node's figures have no room in its object.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out + self.not_given
    }

    /// An object as the watch shows it. Err: what of it cannot be read; None: not one of these.
    pub(crate) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        let [name, node] = object.name.0.as_slice() else { return None };
        if name != NAME {
            return None;
        }
        if self.objects.len() >= MOST_OBJECTS && !self.objects.contains_key(node.as_str()) {
            self.objects.retain(|_, stored| stored.known.is_there());
            if self.objects.len() >= MOST_OBJECTS {
                return Some(Err(format!("usage of more than {MOST_OBJECTS} nodes")));
            }
        }
        let stored = self.objects.entry(node.as_str().into()).or_default();
        if !stored.known.hear(object.revision, object.contents.is_some()) {
            return Some(Ok(()));
        }
        self.has_changed = true;
        self.figures -= stored.contents.take().map_or(0, |contents| contents.amounts.len());
        let read = object.contents.as_deref().map(text::read).transpose().and_then(|contents| {
            let more = contents.as_ref().map_or(0, |contents| contents.amounts.len());
            match self.figures + more > MOST_ALL_FIGURES {
                true => Err(format!("more than {MOST_ALL_FIGURES} figures of all nodes")),
                false => Ok(contents),
            }
        });
        stored.is_foreign = read.is_err();
        Some(read.map(|contents| {
            self.figures += contents.as_ref().map_or(0, |contents| contents.amounts.len());
            stored.contents = contents;
        }))
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.objects.values_mut().for_each(|stored| stored.known.before_snapshot());
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.objects.values_mut().for_each(|stored| stored.known.at_snapshot(revision));
    }

    /// A snapshot has been read, with these objects.
    pub(crate) fn after_snapshot(&mut self, objects: &[Object]) {
        let present = nodes_of(objects, NAME);
        // The answer to a write may still come, and be older.
        let written = self.writing.as_ref().map(|writing| &writing.node);
        self.objects.retain(|node, stored| {
            let is_gone = stored.known.after_snapshot(present.contains(&**node));
            if is_gone {
                stored.contents = None;
            }
            !is_gone || written == Some(node)
        });
        let figures = self.objects.values().filter_map(|stored| stored.contents.as_ref());
        self.figures = figures.map(|contents| contents.amounts.len()).sum();
        (self.has_read, self.has_changed) = (true, true);
    }

    /// What others use, if it may have changed; None before the store was read.
    pub(crate) fn next_external(&mut self, context: &Context<'_>, is_in: bool) -> Option<ExternalUsage> {
        if !self.has_read || !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let mut sums = ExternalUsage::new();
        for (node, stored) in self.objects.iter().filter(|(node, _)| *node != context.id) {
            let Some(Contents { session, amounts }) = &stored.contents else { continue };
            let is_there = is_in && context.live.get(node).is_some_and(|record| record.session == *session);
            let counts = |name: &UsageName| self.is_shared(name) && (is_there || name.is_of_a_period());
            for (name, amount) in amounts.iter().filter(|(name, _)| counts(name)) {
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        if self.given.as_ref() == Some(&sums) {
            return None;
        }
        self.given = Some(sums.clone());
        Some(sums)
    }

    /// Decides what is to be written, and when.
    pub(crate) fn plan(&mut self, context: &Context<'_>) {
        self.due_us = self.due(context);
        let is_over = |name: &UsageName| name.period_s.1 == 0 || name.period_s.1 + CLOCKS_S <= self.wall_s;
        let is_spent = |(node, stored): &(&NodeId, &Stored)| {
            let contents = stored.contents.as_ref();
            let is_gone = *node != context.id && !context.live.contains_key(*node);
            is_gone && contents.is_some_and(|contents| contents.amounts.keys().all(is_over))
        };
        let spent = self.objects.iter().find(is_spent).filter(|_| context.is_first());
        self.spent = spent.map(|(node, _)| node.clone());
    }

    fn due(&mut self, context: &Context<'_>) -> Option<u64> {
        let stored = self.objects.get(context.id);
        if stored.is_some_and(|stored| stored.is_foreign) {
            return None;
        }
        let written = stored.and_then(|stored| stored.contents.clone());
        let wanted = self.wanted(written.as_ref());
        let is_urgent = match &written {
            None if wanted.is_empty() => return None,
            None => true,
            Some(written) if written.session != context.session => true,
            Some(written) if written.amounts == wanted => return None,
            Some(written) => self.is_urgent(&written.amounts, &wanted),
        };
        let Some((written_us, bytes)) = self.written else { return Some(self.retry_us) };
        let least_us = if is_urgent { WRITE_US.0 } else { WRITE_US.1 };
        let long_us = (bytes as u64).saturating_mul(1_000_000) / BYTES_A_SECOND;
        Some((written_us + least_us.max(long_us)).max(self.retry_us))
    }

    /// What the own object should have: what is used, and what was used in periods that are not over, as far as there is room. A process that has been started again does
    /// not know at once what it had used before.
    fn wanted(&mut self, written: Option<&Contents>) -> BTreeMap<UsageName, u64> {
        let own = self.own.iter().map(|(name, (amount, _))| (name.clone(), *amount));
        let mut wanted: BTreeMap<UsageName, u64> = own.filter(|(_, amount)| *amount > 0).collect();
        let is_kept = |name: &UsageName| self.quotas && name.period_s.1 > self.wall_s;
        for (name, amount) in written.into_iter().flat_map(|written| &written.amounts) {
            if is_kept(name) {
                let wanted = wanted.entry(name.clone()).or_default();
                *wanted = (*wanted).max(*amount);
            }
        }
        let all = wanted.len();
        self.bound(&mut wanted);
        self.left_out = all - wanted.len();
        wanted
    }

    /// Leaves out what has no room: first those of which the least is used, in parts of the limit.
    fn bound(&self, wanted: &mut BTreeMap<UsageName, u64>) {
        wanted.retain(|name, _| name.name.len() <= MOST_NAME_BYTES);
        let at_most: usize = wanted.keys().map(|name| 80 + 3 * name.name.len()).sum();
        if wanted.len() <= MOST_FIGURES && at_most <= MOST_BYTES {
            return;
        }
        let share = |name: &UsageName, amount: u64| {
            let limit = self.own.get(name).map_or(u64::MAX, |(_, limit)| (*limit).max(1));
            u128::from(amount) * 1_000_000 / u128::from(limit)
        };
        let mut order: Vec<(u128, UsageName)> =
            wanted.iter().map(|(name, amount)| (share(name, *amount), name.clone())).collect();
        order.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let (mut count, mut bytes) = (0, 80);
        for (_, name) in order {
            count += 1;
            bytes += wanted.get(&name).map_or(0, |amount| text::length(&name, *amount));
            if count > MOST_FIGURES || bytes > MOST_BYTES {
                wanted.remove(&name);
            }
        }
    }

    /// Whether others should know of a change soon.
    fn is_urgent(&self, written: &BTreeMap<UsageName, u64>, wanted: &BTreeMap<UsageName, u64>) -> bool {
        let names = written.keys().chain(wanted.keys().filter(|name| !written.contains_key(*name)));
        names.into_iter().any(|name| {
            let [before, now] = [written, wanted].map(|of| of.get(name).copied().unwrap_or_default());
            let change = before.abs_diff(now);
            let external = self.given.as_ref().and_then(|given| given.get(name)).copied().unwrap_or_default();
            match self.own.get(name) {
                _ if change == 0 => false,
                None => !name.is_of_a_period(),
                Some((_, limit)) => {
                    let used = before.max(now).saturating_add(external);
                    change >= limit / 100 || used >= limit - limit / 10
                }
            }
        })
    }

    /// The next write.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        if self.writing.is_some() {
            return None;
        }
        let (node, contents) = match self.due_us {
            Some(due_us) if due_us <= context.now_us => {
                let written = self.objects.get(context.id).and_then(|stored| stored.contents.clone());
                let amounts = self.wanted(written.as_ref());
                let contents = Contents { session: context.session, amounts };
                (context.id.clone(), Some(contents).filter(|contents| !contents.amounts.is_empty()))
            }
            _ => (self.spent.clone().filter(|_| self.retry_us <= context.now_us)?, None),
        };
        let expected = self.objects.entry(node.clone()).or_default().known.expected();
        let (call, bytes) = (next_call(), contents.as_ref().map(text::write));
        if node == *context.id {
            self.written = Some((context.now_us, bytes.as_ref().map_or(0, Vec::len)));
            self.due_us = None;
        } else {
            self.spent = None;
        }
        let name = ObjectName(vec![NAME.to_owned(), node.to_string()]);
        self.writing = Some(Writing { call, node, expected, contents });
        Some(Request::Swap { call, name, expected, contents: bytes })
    }

    /// A write has been carried out, perhaps one of these.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision, context: &Context<'_>) {
        let Some(writing) = self.writing.take_if(|writing| writing.call == call) else { return };
        self.conflicts = 0;
        let stored = self.objects.entry(writing.node).or_default();
        if stored.known.wrote(revision, writing.contents.is_some()) {
            let [before, now] = [&stored.contents, &writing.contents]
                .map(|contents| contents.as_ref().map_or(0, |contents| contents.amounts.len()));
            self.figures = self.figures - before + now;
            (stored.contents, stored.is_foreign) = (writing.contents, false);
        }
        self.plan(context);
    }

    /// A write has failed, or it is not known whether it has.
    pub(crate) fn not_swapped(&mut self, call: CallId, context: &Context<'_>) {
        let Some(writing) = self.writing.take_if(|writing| writing.call == call) else { return };
        let expected =
            self.objects.get(&writing.node).map_or(Revision::ABSENT, |stored| stored.known.expected());
        // What has been written instead may be known already.
        if expected == writing.expected {
            self.conflicts += 1;
        }
        self.retry_us = context.now_us + RETRY_US;
        self.plan(context);
    }

    /// The watch does not show what the store has.
    pub(crate) fn take_stale(&mut self) -> bool {
        let is_stale = self.conflicts >= MOST_CONFLICTS;
        if is_stale {
            self.conflicts = 0;
        }
        is_stale
    }

    /// When something is to be written.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let spent = self.spent.as_ref().map(|_| self.retry_us);
        self.due_us.into_iter().chain(spent).min().filter(|_| self.writing.is_none())
    }
}
