//! The copy of a pool's records that a disk carries, as a stranger's disk brings it.
//!
//! The fuzzer gives lines: packed records are compressed here, since no fuzzer finds its way through a compressed stream.
#![no_main]

use cluster::image::{ImageHeader, ImageVersion, PoolImage};
use libfuzzer_sys::fuzz_target;
use types::PoolId;
use uuid::Uuid;

/// As much as a disk has room for.
const ROOM: usize = 256 << 10;

fn packed(lines: &[u8]) -> Vec<u8> {
    let header = ImageHeader {
        form: 2,
        pool: PoolId::from_bytes([1; 16]),
        version: ImageVersion::default(),
        history: Uuid::nil(),
        server: Uuid::nil(),
        host: String::new(),
        written_unix_s: 0,
        exported: false,
        omitted: 0,
    };
    let mut bytes = serde_json::to_vec(&header).expect("a header");
    bytes.push(b'\n');
    bytes.extend(miniz_oxide::deflate::compress_to_vec_zlib(lines, 1));
    bytes
}

fuzz_target!(|input: &[u8]| {
    let _ = PoolImage::parse(input);
    let Ok(image) = PoolImage::parse(&packed(input)) else { return };
    // A record that was read can be written, and is read again.
    if let Some(bytes) = image.encode(ROOM) {
        let again = PoolImage::parse(&bytes).expect("it was written here");
        assert!(again.entries.len() <= image.entries.len());
    }
});
