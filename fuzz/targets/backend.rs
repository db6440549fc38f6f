//! Fuzzes what a server sends. What must hold stands in `wire::probe::backend`.
//! Run from the repository's root, with a nightly compiler and cargo-fuzz:
//!
//! `cargo +nightly fuzz run backend fuzz/corpus/backend fuzz/seeds/backend`
//!
//! A finding that is understood becomes a file in `fuzz/seeds/backend`, so that the ordinary test keeps it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::probe::backend(bytes));
