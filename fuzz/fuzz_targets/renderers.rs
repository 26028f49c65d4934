//! Feeds any bytes to `renderers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htrace_fuzz::renderers(data));
