use super::{FileOperation, FileRing, FileRingSetup, WriteFrom};
use crate::region::{Mapping, Region};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

fn ring(file: &File, sources: Vec<Arc<Region>>) -> FileRing {
    FileRing::new(FileRingSetup {
        files: vec![Arc::new(OwnedFd::from(file.try_clone().expect("is open")))],
        slots: 4,
        read_bytes: 8192,
        write_bytes: 8192,
        sources,
        large_pages: false,
        tick: Duration::from_millis(20),
    })
    .expect("io_uring is permitted")
}

fn answers(ring: &mut FileRing, count: usize) -> Vec<(u32, Result<u32, i32>)> {
    let mut all = Vec::new();
    while all.len() < count {
        ring.wait(None).expect("goes on");
        ring.completions(|slot, result| all.push((slot, result)));
    }
    all.sort_unstable();
    all
}

#[test]
fn what_is_written_is_read_back_and_slots_are_free_again() {
    let file = tempfile::tempfile().expect("a file");
    let mut source = Region::new(8192, false).expect("memory");
    source.bytes_mut()[4096..].fill(7);
    let mut ring = ring(&file, vec![Arc::new(source)]);
    ring.write_buffer(1).fill(3);
    let one = FileOperation { slot: 1, len_bytes: 4096, is_durable: true, ..FileOperation::default() };
    ring.write(&one, WriteFrom::Slot);
    let two = FileOperation { slot: 2, offset: 4096, len_bytes: 4096, ..FileOperation::default() };
    ring.write(&two, WriteFrom::Source { index: 0, at: 4096 });
    assert_eq!(ring.in_flight(), 2);
    assert_eq!(answers(&mut ring, 2), [(1, Ok(4096)), (2, Ok(4096))]);
    ring.read(&FileOperation { slot: 1, len_bytes: 8192, ..FileOperation::default() });
    assert_eq!(answers(&mut ring, 1), [(1, Ok(8192))]);
    assert!(ring.read_buffer(1)[..4096].iter().all(|byte| *byte == 3));
    assert!(ring.read_buffer(1)[4096..].iter().all(|byte| *byte == 7));
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn a_failure_comes_with_its_number() {
    let file = File::open("/dev/null").expect("is there");
    let mut ring = ring(&file, Vec::new());
    ring.write(&FileOperation { slot: 0, len_bytes: 512, ..FileOperation::default() }, WriteFrom::Slot);
    assert_eq!(answers(&mut ring, 1), [(0, Err(libc::EBADF))]);
}

#[test]
#[should_panic(expected = "slot 0 is in flight")]
fn a_slot_in_flight_is_refused() {
    let file = tempfile::tempfile().expect("a file");
    let mut ring = ring(&file, Vec::new());
    let operation = FileOperation { len_bytes: 512, ..FileOperation::default() };
    ring.read(&operation);
    ring.read(&operation);
}

#[test]
fn waiting_ends_with_the_tick() {
    let file = tempfile::tempfile().expect("a file");
    let mut ring = ring(&file, Vec::new());
    ring.wait(None).expect("goes on");
    ring.completions(|_, _| panic!("nothing was asked for"));
    ring.wait(None).expect("goes on, with another tick");
}

#[test]
fn a_mapping_reads_and_writes_the_file_whatever_the_alignment() {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(16_384).expect("grows");
    let mapping = Mapping::new(&file, 16_384, true, false).expect("is mapped");
    let bytes: Vec<u8> = (0..100).collect();
    mapping.write(4093, &bytes, true);
    mapping.write(9000, &bytes, false);
    mapping.sync(4093, 100).expect("is written");
    mapping.flush_lines(9000, 100, true);
    let mut got = [0; 100];
    file.read_exact_at(&mut got, 4093).expect("is there");
    assert_eq!(got[..], bytes[..]);
    let mut got = [0; 100];
    mapping.read(9000, &mut got);
    assert_eq!(got[..], bytes[..]);
}
