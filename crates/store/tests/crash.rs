//! Power cuts at every point of many runs: acknowledged writes are present, others are present
//! whole or not at all, and nothing reads as corrupt.

mod common;

use common::oracle::{
    CHANGING_CHUNK, CHUNK_BLOCKS, Change, Dice, Oracle, examine, read_state, request_of, version_at,
};
use common::{EPOCH, Rig, VOLUME, small, small_options};
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fate, Fault, FaultAction, FaultTarget, Limits};
use std::collections::HashMap;
use store::api::{StoreReply, StoreRequest, WriteClass};
use store::{Store, format};
use types::{BLOCK_BYTES, Epoch, Lba};

/// A run on a disk whose power may fail at any point.
struct Run {
    disk: CrashDisk,
    rig: Rig<CrashDisk>,
    oracle: Oracle,
    epoch: Epoch,
    /// Reads in flight: first block and number of blocks.
    reads: HashMap<u64, (u64, u64)>,
}

impl Run {
    fn new(seed: u64, shuffle: bool) -> Self {
        let options = CrashOptions { seed, shuffle, block_bytes: 512, ..CrashOptions::new(12 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let rig = Rig::new(Store::open_with(disk.clone(), small_options()).unwrap());
        let mut run = Self { disk, rig, oracle: Oracle::default(), epoch: EPOCH, reads: HashMap::new() };
        for chunk in 0..3 {
            let token = run.submit(Change::Allocate { chunk });
            run.rig.wait(token).unwrap();
            run.oracle.acknowledged(token);
        }
        run
    }

    fn submit(&mut self, change: Change) -> u64 {
        let token = self.rig.submit(request_of(&change, self.epoch));
        self.oracle.submitted(token, change);
        token
    }

    /// Reads while changes are in flight.
    fn read(&mut self, lba: u64, blocks: u64) {
        let request = StoreRequest::Read { volume: VOLUME, lba: Lba(lba), blocks: blocks as u32 };
        self.reads.insert(self.rig.submit(request), (lba, blocks));
    }

    /// Polls once; answers go to the oracle.
    fn poll(&mut self) {
        self.rig.poll();
        for (token, answer) in self.rig.answers.drain() {
            match answer {
                Ok(StoreReply::Data { data, .. }) => {
                    let (lba, blocks) = self.reads.remove(&token).expect("a read was asked for");
                    assert_eq!(data.len(), blocks as usize * BLOCK_BYTES);
                    for (block, bytes) in (lba..).zip(data.contiguous().chunks_exact(BLOCK_BYTES)) {
                        let words = bytes.as_chunks::<8>().0;
                        assert!(
                            words.iter().all(|word| *word == words[0]),
                            "block {block} is a mix of versions"
                        );
                    }
                }
                Ok(_) => self.oracle.acknowledged(token),
                Err(error) => panic!("request {token} failed on a sound disk: {error}"),
            }
        }
    }

    /// Cuts the power in ways that `limits` allow, and `by_chance` more; the run itself continues.
    fn check(&self, limits: Limits, by_chance: u64, salt: u64) {
        let by_chance = (0..by_chance).map(|at| self.disk.random_choice(salt * 1000 + at));
        for (at, choice) in (salt..).zip(self.disk.choices(limits).into_iter().chain(by_chance)) {
            let judge = || {
                let (found, rig) = examine(self.disk.after_crash(&choice))?;
                self.oracle.allows(&found)?;
                if at.is_multiple_of(4) { go_on(rig, &found) } else { Ok(()) }
            };
            if let Err(problem) = judge() {
                panic!("{problem}\nafter {} disk operations, {choice:?}", self.disk.submitted_operations());
            }
        }
    }
}

/// Checks that the findings stay: after a checkpoint and another opening, and while new writes go in.
fn go_on(mut rig: Rig<CrashDisk>, found: &common::oracle::State) -> Result<(), String> {
    let mut oracle = Oracle::default();
    let change = Change::Write { class: WriteClass::Overwrite, lba: 3, blocks: 5, version: 0xFFFF };
    let token = rig.submit(request_of(&change, Epoch(1 << 40)));
    oracle.submitted(token, change);
    rig.wait(token).map_err(|error| format!("cannot write after a crash: {error}"))?;
    rig.checkpoint();
    let mut rig = rig.reopen();
    let mut again = read_state(&mut rig)?;
    again.blocks[3..8].copy_from_slice(&found.blocks[3..8]);
    // Torn appended blocks were made whole neither by the crash nor since.
    (again == *found).then_some(()).ok_or_else(|| "what was found after a crash changed later".to_owned())
}

#[test]
fn every_point_of_a_scripted_run_survives_a_power_cut() {
    let write = |class, lba, blocks, version| Change::Write { class, lba, blocks, version };
    let script: Vec<Vec<Change>> = vec![
        vec![write(WriteClass::Overwrite, 0, 1, 1)],
        vec![write(WriteClass::Fresh, 20, 100, 2), write(WriteClass::Overwrite, 0, 2, 3)],
        vec![write(WriteClass::Fresh, 40, 30, 4), write(WriteClass::Overwrite, 60, 16, 5)],
        vec![Change::Discard { lba: 30, blocks: 50 }, write(WriteClass::Fresh, 30, 20, 6)],
        vec![write(WriteClass::Append, 512, 3, 7), write(WriteClass::Append, 515, 2, 8)],
        vec![write(WriteClass::Append, 512, 6, 9), Change::Promise { epoch: 3 }],
        vec![Change::Allocate { chunk: CHANGING_CHUNK }],
        vec![write(WriteClass::Fresh, 768, 256, 10), write(WriteClass::Overwrite, 256, 16, 11)],
        vec![Change::Free { chunk: CHANGING_CHUNK }, write(WriteClass::Overwrite, 257, 16, 12)],
        vec![Change::Allocate { chunk: CHANGING_CHUNK }],
        vec![write(WriteClass::Overwrite, 770, 4, 13)],
        // Alone: over blocks that hold data, and over others.
        vec![write(WriteClass::Fresh, 30, 12, 14)],
        vec![write(WriteClass::Fresh, 300, 12, 15)],
    ];
    let mut run = Run::new(1, false);
    let limits = Limits { exhaustive_candidates: 3, subset_size: 1, choices: 3 };
    for (round, changes) in script.into_iter().enumerate() {
        for change in changes {
            run.submit(change);
        }
        if round % 3 == 2 {
            run.rig.store.request_checkpoint();
        }
        while run.oracle.outstanding() > 0 || !run.rig.store.is_idle() {
            run.check(limits, 1, round as u64);
            run.poll();
        }
    }
}

/// Two batches in flight, the first lost and the second kept. The first is then requested again,
/// byte for byte: the second must not follow it, since a read has shown its absence.
#[test]
fn a_batch_that_a_crash_cut_off_does_not_come_back() {
    let mut run = Run::new(7, false);
    run.rig.checkpoint();
    let mut rig = run.rig.reopen();
    run.disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    let write = |lba, version| Change::Write { class: WriteClass::Overwrite, lba, blocks: 1, version };
    for (lba, version) in [(0, 1), (9, 2)] {
        rig.submit(request_of(&write(lba, version), EPOCH));
        rig.poll();
    }
    assert_eq!(run.disk.candidates().len(), 2);
    let disk = run.disk.after_crash(&CrashChoice(vec![Fate::Lost, Fate::Kept]));
    let (seen, mut rig) = examine(disk).unwrap();
    assert_eq!((seen.blocks[0], seen.blocks[9]), (0, 0));
    let again = rig.submit(request_of(&write(0, 1), EPOCH));
    rig.wait(again).unwrap();
    let (later, _) = examine(rig.store.into_disk()).unwrap();
    assert_eq!((later.blocks[0], later.blocks[9]), (version_at(1, 0), 0));
}

/// A random run, cut at every poll in a few ways.
fn run_by_chance(seed: u64, steps: u64, limits: Limits, by_chance: u64) {
    let mut dice = Dice(seed);
    let mut run = Run::new(seed, true);
    let mut busy_until = 0;
    for step in 1..=steps {
        let room = 4usize.saturating_sub(run.oracle.outstanding());
        for _ in 0..dice.below(room as u64 + 1) {
            let busy = run.oracle.outstanding() > 0 || step <= busy_until;
            let version = step << 4 | dice.below(16);
            let change = dice.change(version, run.oracle.acknowledged_state(), busy);
            if matches!(change, Change::Allocate { .. } | Change::Free { .. }) {
                // The chunk that is allocated and freed must have no other request in flight.
                run.submit(change);
                while run.oracle.outstanding() > 0 {
                    run.check(limits, by_chance, step);
                    run.poll();
                }
                busy_until = step;
                break;
            }
            if dice.below(40) == 0 {
                run.epoch = run.epoch.next();
                let epoch = run.epoch.0;
                while run.oracle.outstanding() > 0 {
                    run.poll();
                }
                run.submit(Change::Promise { epoch });
            }
            run.submit(change);
            run.read(dice.below(2) * CHUNK_BLOCKS + dice.below(100), 1 + dice.below(100));
        }
        if dice.below(12) == 0 {
            run.rig.store.request_checkpoint();
        }
        run.check(limits, by_chance, step);
        run.poll();
    }
    assert!(
        run.oracle.acknowledged_state().blocks[..CHUNK_BLOCKS as usize].iter().any(|version| *version > 0)
    );
}

#[test]
fn runs_by_chance_survive_power_cuts() {
    for seed in 1..=2 {
        run_by_chance(seed, 40, Limits { exhaustive_candidates: 2, subset_size: 1, choices: 2 }, 2);
    }
}

/// The long form: `CENOTE_CRASH_SEEDS=100 cargo test -p cenote-store --release --test crash`.
#[test]
fn as_many_runs_by_chance_as_asked_for_survive_power_cuts() {
    let seeds: u64 = std::env::var("CENOTE_CRASH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in 1000..1000 + seeds {
        run_by_chance(seed, 300, Limits { exhaustive_candidates: 3, subset_size: 1, choices: 6 }, 4);
    }
}
