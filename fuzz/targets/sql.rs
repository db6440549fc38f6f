//! `sql::probe` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    sql::probe::fingerprint(bytes);
    sql::probe::shape(bytes);
    sql::probe::statements(bytes);
    sql::probe::routing(bytes);
});
