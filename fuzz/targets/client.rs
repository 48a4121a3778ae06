//! A hostile server: its messages, one after the other, at the client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_client::{Connection, Credentials, NtHash, Options, Request, Token};
use sys::Buf;
use types::FileTime;

fuzz_target!(|input: &[u8]| {
    // Each run's keys come from the same seed.
    smb::crypto::forget_nonces();
    let credentials = Credentials::User {
        user: "user".into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password("password"),
        target_name: String::new(),
    };
    let random = Box::new(|bytes: &mut [u8]| bytes.fill(7));
    let now = FileTime(133_000_000_000_000_000);
    let mut client = Connection::new(Options::default(), credentials, "filer", now, random);
    client.submit(Token(1), Request::echo());
    let mut rest = input;
    while let Some((prefix, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*prefix)).min(after.len());
        let (bytes, after) = after.split_at(len);
        if client.handle_message(Buf::from(bytes)).is_err() {
            return;
        }
        while client.poll_transmit().is_some() {}
        while client.poll_event().is_some() {}
        rest = after;
    }
});
