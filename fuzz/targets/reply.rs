//! `session::probe::reply` and `session::probe::own_answer` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::probe::reply(bytes);
    session::probe::own_answer(bytes);
});
