#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ftld_tests::fuzz::recording::run(data));
