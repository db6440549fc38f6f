//! The model PostgreSQL: enough of a server that a pooler can get everything wrong with it, and no more.
//!
//! It is exact where poolers err (who is answered what, when a transaction ends, what is skipped until Sync) and says
//! in every row whose request it answers. Its transcripts are compared with a real server's (`corpus`).

pub(crate) mod backend;
pub(crate) mod cluster;
mod cluster_answers;
pub(crate) mod extended;
mod holdings;
pub(crate) mod ledger;
pub(crate) mod parameters;
pub(crate) mod replication;
pub(crate) mod reply;
mod savepoints;
pub(crate) mod sequences;
pub(crate) mod session;
mod session_statement;
pub(crate) mod statement;
mod stream;
