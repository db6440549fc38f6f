//! `fleet::probe::shared_usage` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fleet::probe::shared_usage(bytes));
