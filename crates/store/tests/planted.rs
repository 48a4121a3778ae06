//! The checks of this crate's own tests find planted bugs. A run without a bug passes the same
//! checks.

mod common;

use common::oracle::{Change, Oracle, examine, request_of};
use common::{EPOCH, Rig, VOLUME, new_rig, pattern, small, small_options};
use disk::DiskError;
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget, Limits};
use store::api::{StoreReply, StoreRequest, WriteClass};
use store::planted::{Planted, plant};
use store::{Layout, Store, format};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Lba};

type Found = Result<(), String>;

fn layout() -> Layout {
    Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap()
}

fn expect(what: &str, right: bool) -> Found {
    right.then_some(()).ok_or_else(|| what.to_owned())
}

/// A script with power cuts at every point.
fn power_cuts() -> Found {
    let options = CrashOptions { seed: 1, block_bytes: 512, ..CrashOptions::new(12 << 20) };
    let disk = format(CrashDisk::new(options), small()).unwrap();
    let mut rig = Rig::new(Store::open_with(disk.clone(), small_options()).unwrap());
    let mut oracle = Oracle::default();
    let write = |class, lba, blocks, version| Change::Write { class, lba, blocks, version };
    let script: Vec<Vec<Change>> = vec![
        vec![Change::Allocate { chunk: 0 }, Change::Allocate { chunk: 3 }],
        vec![write(WriteClass::Overwrite, 0, 4, 1), write(WriteClass::Fresh, 20, 12, 2)],
        vec![write(WriteClass::Overwrite, 770, 4, 3), write(WriteClass::Fresh, 40, 30, 4)],
        vec![Change::Promise { epoch: 4 }, write(WriteClass::Overwrite, 0, 2, 5)],
        vec![Change::Free { chunk: 3 }],
        vec![write(WriteClass::Overwrite, 1, 2, 6), write(WriteClass::Overwrite, 60, 2, 7)],
    ];
    let limits = Limits { exhaustive_candidates: 3, subset_size: 1, choices: 12 };
    for (round, changes) in script.into_iter().enumerate() {
        for change in changes {
            let token = rig.submit(request_of(&change, Epoch(4)));
            oracle.submitted(token, change);
        }
        if round % 2 == 1 {
            rig.store.request_checkpoint();
        }
        while oracle.outstanding() > 0 || !rig.store.is_idle() {
            for choice in disk.choices(limits) {
                let (found, _) = examine(disk.after_crash(&choice))?;
                oracle.allows(&found)?;
            }
            rig.poll();
            for (token, answer) in rig.answers.drain() {
                answer.map_err(|error| format!("request {token}: {error}"))?;
                oracle.acknowledged(token);
            }
        }
    }
    Ok(())
}

fn filled() -> (Rig<CrashDisk>, CrashDisk) {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    (rig, disk)
}

/// Faults of a single disk, one at a time.
fn single_faults() -> Found {
    let (mut rig, disk) = filled();
    disk.rot(layout().slabs + 7 * BLOCK_BYTES as u64, 1);
    expect("rot is returned", rig.read(7, 1).is_err())?;
    let sector = FaultTarget::ReadRange { offset: layout().slabs, len_bytes: 512 };
    disk.inject(Fault::every(sector, FaultAction::Fail(DiskError::Medium(5))));
    let lbas = vec![Lba(0)];
    expect("a bad sector is not named", rig.read(0, 4) == Err(store::api::StoreError::Corrupt { lbas }))?;

    let (rig, disk) = filled();
    let mut rig = rig.reopen();
    for offset in [layout().metadata, layout().slabs + 30 * BLOCK_BYTES as u64] {
        let sector = FaultTarget::ReadRange { offset, len_bytes: 512 };
        disk.inject(Fault::nth(sector, 0, FaultAction::Fail(DiskError::Medium(5))));
        expect("an error that passes is damage", rig.read(30, 1).is_ok())?;
    }

    let mut rig = new_rig();
    rig.allocate(0, true);
    rig.write(WriteClass::Append, 0, &pattern(1, 9)).unwrap();
    let disk = rig.store.disk_mut().clone();
    disk.rot(layout().slabs, 1);
    expect("a rotten journal block is returned", rig.read(0, 1).is_err())?;

    let lossy = |offset| {
        let (mut rig, disk) = filled();
        rig.discard(0, 256).unwrap();
        rig.write(WriteClass::Fresh, 1, &pattern(2, 9)).unwrap();
        rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(0) }).unwrap();
        rig.allocate(3, false);
        let target = FaultTarget::WriteRange { offset, len_bytes: 4096 };
        disk.inject(Fault::nth(target, 0, FaultAction::LoseWrite));
        rig.checkpoint();
        rig.reopen()
    };
    let mut rig = lossy(layout().tables[0]);
    let mapped = rig.store.chunks().iter().map(|chunk| chunk.chunk).collect::<Vec<_>>();
    expect("an old slab table is believed", mapped == [ChunkIndex(3)])?;
    let zeroes = vec![0; BLOCK_BYTES];
    expect("a new chunk is not empty", rig.read(3 * 256, 1) == Ok(zeroes))?;

    let (mut rig, disk) = filled();
    rig.discard(9, 1).unwrap();
    let page = FaultTarget::WriteRange { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    expect("an old page is believed", rig.reopen().read(9, 1).is_err())?;

    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    rig.store.request_checkpoint();
    for _ in 0..2 {
        rig.run_until_idle();
        rig.store.retry();
    }
    disk.clear_faults();
    let mut rig = rig.reopen();
    rig.discard(10, 1).unwrap();
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    expect("a given up page is believed", rig.reopen().read(10, 1).is_err())
}

/// A batch whose write timed out after it had reached a cache, found by the next opening, and a power cut after that.
fn accepted_batches() -> Found {
    for seed in 0..8 {
        let options = CrashOptions { seed, ..CrashOptions::new(16 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let mut rig = Rig::open(disk.clone());
        rig.allocate(0, false);
        rig.checkpoint();
        disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Hang));
        rig.submit(common::write_request(WriteClass::Overwrite, 5, &pattern(5, 1)));
        (0..20).for_each(|_| rig.poll());
        disk.time_out_hanging();
        (0..20).for_each(|_| rig.poll());
        let mut rig = rig.reopen();
        let found = rig.read(5, 1);
        drop(rig);
        let after = disk.after_crash(&CrashChoice::lose_all());
        let store = Store::open_with(after, small_options()).map_err(|error| error.to_string())?;
        expect("a crash undid what was read", Rig::new(store).read(5, 1) == found)?;
    }
    Ok(())
}

/// Fresh data over blocks that are being applied; a slab that changes owner while its last owner's
/// space is given back.
fn late_effects() -> Found {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let place = FaultTarget::WriteRange { offset: layout().slabs, len_bytes: 1 << 20 };
    disk.inject(Fault::nth(place, 0, FaultAction::Hang));
    rig.store.request_checkpoint();
    (0..20).for_each(|_| rig.poll());
    rig.discard(0, 256).unwrap();
    let fresh = rig.submit(common::write_request(WriteClass::Fresh, 0, &pattern(3, 64)));
    (0..20).for_each(|_| rig.poll());
    disk.release_hanging();
    rig.wait(fresh).map_err(|error| error.to_string())?;
    rig.run_until_idle();
    expect("an old block fell on a new one", rig.read(0, 64) == Ok(pattern(3, 64)))?;

    let (mut rig, disk) = filled();
    disk.inject(Fault::nth(FaultTarget::Discard, 0, FaultAction::Hang));
    rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(0) }).unwrap();
    rig.allocate(1, false);
    rig.write(WriteClass::Fresh, 256, &pattern(4, 256)).unwrap();
    disk.release_hanging();
    rig.run_until_idle();
    expect("a slab was reused too early", rig.read(256, 256) == Ok(pattern(4, 256)))
}

/// The last batch of the journal rots, and the disk is opened twice before any request for the
/// regions.
fn doubts() -> Found {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let data =
        (0..64).map(|at| layout().journal + at * 4096).find(|at| disk.peek(*at, 4096) == pattern(2, 1));
    disk.rot(data.unwrap(), 1);
    let mut rig = rig.reopen();
    // Takes the place of the rotten batch.
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(EPOCH.0 + 1) }).unwrap();
    let mut rig = rig.reopen();
    let found = rig.run(StoreRequest::Regions { volume: VOLUME, chunk: ChunkIndex(0) });
    let in_doubt = matches!(found, Ok(StoreReply::Regions(regions)) if regions.doubtful == [0]);
    expect("a doubt is forgotten", in_doubt)
}

/// A crash leaves data without their record; or a record without its data, other writes follow, and
/// the disk is opened again.
fn void_records() -> Found {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.checkpoint();
    let journal = FaultTarget::WriteRange { offset: layout().journal, len_bytes: layout().journal_bytes };
    rig.store.disk_mut().inject(Fault::every(journal, FaultAction::Hang));
    let token = rig.submit(common::write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
    (0..20).for_each(|_| rig.poll());
    expect("answered without a record", !rig.answers.contains_key(&token))?;

    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    rig.submit(common::write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
    (0..20).for_each(|_| rig.poll());
    let choice = CrashChoice(vec![disk::crash::Fate::Lost, disk::crash::Fate::Kept]);
    let mut rig = Rig::open(disk.after_crash(&choice));
    for round in 0..2 {
        expect("what a crash cut off is damage", rig.read(32, 16) == Ok(vec![0; 16 * BLOCK_BYTES]))?;
        rig.write(WriteClass::Overwrite, 100 + round, &pattern(2, 1)).map_err(|error| error.to_string())?;
        rig = rig.reopen();
    }
    expect("a void record comes back", rig.read(32, 16) == Ok(vec![0; 16 * BLOCK_BYTES]))?;

    let found = common::with_torn_withdrawal().read(32, 16);
    expect("a record counts that was taken back", found == Ok(vec![0; 16 * BLOCK_BYTES]))
}

/// A copy of the label rots while the store runs, and after a scrub another one.
fn own_structures() -> Found {
    let (mut rig, disk) = filled();
    disk.rot(0, 4096);
    rig.run(StoreRequest::Scrub { bytes: u64::MAX }).map_err(|error| error.to_string())?;
    expect("rot of a label is not told", rig.store.health().damaged_structures == 1)?;
    expect("a rotten label is not written again", disk.peek(0, 4096) == disk.peek(4096, 4096))
}

fn look() -> Found {
    own_structures()?;
    single_faults()?;
    doubts()?;
    void_records()?;
    accepted_batches()?;
    late_effects()?;
    power_cuts()
}

#[test]
fn each_planted_bug_is_found_and_nothing_is_found_without() {
    assert_eq!(look(), Ok(()));
    for bug in Planted::ALL {
        plant(Some(bug));
        let found = std::panic::catch_unwind(look);
        plant(None);
        assert!(!matches!(found, Ok(Ok(()))), "{bug:?} is not found");
        if let Ok(Err(problem)) = found {
            println!("{bug:?}: {}", problem.chars().take(200).collect::<String>());
        }
    }
}
