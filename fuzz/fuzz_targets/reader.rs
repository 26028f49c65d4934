//! Feeds any bytes to `reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htrace_fuzz::reader(data));
