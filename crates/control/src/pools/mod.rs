//! Pools created, changed and deleted by Weir itself, in `pools_file`: what a change asks for, its rules, the pairs that it
//! writes, and the budget of connections of a server. `control/pool_changes.rs` runs a change.

mod budget;
mod clusters;
pub(crate) mod entry;
mod error;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use settings::{Config, Finding, LineChange};

pub use budget::Budget;
pub use clusters::{Cluster, ServerInfo, cluster_id, clusters};
pub use entry::{is_pool_setting, pool_settings};
pub use error::PoolError;

/// A requested pool, not validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The name that clients ask for as their database.
    pub name: String,
    /// The cluster's id; none where there is only one, for a pool whose settings name its servers, and for one that exists already.
    pub cluster: Option<String>,
    /// The name of the database on the server.
    pub db: String,
    /// Logs in to the server as this user; None uses the client's.
    pub user: Option<String>,
    /// `session`, `transaction` or `statement`.
    pub mode: String,
    /// Server connections.
    pub size: RequestedSize,
    /// Other keys of the entry, as a file has them; None takes one out. Those that are not named stay.
    pub settings: BTreeMap<String, Option<String>>,
}

/// The size that a pool is to have, not validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedSize {
    /// A number as the API shows it: a pool that sizes itself is shown with its largest size, and stays `auto` where it is given that back.
    Shown(i64),
    /// This number, whatever the pool was.
    Fixed(i64),
    /// `auto`: the pool finds its size itself.
    Auto,
}

impl RequestedSize {
    /// The number; none for `auto`.
    #[must_use]
    pub fn number(self) -> Option<i64> {
        match self {
            RequestedSize::Shown(size) | RequestedSize::Fixed(size) => Some(size),
            RequestedSize::Auto => None,
        }
    }
}

/// As an entry has it.
impl fmt::Display for RequestedSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(size) => size.fmt(out),
            None => out.write_str("auto"),
        }
    }
}

/// A change to the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// A pool that does not exist yet.
    Create(PoolSpec),
    /// The pool of this name gets another database, user, mode, size or other settings. All else of its line stays.
    Update(PoolSpec),
    /// The pool of this name goes.
    Delete(String),
}

impl PoolChange {
    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            PoolChange::Create(spec) | PoolChange::Update(spec) => &spec.name,
            PoolChange::Delete(name) => name,
        }
    }
}

/// A change to apply or to preview.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// What.
    pub change: PoolChange,
    /// Only to be shown.
    pub preview: bool,
    /// The server's properties, if it could be queried.
    pub server: Option<ServerInfo>,
    /// The requester may see passwords, and so may send them to servers that no entry leads to.
    pub may_name_servers: bool,
}

/// What a change did, or would do.
#[derive(Clone, Debug)]
pub struct PoolOutcome {
    /// The lines of the pools file that differ.
    pub changes: Vec<LineChange>,
    /// The connections of the pool's server, the pool as it is afterwards included.
    pub budget: Budget,
    /// Warnings.
    pub warnings: Vec<String>,
    /// The configuration afterwards: in force, unless this is a preview.
    pub config: Arc<Config>,
}

/// Why [`crate::Output::WritePools`] failed. The file is unchanged.
#[derive(Clone, Debug)]
pub enum WriteFault {
    /// With these pools the process would not start: what is wrong with its files.
    Config(Vec<Finding>),
    /// The system's word.
    Io(String),
}
