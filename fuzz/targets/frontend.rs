//! Fuzzes what a client sends after it. What must hold stands in `wire::probe::frontend`.
//! Run from the repository's root, with a nightly compiler and cargo-fuzz:
//!
//! `cargo +nightly fuzz run frontend fuzz/corpus/frontend fuzz/seeds/frontend`
//!
//! A finding that is understood becomes a file in `fuzz/seeds/frontend`, so that the ordinary test keeps it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::probe::frontend(bytes));
