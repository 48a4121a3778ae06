//! A power cut does everything that it may and nothing else, and faults strike the places that they
//! name.

use super::*;
use crate::{DiskError, DiskOperation};
use sys::{Buf, BufMut};

const BLOCK: usize = 4096;

fn disk() -> CrashDisk {
    CrashDisk::new(CrashOptions::new(1 << 40))
}

fn write(disk: &mut CrashDisk, offset: u64, byte: u8, blocks: usize, durable: bool) {
    let data = Buf::from(&vec![byte; BLOCK * blocks][..]).into();
    disk.submit(u64::from(byte), DiskOperation::Write { offset, data, durable });
}

fn answers(disk: &mut CrashDisk) -> Vec<DiskCompletion> {
    let mut out = Vec::new();
    disk.poll(&mut out);
    out
}

fn flush(disk: &mut CrashDisk) {
    disk.submit(0, DiskOperation::Flush);
    assert!(answers(disk).iter().all(|answer| answer.result.is_ok()));
}

fn byte_at(disk: &CrashDisk, offset: u64) -> u8 {
    disk.peek(offset, 1)[0]
}

#[test]
fn a_completed_write_that_was_not_flushed_may_be_lost_or_kept() {
    let mut disk = disk();
    write(&mut disk, 0, 7, 1, false);
    answers(&mut disk);
    assert_eq!(byte_at(&disk, 0), 7);
    let mut found: Vec<u8> =
        disk.choices(Limits::default()).iter().map(|choice| byte_at(&disk.after_crash(choice), 0)).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, [0, 7]);
}

#[test]
fn a_durable_write_and_a_flushed_write_survive_every_power_cut() {
    let mut disk = disk();
    write(&mut disk, 0, 1, 2, true);
    write(&mut disk, 8 * BLOCK as u64, 2, 2, false);
    answers(&mut disk);
    flush(&mut disk);
    write(&mut disk, 16 * BLOCK as u64, 3, 2, false);
    answers(&mut disk);
    let choices = disk.choices(Limits::default());
    assert!(choices.len() > 4);
    for choice in choices {
        let after = disk.after_crash(&choice);
        assert_eq!((byte_at(&after, 0), byte_at(&after, 8 * BLOCK as u64)), (1, 2), "{choice:?}");
    }
}

#[test]
fn a_durable_write_is_not_undone_by_an_older_write_that_was_still_cached() {
    let mut disk = disk();
    write(&mut disk, 0, 1, 4, false);
    answers(&mut disk);
    write(&mut disk, BLOCK as u64, 2, 1, true);
    answers(&mut disk);
    for choice in disk.choices(Limits::default()) {
        assert_eq!(byte_at(&disk.after_crash(&choice), BLOCK as u64), 2, "{choice:?}");
    }
}

#[test]
fn a_flush_covers_only_what_completed_before_it_was_submitted() {
    let mut disk = disk();
    write(&mut disk, 0, 1, 1, false);
    disk.submit(9, DiskOperation::Flush);
    assert_eq!(answers(&mut disk).len(), 2);
    assert_eq!(byte_at(&disk.after_crash(&CrashChoice::lose_all()), 0), 0);
}

#[test]
fn a_torn_write_keeps_some_sectors_and_loses_the_others() {
    let mut disk = disk();
    write(&mut disk, 0, 5, 1, false);
    let after = disk.after_crash(&CrashChoice(vec![Fate::First(3)]));
    assert_eq!((byte_at(&after, 3 * 512 - 1), byte_at(&after, 3 * 512)), (5, 0));
    let after = disk.after_crash(&CrashChoice(vec![Fate::Without(2)]));
    assert_eq!((byte_at(&after, 1023), byte_at(&after, 1024), byte_at(&after, 1536)), (5, 0, 5));
}

#[test]
fn few_candidates_are_visited_in_all_subsets_and_many_within_the_limit() {
    let mut disk = disk();
    for at in 0..3 {
        write(&mut disk, at * BLOCK as u64, 1 + at as u8, 1, false);
    }
    let mut images: Vec<[u8; 3]> = disk
        .choices(Limits::default())
        .iter()
        .map(|choice| {
            let after = disk.after_crash(choice);
            [0, 1, 2].map(|at| byte_at(&after, at * BLOCK as u64))
        })
        .collect();
    images.sort_unstable();
    images.dedup();
    assert_eq!(images.len(), 8);
    for at in 3..40 {
        write(&mut disk, at * BLOCK as u64, 1, 1, false);
    }
    let limits = Limits { choices: 100, ..Limits::default() };
    assert_eq!(disk.choices(limits).len(), 100);
}

#[test]
fn a_stop_leaves_that_operation_and_all_unanswered_ones_to_chance() {
    let mut disk = disk();
    disk.stop_at(1);
    write(&mut disk, 0, 1, 1, true);
    answers(&mut disk);
    write(&mut disk, BLOCK as u64, 2, 1, true);
    write(&mut disk, 2 * BLOCK as u64, 3, 1, true);
    assert!(disk.is_stopped());
    assert!(answers(&mut disk).is_empty());
    assert_eq!(disk.candidates(), [8]);
    let after = disk.after_crash(&CrashChoice(vec![Fate::Kept, Fate::Kept]));
    assert_eq!([0, 1, 2].map(|at| byte_at(&after, at * BLOCK as u64)), [1, 2, 0]);
}

#[test]
fn the_nth_operation_fails_and_no_other() {
    let mut disk = disk();
    disk.inject(Fault::nth(FaultTarget::Write, 1, FaultAction::Fail(DiskError::NoSpace)));
    for at in 0..3 {
        write(&mut disk, at * BLOCK as u64, at as u8, 1, true);
    }
    let results: Vec<bool> = answers(&mut disk).iter().map(|answer| answer.result.is_ok()).collect();
    assert_eq!(results, [true, false, true]);
}

#[test]
fn a_hanging_operation_is_answered_when_released_or_timed_out() {
    let mut disk = disk();
    disk.inject(Fault::every(FaultTarget::Read, FaultAction::Hang));
    for token in 0..2 {
        disk.submit(token, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(BLOCK) });
    }
    assert!(answers(&mut disk).is_empty());
    assert_eq!(disk.hanging_operations(), 2);
    disk.time_out_hanging();
    assert!(answers(&mut disk).iter().all(|answer| matches!(answer.result, Err(DiskError::TimedOut))));
    disk.clear_faults();
    disk.submit(5, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(BLOCK) });
    assert!(answers(&mut disk)[0].result.is_ok());
}

#[test]
fn lost_and_misdirected_writes_are_acknowledged() {
    let mut disk = disk();
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::LoseWrite));
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::MisdirectWrite { to_offset: 65536 }));
    write(&mut disk, 0, 1, 1, true);
    write(&mut disk, BLOCK as u64, 2, 1, true);
    assert!(answers(&mut disk).iter().all(|answer| answer.result.is_ok()));
    assert_eq!((byte_at(&disk, 0), byte_at(&disk, BLOCK as u64), byte_at(&disk, 65536)), (0, 0, 2));
}

#[test]
fn rot_changes_every_sector_of_the_range_and_nothing_else() {
    let disk = disk();
    disk.rot(4096, 4096);
    let bytes = disk.peek(0, 3 * BLOCK);
    assert!(bytes[..BLOCK].iter().chain(&bytes[2 * BLOCK..]).all(|&byte| byte == 0));
    assert!(bytes[BLOCK..2 * BLOCK].chunks(512).all(|sector| sector.iter().any(|&byte| byte != 0)));
}

#[test]
fn a_seed_repeats_the_order_of_shuffled_answers_and_every_operation_is_answered() {
    let run = |seed| {
        let mut disk = CrashDisk::new(CrashOptions { seed, shuffle: true, ..CrashOptions::new(1 << 30) });
        for at in 0..50 {
            write(&mut disk, u64::from(at) * BLOCK as u64, at, 1, false);
        }
        let mut tokens = Vec::new();
        while tokens.len() < 50 {
            let some = answers(&mut disk);
            assert!(!some.is_empty());
            tokens.extend(some.into_iter().map(|answer| answer.token));
        }
        tokens
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut sorted = run(1);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..50).collect::<Vec<_>>());
}

#[test]
fn an_empty_disk_of_a_terabyte_takes_memory_by_content() {
    let mut disk = disk();
    write(&mut disk, (1 << 40) - 2 * BLOCK as u64, 1, 2, true);
    answers(&mut disk);
    assert_eq!(disk.allocated_bytes(), 2 * BLOCK as u64);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut disk = disk();
    let misaligned = DiskOperation::Read { offset: 100, into: BufMut::for_overwrite(BLOCK) };
    let beyond = DiskOperation::Discard { offset: 1 << 40, len_bytes: BLOCK as u64 };
    let huge = DiskOperation::Discard { offset: u64::MAX - 4095, len_bytes: 1 << 20 };
    let empty = DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(0) };
    for operation in [misaligned, beyond, huge, empty] {
        disk.submit(1, operation);
    }
    let answers = answers(&mut disk);
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|answer| matches!(answer.result, Err(DiskError::Invalid(_)))));
}
