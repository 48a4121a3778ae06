//! Records of opens that outlive the server: keys and values of any origin.
//!
//! The input: length of the key (1 byte), key, value. The value is read under its own key, and as a record of each kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volume::fs::{FileId, OpenStateKey, StreamId, fuzz};
use volume::service::parse_open_state;

fuzz_target!(|input: &[u8]| {
    let Some((len, rest)) = input.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*len).min(rest.len()));
    if let Some(key) = fuzz::open_state_key(key) {
        parse_open_state(&key, value);
    }
    let file = FileId(7);
    let keys = [
        OpenStateKey::Open(1),
        OpenStateKey::Lock { open: 1, offset: 2, len_bytes: 3, shared: false },
        OpenStateKey::Lease { client: [1; 16], key: [2; 16] },
        OpenStateKey::DeletedLink { file, parent: FileId::ROOT, name: Box::default() },
        OpenStateKey::DeletedStream(StreamId { file, index: 1 }),
    ];
    for key in keys {
        parse_open_state(&key, value);
    }
});
