//! Fuzzes the first packet of a connection. What must hold stands in `wire::probe::startup`.
//! Run from the repository's root, with a nightly compiler and cargo-fuzz:
//!
//! `cargo +nightly fuzz run startup fuzz/corpus/startup fuzz/seeds/startup`
//!
//! A finding that is understood becomes a file in `fuzz/seeds/startup`, so that the ordinary test keeps it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::probe::startup(bytes));
