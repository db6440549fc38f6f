//! The PostgreSQL wire format, versions 3.0 and 3.2: frame boundaries, the first packet, views of messages,
//! whole messages to send, SQLSTATEs, and renaming a prepared statement in a frame that streams past.
//!
//! Owns what bytes mean. Never does I/O, never keeps state between connections, never copies unless it
//! encodes, never panics on what a peer sends and never sets memory aside for a length a peer declares.
//!
//! Source throughout: PostgreSQL documentation, chapter "Frontend/Backend Protocol".
#![forbid(unsafe_code)]

pub mod backend;
pub mod bind;
pub mod encode;
pub mod error;
pub mod frame;
pub mod frontend;
pub mod probe;
pub mod rename;
pub mod sasl;
pub mod sqlstate;
pub mod startup;
pub mod tag;

mod text;
