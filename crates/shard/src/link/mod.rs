//! Clients and servers: linking, relaying, releasing, and the beginning and end of both.
//!
//! Functions of the core: none knows an owner above it. What has to be done by one is left as an effect.

pub(crate) mod backpressure;
pub(crate) mod cached;
pub(crate) mod cancel_keys;
pub(crate) mod checkout;
pub(crate) mod client_end;
pub(crate) mod dedicated;
pub(crate) mod deferred_begin;
pub(crate) mod fair;
pub(crate) mod first_message;
pub(crate) mod fleet;
pub(crate) mod greet;
pub(crate) mod hand_over;
pub(crate) mod identity;
pub(crate) mod internal_query;
pub(crate) mod leading_settings;
pub(crate) mod left_behind;
pub(crate) mod listener;
pub(crate) mod login_server;
pub(crate) mod notify;
pub(crate) mod opening;
pub(crate) mod overload;
pub(crate) mod parameters;
pub(crate) mod permits;
pub(crate) mod pins;
pub(crate) mod positions;
pub(crate) mod priority;
pub(crate) mod quotas;
pub(crate) mod relations;
pub(crate) mod relay;
pub(crate) mod repeat;
pub(crate) mod routing;
pub(crate) mod sequences;
pub(crate) mod server_end;
pub(crate) mod server_waits;
pub(crate) mod session_state;
pub(crate) mod shares;
mod shuffle;
pub(crate) mod slow_login;
pub(crate) mod sql_statements;
pub(crate) mod standbys;
pub(crate) mod startup_values;
pub(crate) mod storage;
pub(crate) mod waits;
