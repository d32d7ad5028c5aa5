#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lemon_fuzzing::gguf(bytes));
