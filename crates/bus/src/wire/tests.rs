use super::*;
use disk::DiskError;
use proptest::prelude::*;
use space::local::nodes::{DiskPace, DiskReport};
use space::message::{BusError, ReplicaOperation, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;
use store::api::{ChunkEntry, Regions, StoreError, WriteClass};
use sys::{Buf, BufMut, Payload};
use types::{ChangeNumber, ChunkIndex, DiskId, Epoch, Lba, Stamp, VolumeId};

const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

fn data(blocks: usize) -> Payload {
    let mut bytes = BufMut::zeroed(blocks * BLOCK_BYTES);
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 7) as u8);
    Payload::from(bytes.freeze())
}

#[test]
fn a_session_is_read_as_it_was_written() {
    let bytes = put_session(VOLUME, Epoch(5), SessionId(6), Epoch(4), Epoch(3));
    let read = parse_session(&bytes).unwrap();
    assert_eq!((read.volume(), read.epoch(), read.session()), (VOLUME, Epoch(5), SessionId(6)));
    assert!(matches!(read.operation(), ReplicaOperation::Open { least: Epoch(4), settled: Epoch(3) }));
    assert_eq!(parse_opened(&put_opened(Epoch(9), true)), Ok((Epoch(9), true)));
}

#[test]
fn another_version_of_the_bus_is_refused() {
    let mut bytes = put_session(VOLUME, Epoch(5), SessionId(6), Epoch(4), Epoch(3));
    bytes[0] += 1;
    assert_eq!(parse_session(&bytes), Err(Malformed("another version of the bus")));
}

#[test]
fn a_write_is_read_as_it_was_written_and_its_blocks_are_not_copied() {
    for (class, sums) in [
        (WriteClass::Fresh, vec![1, 2, 3]),
        (WriteClass::Overwrite, vec![1, 2, 3]),
        (WriteClass::Append, vec![]),
    ] {
        let blocks = data(3);
        let payload = put_write(Epoch(8), ChangeNumber(9), class, &blocks, &sums).unwrap();
        assert_eq!(payload.parts()[0].as_ptr(), blocks.parts()[0].as_ptr());
        let came = Payload::from(payload.contiguous());
        let read = parse_write(5 * BLOCK_BYTES as u64, &came).unwrap();
        assert_eq!((read.epoch, read.number), (Epoch(8), ChangeNumber(9)));
        assert_eq!((read.lba, read.class), (Lba(5), class));
        assert_eq!(read.checksums, sums);
        assert_eq!(read.data.contiguous()[..], blocks.contiguous()[..]);
        assert_eq!(read.data.parts()[0].as_ptr(), came.parts()[0].as_ptr());
    }
}

#[test]
fn writes_that_no_end_writes_are_refused() {
    assert!(put_write(Epoch(1), ChangeNumber(0), WriteClass::Fresh, &data(2), &[1]).is_none());
    assert!(put_write(Epoch(1), ChangeNumber(0), WriteClass::Fresh, &Payload::new(), &[]).is_none());
    assert!(put_write(Epoch(1), ChangeNumber(0), WriteClass::Fresh, &data(257), &[]).is_none());
    assert!(put_write(Epoch(1), ChangeNumber(0), WriteClass::Fresh, &data(1).slice(0, 4095), &[]).is_none());
    let good = put_write(Epoch(1), ChangeNumber(0), WriteClass::Fresh, &data(2), &[1, 2]).unwrap();
    assert!(parse_write(1, &good).is_err(), "within a block");
    for cut in 1..good.len() {
        assert!(parse_write(0, &good.slice(0, good.len() - cut)).is_err(), "cut by {cut}");
        assert!(parse_write(0, &good.slice(cut, good.len() - cut)).is_err(), "begun at {cut}");
    }
}

#[test]
fn a_read_and_its_answer_agree_about_their_length() {
    let asked = read_bytes(3).unwrap();
    assert_eq!(parse_read_range(2 * BLOCK_BYTES as u64, asked.into()), Ok((Lba(2), 3)));
    assert!(read_bytes(0).is_none() && read_bytes(257).is_none());
    assert!(parse_read_range(0, 4096).is_err() && parse_read_range(0, 0).is_err());
    let sums = [5, 6, 7];
    let answer = put_read(data(3), &sums).contiguous();
    assert_eq!(answer.len(), asked as usize);
    let (read, checksums) = parse_read(&answer, 3).unwrap();
    assert_eq!((&read.contiguous()[..], &checksums[..]), (&data(3).contiguous()[..], &sums[..]));
    let plain = put_read(data(3), &[]).contiguous();
    assert_eq!(parse_read(&plain, 3).unwrap().1, Vec::<u64>::new());
    for blocks in [0, 1, 2, 4, 256] {
        assert!(parse_read(&answer, blocks).is_err(), "{blocks} blocks");
    }
}

#[test]
fn every_other_operation_is_read_as_it_was_written() {
    let operations = [
        ReplicaOperation::Promise,
        ReplicaOperation::Chunks,
        ReplicaOperation::Allocate { chunk: ChunkIndex(3), append: true },
        ReplicaOperation::Allocate { chunk: ChunkIndex(4), append: false },
        ReplicaOperation::Free { chunk: ChunkIndex(5) },
        ReplicaOperation::Discard { lba: Lba(1 << 40), blocks: 65536, number: ChangeNumber(u32::MAX) },
        ReplicaOperation::MarkLost { lba: Lba(9), blocks: 1, number: ChangeNumber(5) },
        ReplicaOperation::Regions { chunk: ChunkIndex(u32::MAX) },
    ];
    for operation in operations {
        let (code, input, _) = control_of(Epoch(77), &operation).unwrap();
        let (epoch, read) = parse_control(code, &input).unwrap();
        assert_eq!(epoch, Epoch(77));
        assert_eq!(format!("{read:?}"), format!("{operation:?}"));
    }
}

#[test]
fn lists_are_read_as_they_were_written() {
    let chunks = [
        ChunkEntry { chunk: ChunkIndex(1), append: true },
        ChunkEntry { chunk: ChunkIndex(9), append: false },
    ];
    let mut bytes = Vec::new();
    put_chunks(&mut bytes, &chunks);
    assert_eq!(parse_chunks(&bytes).unwrap(), chunks);
    let regions =
        Regions { stamps: [0, 4, 9].map(|word| Stamp::from_word(word << 31)).to_vec(), doubtful: vec![2] };
    assert_eq!(parse_regions(&put_regions(&regions)).unwrap(), regions);
    let beyond = Regions { stamps: vec![Stamp::default()], doubtful: vec![1] };
    assert!(parse_regions(&put_regions(&beyond)).is_err());
}

#[test]
fn errors_are_read_as_they_were_written() {
    let chunks = vec![ChunkEntry { chunk: ChunkIndex(4), append: true }];
    let errors = [
        BusError::Store(StoreError::Corrupt { lbas: vec![Lba(4), Lba(1 << 50)] }),
        BusError::Store(StoreError::Fenced { promised: Epoch(12) }),
        BusError::Store(StoreError::NoSpace),
        BusError::Store(StoreError::NotMapped),
        BusError::Store(StoreError::Poisoned),
        BusError::Store(StoreError::Disk(DiskError::Medium(5))),
        BusError::Store(StoreError::Disk(DiskError::Host(12))),
        BusError::Store(StoreError::Disk(DiskError::Io(-7))),
        BusError::Store(StoreError::Disk(DiskError::TimedOut)),
        BusError::Store(StoreError::Disk(DiskError::Gone)),
        BusError::Store(StoreError::Disk(DiskError::NoSpace)),
        BusError::NoSession,
        BusError::WentBack { promised: Epoch(3), chunks },
        BusError::Unreachable,
    ];
    for error in errors {
        let (status, data) = put_refusal(&error);
        assert!(status.is_error(), "{error:?}");
        assert_eq!(parse_refusal(&data), Ok(error));
    }
    let (_, data) = put_refusal(&BusError::Store(StoreError::Invalid("a reason of its own")));
    assert!(matches!(parse_refusal(&data), Ok(BusError::Store(StoreError::Invalid(_)))));
}

#[test]
fn reports_are_read_as_they_were_written_and_hold_as_many_findings_as_fit() {
    let means = [None, Some(Duration::from_millis(3)), Some(Duration::from_micros(70))];
    let report = |number: u8, findings: u64| DiskReport {
        disk: DiskId::from_bytes([number; 16]),
        total_slabs: 100,
        free_slabs: u64::from(number),
        slab_blocks: 65536,
        pace: (number != 2).then_some(DiskPace { is_rotational: number == 3, means }),
        corrupt: (0..findings).map(|lba| (VOLUME, Lba(lba))).collect(),
        cursor: 50,
    };
    let reports = [report(1, 0), report(2, 10), report(3, 1)];
    let whole = put_status(&reports, true, 1 << 16).unwrap();
    assert_eq!(parse_status(&whole).unwrap(), reports);
    // Findings that do not fit are reported next time.
    let told = parse_status(&put_status(&reports, true, whole.len() - 24 * 8).unwrap()).unwrap();
    assert_eq!((told[1].corrupt.len(), told[1].cursor), (3, 43));
    assert_eq!((told[2].corrupt.len(), told[2].cursor), (0, 49));
    assert!(put_status(&reports, true, 100).is_none());
    // An older server, which knows no paces, does not ask for them.
    let before = parse_status(&put_status(&reports, false, 1 << 16).unwrap()).unwrap();
    assert!(before.iter().all(|report| report.pace.is_none()) && before[1].corrupt.len() == 10);
    let cursors = BTreeMap::from([(DiskId::from_bytes([1; 16]), 7), (DiskId::from_bytes([2; 16]), 9)]);
    let question = StatusQuestion { cursors: cursors.clone(), reads_paces: true };
    assert_eq!(parse_status_request(&put_status_request(&cursors)), Ok(question));
    let without = &put_status_request(&cursors)[24..];
    assert_eq!(parse_status_request(without), Ok(StatusQuestion { cursors, reads_paces: false }));
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), code in any::<u32>(), offset in any::<u64>()) {
        let _ = parse_session(&bytes);
        let _ = parse_opened(&bytes);
        let _ = parse_control(0x0009_2000 + (code & 0x1C), &bytes);
        let _ = parse_chunks(&bytes);
        let _ = parse_regions(&bytes);
        let _ = parse_refusal(&bytes);
        let _ = parse_status(&bytes);
        let _ = parse_status_request(&bytes);
        let _ = parse_read_range(offset, u64::from(code));
        let _ = parse_write(offset, &Payload::from(Buf::from(&bytes[..])));
        let _ = parse_read(&Buf::from(&bytes[..]), code & 3);
    }
}
