//! The doubt about the end of the journal, and lost blocks.

mod common;

use common::{EPOCH, Rig, VOLUME, crash_disk, pattern, sealed, small};
use disk::crash::CrashDisk;
use store::api::{StoreError, StoreReply, StoreRequest, WriteClass};
use store::{Layout, format};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Lba};

/// Blocks of one chunk, which is one region.
const CHUNK: u64 = 256;

fn layout() -> Layout {
    Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap()
}

/// Makes two chunks, with a block of each written, and that of the first overwritten last.
fn written() -> (Rig<CrashDisk>, CrashDisk) {
    let disk = format(crash_disk(16 << 20), small()).unwrap();
    let mut rig = Rig::open(disk.clone());
    for chunk in 0..2 {
        let allocate = StoreRequest::AllocateChunk {
            volume: VOLUME,
            epoch: EPOCH,
            chunk: ChunkIndex(chunk),
            append: false,
        };
        rig.run(allocate).unwrap();
        rig.write(WriteClass::Overwrite, u64::from(chunk) * CHUNK + 5, &pattern(1, 1)).unwrap();
    }
    rig.run_until_idle();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    (rig, disk)
}

/// Returns the place of the last batch's data.
fn last_data(disk: &CrashDisk) -> u64 {
    let found =
        (0..64).map(|at| layout().journal + at * 4096).find(|at| disk.peek(*at, 4096) == pattern(2, 1));
    found.unwrap()
}

fn doubtful(rig: &mut Rig<CrashDisk>, chunk: u32) -> Vec<u32> {
    match rig.run(StoreRequest::Regions { volume: VOLUME, chunk: ChunkIndex(chunk) }) {
        Ok(StoreReply::Regions(regions)) => regions.doubtful,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_journal_that_ends_whole_leaves_nothing_open() {
    let (rig, _) = written();
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![], vec![]));
    assert_eq!(rig.read(5, 1), Ok(pattern(2, 1)));
}

#[test]
fn a_last_batch_whose_data_is_not_whole_makes_the_regions_that_it_names_doubtful() {
    let (rig, disk) = written();
    disk.rot(last_data(&disk), 1);
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![0], vec![]));
    assert_eq!(rig.read(5, 1), Ok(pattern(1, 1)), "what it held before is intact");
}

#[test]
fn a_last_batch_whose_records_are_not_whole_may_have_been_anything() {
    let (rig, disk) = written();
    disk.rot(last_data(&disk) - 4096 + 100, 1);
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![0], vec![0]));
}

#[test]
fn a_last_batch_whose_first_block_cannot_be_read_may_have_been_anything() {
    let (rig, disk) = written();
    disk.make_unreadable(last_data(&disk) - 4096, 1);
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![0], vec![0]));
    assert_eq!(rig.read(5, 1), Ok(pattern(1, 1)), "what it held before is intact");
}

#[test]
fn a_last_batch_of_whose_header_any_field_has_rotted_may_have_been_anything() {
    // All bytes of the header except those of the batch's length: docs/ON_DISK.md, "Journal".
    for at in 0..60 {
        let (rig, disk) = written();
        let header = last_data(&disk) - 4096;
        let rotten = disk.peek(header + at, 1)[0] ^ 0x40;
        disk.poke(header + at, &[rotten]);
        let mut rig = rig.reopen();
        assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![0], vec![0]), "byte {at}");
    }
}

#[test]
fn a_doubt_outlives_openings_until_the_copies_are_settled() {
    let (rig, disk) = written();
    disk.rot(last_data(&disk), 1);
    let mut rig = rig.reopen();
    // A coordinator's first batch takes the place of the rotten one.
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(EPOCH.0 + 1) }).unwrap();
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![0], vec![]));
    rig.checkpoint();
    rig.store.settle(VOLUME, Epoch(EPOCH.0 - 1));
    let mut rig = rig.reopen();
    assert_eq!(doubtful(&mut rig, 0), vec![0], "what is settled is older");
    rig.store.settle(VOLUME, EPOCH);
    assert_eq!(doubtful(&mut rig, 0), vec![]);
    rig.checkpoint();
    assert_eq!(doubtful(&mut rig.reopen(), 0), vec![]);
}

#[test]
fn a_region_that_is_written_under_a_later_epoch_is_in_doubt_no_more() {
    let (rig, disk) = written();
    disk.rot(last_data(&disk) - 4096 + 100, 1);
    let mut rig = rig.reopen();
    rig.run(common::write_request_at(Epoch(9), WriteClass::Overwrite, 7, &pattern(6, 1))).unwrap();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![], vec![0]));
    let mut rig = rig.reopen();
    assert_eq!((doubtful(&mut rig, 0), doubtful(&mut rig, 1)), (vec![], vec![0]));
}

#[test]
fn lost_blocks_read_as_corrupt_alone_until_they_are_written_again() {
    let (mut rig, _) = written();
    rig.write(WriteClass::Fresh, 20, &pattern(3, 8)).unwrap();
    let mark =
        |lba, blocks| StoreRequest::MarkLost { volume: VOLUME, stamp: EPOCH.into(), lba: Lba(lba), blocks };
    rig.run(mark(22, 2)).unwrap();
    let lost = StoreError::Corrupt { lbas: vec![Lba(22), Lba(23)] };
    for round in 0..3 {
        assert_eq!(rig.read(20, 8), Err(lost.clone()), "round {round}");
        assert_eq!(rig.read(20, 2), Ok(pattern(3, 8)[..2 * BLOCK_BYTES].to_vec()));
        rig = if round == 0 { rig.reopen() } else { rig };
        rig.checkpoint();
    }
    rig.write(WriteClass::Overwrite, 22, &pattern(4, 1)).unwrap();
    rig.write(WriteClass::Fresh, 23, &pattern(5, 1)).unwrap();
    let mut rig = rig.reopen();
    assert_eq!((rig.read(22, 1), rig.read(23, 1)), (Ok(pattern(4, 1)), Ok(pattern(5, 1))));
    assert!(matches!(rig.run(mark(0, 257)), Err(StoreError::Invalid(_))));
}

#[test]
fn lost_blocks_of_an_append_chunk_read_as_corrupt_alone_until_they_are_written_again() {
    let mut rig = common::new_rig();
    rig.allocate(0, true);
    rig.write(WriteClass::Append, 20, &pattern(3, 8)).unwrap();
    let mark =
        |lba, blocks| StoreRequest::MarkLost { volume: VOLUME, stamp: EPOCH.into(), lba: Lba(lba), blocks };
    rig.run(mark(22, 3)).unwrap();
    let lost = |lbas: &[u64]| Err(StoreError::Corrupt { lbas: lbas.iter().map(|lba| Lba(*lba)).collect() });
    for round in 0..3 {
        assert_eq!(rig.read(20, 8), lost(&[22, 23, 24]), "round {round}");
        assert_eq!(rig.read(25, 3), Ok(sealed(20, &pattern(3, 8))[5 * BLOCK_BYTES..].to_vec()));
        rig = if round == 0 { rig.reopen() } else { rig };
        rig.checkpoint();
    }
    rig.write(WriteClass::Append, 23, &pattern(4, 1)).unwrap();
    // Later writes beside the lost blocks do not reveal them.
    rig.discard(100, 10).unwrap();
    rig.write(WriteClass::Append, 100, &pattern(5, 1)).unwrap();
    rig.run(common::write_request_at(Epoch(9), WriteClass::Append, 21, &pattern(6, 1))).unwrap();
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 256), lost(&[22, 24]));
    assert_eq!(
        (rig.read(21, 1), rig.read(23, 1)),
        (Ok(sealed(21, &pattern(6, 1))), Ok(sealed(23, &pattern(4, 1))))
    );
}
