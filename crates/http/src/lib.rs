//! The panel's side of the process: one thread of its own that speaks HTTP, and the bridge to the control thread.
//!
//! [`Panel`] begins when `http_port` is first set, or `otlp_endpoint`. Whatever a page or a program asks becomes a parsed statement on the
//! bridge, answered in typed rows; there is no other way from here to the pooler. Never touches a connection of a
//! client or a server, and never makes the control thread or a shard wait.
#![forbid(unsafe_code)]

mod access;
mod alerts;
mod assets;
mod body;
mod bridge;
mod connection;
mod connection_limits;
mod details;
mod doorway;
mod entrance;
mod errand;
mod events;
mod failure;
mod fields;
mod guard;
mod guests;
mod inventory;
mod journal;
mod lab;
mod live;
mod metrics;
mod otlp;
mod panel;
mod parameters;
mod pools_desk;
mod query_trends;
mod routes;
mod seal;
mod shared;
mod state_dir;
mod table;
mod threads;
mod time;
mod trail;

pub use access::{BadKeys, NoKey, TokenPlace, password_line, token_line};
pub use bridge::{Ask, Log};
pub use doorway::{Doorway, NoDoorway};
pub use journal::Journal;
pub use otlp::LAST_EXPORT;
pub use panel::{Panel, Plan};
pub use pools_desk::Tell;
pub use threads::count_panic;
