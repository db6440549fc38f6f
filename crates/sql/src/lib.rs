//! SQL as far as a pooler needs it: which statements are the same but for their values.
//!
//! Owns a small lexer (PostgreSQL documentation, section "Lexical Structure") and the text that statements have in common.
//! Never parses, never fails, and never runs where nobody asked for statistics of queries.
#![forbid(unsafe_code)]

mod fingerprint;
mod lexer;
mod parameterized;
pub mod probe;

pub use fingerprint::{Fingerprint, TEXT_BYTES};
pub use parameterized::parameterized;
