//! `quota::probe::quotas` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota::probe::quotas(bytes));
