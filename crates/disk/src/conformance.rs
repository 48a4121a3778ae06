//! The promises of every [`Disk`] as one suite: run on an implementation, it panics with the promise that is broken.

use crate::{Disk, DiskError, DiskOperation};
use std::time::{Duration, Instant};
use sys::{Buf, BufMut, Payload};

/// A disk under test, with the means to drive it.
pub trait Fixture {
    /// The disk, of at least 8 MiB; its content does not matter.
    fn disk(&mut self) -> &mut dyn Disk;
    /// Sleeps until something may have happened.
    fn wait(&mut self) {}
    /// Takes the disk away as harshly as it must survive (a crash, a close) and opens it again.
    fn reopen(&mut self);
}

/// Runs all of it.
///
/// # Panics
/// The disk does not conform.
pub fn run(fixture: &mut dyn Fixture) {
    answers_carry_their_tokens(fixture);
    what_was_written_is_read(fixture);
    durable_writes_survive(fixture);
    flushed_writes_survive(fixture);
    memory_of_any_alignment_is_taken(fixture);
    what_does_not_fit_is_refused(fixture);
    a_discard_leaves_its_neighbours_alone(fixture);
    many_operations_are_all_answered(fixture);
}

const PATIENCE: Duration = Duration::from_secs(30);

type Answer = (u64, Result<Option<BufMut>, DiskError>);

fn answers(fixture: &mut dyn Fixture, count: usize) -> Vec<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let mut out = Vec::new();
    loop {
        fixture.disk().poll(&mut out);
        if out.len() >= count {
            break;
        }
        assert!(Instant::now() < deadline, "only {} of {count} answers came", out.len());
        fixture.wait();
    }
    assert_eq!(out.len(), count, "more answers than operations");
    out.into_iter().map(|answer| (answer.token, answer.result)).collect()
}

fn perform(fixture: &mut dyn Fixture, operation: DiskOperation) -> Result<Option<BufMut>, DiskError> {
    fixture.disk().submit(1, operation);
    answers(fixture, 1).remove(0).1
}

fn write(fixture: &mut dyn Fixture, offset: u64, data: impl Into<Payload>, durable: bool) {
    let data = data.into();
    perform(fixture, DiskOperation::Write { offset, data, durable }).expect("a write");
}

fn read(fixture: &mut dyn Fixture, offset: u64, len: usize) -> BufMut {
    let into = BufMut::for_overwrite(len);
    let filled = perform(fixture, DiskOperation::Read { offset, into }).expect("a read").expect("the buffer");
    assert_eq!(filled.len(), len);
    filled
}

fn block(fixture: &mut dyn Fixture) -> usize {
    fixture.disk().info().block_bytes as usize
}

fn pattern(len: usize, seed: u8) -> Buf {
    let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect();
    Buf::from(&bytes[..])
}

fn answers_carry_their_tokens(fixture: &mut dyn Fixture) {
    let block = block(fixture);
    for token in [7, u64::MAX, 0, 1 << 40] {
        let into = BufMut::for_overwrite(block);
        fixture.disk().submit(token, DiskOperation::Read { offset: 0, into });
    }
    let mut tokens: Vec<u64> = answers(fixture, 4).into_iter().map(|(token, _)| token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 7, 1 << 40, u64::MAX]);
}

fn what_was_written_is_read(fixture: &mut dyn Fixture) {
    let block = block(fixture);
    let end = fixture.disk().info().size_bytes;
    for (offset, len, seed) in
        [(0, block, 1), (block as u64, 1 << 20, 2), (3 << 20, block * 3, 3), (end - block as u64, block, 4)]
    {
        let data = pattern(len, seed);
        write(fixture, offset, data.clone(), false);
        assert!(read(fixture, offset, len)[..] == data[..], "{len} bytes at {offset}");
    }
    let mut parts = Payload::new();
    for seed in 0..20 {
        parts.push(pattern(block, seed));
    }
    let whole = parts.contiguous();
    write(fixture, 4 << 20, parts, true);
    assert!(read(fixture, 4 << 20, whole.len())[..] == whole[..], "a write of many parts");
}

fn durable_writes_survive(fixture: &mut dyn Fixture) {
    let data = pattern(64 * 1024, 5);
    write(fixture, 1 << 20, data.clone(), true);
    fixture.reopen();
    assert!(read(fixture, 1 << 20, data.len())[..] == data[..], "a durable write was lost");
}

fn flushed_writes_survive(fixture: &mut dyn Fixture) {
    let data = pattern(64 * 1024, 6);
    write(fixture, 2 << 20, data.clone(), false);
    perform(fixture, DiskOperation::Flush).expect("a flush");
    fixture.reopen();
    assert!(read(fixture, 2 << 20, data.len())[..] == data[..], "a flushed write was lost");
}

fn memory_of_any_alignment_is_taken(fixture: &mut dyn Fixture) {
    let block = block(fixture);
    let data = pattern(2 * block + 100, 7).slice(52..52 + 2 * block);
    write(fixture, 0, data.clone(), true);
    let mut parts = Payload::from(data.slice(..100));
    parts.push(data.slice(100..));
    write(fixture, 2 * block as u64, parts, false);
    let mut into = BufMut::for_overwrite(4 * block + 9);
    into.advance(9);
    let filled =
        perform(fixture, DiskOperation::Read { offset: 0, into }).expect("a read").expect("the buffer");
    assert!(filled[..2 * block] == data[..] && filled[2 * block..] == data[..], "misaligned memory");
}

fn what_does_not_fit_is_refused(fixture: &mut dyn Fixture) {
    let block = block(fixture);
    let end = fixture.disk().info().size_bytes;
    let beyond_end = DiskOperation::Read { offset: end, into: BufMut::for_overwrite(block) };
    let misaligned = DiskOperation::Read { offset: 1, into: BufMut::for_overwrite(block) };
    let odd_length = DiskOperation::Write { offset: 0, data: pattern(block + 1, 0).into(), durable: false };
    let overflowing = DiskOperation::Discard { offset: u64::MAX - block as u64 + 1, len_bytes: block as u64 };
    let empty = DiskOperation::Write { offset: 0, data: Payload::new(), durable: true };
    for operation in [beyond_end, misaligned, odd_length, overflowing, empty] {
        let what = format!("{operation:?}");
        let result = perform(fixture, operation);
        assert!(matches!(result, Err(DiskError::Invalid(_))), "{what}: {result:?}");
    }
}

fn a_discard_leaves_its_neighbours_alone(fixture: &mut dyn Fixture) {
    let data = pattern(3 << 16, 8);
    write(fixture, 0, data.clone(), true);
    let hole = DiskOperation::Discard { offset: 1 << 16, len_bytes: 1 << 16 };
    perform(fixture, hole).expect("a discard");
    let found = read(fixture, 0, data.len());
    assert!(found[..1 << 16] == data[..1 << 16] && found[2 << 16..] == data[2 << 16..]);
    let again = pattern(1 << 16, 9);
    write(fixture, 1 << 16, again.clone(), true);
    assert!(read(fixture, 1 << 16, again.len())[..] == again[..], "a write after a discard");
}

fn many_operations_are_all_answered(fixture: &mut dyn Fixture) {
    let block = block(fixture) as u64;
    for token in 0..500 {
        let offset = token * block;
        let operation = match token % 3 {
            0 => DiskOperation::Write {
                offset,
                data: pattern(block as usize, token as u8).into(),
                durable: false,
            },
            1 => DiskOperation::Read { offset, into: BufMut::for_overwrite(block as usize) },
            _ => DiskOperation::Write {
                offset,
                data: pattern(block as usize, token as u8).into(),
                durable: true,
            },
        };
        fixture.disk().submit(token, operation);
    }
    let answers = answers(fixture, 500);
    assert!(answers.iter().all(|(_, result)| result.is_ok()));
    let mut tokens: Vec<u64> = answers.into_iter().map(|(token, _)| token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..500));
    for token in (0..500).filter(|token| token % 3 != 1).step_by(7) {
        assert!(read(fixture, token * block, block as usize)[..] == pattern(block as usize, token as u8)[..]);
    }
}
