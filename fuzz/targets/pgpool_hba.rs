//! `import::probe::hba` over whatever the fuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| import::probe::hba(bytes));
