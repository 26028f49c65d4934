//! Feeds any bytes to `suppressions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htrace_fuzz::suppressions(data));
