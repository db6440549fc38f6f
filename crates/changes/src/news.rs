//! Turns what the stream and the questions say into news for the shards, in an order in which they may be believed.
//!
//! Owns the numbers of changes, what is held back until the catalog is known, which changes new snapshots do not see yet, and when everything up to a position has been told.
//! No I/O and no clock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use messages::{CacheNewsKind, UncachedNames};

use crate::decoding::{Effect, MAX_NAMES, Transaction};
use crate::relations::Graph;
use crate::snapshot::{Snapshot, precedes};

/// The numbers of this many transactions of a change are kept one by one.
const MAX_XIDS: usize = 256;

/// The number of changes that snapshots do not see that are kept apart.
const MAX_INVISIBLE: usize = 4096;

/// What changes with the catalogs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Of those that are small, or shared by all databases.
    pub(crate) small: Box<str>,
    /// Of all others.
    pub(crate) large: Box<str>,
}

/// What the catalog says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    /// What is not to be kept.
    pub(crate) uncached: Arc<UncachedNames>,
    /// What is made of what.
    pub(crate) graph: Graph,
}

/// Where the primary was.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The time before the question was sent.
    pub(crate) as_of_us: u64,
    /// The end of its WAL, taken before the snapshot.
    pub(crate) position: u64,
    /// The rest of the answer.
    pub(crate) seen: Seen,
}

/// What a question saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What new snapshots see.
    pub(crate) snapshot: Snapshot,
    /// The end of the WAL, taken behind the snapshot: what that shows has committed before.
    pub(crate) end: u64,
    /// The fingerprint of the small catalogs in that snapshot.
    pub(crate) small: Box<str>,
}

/// Transactions that may not be visible yet.
#[derive(Debug, Default)]
struct Xids {
    each: Vec<u32>,
    /// All up to this one besides.
    up_to: Option<u32>,
}

impl Xids {
    fn add(&mut self, xid: u32) {
        if self.each.len() < MAX_XIDS {
            self.each.push(xid);
        } else if self.up_to.is_none_or(|last| precedes(last, xid)) {
            self.up_to = Some(xid);
        }
    }

    fn absorb(&mut self, other: Xids) {
        other.each.into_iter().chain(other.up_to).for_each(|xid| self.add(xid));
        if let Some(xid) = other.up_to
            && self.up_to.is_none_or(|last| precedes(last, xid))
        {
            self.up_to = Some(xid);
        }
    }

    fn are_seen_by(&self, snapshot: &Snapshot) -> bool {
        self.each.iter().all(|xid| snapshot.sees(*xid))
            && self.up_to.is_none_or(|xid| snapshot.sees_all_up_to(xid))
    }
}

/// Changes that have not been told.
#[derive(Debug)]
struct Held {
    names: BTreeSet<Box<str>>,
    xids: Xids,
    /// The end of the first of the transactions, and of the last.
    first: u64,
    last: u64,
}

/// A change that has been told.
#[derive(Debug)]
struct Told {
    /// Its number: of several, the first.
    number: u64,
    xids: Xids,
    first: u64,
}

/// One stream's news.
#[derive(Debug)]
pub(crate) struct News {
    out: VecDeque<CacheNewsKind>,
    /// The last change's.
    number: u64,
    held: Option<Held>,
    /// The graph of the catalog; None until it is known as of the last change of the schema.
    graph: Option<Graph>,
    /// The last change of the schema.
    schema: u64,
    invisible: VecDeque<Told>,
    /// Everything that ends up to here has been streamed.
    reached: u64,
    fingerprint: Fingerprint,
    /// Transactions have changed rows since the large catalogs were looked at: they may have changed those, too.
    is_unchecked: bool,
    sample: Option<Sample>,
}

impl News {
    /// Begins; the fingerprint is older than anything that shards may keep.
    pub(crate) fn new(system: u64, timeline: u32, fingerprint: Fingerprint) -> News {
        News {
            out: VecDeque::from([CacheNewsKind::Begins { system, timeline }]),
            number: 0,
            held: None,
            graph: None,
            schema: 0,
            invisible: VecDeque::new(),
            reached: 0,
            fingerprint,
            // Transactions that committed before the stream began are not streamed.
            is_unchecked: true,
            sample: None,
        }
    }

    /// The next thing to tell.
    pub(crate) fn poll(&mut self) -> Option<CacheNewsKind> {
        self.out.pop_front()
    }

    /// A transaction of the stream; [`News::flush`] follows.
    pub(crate) fn committed(&mut self, transaction: Transaction) {
        let Transaction { xid, end, what } = transaction;
        let held = self.held.get_or_insert_with(|| Held {
            names: BTreeSet::new(),
            xids: Xids::default(),
            first: end,
            last: end,
        });
        held.xids.add(xid);
        held.last = held.last.max(end);
        self.is_unchecked = true;
        match what {
            Effect::Rows(names) => {
                held.names.extend(names);
                if held.names.len() > MAX_NAMES {
                    self.schema_changed(end);
                }
            }
            Effect::Unknown => self.schema_changed(end),
        }
    }

    /// Everything up to there has been streamed.
    pub(crate) fn reached(&mut self, lsn: u64) {
        self.reached = self.reached.max(lsn);
    }

    /// The end of what has been streamed.
    pub(crate) fn position(&self) -> u64 {
        self.reached
    }

    /// What has been streamed so far may be told.
    pub(crate) fn flush(&mut self) {
        self.tell_held();
        self.tell_current();
    }

    fn tell_held(&mut self) {
        let Some(graph) = &self.graph else { return };
        let Some(held) = self.held.take() else { return };
        let names = graph.closure(held.names);
        let Held { xids, first, last: lsn, .. } = held;
        if names.is_empty() {
            return self.await_visibility(xids, first);
        }
        let number = self.change(xids, first);
        if names.len() > MAX_NAMES {
            self.tell_schema(number, lsn);
        } else {
            let names = names.into_iter().collect();
            self.out.push_back(CacheNewsKind::Changed { number, lsn, names });
        }
    }

    /// Anything may be otherwise: what is held need not be told apart.
    fn schema_changed(&mut self, lsn: u64) {
        let held = self.held.take();
        let first = held.as_ref().map_or(lsn, |held| held.first);
        let number = self.change(held.map(|held| held.xids).unwrap_or_default(), first);
        self.tell_schema(number, lsn);
    }

    fn tell_schema(&mut self, number: u64, lsn: u64) {
        self.schema = number;
        self.graph = None;
        self.out.push_back(CacheNewsKind::SchemaChanged { number, lsn });
    }

    /// The number of a new change.
    fn change(&mut self, xids: Xids, first: u64) -> u64 {
        self.await_visibility(xids, first);
        self.number += 1;
        self.number
    }

    /// Transactions of the next change, or of none that is told.
    fn await_visibility(&mut self, xids: Xids, first: u64) {
        let number = self.number + 1;
        let is_full = self.invisible.len() >= MAX_INVISIBLE;
        match self.invisible.back_mut().filter(|_| is_full) {
            Some(last) => last.xids.absorb(xids),
            None => self.invisible.push_back(Told { number, xids, first }),
        }
    }

    /// Forgets changes that a snapshot sees; the number of the last one of which, and of all before it, that is so.
    fn visible(&mut self, snapshot: &Snapshot) -> u64 {
        while self.invisible.front().is_some_and(|change| change.xids.are_seen_by(snapshot)) {
            self.invisible.pop_front();
        }
        self.invisible.front().map_or(self.number, |change| change.number - 1)
    }

    /// Where the primary was. One that comes before the last one has been told takes its place.
    pub(crate) fn sampled(&mut self, sample: Sample) {
        if sample.seen.small != self.fingerprint.small {
            self.fingerprint.small.clone_from(&sample.seen.small);
            self.schema_changed(sample.seen.end);
        }
        self.sample = Some(sample);
        self.tell_current();
    }

    /// The stream has to reach this position before the sample says anything.
    pub(crate) fn awaits(&self) -> Option<u64> {
        self.sample.as_ref().map(|sample| sample.position).filter(|position| *position > self.reached)
    }

    /// The catalogs have to be compared before the sample says anything.
    pub(crate) fn needs_fingerprint(&self) -> bool {
        self.is_unchecked && self.awaits().is_none() && self.sample.is_some()
    }

    /// The fingerprint in a snapshot that is newer than the sample's.
    pub(crate) fn compared(&mut self, seen: Seen, large: Box<str>) {
        let fingerprint = Fingerprint { small: seen.small, large };
        if fingerprint != self.fingerprint {
            self.fingerprint = fingerprint;
            self.schema_changed(seen.end);
        }
        self.visible(&seen.snapshot);
        // What is not visible yet is compared again.
        self.is_unchecked = !self.invisible.is_empty() || self.held.is_some();
        if self.sample.as_ref().is_some_and(|sample| sample.position <= self.reached) {
            self.tell(&seen.snapshot);
        }
    }

    fn tell_current(&mut self) {
        if self.is_unchecked || self.awaits().is_some() {
            return;
        }
        if let Some(sample) = &self.sample {
            let snapshot = sample.seen.snapshot.clone();
            self.tell(&snapshot);
        }
    }

    /// Tells the sample, which everything up to its position has been told for, unless changes are held back.
    fn tell(&mut self, snapshot: &Snapshot) {
        let Some(sample) = self.sample.take() else { return };
        self.tell_held();
        let visible = self.visible(snapshot);
        if self.held.is_some() {
            return;
        }
        // What the catalogs hold of a change that is not visible is not known.
        let lsn = self
            .invisible
            .front()
            .map_or(sample.position, |change| sample.position.min(change.first.saturating_sub(1)));
        self.out.push_back(CacheNewsKind::Current { as_of_us: sample.as_of_us, lsn, visible });
    }

    /// A new sample may be asked for.
    pub(crate) fn wants_sample(&self) -> bool {
        self.sample.is_none()
    }

    /// The catalog has to be asked for.
    pub(crate) fn needs_catalog(&self) -> bool {
        self.graph.is_none()
    }

    /// The catalog, as a snapshot that is at least as new as this one saw it.
    pub(crate) fn cataloged(&mut self, snapshot: &Snapshot, catalog: Catalog) {
        let number = self.visible(snapshot);
        if number < self.schema {
            return;
        }
        self.graph = Some(catalog.graph);
        self.out.push_back(CacheNewsKind::Catalog { number, uncached: catalog.uncached });
        self.flush();
    }
}

#[cfg(test)]
#[path = "news_tests.rs"]
mod tests;
