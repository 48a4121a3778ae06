use crate::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest, VirtualDisk};
use crate::memory::MemoryVirtualDisk;
use store::api::WriteClass;
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, BlockCount, Lba};

fn call(disk: &mut MemoryVirtualDisk, request: SpaceRequest) -> Result<SpaceReply, SpaceError> {
    disk.submit(7, request);
    let mut out: Vec<SpaceCompletion> = Vec::new();
    disk.poll(&mut out);
    out.pop().expect("an answer").result
}

fn filled(blocks: usize, byte: u8) -> Payload {
    Payload::from(Buf::from(&vec![byte; blocks * BLOCK_BYTES][..]))
}

fn read(disk: &mut MemoryVirtualDisk, lba: u64) -> u8 {
    match call(disk, SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: None }) {
        Ok(SpaceReply::Data(data)) => data.contiguous()[0],
        other => panic!("{other:?}"),
    }
}

fn write(lba: u64, class: WriteClass, data: Payload) -> SpaceRequest {
    SpaceRequest::Write { lba: Lba(lba), class, data }
}

#[test]
fn unwritten_blocks_read_as_zeroes_and_written_ones_as_written() {
    let mut disk = MemoryVirtualDisk::new(BlockCount(1024), 64, BlockCount(1024));
    call(&mut disk, write(10, WriteClass::Overwrite, filled(2, 5))).unwrap();
    assert_eq!([9, 10, 11, 12].map(|lba| read(&mut disk, lba)), [0, 5, 5, 0]);
    call(&mut disk, SpaceRequest::Discard { lba: Lba(11), blocks: 1 }).unwrap();
    assert_eq!([10, 11].map(|lba| read(&mut disk, lba)), [5, 0]);
}

#[test]
fn a_full_disk_refuses_and_a_discarded_chunk_gives_its_space_back() {
    let mut disk = MemoryVirtualDisk::new(BlockCount(1024), 64, BlockCount(64));
    call(&mut disk, write(0, WriteClass::Fresh, filled(64, 1))).unwrap();
    let refused = call(&mut disk, write(64, WriteClass::Fresh, filled(1, 1)));
    assert_eq!(refused.unwrap_err(), SpaceError::NoSpace);
    call(&mut disk, SpaceRequest::Discard { lba: Lba(0), blocks: 64 }).unwrap();
    call(&mut disk, write(64, WriteClass::Fresh, filled(1, 1))).unwrap();
}

#[test]
fn bad_ranges_and_large_overwrites_are_refused() {
    let mut disk = MemoryVirtualDisk::new(BlockCount(64), 64, BlockCount(64));
    for request in [
        write(64, WriteClass::Fresh, filled(1, 1)),
        write(u64::MAX, WriteClass::Fresh, filled(1, 1)),
        write(0, WriteClass::Overwrite, filled(17, 1)),
        SpaceRequest::Read { lba: Lba(60), blocks: 5, copy: None },
    ] {
        assert!(matches!(call(&mut disk, request), Err(SpaceError::Invalid(_))));
    }
}

#[test]
fn a_crash_loses_only_what_was_not_acknowledged() {
    for applied in [0, 1] {
        let mut disk = MemoryVirtualDisk::new(BlockCount(64), 64, BlockCount(64));
        call(&mut disk, write(0, WriteClass::Overwrite, filled(2, 1))).unwrap();
        disk.hold(true);
        disk.submit(1, write(1, WriteClass::Overwrite, filled(2, 2)));
        disk.crash(|_| applied);
        let expected = if applied == 1 { [1, 2, 2] } else { [1, 1, 0] };
        assert_eq!([0, 1, 2].map(|lba| read(&mut disk, lba)), expected);
    }
}

#[test]
fn a_corrupt_block_is_named_until_it_is_written_again() {
    let mut disk = MemoryVirtualDisk::new(BlockCount(64), 64, BlockCount(64));
    call(&mut disk, write(0, WriteClass::Overwrite, filled(2, 1))).unwrap();
    disk.corrupt(Lba(1));
    let result = call(&mut disk, SpaceRequest::Read { lba: Lba(0), blocks: 2, copy: None });
    assert_eq!(result.unwrap_err(), SpaceError::Corrupt { lbas: vec![Lba(1)] });
    call(&mut disk, write(1, WriteClass::Overwrite, filled(1, 3))).unwrap();
    assert_eq!(read(&mut disk, 1), 3);
}
