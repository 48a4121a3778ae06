//! Messages that a stranger can send to the cluster's port, and tokens that people paste.
#![no_main]

use libfuzzer_sys::fuzz_target;
use member::join_token::JoinToken;
use member::wire::{Ask, Tell, parse};

fuzz_target!(|input: &[u8]| {
    let _ = parse::<Ask>(input);
    let _ = parse::<Tell>(input);
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(token) = text.parse::<JoinToken>()
    {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
});
