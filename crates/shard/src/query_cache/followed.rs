//! What this shard has been told of the changes of an entry's primary.
//!
//! Owns the three questions behind each use of an answer: whether what is known is of the primary and young enough, whether what an answer was made of has changed since
//! its request was about to be sent, and whether an answer can be made now that shows all changes that are known. Changes are numbered; relations go by the
//! hashes of their names, so that two names of one hash only change together.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use messages::{CacheNewsKind, UncachedNames};
use sql::CachedRead;

/// Of more relations than this it is not remembered apart when they changed.
const MAX_RELATIONS: usize = 65_536;

/// A change of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    number: u64,
    lsn: u64,
}

/// Whether answers can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State<'a> {
    /// They can.
    Current,
    /// The changes are followed, and it is not known yet what the catalog holds or that all are known.
    Starting,
    /// All changes are known only until a longer time ago than `query_cache_max_staleness`.
    Behind,
    /// The server whose changes are followed is not the primary that clients have.
    OtherPrimary,
    /// The changes are not followed.
    Lost(&'a str),
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Primary,
    /// A standby that has replayed at least up to there.
    Standby(u64),
}

/// What an answer is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// The stream of changes, and the number of the last one, before the request was sent.
    stream: u64,
    number: u64,
    /// No change up to this one has anything to do with it.
    checked: u64,
    /// Hashes of the names in its text.
    names: Box<[u64]>,
}

/// What is known of the primary's changes.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Counts the streams.
    stream: u64,
    /// Identifier and timeline of the primary; None while nothing is followed.
    primary: Option<(u64, u32)>,
    why_lost: Option<Arc<str>>,
    /// The last change.
    last: Change,
    /// The last change that may concern every relation.
    of_all: Change,
    /// The last change of each relation.
    of_relations: HashMap<u64, Change>,
    /// The number of the last change of the schema.
    of_schema: u64,
    /// Up to this change transactions are visible to new snapshots.
    visible: u64,
    /// Until when all changes are known, and where the primary was then.
    current: Option<(u64, u64)>,
    /// Where it was when that was known for the first time: what was written before may have been missed.
    first_lsn: u64,
    uncached: Option<Arc<UncachedNames>>,
}

impl Followed {
    /// Something is new. True if no answer counts any more.
    pub(super) fn note(&mut self, what: CacheNewsKind) -> bool {
        match what {
            CacheNewsKind::Begins { system, timeline } => {
                let stream = self.stream + 1;
                *self = Followed { stream, primary: Some((system, timeline)), ..Followed::default() };
                return true;
            }
            CacheNewsKind::Catalog { number, uncached } => {
                // What has changed behind it is not in it.
                if self.primary.is_some() && number >= self.of_schema {
                    self.uncached = Some(uncached);
                }
            }
            CacheNewsKind::Changed { number, lsn, names } => {
                self.last = Change { number, lsn };
                if self.of_relations.len() + names.len() > MAX_RELATIONS {
                    self.of_relations.clear();
                    self.of_all = self.last;
                    return true;
                }
                self.of_relations.extend(names.iter().map(|name| (hash(name), self.last)));
            }
            CacheNewsKind::SchemaChanged { number, lsn } => {
                self.last = Change { number, lsn };
                (self.of_all, self.of_schema) = (self.last, number);
                self.of_relations.clear();
                self.uncached = None;
                return true;
            }
            CacheNewsKind::Current { as_of_us, lsn, visible } => {
                if self.current.replace((as_of_us, lsn)).is_none() {
                    self.first_lsn = lsn;
                }
                self.visible = visible;
            }
            CacheNewsKind::Lost { why } => {
                *self = Followed { stream: self.stream, why_lost: Some(why), ..Followed::default() };
                return true;
            }
        }
        false
    }

    /// No request that was sent before counts, and if `is_lost`, nothing before [`CacheNewsKind::Begins`].
    pub(super) fn begin_anew(&mut self, is_lost: bool) {
        self.stream += 1;
        if is_lost {
            *self = Followed { stream: self.stream, ..Followed::default() };
        }
    }

    /// `known` are the identifier and the newest timeline of the servers that clients have.
    pub(super) fn state(&self, known: Option<(u64, u32)>, most_us: u64, now_us: u64) -> State<'_> {
        match (self.primary, self.current) {
            (None, _) => State::Lost(self.why_lost.as_deref().unwrap_or_default()),
            (Some(primary), _) if known.is_some_and(|known| known != primary) => State::OtherPrimary,
            (Some(_), None) => State::Starting,
            (Some(_), Some((as_of_us, _))) if now_us.saturating_sub(as_of_us) > most_us => State::Behind,
            _ if self.uncached.is_none() || known.is_none() => State::Starting,
            _ => State::Current,
        }
    }

    pub(super) fn staleness_us(&self, now_us: u64) -> Option<u64> {
        self.current.map(|(as_of_us, _)| now_us.saturating_sub(as_of_us))
    }

    pub(super) fn lsn(&self) -> u64 {
        self.current.map_or(0, |(_, lsn)| lsn)
    }

    pub(super) fn dependencies(&self, read: &CachedRead) -> Option<Dependencies> {
        let uncached = self.uncached.as_deref().filter(|uncached| !uncached.everything)?;
        let is_kept = read.names.iter().all(|name| !uncached.names.contains(name.as_str()))
            && read.operators.iter().all(|run| !uncached.operators.iter().any(|own| run.contains(&**own)));
        let dependencies = Dependencies {
            stream: self.stream,
            number: self.last.number,
            checked: self.last.number,
            names: read.names.iter().map(|name| hash(name)).collect(),
        };
        is_kept.then_some(dependencies)
    }

    /// The last change of any of these names.
    fn last_of(&self, names: &[u64]) -> Change {
        let of_names = names.iter().filter_map(|name| self.of_relations.get(name));
        of_names.copied().chain([self.of_all]).max_by_key(|change| change.number).unwrap_or_default()
    }
}

impl Dependencies {
    /// None of it has changed since its request was about to be sent.
    pub(super) fn hold(&mut self, followed: &Followed) -> bool {
        let holds = self.stream == followed.stream
            && (self.checked == followed.last.number || followed.last_of(&self.names).number <= self.number);
        if holds {
            self.checked = followed.last.number;
        }
        holds
    }

    /// A server from there shows all changes of it that are known.
    pub(super) fn may_come_from(&self, followed: &Followed, source: Source) -> bool {
        let last = followed.last_of(&self.names);
        match source {
            Source::Primary => last.number <= followed.visible,
            Source::Standby(replayed) => {
                followed.current.is_some() && replayed >= last.lsn.max(followed.first_lsn)
            }
        }
    }

    /// What they take of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.names)
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
