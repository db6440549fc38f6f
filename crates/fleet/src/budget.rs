//! What a number of server connections is a limit of.

use std::sync::Arc;

/// Which of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetKind {
    /// `pool_size` and its reserve: of one database and user.
    Pool,
    /// `max_db_connections`.
    Database,
    /// `max_user_connections`.
    User,
}

/// A limit that the nodes of a fleet share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BudgetName {
    pub kind: BudgetKind,
    /// The entry of `[databases]`; empty for a user.
    pub database: Arc<str>,
    /// Empty for a database.
    pub user: Arc<str>,
    /// Of a pool for the reads on one host (`read_write_split`): that host, `host:port`; else empty.
    pub host: Arc<str>,
}
