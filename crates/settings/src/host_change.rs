//! What an altered entry means for what is known of its servers: whether they may be another cluster's.

use crate::database::Database;

/// How the hosts of an altered entry differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// Not at all.
    None,
    /// Patroni lists other members of the same cluster: the fence of identifier and timeline stands, and connections to hosts that stay are kept.
    Members,
    /// They may be another cluster's.
    Others,
}

impl HostChange {
    /// How they differ.
    #[must_use]
    pub fn between(old: &Database, new: &Database) -> HostChange {
        let is_same_list = old.follows_members && new.follows_members && old.topology == new.topology;
        match (&old.host, &old.port) == (&new.host, &new.port) {
            true if old.follows_members == new.follows_members => HostChange::None,
            false if is_same_list => HostChange::Members,
            _ => HostChange::Others,
        }
    }
}
