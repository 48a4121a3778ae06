//! The daemon's configuration file.
#![no_main]

use cenote::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Config::parse(text, "fuzz.toml");
    }
});
