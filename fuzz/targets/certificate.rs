//! `tls::probe::certificate` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tls::probe::certificate(bytes));
