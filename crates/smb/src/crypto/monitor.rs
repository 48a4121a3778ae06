//! A monitor of nonces, for test builds (feature `nonce-monitor`): a party that signs by AES-GMAC as a server, or encrypts, twice with
//! one key and one nonce but other content panics, because two such messages together give the key's authentication away.
//!
//! Keys are compared by their bytes, not by the objects that hold them: a key that is derived again and
//! starts counting again is found too. A client's signatures are not checked: the protocol itself makes
//! a client of several channels use nonces again (MS-SMB2 3.2.4.1.1: each binding is signed with the
//! session's key under its own connection's message identifiers).

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A key, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyName(u64);

impl KeyName {
    pub fn of(algorithm: u16, key: &[u8]) -> Self {
        Self(digest(&[&algorithm.to_le_bytes(), key]))
    }
}

thread_local! {
    static USED: RefCell<HashMap<(KeyName, [u8; 16]), u64>> = RefCell::default();
}

/// Forgets used nonces: a test starts a world of its own, whose keys may come from the same seed.
pub fn forget_nonces() {
    USED.with_borrow_mut(HashMap::clear);
}

/// Records that `parts` are protected with this key and nonce.
///
/// # Panics
/// When other content was protected with them.
pub(super) fn record(key: KeyName, nonce: &[u8], parts: &[&[u8]]) {
    let mut field = [0; 16];
    field[..nonce.len()].copy_from_slice(nonce);
    let content = digest(parts);
    let before = USED.with_borrow_mut(|used| used.insert((key, field), content));
    assert!(
        before.is_none_or(|before| before == content),
        "two messages are protected with one key and the nonce {field:02x?}"
    );
}

fn digest(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| hasher.write(part));
    parts.iter().map(|part| part.len()).sum::<usize>().hash(&mut hasher);
    hasher.finish()
}
