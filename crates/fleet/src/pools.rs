//! The pools that all nodes have: the object `["pools"]`, a text with a number that grows with each change.
//!
//! Owns that a change is made to the text that its node knew, or not at all. What stands in the text, and whether a node can use it, is not this crate's to judge:
//! a node says in its record which number it uses, and what of it it refuses.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::known::{Known, has_object};
use crate::ledger::Context;
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision};
use crate::text::{FORMAT, shown};

/// The name of the object.
const NAME: &str = "pools";
/// Stores have limits: 1.5 MB of etcd, 1 MiB of a Kubernetes object, which writes bytes as base64.
const MOST_BYTES: usize = 750_000;
/// One more is always possible.
const MOST_REVISION: u64 = 1 << 53;
/// Another node's change was in the way: so long it may take until it is seen.
const SEEN_US: u64 = 5_000_000;

/// The pools of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPools {
    /// From 1; 0 if there are none yet.
    pub revision: u64,
    /// The node that made the change; none if there are none yet.
    pub by: Option<NodeId>,
    /// Entries of a pools file.
    pub text: Arc<[u8]>,
}

/// A change of the pools of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolsChange {
    /// The caller's, for the answer.
    pub number: u64,
    /// The revision that it was made to.
    pub base: u64,
    /// What it has: greater than `base`.
    pub pools: FleetPools,
}

/// What a command for all nodes waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolsWait {
    /// Every node has dealt with the revision.
    InUse,
    /// And what it pauses has come to rest: this database, or everything.
    Paused(Option<String>),
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolsError {
    /// This node has no lease, or has not read the store yet.
    NoStore,
    /// Another change has been made to what it was made to: [`crate::Node::take_pools`] has it.
    Superseded,
    /// What is in the store cannot be read.
    Foreign(String),
    /// The text is too long: its bytes, and how many there may be.
    TooLong(usize, usize),
    /// The store has not answered: the change may have been made.
    Unanswered(String),
}

/// What became of a change, by its number.
pub type PoolsResult = (u64, Result<(), PoolsError>);

/// A change on its way.
#[derive(Clone, Debug)]
enum Writing {
    /// To be asked for.
    Due(PoolsChange),
    Asked(CallId, PoolsChange),
    /// Another change was first; it has not been seen until then.
    Lost(u64, u64),
}

/// What the store has.
#[derive(Clone, Debug)]
enum Stored {
    Unread,
    Pools(FleetPools),
    Foreign(String),
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pools {
    known: Known,
    stored: Stored,
    is_news: bool,
    writing: Option<Writing>,
    results: VecDeque<PoolsResult>,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools {
            known: Known::default(),
            stored: Stored::Unread,
            is_news: false,
            writing: None,
            results: VecDeque::new(),
        }
    }
}

impl Pools {
    /// Makes a change; [`Pools::next_result`] answers. One at a time.
    pub(crate) fn change(&mut self, change: PoolsChange, context: &Context<'_>) {
        let refusal = match &self.stored {
            _ if !context.can_swap => Some(PoolsError::NoStore),
            Stored::Unread => Some(PoolsError::NoStore),
            Stored::Foreign(what) => Some(PoolsError::Foreign(what.clone())),
            Stored::Pools(known) if known.revision != change.base => Some(PoolsError::Superseded),
            Stored::Pools(_) if self.writing.is_some() => Some(PoolsError::Superseded),
            Stored::Pools(_) if change.pools.revision > MOST_REVISION => {
                Some(PoolsError::Foreign(format!("revision {}", change.base)))
            }
            Stored::Pools(_) if change.pools.text.len() > MOST_BYTES => {
                Some(PoolsError::TooLong(change.pools.text.len(), MOST_BYTES))
            }
            Stored::Pools(_) => None,
        };
        match refusal {
            Some(refusal) => self.results.push_back((change.number, Err(refusal))),
            None => self.writing = Some(Writing::Due(change)),
        }
    }

    /// What became of a change.
    pub(crate) fn next_result(&mut self) -> Option<PoolsResult> {
        self.results.pop_front()
    }

    /// Which there are, as far as that is known.
    pub(crate) fn revision(&self) -> Option<u64> {
        match &self.stored {
            Stored::Pools(pools) => Some(pools.revision),
            Stored::Unread | Stored::Foreign(_) => None,
        }
    }

    /// What there is now, once.
    pub(crate) fn take(&mut self) -> Option<FleetPools> {
        match (&self.stored, std::mem::take(&mut self.is_news)) {
            (Stored::Pools(pools), true) => Some(pools.clone()),
            _ => None,
        }
    }

    /// An object as the watch shows it. Err: what of it cannot be read; None: not this one.
    pub(crate) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        if object.name.0 != [NAME] {
            return None;
        }
        if !self.known.hear(object.revision, object.contents.is_some()) {
            return Some(Ok(()));
        }
        let read = object.contents.as_deref().map_or_else(|| Ok(FleetPools::default()), read);
        self.set(read.clone());
        Some(read.map(drop))
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.known.before_snapshot();
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.known.at_snapshot(revision);
    }

    /// It has been read.
    pub(crate) fn after_snapshot(&mut self, objects: &[Object]) {
        if self.known.after_snapshot(has_object(objects, NAME)) {
            self.set(Ok(FleetPools::default()));
        }
    }

    fn set(&mut self, read: Result<FleetPools, String>) {
        self.stored = match (read, &self.stored) {
            (Ok(pools), Stored::Pools(known)) if pools == *known => Stored::Pools(pools),
            (Ok(pools), _) => {
                self.is_news = true;
                Stored::Pools(pools)
            }
            (Err(what), _) => Stored::Foreign(what),
        };
        if let Some(Writing::Lost(number, _)) = self.writing {
            self.writing = None;
            self.results.push_back((number, Err(PoolsError::Superseded)));
        }
    }

    /// The next write.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        match self.writing.take()? {
            Writing::Due(change) => {
                let is_same = matches!(&self.stored, Stored::Pools(known) if known.revision == change.base);
                if !is_same {
                    self.results.push_back((change.number, Err(PoolsError::Superseded)));
                    return None;
                }
                let (call, contents) = (next_call(), Some(write(&change.pools, context.id)));
                self.writing = Some(Writing::Asked(call, change));
                let name = ObjectName(vec![NAME.to_owned()]);
                Some(Request::Swap { call, name, expected: self.known.expected(), contents })
            }
            Writing::Lost(number, until_us) if context.now_us >= until_us => {
                let why = "another node's change was in the way, and has not been seen".to_owned();
                self.results.push_back((number, Err(PoolsError::Unanswered(why))));
                None
            }
            other => {
                self.writing = Some(other);
                None
            }
        }
    }

    /// A write has been carried out, perhaps this one.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision, id: &NodeId) {
        let is_own = |writing: &mut Writing| matches!(writing, Writing::Asked(asked, _) if *asked == call);
        let Some(Writing::Asked(_, change)) = self.writing.take_if(is_own) else { return };
        if self.known.wrote(revision, true) {
            self.set(Ok(FleetPools { by: Some(id.clone()), ..change.pools }));
        }
        self.results.push_back((change.number, Ok(())));
    }

    /// A write has failed, or it is not known whether it has (`why`).
    pub(crate) fn not_swapped(&mut self, call: CallId, why: Option<&str>, now_us: u64) {
        let is_own = |writing: &mut Writing| matches!(writing, Writing::Asked(asked, _) if *asked == call);
        let Some(Writing::Asked(_, change)) = self.writing.take_if(is_own) else { return };
        let is_made = matches!(&self.stored, Stored::Pools(known)
            if known.revision == change.pools.revision && known.text == change.pools.text);
        let is_seen = !matches!(&self.stored, Stored::Pools(known) if known.revision == change.base);
        match why {
            Some(_) if is_made => self.results.push_back((change.number, Ok(()))),
            Some(why) => {
                self.results.push_back((change.number, Err(PoolsError::Unanswered(why.to_owned()))));
            }
            None if is_seen => self.results.push_back((change.number, Err(PoolsError::Superseded))),
            None => self.writing = Some(Writing::Lost(change.number, now_us + SEEN_US)),
        }
    }

    /// When something is to be done without an event.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        match self.writing {
            Some(Writing::Due(_)) => Some(0),
            Some(Writing::Lost(_, until_us)) => Some(until_us),
            Some(Writing::Asked(..)) | None => None,
        }
    }
}

fn write(pools: &FleetPools, by: &NodeId) -> Vec<u8> {
    let head = format!("{FORMAT}\nrevision {} by {by}\n", pools.revision);
    [head.as_bytes(), &pools.text].concat()
}

fn read(contents: &[u8]) -> Result<FleetPools, String> {
    let mut lines = contents.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let format = line();
    if format != FORMAT {
        return Err(format!("not of a format that this version reads: {}", shown(format)));
    }
    let head = line();
    let fields = head.strip_prefix("revision ").and_then(|rest| rest.split_once(" by "));
    let pools = fields.and_then(|(number, by)| {
        let revision = number.parse().ok().filter(|number| (1..=MOST_REVISION).contains(number))?;
        let text = lines.next()?;
        (!by.is_empty() && text.len() <= MOST_BYTES).then(|| FleetPools {
            revision,
            by: Some(by.into()),
            text: text.into(),
        })
    });
    pools.ok_or_else(|| format!("the pools cannot be read: {}", shown(head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(revision: u64, by: &str, text: &str) -> FleetPools {
        FleetPools { revision, by: Some(by.into()), text: text.as_bytes().into() }
    }

    #[test]
    fn pools_are_read_as_written() {
        for text in ["", "\n", "[databases]\na = host=h\n; \u{e9}", "x\n\n"] {
            let of = pools(7, "n", text);
            let written = write(&of, &"n".into());
            assert!(written.starts_with(b"weir-fleet 1\nrevision 7 by n\n"));
            assert_eq!(read(&written), Ok(of));
        }
    }

    #[test]
    fn what_is_not_of_this_format_is_refused() {
        for text in [
            "",
            "weir-fleet 2\nrevision 7 by n\n",
            "weir-fleet 1\n",
            "weir-fleet 1\nrevision 7 by n",
            "weir-fleet 1\nrevision 0 by n\n",
            "weir-fleet 1\nrevision -1 by n\n",
            "weir-fleet 1\nrevision 7 by \n",
            "weir-fleet 1\nrevision 7\n",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(b"weir-fleet 1\nrevision 7 by \xff\n").is_err());
        let long = vec![b'x'; MOST_BYTES + 1];
        assert!(read(&[b"weir-fleet 1\nrevision 7 by n\n", long.as_slice()].concat()).is_err());
    }
}
