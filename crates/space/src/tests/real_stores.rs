//! The same over real stores on disks that lose power.

use super::{CHUNK, VOLUME, disk, filled};
use crate::api::{SpaceError, SpaceReply, SpaceRequest, VirtualDisk};
use crate::coordinator::{Config, Phase};
use crate::local::{LocalSpace, VolumeHandle};
use ::disk::crash::{CrashDisk, CrashOptions};
use cluster::{FaultDomain, MemoryClient, MemoryState, Provisioning, Resiliency, Typed, VolumeRecord};
use std::time::Duration;
use store::api::WriteClass;
use store::{FormatParameters, Store, format};
use types::{BLOCK_BYTES, Lba, Monotonic, PoolId};

type RealSpace = LocalSpace<Store<CrashDisk>, MemoryClient>;

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
fn an_acknowledged_write_survives_a_power_cut_and_the_rot_of_one_disks_last_batch() {
    for (rotten, of_header) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut bench = RealBench::new(2);
        bench.write(3, WriteClass::Overwrite, 1, 1);
        bench.write(3, WriteClass::Overwrite, 1, 7);
        let crash_disk = &bench.disks[rotten];
        let data =
            (1..(64 << 20) / 4096).map(|at| at * 4096).find(|at| crash_disk.peek(*at, 4096) == [7; 4096]);
        // The data of its batch in the journal, or the records before it.
        crash_disk.rot(if of_header { data.unwrap() - 4096 + 100 } else { data.unwrap() }, 1);
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
fn what_a_volume_is_asked_for_is_unsent_until_the_space_is_polled() {
    let mut bench = RealBench::new(3);
    bench.write(5, WriteClass::Overwrite, 1, 7);
    assert!(!bench.space.has_unsent());
    bench.handle.submit(9, SpaceRequest::Read { lba: Lba(5), blocks: 1, copy: None });
    assert!(bench.space.has_unsent(), "the loop must not sleep on it");
    bench.space.poll();
    assert!(!bench.space.has_unsent());
}
