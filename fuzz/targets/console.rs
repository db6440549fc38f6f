//! `control::console::probe` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::console::probe(bytes));
