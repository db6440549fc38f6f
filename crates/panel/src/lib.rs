//! The panel's side of the process: one thread of its own that speaks HTTP, and the bridge to the control thread.
//!
//! [`Panel`] begins when `http_port` is first set, or `otlp_endpoint`. Whatever a page or a program asks becomes a parsed statement on the
//! bridge, answered in typed rows; there is no other way from here to the pooler. Never touches a connection of a
//! client or a server, and never makes the control thread or a shard wait.
#![forbid(unsafe_code)]

mod access;
mod alerts;
mod assets;
mod audit_trail;
mod connection;
mod connection_info;
mod connection_limits;
mod connections;
mod context;
mod control_client;
mod events;
mod extract;
mod failure;
mod gauges;
mod guard;
mod inventory;
mod lab;
mod listen_socket;
mod listener;
mod live;
mod log_ring;
mod metrics;
mod otlp;
mod panel;
mod pool_service;
mod pools_client;
mod query_trends;
mod quota_listing;
mod quota_order;
mod routes;
mod state_dir;
mod supervision;
mod table;
mod time;
mod unknown_fields;

pub use access::{AuthFileError, CredentialError, TokenOutput, password_line, token_line};
pub use context::LogWriter;
pub use control_client::SendQuery;
pub use listen_socket::{ListenError, ListenSocket};
pub use log_ring::LogRing;
pub use otlp::LAST_EXPORT;
pub use panel::{Panel, PanelArgs};
pub use pools_client::SendInput;
pub use supervision::count_panic;
