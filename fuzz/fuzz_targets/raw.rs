//! Feeds any bytes to `raw`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htrace_fuzz::raw(data));
