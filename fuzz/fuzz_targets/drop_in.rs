//! Feeds any bytes to `drop_in`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htrace_fuzz::drop_in(data));
