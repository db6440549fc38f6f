//! `settings::probe::pools` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| settings::probe::pools(bytes));
