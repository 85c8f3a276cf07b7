#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| specdec_fuzz::bodies::safetensors_header(bytes));
