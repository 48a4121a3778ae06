use super::*;
use ::types::{BlockCount, FileTime};
use space::api::{SpaceCompletion, SpaceRequest, SpaceSize};
use std::task::Poll;
use sys::{Buf, Payload};

struct NoDisk;

impl VirtualDisk for NoDisk {
    fn size(&self) -> SpaceSize {
        SpaceSize { blocks: BlockCount(4096), available: BlockCount(4096), chunk_blocks: 256 }
    }
    fn submit(&mut self, _token: u64, _request: SpaceRequest) {}
    fn poll(&mut self, _out: &mut Vec<SpaceCompletion>) {}
}

fn volume() -> FileSystem {
    let format = Format {
        id: [7; 16],
        label: "test".into(),
        serial: 1,
        now: FileTime(1000),
        root_security: b"root".to_vec(),
    };
    FileSystem::format(Box::new(NoDisk), &format, Config::default())
}

fn wide(name: &str) -> Vec<u16> {
    name.encode_utf16().collect()
}

fn file(now: u64) -> NewFile<'static> {
    NewFile { directory: false, attributes: 0x20, now: FileTime(now), security: b"descriptor" }
}

#[test]
fn names_are_found_whatever_their_case_and_keep_the_one_they_were_given() {
    let mut fs = volume();
    let id = fs.create(FileId::ROOT, &wide("Grüße.TXT"), &file(5)).unwrap();
    let entry = fs.lookup(FileId::ROOT, &wide("gRÜßE.txt")).unwrap();
    assert_eq!((entry.file, &entry.name[..]), (id, &wide("Grüße.TXT")[..]));
    assert_eq!(fs.create(FileId::ROOT, &wide("GRÜßE.TXT"), &file(5)), Err(FsError::Exists));
    assert_eq!(fs.lookup(FileId::ROOT, &wide("GRÜSSE.TXT")), Err(FsError::NotFound));
}

#[test]
fn a_listing_resumes_behind_a_removed_entry() {
    let mut fs = volume();
    for index in 0..100 {
        fs.create(FileId::ROOT, &wide(&format!("file{index:03}")), &file(5)).unwrap();
    }
    let (mut cursor, mut after, mut seen) = (DirectoryCursor::new(), 0, Vec::new());
    loop {
        let batch = cursor.list(&mut fs, FileId::ROOT, after, 7).unwrap();
        let Some(last) = batch.last() else { break };
        after = last.0;
        for (_, entry) in batch {
            fs.unlink(FileId::ROOT, &entry.name, FileTime(9)).unwrap();
            seen.push(String::from_utf16_lossy(&entry.name));
        }
    }
    assert_eq!(seen, (0..100).map(|index| format!("file{index:03}")).collect::<Vec<_>>());
    assert!(fs.is_empty_directory(FileId::ROOT).unwrap());
}

#[test]
fn a_directory_cannot_be_moved_below_itself() {
    let mut fs = volume();
    let directory = NewFile { directory: true, ..file(5) };
    let outer = fs.create(FileId::ROOT, &wide("outer"), &directory).unwrap();
    let inner = fs.create(outer, &wide("inner"), &directory).unwrap();
    let moved = fs.rename(FileId::ROOT, &wide("outer"), inner, &wide("x"), false, FileTime(9));
    assert_eq!(moved, Err(FsError::Loop));
    assert_eq!(fs.path(inner).unwrap()[..], wide("outer\\inner")[..]);
}

#[test]
fn bytes_written_are_read_back_with_zeroes_between() {
    let mut fs = volume();
    let id = fs.create(FileId::ROOT, &wide("data"), &file(5)).unwrap();
    let stream = StreamId::unnamed(id);
    let data = Payload::from(Buf::from(&b"hello"[..]));
    assert_eq!(fs.write(1, stream, 10_000, data, false), Poll::Ready(Ok(())));
    let Poll::Ready(Ok(read)) = fs.read(2, stream, 9_998, 100) else { panic!("not cached") };
    assert_eq!(&read.contiguous()[..], b"\0\0hello");
    assert_eq!(fs.attributes(id).unwrap().end_of_file, 10_005);
}
