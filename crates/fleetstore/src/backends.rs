//! The client backends of PostgreSQL servers that count in budgets.

use std::sync::Arc;
use std::time::Duration;

use pgclient::System;
use settings::Config;

/// Where PostgreSQL servers are, and who asks them.
pub struct BackendQuery {
    config: Arc<Config>,
    user: Option<String>,
    system: System,
}

impl BackendQuery {
    /// All servers of a request are asked within this time, or count as not asked.
    pub const LIMIT: Duration = Duration::from_secs(5);

    /// Asks the servers of this configuration as `user` (`fleet_user`); without one as the entry's user, else as `auth_user`.
    #[must_use]
    pub fn new(config: &Arc<Config>, user: Option<String>, system: System) -> BackendQuery {
        BackendQuery { config: Arc::clone(config), user, system }
    }
}
