//! Whole shards in memory, with a clock of the test's own: a file for each thing that a shard does, one program for all
//! (each program more would be linked by itself).
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

mod auth_query;
mod auto_size;
mod cancel;
mod checkout;
mod commands;
mod copy;
mod deferred_begin;
mod descriptions;
mod encodings;
mod fair_queue;
mod floods;
mod hosts;
mod leftovers;
mod listeners;
mod logins;
mod overload;
mod own_messages;
mod parse_settings;
mod pins;
mod prepared;
mod priority;
mod query_cache;
mod quotas;
mod read_write_split;
mod refused_clients;
mod release;
mod replay;
mod replication;
mod sequences;
mod server_at_login;
mod server_deaths;
mod server_limits;
mod server_refusals;
mod session_state;
mod shares;
mod sql_statements;
mod startup_values;
mod takeover;
mod target_session;
mod unauthenticated;
mod waiting;
mod waits;
