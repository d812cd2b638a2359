#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nix_sandbox::fuzzing::policy_json(bytes));
