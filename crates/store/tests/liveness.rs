//! Awaited work ends: promises while new ones are written, scrubs over transient errors, pages when
//! the cache is full of changes.

mod common;

use common::{POOL, Rig, crash_disk, pattern, small};
use disk::DiskError;
use disk::crash::{CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget};
use store::api::{StoreError, StoreReply, StoreRequest, WriteClass};
use store::{FormatParameters, Layout, Store, StoreOptions, format};
use types::{BLOCK_BYTES, Epoch, VolumeId};

fn volume(number: u8) -> VolumeId {
    VolumeId::from_bytes([number; 16])
}

fn promise(rig: &mut Rig<CrashDisk>, number: u8) {
    let request = StoreRequest::Promise { volume: volume(number), epoch: Epoch(7) };
    assert!(matches!(rig.run(request), Ok(StoreReply::Done)));
}

/// The table of promises is written in place, in sectors that a crash keeps or loses one by one.
#[test]
fn a_power_cut_loses_no_promise_while_others_are_written_beside_it() {
    for seed in 0..6 {
        let options = CrashOptions { seed, block_bytes: 512, ..CrashOptions::new(12 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let mut rig = Rig::open(disk.clone());
        let old: Vec<u8> = (100..150).collect();
        old.iter().for_each(|number| promise(&mut rig, *number));
        rig.checkpoint();
        // Before all others, by their ids.
        (1..4).for_each(|number| promise(&mut rig, number));
        rig.store.request_checkpoint();
        while !rig.store.is_idle() {
            rig.poll();
            for salt in 0..4 {
                let after = disk.after_crash(&disk.random_choice(seed * 100 + salt));
                let store = Store::open_with(after, common::small_options()).unwrap();
                for number in old.iter().copied().chain(1..4) {
                    assert_eq!(store.promised(volume(number)), Epoch(7), "volume {number}, seed {seed}");
                }
            }
        }
    }
}

/// For lack of memory, for instance: that proves nothing about the disk, and the store continues.
#[test]
fn a_scrub_that_a_metadata_page_fails_ends_and_the_next_one_goes_on() {
    let mut rig = Rig::open(format(crash_disk(16 << 20), small()).unwrap());
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.checkpoint();
    let mut rig = rig.reopen();
    let layout = Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap();
    let page = FaultTarget::ReadRange { offset: layout.metadata, len_bytes: BLOCK_BYTES as u64 };
    rig.store.disk_mut().inject(Fault::nth(page, 0, FaultAction::Fail(DiskError::Host(12))));
    let failed = rig.run(StoreRequest::Scrub { bytes: u64::MAX });
    assert_eq!(failed.map(|_| ()), Err(StoreError::Disk(DiskError::Host(12))));
    assert!(matches!(rig.run(StoreRequest::Scrub { bytes: u64::MAX }), Ok(StoreReply::Scrubbed(_))));
    rig.run_until_idle();
}

/// A checkpoint that finds no space leaves pages changed in RAM, as many as the cache holds and more.
#[test]
fn reads_and_writes_go_on_while_changed_pages_fill_the_cache() {
    let parameters = FormatParameters { slab_bytes: Some(4 << 20), ..small() };
    let disk = format(crash_disk(200 << 20), parameters).unwrap();
    // The smallest number of pages for a store: 16.
    let options = StoreOptions { metadata_cache_bytes: 0, pool: Some(POOL), ..StoreOptions::default() };
    let mut rig = Rig::new(Store::open_with(disk.clone(), options).unwrap());
    let first_of = |chunk: u64| chunk * 1024;
    for chunk in 0..30 {
        rig.allocate(chunk, false);
        rig.write(WriteClass::Fresh, first_of(chunk.into()), &pattern(1, 16)).unwrap();
    }
    rig.checkpoint();
    let layout = Layout::compute(200 << 20, 4 << 20, 256 << 10).unwrap();
    let slabs = FaultTarget::WriteRange { offset: layout.slabs, len_bytes: 150 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    for chunk in 0..20 {
        rig.write(WriteClass::Overwrite, first_of(chunk), &pattern(2, 1)).unwrap();
    }
    for chunk in 20..30 {
        assert_eq!(rig.read(first_of(chunk), 16), Ok(pattern(1, 16)));
    }
}

/// The page is not on the disk, so it must stay in RAM until it is.
#[test]
fn a_page_that_found_no_room_stays_changed_while_others_come_and_go() {
    // A write that fails may have happened.
    for seed in 0..6 {
        let parameters = FormatParameters { slab_bytes: Some(4 << 20), ..small() };
        let disk = format(CrashDisk::new(CrashOptions { seed, ..CrashOptions::new(200 << 20) }), parameters)
            .unwrap();
        let options = StoreOptions { metadata_cache_bytes: 0, pool: Some(POOL), ..StoreOptions::default() };
        let mut rig = Rig::new(Store::open_with(disk.clone(), options).unwrap());
        let first_of = |chunk: u64| chunk * 1024;
        for chunk in 0..30 {
            rig.allocate(chunk, false);
            rig.write(WriteClass::Fresh, first_of(chunk.into()), &pattern(1, 16)).unwrap();
        }
        rig.checkpoint();
        rig.write(WriteClass::Overwrite, 0, &pattern(2, 1)).unwrap();
        let layout = Layout::compute(200 << 20, 4 << 20, 256 << 10).unwrap();
        let page = FaultTarget::WriteRange { offset: layout.metadata, len_bytes: BLOCK_BYTES as u64 };
        disk.inject(Fault::every(page, FaultAction::Fail(DiskError::NoSpace)));
        let slabs = FaultTarget::WriteRange { offset: layout.slabs, len_bytes: 150 << 20 };
        disk.inject(Fault::every(slabs, FaultAction::Hang));
        rig.store.request_checkpoint();
        (0..20).for_each(|_| rig.poll());
        for chunk in 1..30 {
            assert_eq!(rig.read(first_of(chunk), 16), Ok(pattern(1, 16)));
        }
        disk.clear_faults();
        disk.release_hanging();
        rig.run_until_idle();
        rig.store.retry();
        rig.checkpoint();
        assert_eq!(rig.read(0, 1), Ok(pattern(2, 1)));
        let mut rig = Rig::new(Store::open_with(rig.store.into_disk(), options).unwrap());
        assert_eq!(rig.read(0, 1), Ok(pattern(2, 1)));
    }
}
