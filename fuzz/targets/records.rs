//! The copy of a pool's records on a disk, as a stranger's disk brings it.
//!
//! The fuzzer gives lines: packed records are compressed here, since no fuzzer finds its way through a
//! compressed stream. An import of these records, from disks among which are older copies, takes no
//! member that is no disk of the pool, and no older copy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use records::image::{ImageHeader, ImageVersion, PoolImage};
use records::import::{FoundDisk, Plan, Wanted, plan};
use records::{DiskRecord, PoolRecord};
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, PoolId};
use uuid::Uuid;

/// Space on a disk.
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

/// Each disk that the records name, in its present and in an older state.
fn found(image: &PoolImage, older_first: bool) -> Vec<FoundDisk> {
    let disks = image.records::<DiskRecord>().unwrap_or_default();
    let copy = |disk: &DiskRecord, revision: u64| {
        let mut image = image.clone();
        image.header.version.revision = revision;
        let (pool, path) = (image.header.pool, format!("/{revision}/{}", disk.id));
        FoundDisk { path, disk: disk.id, pool, image: Ok(image), promised: BTreeMap::new() }
    };
    let revisions = if older_first { [1, 2] } else { [2, 1] };
    // Copies that are equal count once, too: a few disks are as good as many.
    disks.iter().take(4).flat_map(|disk| revisions.map(|revision| copy(disk, revision))).collect()
}

fn check(plan: &Plan) {
    assert!(
        plan.disks.iter().all(|disk| disk.path.starts_with("/2/")),
        "an older copy counts: {:?}",
        plan.disks
    );
    let known: BTreeSet<DiskId> = plan.disks.iter().chain(&plan.missing).map(|disk| disk.id).collect();
    for volume in &plan.volumes {
        let stale = volume.stale.iter().map(|stale| stale.disk);
        let building = volume.building.iter().map(|(disk, _)| *disk);
        let mut members = volume.in_sync.iter().copied().chain(stale).chain(building);
        assert!(volume.pool == plan.pool.id && members.all(|disk| known.contains(&disk)), "{volume:?}");
    }
}

fuzz_target!(|input: &[u8]| {
    let _ = PoolImage::parse(input);
    let Ok(image) = PoolImage::parse(&packed(input)) else { return };
    // A record that was read can be written, and is read again.
    if let Some(bytes) = image.encode(ROOM) {
        let again = PoolImage::parse(&bytes).expect("it was written here");
        assert!(again.entries.len() <= image.entries.len());
    }
    let name = image.records::<PoolRecord>().ok().and_then(|pools| Some(pools.into_iter().next()?.name));
    let wanted = Wanted { confirm: name, accept_missing: true, ..Wanted::default() };
    if let Ok(plan) = plan(&found(&image, input.len() % 2 == 0), &wanted, "") {
        check(&plan);
    }
});
