//! `session::probe::reply` and `session::probe::internal_result` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::probe::reply(bytes);
    session::probe::internal_result(bytes);
});
