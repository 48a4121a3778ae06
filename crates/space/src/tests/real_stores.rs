//! A local space over real stores on disks that lose power.

use super::{CHUNK, VOLUME, disk, filled, sealed};
use crate::api::{SpaceError, SpaceReply, SpaceRequest, VirtualDisk};
use crate::coordinator::{Config, Phase};
use crate::local::{LocalSpace, VolumeHandle};
use ::disk::DiskError;
use ::disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget};
use records::{
    FaultDomain, JobKind, MemoryClient, MemoryState, Provisioning, Resiliency, Typed, VolumeRecord,
};
use std::time::Duration;
use store::api::WriteClass;
use store::{FormatParameters, Store, format};
use types::{BLOCK_BYTES, Lba, Monotonic, PoolId};

type RealSpace = LocalSpace<Store<CrashDisk>, MemoryClient>;

/// Returns the place of the newest block filled with `byte` while only the journal has it: the
/// first one on the disk.
fn in_journal(disk: &CrashDisk, byte: u8) -> Option<u64> {
    (1..(64 << 20) / 4096).map(|block| block * 4096).find(|place| disk.peek(*place, 4096) == [byte; 4096])
}

struct RealBench {
    disks: Vec<CrashDisk>,
    state: MemoryState,
    space: RealSpace,
    handle: VolumeHandle<Store<CrashDisk>, MemoryClient>,
    now: Monotonic,
    openings: u128,
}

impl RealBench {
    fn new(count: u8) -> Self {
        let state = MemoryState::new();
        let pool = PoolId::from_bytes([1; 16]);
        let disks: Vec<CrashDisk> = (1..=count)
            .map(|number| {
                let blank = CrashDisk::new(CrashOptions::new(64 << 20));
                let parameters = FormatParameters {
                    slab_bytes: Some(u64::from(CHUNK) * BLOCK_BYTES as u64),
                    journal_bytes: Some(4 << 20),
                    ..FormatParameters::new(disk(number), pool)
                };
                format(blank, parameters).unwrap()
            })
            .collect();
        let ids = (1..=count).map(disk).collect();
        let size = u64::from(CHUNK) * 8 * BLOCK_BYTES as u64;
        let record =
            VolumeRecord::new(VOLUME, pool, "data", Resiliency::TwoWay, size, Provisioning::Thin, ids, 0);
        state.write(&record, 0).unwrap();
        let now = Monotonic(1);
        let (space, handle) = Self::assemble(&state, &disks, now, 1);
        let mut bench = Self { disks, state, space, handle, now, openings: 1 };
        bench.pass(10);
        assert_eq!(bench.space.phase(VOLUME), Some(Phase::Serving));
        bench
    }

    fn assemble(
        state: &MemoryState,
        disks: &[CrashDisk],
        now: Monotonic,
        incarnation: u128,
    ) -> (RealSpace, VolumeHandle<Store<CrashDisk>, MemoryClient>) {
        let space = LocalSpace::new(state.client(), Config::default(), CHUNK, 0, now);
        for (at, crash_disk) in disks.iter().enumerate() {
            let store = Store::open(crash_disk.clone()).unwrap();
            space.attach_disk(disk(at as u8 + 1), store, FaultDomain::default()).unwrap();
        }
        let handle = space.open_volume(VOLUME, incarnation);
        (space, handle)
    }

    fn pass(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now = self.now.after(Duration::from_millis(20));
            self.space.handle_timeout(self.now);
        }
    }

    /// Makes two disks with block 3 written as 1 and then as 2: later writes are under the same
    /// epoch, so that only the journal's end can show that one is missing.
    fn with_block_3_written_twice() -> Self {
        let mut bench = Self::new(2);
        bench.write(3, WriteClass::Overwrite, 1, 1);
        bench.pass(20);
        bench.write(3, WriteClass::Overwrite, 1, 2);
        bench
    }

    fn power_cut(&mut self, seed: u64) {
        for (at, disk) in self.disks.iter().enumerate() {
            disk.crash(&disk.random_choice(seed + at as u64));
        }
        self.openings += 1;
        let (space, handle) = Self::assemble(&self.state, &self.disks, self.now, self.openings);
        self.space = space;
        self.handle = handle;
    }

    fn call(&mut self, request: SpaceRequest) -> Result<SpaceReply, SpaceError> {
        self.handle.submit(1, request);
        let mut out = Vec::new();
        for _ in 0..500 {
            self.handle.poll(&mut out);
            if let Some(done) = out.pop() {
                return done.result;
            }
            self.pass(1);
        }
        panic!("no answer");
    }

    fn write(&mut self, lba: u64, class: WriteClass, blocks: usize, byte: u8) {
        self.call(SpaceRequest::Write { lba: Lba(lba), class, data: filled(blocks, byte) }).unwrap();
    }

    fn append(&mut self, lba: u64, blocks: u64, byte: u8, order: u64) {
        let data = sealed(lba, blocks, byte, order);
        self.call(SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Append, data }).unwrap();
    }

    /// Returns the place on a disk of a block filled with this byte.
    fn place_of(&self, at: usize, byte: u8) -> u64 {
        let filled = [byte; 4080];
        let places = (1..(64 << 20) / 4096).map(|block| block * 4096);
        places.rev().find(|place| self.disks[at].peek(*place, 4080) == filled).expect("no such block")
    }

    fn holds(&self, at: usize, byte: u8) -> bool {
        let places = (1..(64 << 20) / 4096).map(|block| block * 4096);
        places.rev().any(|place| self.disks[at].peek(place, 4080) == [byte; 4080])
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        match self.call(SpaceRequest::Read { lba: Lba(lba), blocks, copy: None }).unwrap() {
            SpaceReply::Data(data) => data.contiguous().chunks(BLOCK_BYTES).map(|block| block[0]).collect(),
            SpaceReply::Done => panic!("no data"),
        }
    }
}

#[test]
fn acknowledged_writes_survive_power_cuts_and_unacknowledged_ones_are_equal_on_all_copies() {
    let mut bench = RealBench::new(3);
    for round in 0..6_u64 {
        let byte = round as u8 * 2 + 1;
        bench.write(round, WriteClass::Overwrite, 1, byte);
        bench.write(u64::from(CHUNK) + round * 300, WriteClass::Fresh, 300.min(1024 - round as usize), byte);
        let unacknowledged =
            SpaceRequest::Write { lba: Lba(20), class: WriteClass::Overwrite, data: filled(1, byte) };
        bench.handle.submit(9, unacknowledged);
        bench.pass((round % 3) as u32);
        bench.power_cut(round * 31);
        for lba in 0..=round {
            assert_eq!(bench.read(lba, 1), [lba as u8 * 2 + 1], "after power cut {round}");
        }
        let seen = bench.read(20, 1);
        for _ in 0..4 {
            assert_eq!(bench.read(20, 1), seen, "after power cut {round}");
        }
    }
}

#[test]
fn a_disk_pulled_and_put_back_is_resynced_and_serves_alone_afterwards() {
    let mut bench = RealBench::new(2);
    bench.write(0, WriteClass::Fresh, 600, 1);
    bench.space.detach_disk(disk(2));
    bench.write(256, WriteClass::Overwrite, 8, 2);
    let store = Store::open(bench.disks[1].clone()).unwrap();
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(500);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2);
    bench.space.detach_disk(disk(1));
    assert_eq!(bench.read(255, 10), [1, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
pub(super) fn an_acknowledged_write_survives_a_power_cut_and_the_rot_of_one_disks_last_batch() {
    let parts = [Some(0), Some(4096 - 100), Some(4096 - 3), Some(4096 - 17), None];
    for (rotten, before_data) in [0, 1].into_iter().flat_map(|disk| parts.map(|part| (disk, part))) {
        let mut bench = RealBench::with_block_3_written_twice();
        bench.write(3, WriteClass::Overwrite, 1, 7);
        let crash_disk = &bench.disks[rotten];
        let data = in_journal(crash_disk, 7);
        // The data of its batch in the journal, the records before it, or fields of the header; or the header cannot be read.
        match before_data {
            Some(bytes) => crash_disk.rot(data.unwrap() - bytes, 1),
            None => crash_disk.make_unreadable(data.unwrap() - 4096, 4096),
        }
        bench.power_cut(5);
        assert_eq!(bench.read(3, 1), [7], "disk {rotten}");
        bench.pass(200);
        for alone in [1, 2] {
            bench.space.detach_disk(disk(3 - alone));
            assert_eq!(bench.read(3, 1), [7], "disk {alone} alone, after the rot of disk {rotten}");
            let store = Store::open(bench.disks[2 - alone as usize].clone()).unwrap();
            bench.space.attach_disk(disk(3 - alone), store, FaultDomain::default()).unwrap();
            bench.pass(500);
        }
    }
}

#[test]
fn an_acknowledged_write_survives_a_power_cut_and_a_disk_that_lost_its_last_batch_without_a_trace() {
    for loser in [0, 1] {
        for is_checkpointed in [false, true] {
            let mut bench = RealBench::with_block_3_written_twice();
            if is_checkpointed {
                // The journal fills, and the stamp is in the page of the slab.
                for round in 0..100 {
                    bench.write(64, WriteClass::Overwrite, 16, round);
                }
            }
            bench.disks[loser].inject(Fault::every(FaultTarget::Write, FaultAction::LoseWrite));
            bench.write(3, WriteClass::Overwrite, 1, 7);
            bench.power_cut(5);
            assert_eq!(bench.read(3, 1), [7], "disk {loser} lost it");
            bench.pass(200);
            bench.space.detach_disk(disk(2 - loser as u8));
            assert_eq!(bench.read(3, 1), [7], "disk {loser} alone");
        }
    }
}

#[test]
fn the_copy_with_an_acknowledged_write_is_believed_though_the_power_cut_tore_the_end_of_its_journal() {
    for (loser, seed) in [0, 1].into_iter().flat_map(|loser| (0..20).map(move |seed| (loser, seed))) {
        let mut bench = RealBench::with_block_3_written_twice();
        bench.disks[loser].inject(Fault::every(FaultTarget::Write, FaultAction::LoseWrite));
        bench.write(3, WriteClass::Overwrite, 1, 7);
        // In flight when the power fails: this write leaves the whole slab of the sound disk in
        // doubt.
        bench.disks[1 - loser].inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
        let torn = SpaceRequest::Write { lba: Lba(600), class: WriteClass::Overwrite, data: filled(8, 9) };
        bench.handle.submit(9, torn);
        bench.pass(1);
        bench.power_cut(seed);
        assert_eq!(bench.read(3, 1), [7], "disk {loser} lost it, seed {seed}");
    }
}

#[test]
fn what_a_disk_may_have_lost_is_not_settled_before_it_has_promised_a_later_epoch() {
    for rotten in [0, 1] {
        let mut bench = RealBench::new(2);
        bench.write(3, WriteClass::Overwrite, 1, 1);
        bench.write(3, WriteClass::Overwrite, 1, 7);
        let crash_disk = bench.disks[rotten].clone();
        let data = in_journal(&crash_disk, 7);
        // The record changes twice, faster than the disk promises the first of these epochs.
        crash_disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
        for chunks in [9, 10] {
            let size_bytes = chunks * u64::from(CHUNK) * BLOCK_BYTES as u64;
            bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(size_bytes));
            bench.pass(2);
            assert_eq!(bench.space.record(VOLUME).unwrap().size_bytes, size_bytes);
        }
        bench.disks.iter().for_each(|disk| disk.crash(&CrashChoice::lose_all()));
        crash_disk.rot(data.unwrap(), 1);
        bench.power_cut(5);
        assert_eq!(bench.read(3, 1), [7], "the last batch of disk {rotten} rotted");
        bench.pass(200);
        bench.space.detach_disk(disk(2 - rotten as u8));
        assert_eq!(bench.read(3, 1), [7], "disk {rotten} alone");
    }
}

#[test]
fn what_a_disk_may_have_lost_since_its_last_promise_is_copied_when_it_returns() {
    let mut bench = RealBench::new(2);
    bench.write(3, WriteClass::Overwrite, 1, 1);
    bench.write(3, WriteClass::Overwrite, 1, 7);
    let crash_disk = bench.disks[1].clone();
    let data = in_journal(&crash_disk, 7);
    crash_disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    let size_bytes = 9 * u64::from(CHUNK) * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(size_bytes));
    bench.pass(2);
    assert_eq!(bench.space.record(VOLUME).unwrap().size_bytes, size_bytes);
    bench.space.detach_disk(disk(2));
    bench.write(600, WriteClass::Overwrite, 1, 2);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync, [disk(1)]);
    crash_disk.crash(&CrashChoice::lose_all());
    crash_disk.rot(data.unwrap(), 1);
    let store = Store::open(crash_disk).unwrap();
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(500);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2);
    bench.space.detach_disk(disk(1));
    assert_eq!((bench.read(3, 1), bench.read(600, 1)), (vec![7], vec![2]));
}

#[test]
fn a_volume_that_is_closed_while_a_disk_is_away_settles_nothing_that_the_disk_may_have_lost() {
    let mut bench = RealBench::with_block_3_written_twice();
    bench.write(3, WriteClass::Overwrite, 1, 7);
    let crash_disk = bench.disks[0].clone();
    let data = in_journal(&crash_disk, 7);
    bench.space.detach_disk(disk(1));
    bench.space.close_volume(VOLUME);
    bench.pass(10);
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Closed));
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2, "nothing needed the disk");
    crash_disk.rot(data.unwrap(), 1);
    bench.power_cut(5);
    assert_eq!(bench.read(3, 1), [7]);
    bench.pass(200);
    bench.space.detach_disk(disk(2));
    assert_eq!(bench.read(3, 1), [7], "disk 1 alone");
}

#[test]
fn a_disk_that_comes_back_before_it_was_put_out_is_compared_if_its_journal_leaves_a_doubt() {
    let mut bench = RealBench::with_block_3_written_twice();
    bench.write(3, WriteClass::Overwrite, 1, 7);
    let crash_disk = bench.disks[0].clone();
    let data = in_journal(&crash_disk, 7);
    bench.space.detach_disk(disk(1));
    crash_disk.rot(data.unwrap(), 1);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2, "nothing needed the disk");
    let store = Store::open(crash_disk).unwrap();
    bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
    for _ in 0..4 {
        assert_eq!(bench.read(3, 1), [7]);
    }
    bench.pass(500);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2);
    bench.space.detach_disk(disk(2));
    assert_eq!(bench.read(3, 1), [7], "disk 1 alone");
}

#[test]
fn a_disk_that_comes_back_with_a_doubt_and_a_last_copy_counts_for_that_alone() {
    let mut bench = RealBench::new(2);
    bench.space.suspend_job(VOLUME, JobKind::Rebuild);
    bench.write(3, WriteClass::Overwrite, 1, 1);
    bench.pass(20);
    let attach = |bench: &mut RealBench, number: u8| {
        let store = Store::open(bench.disks[usize::from(number) - 1].clone()).unwrap();
        bench.space.attach_disk(disk(number), store, FaultDomain::default()).unwrap();
    };
    bench.space.detach_disk(disk(2));
    bench.write(4, WriteClass::Overwrite, 1, 1);
    bench.write(u64::from(CHUNK), WriteClass::Fresh, 16, 5);
    bench.pass(20);
    attach(&mut bench, 2);
    bench.pass(500);
    let record = bench.space.record(VOLUME).unwrap();
    assert_eq!((record.in_sync.len(), record.min_holders), (2, 1), "chunk 1 is on disk 1 alone");
    bench.write(3, WriteClass::Overwrite, 1, 2);
    bench.write(3, WriteClass::Overwrite, 1, 7);
    let crash_disk = bench.disks[0].clone();
    let data = in_journal(&crash_disk, 7);
    bench.space.detach_disk(disk(1));
    crash_disk.rot(data.unwrap(), 1);
    attach(&mut bench, 1);
    for _ in 0..4 {
        assert_eq!((bench.read(3, 1), bench.read(u64::from(CHUNK), 2)), (vec![7], vec![5; 2]));
    }
    bench.space.resume_job(VOLUME, JobKind::Rebuild);
    bench.pass(1000);
    let record = bench.space.record(VOLUME).unwrap();
    assert_eq!((record.in_sync.len(), record.min_holders, record.building.len()), (2, 2, 0));
    bench.space.detach_disk(disk(2));
    assert_eq!((bench.read(3, 1), bench.read(u64::from(CHUNK), 2)), (vec![7], vec![5; 2]), "disk 1 alone");
}

#[test]
fn a_resync_begins_again_if_the_disk_comes_back_with_a_doubt_on_the_way() {
    let mut bench = RealBench::new(2);
    bench.write(3, WriteClass::Overwrite, 1, 1);
    bench.pass(20);
    bench.space.detach_disk(disk(1));
    bench.write(3, WriteClass::Overwrite, 1, 7);
    bench.write(600, WriteClass::Fresh, 16, 5);
    let (target, source) = (bench.disks[0].clone(), bench.disks[1].clone());
    bench.pass(20);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync, [disk(2)]);
    // The first region is copied, the second one is not read.
    let place = bench.place_of(1, 5);
    let second = FaultTarget::ReadRange { offset: place, len_bytes: 4096 };
    source.inject(Fault::every(second, FaultAction::Hang));
    let attach = |bench: &mut RealBench| {
        let store = Store::open(target.clone()).unwrap();
        bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
    };
    attach(&mut bench);
    bench.pass(100);
    let data = in_journal(&target, 7);
    assert!(data.is_some() && source.hanging_operations() > 0);
    bench.space.detach_disk(disk(1));
    target.rot(data.unwrap(), 1);
    source.clear_faults();
    source.release_hanging();
    attach(&mut bench);
    bench.pass(500);
    assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2);
    bench.space.detach_disk(disk(2));
    assert_eq!((bench.read(3, 1), bench.read(600, 16)), (vec![7], vec![5; 16]));
}

#[test]
fn what_a_volume_is_asked_for_is_unsent_until_the_space_is_polled() {
    let mut bench = RealBench::new(3);
    bench.write(5, WriteClass::Overwrite, 1, 7);
    assert!(!bench.space.has_unsent());
    bench.handle.submit(9, SpaceRequest::Read { lba: Lba(5), blocks: 1, copy: None });
    assert!(bench.space.has_unsent(), "the loop must not sleep on it");
    bench.space.poll();
    assert!(!bench.space.has_unsent());
}

/// Makes the medium fail reads of the block until it is written again in place.
fn make_unreadable(disk: &CrashDisk, offset: u64) {
    let target = FaultTarget::ReadRange { offset, len_bytes: 4096 };
    disk.inject(Fault::every(target, FaultAction::Fail(DiskError::Medium(5))));
}

#[test]
fn an_unreadable_sector_costs_one_repair_and_no_disk() {
    for bad in [0, 1] {
        let mut bench = RealBench::new(2);
        bench.write(0, WriteClass::Fresh, 8, 5);
        bench.write(3, WriteClass::Overwrite, 1, 7);
        bench.power_cut(3);
        bench.pass(20);
        let place = bench.place_of(bad, 5);
        make_unreadable(&bench.disks[bad], place);
        for _ in 0..4 {
            for lba in 0..8 {
                assert_eq!(bench.read(lba, 1), [if lba == 3 { 7 } else { 5 }], "disk {bad}");
            }
            bench.pass(100);
        }
        let record = bench.space.record(VOLUME).unwrap();
        assert_eq!(record.in_sync.len(), 2, "disk {bad} was put out");
        let alone = disk(2 - bad as u8);
        bench.space.detach_disk(alone);
        assert_eq!(bench.read(0, 3), [5, 5, 5], "disk {bad} alone, after the repair");
    }
}

#[test]
fn a_rebuild_goes_over_an_unreadable_sector_of_the_last_copy() {
    let mut bench = RealBench::new(3);
    bench.write(0, WriteClass::Fresh, 8, 5);
    let holders: Vec<usize> = (0..3).filter(|at| bench.holds(*at, 5)).collect();
    bench.space.suspend_job(VOLUME, JobKind::Resync);
    bench.space.detach_disk(disk(holders[0] as u8 + 1));
    let place = bench.place_of(holders[1], 5);
    make_unreadable(&bench.disks[holders[1]], place);
    bench.pass(600);
    bench.write(20, WriteClass::Overwrite, 1, 9);
    bench.pass(600);
    let (chunks, few) = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts()).unwrap();
    assert_eq!((chunks, few), (1, 0), "no redundancy");
    let answers: Vec<bool> = (0..8)
        .map(|lba| {
            let read = SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: None };
            matches!(bench.call(read), Ok(SpaceReply::Data(data)) if data.contiguous()[0] == 5)
        })
        .collect();
    assert_eq!(answers.iter().filter(|right| **right).count(), 7, "{answers:?}");
    assert_eq!(bench.read(20, 1), [9]);
}

#[test]
fn a_lost_write_of_a_block_that_proves_itself_is_found_at_the_next_opening() {
    for bad in [0, 1] {
        let mut bench = RealBench::new(2);
        bench.append(0, 4, 1, 1);
        let place = bench.place_of(bad, 1);
        let lost = FaultTarget::WriteRange { offset: place - 3 * 4096, len_bytes: 4 * 4096 };
        bench.disks[bad].inject(Fault::every(lost, FaultAction::LoseWrite));
        bench.append(0, 4, 2, 2);
        bench.disks[bad].clear_faults();
        bench.power_cut(3);
        for copy in [Some(0), None] {
            let read = SpaceRequest::Read { lba: Lba(0), blocks: 4, copy };
            let Ok(SpaceReply::Data(data)) = bench.call(read) else { panic!("no data") };
            assert_eq!(data.contiguous()[0], 2, "disk {bad}");
        }
        bench.space.detach_disk(disk(2 - bad as u8));
        assert_eq!(bench.read(0, 4), [2; 4], "disk {bad} alone");
    }
}

#[test]
fn a_disk_of_which_an_older_image_is_put_back_serves_nothing_old() {
    for bad in [0, 1] {
        let mut bench = RealBench::new(2);
        bench.write(0, WriteClass::Fresh, 300, 5);
        let image = bench.disks[bad].fork();
        bench.write(3, WriteClass::Overwrite, 1, 7);
        bench.write(u64::from(CHUNK), WriteClass::Fresh, 8, 8);
        bench.space.close_volume(VOLUME);
        bench.pass(50);
        assert_eq!(bench.space.phase(VOLUME), Some(Phase::Closed));
        bench.disks[bad] = image;
        bench.power_cut(9);
        for _ in 0..4 {
            assert_eq!(bench.read(2, 3), [5, 7, 5], "disk {bad}");
            assert_eq!(bench.read(u64::from(CHUNK), 8), [8; 8], "disk {bad}");
        }
        bench.pass(500);
        assert_eq!(bench.space.record(VOLUME).unwrap().in_sync.len(), 2);
        bench.space.detach_disk(disk(2 - bad as u8));
        assert_eq!(bench.read(2, 3), [5, 7, 5], "disk {bad} alone");
        assert_eq!(bench.read(u64::from(CHUNK), 8), [8; 8], "disk {bad} alone");
    }
}
