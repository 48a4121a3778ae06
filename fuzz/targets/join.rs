//! Messages that a stranger can send to the cluster's port, and tokens that people paste.
#![no_main]

use cluster::join_token::JoinToken;
use cluster::wire::{Ask, Tell, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = parse::<Ask>(input);
    let _ = parse::<Tell>(input);
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(token) = text.parse::<JoinToken>()
    {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
});
