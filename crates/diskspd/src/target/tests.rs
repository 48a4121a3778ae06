use super::{Place, disks, guard, local, place};
use crate::profile::{CacheMode, Target, WriteContent};
use smb_client::Location;
use std::fs;
use std::path::Path;

fn target(path: &Path) -> Target {
    Target { path: path.display().to_string(), ..Target::default() }
}

#[test]
fn smb_targets_are_read_in_both_forms() {
    let both = Location {
        server: "server".into(),
        others: Vec::new(),
        port: None,
        user: None,
        share: "share".into(),
        path: "dir\\file.dat".into(),
    };
    assert_eq!(place(r"\\server\share\dir\file.dat"), Ok(Place::Smb(both.clone())));
    assert_eq!(place("smb://server/share/dir/file.dat"), Ok(Place::Smb(both.clone())));
    let named = Location { port: Some(4455), user: Some("ann".into()), ..both.clone() };
    assert_eq!(place("smb://ann@server:4455/share/dir/file.dat"), Ok(Place::Smb(named)));
    let six = Location { server: "::1".into(), port: Some(5445), ..both };
    assert_eq!(place("smb://[::1]:5445/share/dir/file.dat"), Ok(Place::Smb(six)));
    assert!(matches!(place("plain/file"), Ok(Place::Local(_))));
}

#[test]
fn smb_targets_that_lack_a_part_or_carry_a_password_are_refused() {
    for wrong in [
        r"\\server",
        r"\\server\share",
        r"\\server\share\",
        "smb://",
        "smb://server/share",
        "smb:///share/file",
        "smb://server:0/share/file",
        "smb://server:99999/share/file",
        "smb://[::1/share/file",
        "smb://ann:secret@server/share/file",
    ] {
        assert!(place(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn disks_are_counted_in_the_order_of_their_device_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, numbers) in
        [("sdb", "8:16"), ("sda", "8:0"), ("loop0", "7:0"), ("nvme0n1", "259:0"), ("sr0", "11:0")]
    {
        fs::create_dir(directory.path().join(name)).expect("is made");
        fs::write(directory.path().join(name).join("dev"), numbers).expect("is written");
    }
    let names: Vec<String> =
        disks::list(directory.path()).iter().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["/dev/sda", "/dev/sdb", "/dev/nvme0n1"]);
    assert!(place("#100000").is_err());
}

#[test]
fn a_created_file_has_its_size_and_may_be_written_to_and_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    let mut target = target(&path);
    target.write_percent = 100;
    local::create(&target, &path, 3_000_000, false, &|| false).expect("is made");
    let bytes = fs::read(&path).expect("is there");
    assert_eq!(bytes.len(), 3_000_000);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    assert!(local::measure(&target, &path, false).is_ok());
    local::create(&target, &path, 5_000, false, &|| false).expect("is made again");
    assert_eq!(fs::metadata(&path).expect("is there").len(), 5_000);
    fs::write(&path, "abcde".repeat(1000)).expect("random data of a run, say");
    assert!(local::measure(&target, &path, false).is_ok(), "the mark tells");
    fs::write(&path, "somebody's letters").expect("is written");
    assert!(local::measure(&target, &path, false).is_err(), "of another size");
}

#[test]
fn data_of_others_is_not_overwritten_unless_given_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("letters");
    fs::write(&path, "dear reader".repeat(1000)).expect("is written");
    let mut target = target(&path);
    assert!(local::measure(&target, &path, false).is_ok(), "reading never asks");
    target.write_percent = 1;
    let refusal = local::measure(&target, &path, false).expect_err("holds data").to_string();
    assert!(refusal.contains(&format!("--yes-overwrite {}", path.display())), "{refusal}");
    assert!(local::create(&target, &path, 1 << 20, false, &|| false).is_err());
    assert_eq!(fs::metadata(&path).expect("is there").len(), 11_000, "and is as it was");
    assert!(local::measure(&target, &path, true).is_ok());
    local::create(&target, &path, 1 << 20, true, &|| false).expect("was given up");
}

#[test]
fn files_without_data_may_be_written_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("zeros");
    fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("is made");
    let target = Target { write_percent: 100, ..target(&path) };
    assert!(local::measure(&target, &path, false).is_ok());
}

#[test]
fn what_default_writes_leave_counts_as_made_here() {
    assert!(guard::is_ours(&[]));
    assert!(guard::is_ours(&[0; 100]));
    assert!(guard::is_ours(&[254, 255, 0, 1]));
    assert!(!guard::is_ours(&[1, 2, 4]));
    for size in [1, 4096, 4097, 1 << 20, 1 << 40] {
        let offsets: Vec<u64> = guard::samples(size).collect();
        assert!(offsets.len() < 70 && offsets.iter().all(|offset| *offset < size), "{size}");
    }
}

#[test]
fn directories_and_what_is_not_there_are_no_targets() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = local::measure(&target(directory.path()), directory.path(), false).expect_err("a directory");
    assert!(error.to_string().contains("target size could not be determined"));
    let missing = directory.path().join("missing");
    let error = local::measure(&target(&missing), &missing, false).expect_err("is missing").to_string();
    assert!(error.starts_with(&format!("Error opening file: {} [2]", missing.display())), "{error}");
}

#[test]
fn unbuffered_access_needs_whole_logical_blocks() {
    let directory = tempfile::tempdir_in(".").expect("a directory on a disk");
    let path = directory.path().join("file");
    fs::write(&path, vec![0; 1 << 20]).expect("is written");
    let wrong = Target { cache: CacheMode::DisableOsCache, block_bytes: 1000, ..target(&path) };
    // A kernel or file system that does not report its alignment lets it pass here.
    if let Err(error) = local::measure(&wrong, &path, false) {
        assert!(error.to_string().contains("block size (-b) is 1000"), "{error}");
    }
    let right = Target { block_bytes: 4096, ..wrong };
    assert!(local::measure(&right, &path, false).is_ok());
}

#[test]
fn a_write_source_repeats_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("source");
    fs::write(&path, "abc").expect("is written");
    let content = WriteContent::Source { size_bytes: 8, file: Some(path.display().to_string()) };
    let region = local::source(&content, 8, false, |_| unreachable!("it has a file")).expect("is read");
    assert_eq!(region.bytes(), b"abcabcab");
    fs::write(&path, "").expect("is written");
    assert!(local::source(&content, 8, false, |_| ()).is_err());
}
