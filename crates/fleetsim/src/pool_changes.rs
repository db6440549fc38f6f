//! What processes know of the pools of all nodes, and what was said of changes of them.

use std::collections::BTreeSet;

use fleet::FleetPools;

/// What one process knows of them.
#[derive(Debug, Default)]
pub(crate) struct ProcessPools {
    pub(crate) known: Option<FleetPools>,
    /// It is to make a change.
    pub(crate) is_change_due: bool,
    /// The line of the one under way.
    pub(crate) changing: Option<String>,
    pub(crate) changes: u64,
}

/// Lines of changes, by what was said of them.
#[derive(Debug, Default)]
pub(crate) struct SaidOfChanges {
    pub(crate) made: BTreeSet<String>,
    pub(crate) not_made: BTreeSet<String>,
}
