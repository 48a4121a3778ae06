//! SPNEGO and NTLM: tokens of a client at the acceptor, tokens of a server at the initiator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::auth::{Acceptor, AccountLookup, Credentials, Initiator, NtHash, ServerNames, Step};
use types::FileTime;

const NOW: FileTime = FileTime(133_000_000_000_000_000);

struct Everybody;

impl AccountLookup for Everybody {
    fn nt_hash(&self, _user: &str, _domain: &str) -> Option<NtHash> {
        Some(NtHash::from_password("password"))
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, tokens)) = input.split_first() else { return };
    let (first, second) = tokens.split_at(usize::from(cut).min(tokens.len()));
    let mut random = |bytes: &mut [u8]| bytes.fill(7);

    let mut acceptor = Acceptor::new(ServerNames::standalone("filer"));
    if let Step::Continue(_) = acceptor.step(first, &Everybody, NOW, &mut random) {
        // Whoever has to prove a password must not succeed with whatever comes.
        if let Step::Done(accepted) = acceptor.step(second, &Everybody, NOW, &mut random) {
            assert_eq!(accepted.identity, smb::auth::Identity::Anonymous);
        }
    }

    let mut initiator = Initiator::new(Credentials::User {
        user: "user".into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password("password"),
        target_name: String::new(),
    });
    if initiator.step(first, NOW, &mut random).is_ok() {
        let _ = initiator.step(second, NOW, &mut random);
    }
});
