//! `changes::probe::stream` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| changes::probe::stream(bytes));
