//! `auth::probe::server_messages` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| auth::probe::server_messages(bytes));
