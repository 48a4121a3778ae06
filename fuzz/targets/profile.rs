//! DiskSpd's XML profiles: read, checked, written, and read again as the same.
#![no_main]

use diskspd::xml::{profile, read_profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(read) = read_profile(input) {
        let _ = read.validate();
        let again = read_profile(profile(&read, 0).as_bytes());
        assert_eq!(again, Ok(read));
    }
});
