//! Tables in files, as the code and util-linux see them.

use super::*;
use crate::{FileDiskOptions, OpenedFile};
use std::process::Command;

const SIZE: u64 = 64 << 20;

fn device(directory: &tempfile::TempDir, block_bytes: u32) -> (PathBuf, File) {
    let path = directory.path().join(format!("device-{block_bytes}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(SIZE).unwrap();
    (path, file)
}

#[test]
fn a_table_is_found_by_either_copy_and_by_none_if_both_are_damaged() {
    let directory = tempfile::tempdir().unwrap();
    for block_bytes in [512, 4096] {
        let block = u64::from(block_bytes);
        let (_, file) = device(&directory, block_bytes);
        assert_eq!(find(&file, SIZE, block_bytes), None);
        write(&file, SIZE, block_bytes).unwrap();
        let place = Place { offset_bytes: 1 << 20, len_bytes: SIZE - (2 << 20) };
        // Header and entries, at the beginning and at the end.
        for damaged in [block + 40, 2 * block + 33, SIZE - block + 40, SIZE - block - ARRAY_BYTES as u64 + 33]
        {
            let mut byte = [0];
            file.read_exact_at(&mut byte, damaged).unwrap();
            file.write_all_at(&[byte[0] ^ 1], damaged).unwrap();
            assert_eq!(find(&file, SIZE, block_bytes), Some(place), "byte {damaged}");
            file.write_all_at(&byte, damaged).unwrap();
        }
        file.write_all_at(&[0; 8], block).unwrap();
        file.write_all_at(&[0; 8], SIZE - block).unwrap();
        assert_eq!(find(&file, SIZE, block_bytes), None);
    }
}

#[test]
fn a_table_that_is_written_again_keeps_its_identities_and_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = device(&directory, 512);
    write(&file, SIZE, 512).unwrap();
    let first = read(&file, SIZE, 512).unwrap();
    // The first copy is lost: the second still has the table.
    file.write_all_at(&[0; 4096], 0).unwrap();
    write(&file, SIZE, 512).unwrap();
    file.write_all_at(&[0; 512], SIZE - 512).unwrap();
    assert_eq!(read(&file, SIZE, 512), Some(first));
}

/// Unsynced sectors are on the medium or not, in any combination.
#[test]
fn a_power_cut_while_a_table_is_written_leaves_ours_or_none_and_the_next_try_completes_it() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = device(&directory, 512);
    let place = largest_place(SIZE / 512, 512).unwrap();
    let table = Table { disk: Uuid::new_v4(), partition: Uuid::new_v4(), place, has_others: false };
    let steps = steps(&table, SIZE / 512, 512);
    let mut random: u64 = 1;
    let mut found = 0;
    for round in 0..200 {
        erase_all(&file);
        // From hardly any sector to nearly all of them: a copy is whole only if its header is, and the one sector of its entries.
        for (at, bytes) in &steps[0] {
            for (index, sector) in bytes.chunks(512).enumerate() {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if random >> 33 < (1 << 31) / 200 * round {
                    file.write_all_at(sector, at + index as u64 * 512).unwrap();
                }
            }
        }
        match find(&file, SIZE, 512) {
            None => continue,
            Some(ours) => assert_eq!(ours, place),
        }
        found += 1;
        write(&file, SIZE, 512).unwrap();
        for copy in [1, SIZE / 512 - 1] {
            assert_eq!(read_copy(&file, copy, SIZE / 512 - 1, 512), Some(table.clone()), "round {round}");
        }
    }
    assert!((50..200).contains(&found), "{found}");
}

fn erase_all(file: &File) {
    for at in [0, SIZE - 17408] {
        file.write_all_at(&[0; 17408], at).unwrap();
    }
}

#[test]
fn only_a_table_of_ours_alone_is_written_over_or_taken_away() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = device(&directory, 512);
    assert!(!erase(&file, SIZE, 512).unwrap(), "there is none");
    write(&file, SIZE, 512).unwrap();
    let before = read(&file, SIZE, 512).unwrap();
    // A second partition, of Linux' type, in the table at the beginning.
    let mut array = encode_array(&before, 512);
    array[128..144].copy_from_slice(&uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4").to_bytes_le());
    let blocks = SIZE / 512;
    let header = encode_header(&before, (1, blocks - 1), (34, blocks - 34), 2, crc(&array));
    file.write_all_at(&array, 1024).unwrap();
    file.write_all_at(&header, 512).unwrap();
    assert!(!erase(&file, SIZE, 512).unwrap());
    assert!(write(&file, SIZE, 512).is_err());
    assert_eq!(find(&file, SIZE, 512), Some(before.place));
}

#[test]
fn no_bytes_make_the_parser_panic_or_find_a_place_beyond_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = device(&directory, 512);
    write(&file, SIZE, 512).unwrap();
    let mut header = [0; 512];
    file.read_exact_at(&mut header, 512).unwrap();
    file.write_all_at(&[0; 512], SIZE - 512).unwrap();
    // Each field at its extremes, the checksum right.
    for at in (8..HEADER_BYTES).step_by(4) {
        for value in [0u32, 1, 0x7fff_ffff, u32::MAX] {
            let mut changed = header;
            changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
            if at != 12 && at != 16 {
                changed[16..20].fill(0);
                let crc = crc(&changed[..HEADER_BYTES]);
                changed[16..20].copy_from_slice(&crc.to_le_bytes());
            }
            file.write_all_at(&changed, 512).unwrap();
            if let Some(place) = find(&file, SIZE, 512) {
                assert!(place.offset_bytes + place.len_bytes <= SIZE);
            }
        }
    }
}

#[test]
fn a_disk_with_our_table_is_its_partition() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = device(&directory, 512);
    write(&file, SIZE, 512).unwrap();
    let options = FileDiskOptions { file_block_bytes: 512, ..FileDiskOptions::default() };
    let path = path.to_str().unwrap();
    let opened = OpenedFile::open(path, options.clone()).unwrap();
    assert_eq!(opened.info().size_bytes, SIZE - (2 << 20));
    drop(opened);
    let mut disk = crate::StandaloneDisk::open(path, options).unwrap();
    let answer = |disk: &mut crate::StandaloneDisk, operation| {
        crate::Disk::submit(disk, 1, operation);
        let mut out = Vec::new();
        crate::Disk::poll(disk, &mut out);
        out.pop().unwrap().result.unwrap()
    };
    let data = sys::Buf::from(&[7u8; 4096][..]);
    answer(&mut disk, crate::DiskOperation::Write { offset: 8192, data: data.into(), durable: true });
    let into = sys::BufMut::zeroed(4096);
    let read = answer(&mut disk, crate::DiskOperation::Read { offset: 8192, into }).unwrap();
    assert_eq!(&read[..], &[7; 4096]);
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, (1 << 20) + 8192).unwrap();
    assert_eq!(bytes, [7; 4096]);
    answer(&mut disk, crate::DiskOperation::Discard { offset: 8192, len_bytes: 4096 });
    file.read_exact_at(&mut bytes, (1 << 20) + 8192).unwrap();
    assert_eq!(bytes, [0; 4096]);
}

/// Runs if util-linux is installed, as on every Linux machine.
#[test]
fn blkid_and_wipefs_see_the_table_and_nothing_once_it_is_taken_away() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = device(&directory, 512);
    write(&file, SIZE, 512).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&path).output();
        String::from_utf8(output.expect("util-linux").stdout).unwrap()
    };
    let probed = run("blkid", &["-p"]);
    assert!(probed.contains("PTTYPE=\"gpt\""), "{probed}");
    let wiped = run("wipefs", &["--no-act", "--noheadings"]);
    assert_eq!(wiped.lines().count(), 3, "both headers and the MBR: {wiped}");
    let shown = run("partx", &["--noheadings", "--raw", "--output", "START,SECTORS,NAME,TYPE"]);
    assert_eq!(shown.trim(), format!("2048 {} cenote {PARTITION_TYPE}", (SIZE - (2 << 20)) / 512));
    assert!(erase(&file, SIZE, 512).unwrap());
    assert_eq!(run("blkid", &["-p"]), "");
    assert_eq!(run("wipefs", &["--no-act"]), "");
}

#[test]
fn a_damaged_copy_is_told_and_written_again_from_the_other_one() {
    let directory = tempfile::tempdir().unwrap();
    for block_bytes in [512, 4096] {
        let block = u64::from(block_bytes);
        let last = SIZE / block - 1;
        let (path, file) = device(&directory, block_bytes);
        assert_eq!(look_after_table(&path, true), TableState::Whole);
        write(&file, SIZE, block_bytes).unwrap();
        file.write_all_at(&[7; 4096], 1 << 20).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let end = SIZE - block - ARRAY_BYTES as u64;
        let cases: [(&str, u64, usize); 5] = [
            (FIRST_COPY, block + 40, 1),
            (FIRST_COPY, 2 * block + 33, 1),
            // With the MBR, all before the partition.
            (FIRST_COPY, 0, 1 << 20),
            (SECOND_COPY, SIZE - block + 40, 1),
            (SECOND_COPY, end + 33, 1),
        ];
        for (which, at, len) in cases {
            let mut bytes = vec![0; len];
            if len == 1 {
                bytes[0] = whole[at as usize] ^ 1;
            }
            file.write_all_at(&bytes, at).unwrap();
            assert!(
                matches!(look_after_table(&path, false), TableState::Damaged(found, _) if found == which),
                "{at}"
            );
            assert_eq!(look_after_table(&path, true), TableState::Repaired(which), "{at}");
            assert_eq!(look_after_table(&path, true), TableState::Whole, "{at}");
            assert!(std::fs::read(&path).unwrap() == whole, "byte {at}: the device is as it was");
        }
        assert_eq!(read_copy(&file, 1, last, block_bytes), read_copy(&file, last, last, block_bytes));
    }
}

#[test]
fn a_table_that_is_not_ours_alone_or_replaced_by_another_is_never_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = device(&directory, 512);
    let untouched = |what: &str| {
        let before = std::fs::read(&path).unwrap();
        assert_eq!(look_after_table(&path, true), TableState::Whole, "{what}");
        assert!(std::fs::read(&path).unwrap() == before, "{what}");
    };
    write(&file, SIZE, 512).unwrap();
    // Somebody has partitioned the device anew, and left our second copy behind.
    let table = read(&file, SIZE, 512).unwrap();
    let mut array = encode_array(&table, 512);
    array[..16].copy_from_slice(&[9; 16]);
    let header = encode_header(&table, (1, SIZE / 512 - 1), (34, SIZE / 512 - 34), 2, crc(&array));
    file.write_all_at(&array, 1024).unwrap();
    file.write_all_at(&padded(&header, 512), 512).unwrap();
    untouched("a foreign first copy");
    // A second partition beside ours, and a damaged first copy.
    let mut array = encode_array(&table, 512);
    array[128..144].copy_from_slice(&[9; 16]);
    let header =
        encode_header(&table, (SIZE / 512 - 1, 1), (34, SIZE / 512 - 34), SIZE / 512 - 33, crc(&array));
    file.write_all_at(&array, SIZE - 512 - ARRAY_BYTES as u64).unwrap();
    file.write_all_at(&padded(&header, 512), SIZE - 512).unwrap();
    file.write_all_at(&[0; 512], 512).unwrap();
    untouched("another partition");
    erase_all(&file);
    untouched("no table");
}

#[test]
fn a_power_cut_while_a_copy_is_written_again_leaves_the_other_one_and_the_next_opening_completes_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = device(&directory, 512);
    write(&file, SIZE, 512).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut random: u64 = 1;
    for (round, at) in [0, SIZE - 17408].into_iter().cycle().take(100).enumerate() {
        file.write_all_at(&[0; 17408], at).unwrap();
        let (_, begin, bytes) = missing_copy(&file, SIZE, 512).unwrap();
        if let Some(mbr) = bytes.get(1) {
            file.write_all_at(mbr, 0).unwrap();
        }
        for (index, sector) in bytes[0].chunks(512).enumerate() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 63 == 0 {
                file.write_all_at(sector, begin + index as u64 * 512).unwrap();
            }
        }
        assert!(find(&file, SIZE, 512).is_some(), "round {round}");
        look_after_table(&path, true);
        assert_eq!(look_after_table(&path, true), TableState::Whole, "round {round}");
        assert!(std::fs::read(&path).unwrap() == whole, "round {round}");
    }
}
