//! The pools of a shard as data: the table, one pool in it, and its limits by the settings.

pub(crate) mod cluster;
pub(crate) mod hosts;
pub(crate) mod known_names;
pub(crate) mod known_relations;
pub(crate) mod listener;
pub(crate) mod local_pool;
pub(crate) mod refresh;
pub(crate) mod serves;
pub(crate) mod sizing;
pub(crate) mod table;
