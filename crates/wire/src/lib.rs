//! The PostgreSQL wire format, versions 3.0 and 3.2: frame boundaries, the first packet, views of messages,
//! whole messages to send, SQLSTATEs, and renaming a prepared statement in a frame that streams past.
//!
//! Owns what bytes mean. Never does I/O, never keeps state between connections, never copies unless it
//! encodes, never panics on what a peer sends and never sets memory aside for a length a peer declares.
//!
//! Source throughout: PostgreSQL documentation, chapter "Frontend/Backend Protocol".
//!
//! A message is encoded into a buffer, and read where it lies:
//!
//! ```
//! use wire::{backend, encode, frame, tag};
//!
//! let mut bytes = Vec::new();
//! encode::command_complete(&mut bytes, "SELECT 1");
//! encode::ready(&mut bytes, backend::Status::Idle);
//!
//! let header = frame::header(&bytes).unwrap().expect("five bytes are here");
//! assert_eq!(header.tag, tag::backend::COMMAND_COMPLETE);
//! let (first, rest) = bytes.split_at(header.frame_bytes as usize);
//! assert_eq!(backend::command_tag(&first[frame::HEADER_BYTES..]), Some(&b"SELECT 1"[..]));
//! assert_eq!(backend::ready_status(&rest[frame::HEADER_BYTES..]), Some(backend::Status::Idle));
//! ```
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
