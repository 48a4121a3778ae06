//! Records in which anything may stand, on copies of disks that were made at any time: an import keeps to its pool, and to the copy of each disk that
//! was written last.

use super::tests::{OWN_DISK, OWN_POOL, OWN_VOLUME, busy};
use super::{FoundDisk, Plan, Wanted, commit, plan};
use crate::image::PoolImage;
use crate::image_tests::{POOL, Server, VOLUME, disk};
use crate::seal::SealKey;
use crate::shares::Share;
use crate::{
    DeletedVolume, DiskRecord, EngineState, MemoryState, Record, StaleDisk, StateDump, Transaction, Typed,
    VolumeRecord,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use types::{ChunkIndex, DiskId, Epoch, VolumeId};

/// The id of nothing.
const NOBODY: DiskId = DiskId::from_bytes([0xee; 16]);

/// Records of the server that imports, and those that the disks of a sound pool carry.
struct Prepared {
    own: StateDump,
    key: SealKey,
    image: PoolImage,
}

static PREPARED: LazyLock<Prepared> = LazyLock::new(|| {
    let (Server { state, key, .. }, _) = busy();
    Prepared { own: state.dump().unwrap(), key, image: Server::furnished().image() }
});

/// A change of one record. Volumes' records and lists are changed most often: they name other records.
#[derive(Debug, Clone)]
struct Edit {
    is_volume: bool,
    is_list: bool,
    record: Index,
    place: Index,
    value: Index,
}

/// A copy of a disk: the disk, and how far its records and its promises are.
type DiskCopy = (u8, u64, u64);

prop_compose! {
    fn edit()(is_volume in any::<bool>(), is_list in any::<bool>(), record in any::<Index>(), place in any::<Index>(), value in any::<Index>()) -> Edit {
        Edit { is_volume, is_list, record, place, value }
    }
}

/// Values that may be added to a list.
fn elements() -> Vec<Value> {
    let stale = |disk| StaleDisk { disk, since: Epoch(0), promised: Epoch(0) };
    vec![
        json!(OWN_DISK),
        json!(NOBODY),
        json!(disk(1).id),
        json!(stale(OWN_DISK)),
        json!(stale(NOBODY)),
        json!((OWN_DISK, ChunkIndex(0))),
        json!((NOBODY, ChunkIndex(0))),
        json!("S-1-1-0"),
    ]
}

/// Values that may stand in the place of another.
fn values(old: &Value) -> Vec<Value> {
    match old {
        Value::String(_) => {
            let ids = [json!(OWN_DISK), json!(OWN_VOLUME), json!(OWN_POOL), json!(NOBODY), json!(disk(1).id)];
            let names = ["", "own", "adm", "S-1-5-32-544", "S-1-1-0"].map(|name| json!(name));
            [&ids[..], &[json!(VOLUME), json!(POOL)], &names].concat()
        }
        _ => [0, 1, 2, 3, 255, 1 << 26, u64::from(u32::MAX), u64::MAX].map(|number| json!(number)).to_vec(),
    }
}

/// Visits the parts to change: lists, or single values.
fn visit(tree: &mut Value, is_list: bool, change: &mut impl FnMut(&mut Value)) {
    match tree {
        Value::Object(fields) => fields.values_mut().for_each(|field| visit(field, is_list, change)),
        Value::Array(elements) => {
            elements.iter_mut().for_each(|element| visit(element, is_list, change));
            if is_list {
                change(tree);
            }
        }
        value if !is_list => change(value),
        _ => {}
    }
}

impl Edit {
    fn apply(&self, image: &mut PoolImage) {
        let is_meant = |key: &str| key.starts_with(VolumeRecord::PREFIX) || !self.is_volume;
        let meant: Vec<usize> =
            (0..image.entries.len()).filter(|at| is_meant(&image.entries[*at].0)).collect();
        let Some(at) = meant.get(self.record.index(meant.len().max(1))) else { return };
        let (key, bytes) = &mut image.entries[*at];
        let mut record: Value = serde_json::from_slice(bytes).unwrap();
        let mut count = 0;
        visit(&mut record, self.is_list, &mut |_| count += 1);
        if count == 0 {
            return;
        }
        let (place, mut number) = (self.place.index(count), 0);
        visit(&mut record, self.is_list, &mut |found| {
            if number == place {
                match found {
                    Value::Array(list) => list.push(self.value.get(&elements()).clone()),
                    value => *value = self.value.get(&values(value)).clone(),
                }
            }
            number += 1;
        });
        // As a program would write it.
        if let (Some((kind, _)), Some(id)) = (key.split_once('/'), record["id"].as_str()) {
            *key = format!("{kind}/{id}");
        }
        *bytes = serde_json::to_vec(&record).unwrap();
    }
}

/// The copies as they are found, each at a path of its own.
fn found(image: &PoolImage, copies: &[DiskCopy]) -> Vec<FoundDisk> {
    let one = |(at, (number, revision, promised)): (usize, &DiskCopy)| {
        let mut image = image.clone();
        image.header.version.revision += revision;
        let promised = BTreeMap::from([(VOLUME, Epoch(*promised))]);
        FoundDisk { path: at.to_string(), disk: disk(*number).id, pool: POOL, image: Ok(image), promised }
    };
    copies.iter().enumerate().map(one).collect()
}

/// No copy of a disk has newer records, or has promised more, than the one that counts.
fn check_copies(plan: &Plan, copies: &[DiskCopy]) {
    for chosen in &plan.disks {
        let (number, revision, promised) = copies[chosen.path.parse::<usize>().unwrap()];
        let is_later = |copy: &&DiskCopy| copy.0 == number && (copy.1 > revision || copy.2 > promised);
        let later = copies.iter().find(is_later);
        assert!(later.is_none(), "disk {number} counts as {chosen:?}, and there is {later:?}");
    }
}

/// Records that were there are as they were, and those that have come belong to the pool and name nothing beyond it.
fn check_committed(state: &MemoryState, own: &StateDump) {
    let after = state.dump();
    for entry in &own.entries {
        assert!(after.entries.contains(entry), "{} was changed", entry.0);
    }
    let is_new = |key: &str| !own.entries.iter().any(|(known, _)| known == key);
    let disks: Vec<DiskRecord> = new(state, is_new);
    let volumes: Vec<VolumeRecord> = new(state, is_new);
    let deleted: Vec<DeletedVolume> = new(state, is_new);
    let pools = disks.iter().map(|disk| disk.pool).chain(volumes.iter().map(|volume| volume.pool));
    assert!(pools.chain(deleted.iter().map(|note| note.pool)).all(|pool| pool == POOL));
    assert!(deleted.iter().all(|note| note.id != OWN_VOLUME));
    let ids: BTreeSet<DiskId> = disks.iter().map(|disk| disk.id).collect();
    for volume in &volumes {
        let stale = volume.stale.iter().map(|stale| stale.disk);
        let building = volume.building.iter().map(|(disk, _)| *disk);
        let foreign =
            volume.in_sync.iter().copied().chain(stale).chain(building).find(|disk| !ids.contains(disk));
        assert_eq!(foreign, None, "{volume:?}");
    }
    let volumes: BTreeSet<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
    let shares: Vec<Share> = new(state, is_new);
    assert!(shares.iter().all(|share| volumes.contains(&share.volume)), "{shares:?}");
}

fn new<R: Record>(state: &MemoryState, is_new: impl Fn(&str) -> bool) -> Vec<R> {
    let all = state.list::<R>().unwrap().into_iter().map(|found| found.value);
    all.filter(|record| is_new(&record.key())).collect()
}

/// A server with the same records.
fn restored(own: &StateDump) -> MemoryState {
    let state = MemoryState::new();
    let all = own.entries.iter().cloned();
    let put = all.fold(Transaction::default(), |changes, (key, value)| changes.put(key, value));
    state.commit(put).unwrap();
    state
}

/// The administrator wants this pool, even with disks missing.
fn wanted() -> Wanted {
    let pool = Some(POOL.to_string());
    Wanted { pool, confirm: Some("tank".into()), accept_missing: true, ..Wanted::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_import_keeps_to_its_pool_whatever_the_disks_carry(edits in prop::collection::vec(edit(), 0..3)) {
        let Prepared { own, key, image } = &*PREPARED;
        let mut image = image.clone();
        edits.iter().for_each(|edit| edit.apply(&mut image));
        if let Ok(plan) = plan(&found(&image, &[(1, 0, 0), (2, 0, 0), (3, 0, 0)]), &wanted(), "") {
            let state = restored(own);
            if commit(&state, key, None, &plan, 20).is_ok() {
                check_committed(&state, own);
            }
        }
    }

    #[test]
    fn no_copy_of_a_disk_counts_beside_one_that_was_written_later(
        copies in prop::collection::vec((1..=3_u8, 0..3_u64, 0..3_u64), 1..7),
    ) {
        if let Ok(plan) = plan(&found(&PREPARED.image, &copies), &wanted(), "") {
            check_copies(&plan, &copies);
        }
    }
}
