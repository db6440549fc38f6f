//! Which of its entry's servers a pool uses, where reads and writes are split (`read_write_split`).
//!
//! Data only. Which of the pools a request goes to is `link::routing`'s, and `pools::standbys` makes them.

use std::sync::Arc;

use crate::local_pools::known_names::KnownNames;
use crate::local_pools::table::{ClusterId, PoolId};

/// Which servers a pool has connections to.
#[derive(Debug, Default)]
pub(crate) enum Serves {
    /// Those that its entry leads to.
    #[default]
    All,
    /// The primary of its entry. Reads may go to the pools of the standbys.
    Primary(Box<Split>),
    /// One of the hosts, while that is a standby, for reads.
    Standby(Standby),
}

/// What a pool whose reads go elsewhere needs for that.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) cluster: ClusterId,
    /// The pool for each host, by its place.
    pub(crate) standbys: Vec<PoolId>,
    /// What decides which statements read.
    pub(crate) names: KnownNames,
}

/// A pool for the reads of another one.
#[derive(Debug)]
pub(crate) struct Standby {
    /// The pool whose clients read here; None if the entry does not have this host any more.
    pub(crate) primary: Option<PoolId>,
    pub(crate) cluster: ClusterId,
    /// Its host's place.
    pub(crate) place: usize,
    /// Host and port.
    pub(crate) label: Arc<str>,
    /// A connection is kept open, so that it is known how far the standby is.
    pub(crate) is_needed: bool,
}

impl Serves {
    pub(crate) fn standby(&self) -> Option<&Standby> {
        match self {
            Serves::Standby(standby) => Some(standby),
            Serves::All | Serves::Primary(_) => None,
        }
    }

    #[inline(always)]
    pub(crate) fn split(&self) -> Option<&Split> {
        match self {
            Serves::Primary(split) => Some(split),
            Serves::All | Serves::Standby(_) => None,
        }
    }

    pub(crate) fn split_mut(&mut self) -> Option<&mut Split> {
        match self {
            Serves::Primary(split) => Some(split),
            Serves::All | Serves::Standby(_) => None,
        }
    }

    /// The cluster whose server it has connections to, where that is followed.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        match self {
            Serves::All => None,
            Serves::Primary(split) => Some(split.cluster),
            Serves::Standby(standby) => Some(standby.cluster),
        }
    }
}
