//! Files as disks, on both backends of the loop; block devices and hung devices by what stands in for them.

use super::*;
use crate::conformance::{self, Fixture};
use sys::driver::DriverChoice;

const SIZE: u64 = 16 << 20;

struct FileFixture {
    driver: Driver,
    disk: Option<FileDisk>,
    path: String,
    options: FileDiskOptions,
    _directory: tempfile::TempDir,
}

impl FileFixture {
    fn new(driver: Driver, parent: Option<&str>, options: FileDiskOptions) -> Self {
        let directory = match parent {
            None => tempfile::tempdir(),
            Some(parent) => tempfile::tempdir_in(parent),
        }
        .expect("a directory");
        let path = directory.path().join("disk");
        create_file_disk(&path, SIZE).expect("a file");
        let path = path.to_str().expect("a path").to_owned();
        let disk = FileDisk::open(&driver, &path, options.clone()).expect("a disk");
        Self { driver, disk: Some(disk), path, options, _directory: directory }
    }
}

impl Fixture for FileFixture {
    fn disk(&mut self) -> &mut dyn Disk {
        self.disk.as_mut().expect("an open disk")
    }
    fn wait(&mut self) {
        self.driver.wait(Some(Duration::from_millis(100))).expect("the loop");
    }
    fn reopen(&mut self) {
        self.disk = None;
        self.disk = Some(FileDisk::open(&self.driver, &self.path, self.options.clone()).expect("a disk"));
    }
}

fn io_uring() -> Option<Driver> {
    Driver::new(DriverChoice::IoUring).ok()
}

fn fallback() -> Driver {
    Driver::new(DriverChoice::Fallback).expect("epoll")
}

#[test]
fn a_file_conforms_on_io_uring() {
    let Some(driver) = io_uring() else {
        eprintln!("io_uring is not permitted here");
        return;
    };
    conformance::run(&mut FileFixture::new(driver, None, FileDiskOptions::default()));
}

#[test]
fn a_file_conforms_on_the_fallback() {
    conformance::run(&mut FileFixture::new(fallback(), None, FileDiskOptions::default()));
}

#[test]
fn a_buffered_file_with_small_blocks_conforms() {
    let options = FileDiskOptions { direct: false, file_block_bytes: 512, ..FileDiskOptions::default() };
    let mut fixture = FileFixture::new(Driver::new(DriverChoice::Automatic).expect("a loop"), None, options);
    assert!(!fixture.disk().info().direct);
    conformance::run(&mut fixture);
}

#[test]
fn a_file_in_memory_conforms() {
    let parent = Some("/dev/shm").filter(|path| std::path::Path::new(path).is_dir());
    let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
    conformance::run(&mut FileFixture::new(driver, parent, FileDiskOptions::default()));
}

#[test]
fn memory_and_crash_disks_conform() {
    struct Memory(crate::memory::MemoryDisk);
    impl Fixture for Memory {
        fn disk(&mut self) -> &mut dyn Disk {
            &mut self.0
        }
        fn reopen(&mut self) {}
    }
    conformance::run(&mut Memory(crate::memory::MemoryDisk::new(SIZE)));

    struct Crash(crate::crash::CrashDisk);
    impl Fixture for Crash {
        fn disk(&mut self) -> &mut dyn Disk {
            &mut self.0
        }
        fn reopen(&mut self) {
            self.0 = self.0.after_crash(&crate::crash::CrashChoice::lose_all());
        }
    }
    for (block_bytes, shuffle) in [(512, false), (4096, true)] {
        let options = crate::crash::CrashOptions { size_bytes: SIZE, block_bytes, seed: 3, shuffle };
        conformance::run(&mut Crash(crate::crash::CrashDisk::new(options)));
    }
}

#[test]
fn a_disk_in_use_is_refused_to_a_second_user_and_free_after_the_first() {
    let mut fixture = FileFixture::new(fallback(), None, FileDiskOptions::default());
    let second = OpenedFile::open(&fixture.path, FileDiskOptions::default());
    let error = second.err().expect("the refusal");
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains(&fixture.path));
    let looking = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    assert!(OpenedFile::open(&fixture.path, looking).is_ok());
    fixture.disk = None;
    assert!(OpenedFile::open(&fixture.path, FileDiskOptions::default()).is_ok());
}

#[test]
fn a_disk_that_only_its_own_loop_still_holds_is_opened_again() {
    for driver in [io_uring(), Some(fallback())].into_iter().flatten() {
        let mut fixture = FileFixture::new(driver, None, FileDiskOptions::default());
        let data = Payload::from(BufMut::zeroed(4096).freeze());
        fixture.disk().submit(1, DiskOperation::Write { offset: 0, data, durable: true });
        fixture.reopen();
    }
}

#[test]
fn what_is_no_disk_is_refused() {
    for path in ["/dev/null", "/tmp"] {
        let result = OpenedFile::open(path, FileDiskOptions::default());
        assert!(matches!(result, Err(OpenError::NotADisk { .. })), "{path}");
    }
    let missing = OpenedFile::open("/nonexistent/disk", FileDiskOptions::default());
    assert!(matches!(missing, Err(OpenError::Io { .. })));
}

#[test]
fn a_new_file_takes_no_space_and_an_existing_one_is_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    create_file_disk(&path, 1 << 40).expect("a file");
    let stat = rustix::fs::stat(&path).expect("a stat");
    assert_eq!((stat.st_size, stat.st_blocks), (1 << 40, 0));
    let error = create_file_disk(&path, 1 << 20).expect_err("the refusal");
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(rustix::fs::stat(&path).expect("a stat").st_size, 1 << 40);
}

#[test]
fn a_file_cut_short_is_an_error_and_never_zeroes() {
    let mut fixture = FileFixture::new(fallback(), None, FileDiskOptions::default());
    let file = std::fs::OpenOptions::new().write(true).open(&fixture.path).expect("the file");
    file.set_len(8192).expect("a cut");
    let into = BufMut::for_overwrite(8192);
    fixture.disk().submit(1, DiskOperation::Read { offset: 4096, into });
    let mut out = Vec::new();
    while out.is_empty() {
        fixture.wait();
        fixture.disk().poll(&mut out);
    }
    assert!(matches!(out[0].result, Err(DiskError::Medium(_))));
}

/// A pipe that nobody writes to stands in for a device that never answers.
fn hung_disk(driver: &Driver, blocks_callers: bool) -> (FileDisk, OwnedPipe) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let info = DiskInfo {
        path: "hung".to_owned(),
        size_bytes: SIZE,
        block_bytes: 4096,
        rotational: false,
        discards: false,
        direct: false,
    };
    let opened = OpenedFile {
        file: std::sync::Arc::new(reader),
        info,
        base_bytes: 0,
        time_bound: Duration::from_millis(50),
        blocks_callers,
    };
    (FileDisk::new(driver, opened), writer)
}

type OwnedPipe = std::os::fd::OwnedFd;

#[test]
fn a_device_that_does_not_answer_is_hung_after_its_time_bound() {
    // Only io_uring reads a pipe at an offset.
    let Some(driver) = io_uring() else { return };
    let (mut disk, writer) = hung_disk(&driver, false);
    disk.submit(9, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(4096) });
    let mut out = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while out.is_empty() && Instant::now() < deadline {
        driver.wait(None).expect("the loop");
        disk.poll(&mut out);
    }
    assert!(matches!(out[..], [DiskCompletion { token: 9, result: Err(DiskError::TimedOut) }]));
    assert!(disk.is_hung());
    disk.submit(10, DiskOperation::Flush);
    disk.poll(&mut out);
    assert!(matches!(out[1], DiskCompletion { token: 10, result: Err(DiskError::TimedOut) }));
    // A late answer is dropped.
    rustix::io::write(&writer, &[1; 4096]).expect("a write");
    driver.wait(Some(Duration::from_millis(200))).expect("the loop");
    disk.poll(&mut out);
    assert_eq!(out.len(), 2);
}

#[test]
fn a_file_system_that_hangs_keeps_few_threads_of_the_kernel_and_all_is_answered() {
    let Some(driver) = io_uring() else { return };
    let (mut disk, _writer) = hung_disk(&driver, true);
    for token in 0..1000 {
        disk.submit(token, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(4096) });
        assert!(driver.in_flight() <= ASIDE_MAX);
    }
    let (mut out, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while out.len() < 1000 && Instant::now() < deadline {
        driver.wait(Some(Duration::from_millis(100))).expect("the loop");
        disk.poll(&mut out);
        assert!(driver.in_flight() <= ASIDE_MAX);
    }
    let mut tokens: Vec<u64> = out.iter().map(|answer| answer.token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..1000) && disk.is_hung());
    assert!(out.iter().all(|answer| matches!(answer.result, Err(DiskError::TimedOut))));
}

#[test]
fn a_file_whose_operations_go_aside_conforms_and_does_all_that_waits() {
    for driver in [io_uring(), Some(fallback())].into_iter().flatten() {
        let mut fixture = FileFixture::new(driver, None, FileDiskOptions::default());
        fixture.disk = None;
        let mut opened = OpenedFile::open(&fixture.path, fixture.options.clone()).expect("the file");
        opened.blocks_callers = true;
        fixture.disk = Some(FileDisk::new(&fixture.driver, opened));
        for token in 0..500 {
            let data = Payload::from(sys::Buf::from(&[token as u8; 4096][..]));
            let offset = token * 4096;
            fixture.disk().submit(token, DiskOperation::Write { offset, data, durable: false });
        }
        let mut out = Vec::new();
        while out.len() < 500 {
            fixture.wait();
            fixture.disk().poll(&mut out);
        }
        assert!(out.iter().all(|answer| answer.result.is_ok()));
        let bytes = std::fs::read(&fixture.path).expect("the content");
        assert!(bytes.chunks(4096).take(500).zip(0..).all(|(block, token)| block == [token as u8; 4096]));
        conformance::run(&mut fixture);
    }
}

#[test]
fn an_error_number_becomes_its_class() {
    let class = |errno| DiskError::of_system(&io::Error::from_raw_os_error(errno));
    assert_eq!(class(libc::ENOSPC), DiskError::NoSpace);
    assert_eq!(class(libc::ENODEV), DiskError::Gone);
    assert_eq!(class(libc::EIO), DiskError::Medium(libc::EIO));
    assert_eq!(class(libc::ENODATA), DiskError::Medium(libc::ENODATA));
    assert_eq!(class(libc::ENOMEM), DiskError::Host(libc::ENOMEM));
    assert_eq!(class(libc::EAGAIN), DiskError::Host(libc::EAGAIN));
    assert_eq!(class(libc::EINVAL), DiskError::Io(libc::EINVAL));
}

#[test]
fn a_standalone_disk_drives_itself() {
    struct Standalone(Option<StandaloneDisk>, String);
    impl Fixture for Standalone {
        fn disk(&mut self) -> &mut dyn Disk {
            self.0.as_mut().expect("an open disk")
        }
        fn reopen(&mut self) {
            self.0 = None;
            self.0 = Some(StandaloneDisk::open(&self.1, FileDiskOptions::default()).expect("a disk"));
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    create_file_disk(&path, SIZE).expect("a file");
    let path = path.to_str().expect("a path").to_owned();
    let disk = StandaloneDisk::open(&path, FileDiskOptions::default()).expect("a disk");
    conformance::run(&mut Standalone(Some(disk), path));
}

/// Whether a page in the middle of the file is in the page cache: opening reads what may be a partition table at both ends.
fn is_cached(path: &str) -> bool {
    let file = std::fs::File::open(path).expect("the file");
    let mut page = [0; 4096];
    let mut bufs = [io::IoSliceMut::new(&mut page)];
    rustix::io::preadv2(&file, &mut bufs, SIZE / 2, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
}

#[test]
fn a_file_opened_without_o_direct_is_read_from_the_medium_not_from_the_page_cache() {
    let options = FileDiskOptions { direct: false, ..FileDiskOptions::default() };
    // Beside the test binary: a temporary directory may be in memory.
    let binary = std::env::current_exe().expect("a path");
    let parent = binary.parent().and_then(std::path::Path::to_str);
    let mut fixture = FileFixture::new(fallback(), parent, options);
    std::fs::write(&fixture.path, vec![1; SIZE as usize]).expect("a write");
    if !is_cached(&fixture.path) {
        eprintln!("this file system does not tell what is cached");
        return;
    }
    fixture.reopen();
    assert!(!is_cached(&fixture.path));
}

#[test]
fn a_long_discard_goes_in_pieces_and_is_answered_once() {
    for driver in [io_uring(), Some(fallback())].into_iter().flatten() {
        let mut fixture = FileFixture::new(driver, None, FileDiskOptions::default());
        let file = std::fs::OpenOptions::new().write(true).open(&fixture.path).expect("the file");
        file.set_len(5 * DISCARD_BYTES_MAX).expect("more room");
        fixture.reopen();
        let (offset, len_bytes) = (4096, 3 * DISCARD_BYTES_MAX + 8192);
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 0).expect("a write");
        for at in [offset, offset + 2 * DISCARD_BYTES_MAX, offset + len_bytes - 4096, offset + len_bytes] {
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], at).expect("a write");
        }
        fixture.disk().submit(7, DiskOperation::Discard { offset, len_bytes });
        let mut out = Vec::new();
        while out.is_empty() {
            fixture.wait();
            fixture.disk().poll(&mut out);
        }
        fixture.disk().poll(&mut out);
        assert!(out.len() == 1 && out[0].token == 7 && out[0].result.is_ok());
        let bytes = std::fs::read(&fixture.path).expect("the content");
        let end = (offset + len_bytes) as usize;
        assert!(bytes[offset as usize..end].iter().all(|byte| *byte == 0));
        assert_eq!((bytes[0], bytes[end]), (1, 1));
    }
}

#[test]
fn what_the_host_was_short_for_is_tried_again_and_answered_once() {
    for driver in [io_uring(), Some(fallback())].into_iter().flatten() {
        let mut fixture = FileFixture::new(driver, None, FileDiskOptions::default());
        let data = Payload::from(sys::Buf::from(&[7; 4096][..]));
        let disk = fixture.disk.as_mut().expect("an open disk");
        let short = |disk: &mut FileDisk, buffer| {
            let place = disk.outstanding.iter().position(|entry| entry.waiting).expect("an operation");
            let token = u64::from(disk.outstanding[place].generation) << 32 | place as u64;
            let result = Err(io::Error::from_raw_os_error(libc::ENOMEM));
            disk.complete(Completion { token, result, buffer, scatter: None });
            assert!(disk.answers.is_empty() && disk.again.len() == 1);
        };
        disk.submit(1, DiskOperation::Write { offset: 4096, data, durable: true });
        if disk.info.direct {
            short(disk, None);
        }
        let mut out = Vec::new();
        while out.is_empty() {
            fixture.wait();
            fixture.disk().poll(&mut out);
        }
        assert!(out[0].token == 1 && out[0].result.is_ok());
        let disk = fixture.disk.as_mut().expect("an open disk");
        disk.submit(2, DiskOperation::Read { offset: 4096, into: BufMut::for_overwrite(4096) });
        short(disk, Some(BufMut::for_overwrite(4096)));
        out.clear();
        while out.is_empty() {
            fixture.wait();
            fixture.disk().poll(&mut out);
        }
        fixture.disk().poll(&mut out);
        assert!(out.len() == 1 && out[0].token == 2);
        let read = out.remove(0).result.expect("an answer").expect("a buffer");
        assert!(read.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_watched_file_that_is_cut_renamed_or_removed_is_told_and_is_not_kept_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, other) = (directory.path().join("disk"), directory.path().join("other"));
    create_file_disk(&path, 8 << 20).expect("a disk");
    let opened =
        OpenedFile::open(path.to_str().expect("a path"), FileDiskOptions::default()).expect("the disk");
    let watch = opened.watch();
    let look = || watch.look().expect("the kernel tells");
    assert_eq!(look(), Some(FileState::Whole));
    std::fs::rename(&path, &other).expect("a rename");
    assert_eq!(look(), Some(FileState::Renamed(Some(other.clone()))));
    std::fs::write(&path, b"another").expect("another file");
    assert_eq!(look(), Some(FileState::Renamed(Some(other.clone()))));
    std::fs::rename(&other, &path).expect("a rename");
    assert_eq!(look(), Some(FileState::Whole));
    let file = std::fs::File::options().write(true).open(&path).expect("the file");
    file.set_len(4 << 20).expect("a cut");
    assert_eq!(look(), Some(FileState::Truncated(4 << 20)));
    std::fs::remove_file(&path).expect("the file goes");
    assert_eq!(look(), Some(FileState::Removed));
    drop(opened);
    assert_eq!(look(), None);
}

#[test]
fn room_that_is_reserved_beneath_a_file_is_taken_and_what_lies_there_stays() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    create_file_disk(&path, 16 << 20).expect("a disk");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("the file");
    file.write_all_at(&[7; 4096], 2 << 20).expect("a write");
    let opened =
        OpenedFile::open(path.to_str().expect("a path"), FileDiskOptions::default()).expect("the disk");
    let watch = opened.watch();
    if watch.reserve(1 << 20, 4 << 20).expect("the kernel tells") == Reserved::NotHere {
        // Not every file system can.
        return;
    }
    let found = file.metadata().expect("a stat");
    assert_eq!(found.len(), 16 << 20);
    let taken_bytes = found.blocks() * 512;
    assert!((4 << 20..6 << 20).contains(&taken_bytes), "{taken_bytes}");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 2 << 20).expect("a read");
    assert_eq!(block, [7; 4096]);
    let room = watch.room().expect("the kernel tells").expect("a file");
    assert!(path.starts_with(&room.mounted_at), "{room:?}");
    assert_eq!(room.unbacked_bytes, (16 << 20) - taken_bytes);
    drop(opened);
    assert_eq!(watch.reserve(0, 4096).expect("nothing"), Reserved::NotHere);
}
