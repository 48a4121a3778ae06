//! Logons that must succeed, and everything that must not.

mod acceptor;
mod hostile;
mod spnego;

use super::*;
use types::FileTime;

pub(super) const NOW: FileTime = FileTime(133_000_000_000_000_000);
pub(super) const PASSWORD: &str = "Straße 17, näxt door";

/// One user, "Ana", in any domain.
pub(super) struct OneUser;

impl AccountLookup for OneUser {
    fn nt_hash(&self, user: &str, _domain: &str) -> Option<NtHash> {
        user.eq_ignore_ascii_case("ana").then(|| NtHash::from_password(PASSWORD))
    }
}

/// A source of bytes that repeats.
pub(super) fn counting(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = seed;
    move |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(37).wrapping_add(11);
            *byte = next;
        }
    }
}

pub(super) fn acceptor() -> Acceptor {
    Acceptor::new(ServerNames::standalone("filer.example.org"))
}

pub(super) fn credentials(user: &str, password: &str) -> Credentials {
    Credentials::User {
        user: user.into(),
        domain: "FILER".into(),
        workstation: "DESK".into(),
        hash: NtHash::from_password(password),
        target_name: "cifs/filer".into(),
    }
}

pub(super) fn denied(step: AuthStep) -> DeniedReason {
    match step {
        AuthStep::Denied(denied) => denied.reason,
        other => panic!("not denied: {other:?}"),
    }
}

pub(super) fn token(step: AuthStep) -> Vec<u8> {
    match step {
        AuthStep::Continue(token) => token,
        other => panic!("over already: {other:?}"),
    }
}

pub(super) fn accepted(step: AuthStep) -> Accepted {
    match step {
        AuthStep::Done(accepted) => *accepted,
        other => panic!("not accepted: {other:?}"),
    }
}
