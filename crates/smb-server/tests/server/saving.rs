//! The sequences by which programs save a file, as they go over the wire (MS-FSA 2.1.1.2): the file keeps its date of creation.

use crate::fixture::*;
use crate::raw::{MAKE, to};
use smb::wire::*;
use std::time::Duration;
use types::NtStatus;

/// FileDispositionInformation: the file is deleted with its last handle.
const DELETED: [u8; 1] = [1];

fn make(world: &mut World, client: &mut Client, name: &str) {
    let made = client.open_as(world, name, MAKE).unwrap();
    let answer = client.call(world, Command::Write, Client::write_body(made, name.as_bytes()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    client.close(world, made);
    world.wait(Duration::from_secs(1));
}

fn created(world: &mut World, client: &mut Client, name: &str) -> u64 {
    let file = client.open_as(world, name, crate::raw::Asked::default()).unwrap();
    let basic = client.query_info(world, file, class::BASIC).unwrap();
    client.close(world, file);
    u64::from_le_bytes(basic[..8].try_into().unwrap())
}

/// Renames, as MoveFile does: by an open with DELETE, without replacing.
fn rename(world: &mut World, client: &mut Client, from: &str, name: &str) {
    let file = client.open_as(world, from, MAKE).unwrap();
    assert_eq!(client.rename(world, file, class::RENAME, to(name)), NtStatus::SUCCESS, "{from} to {name}");
    client.close(world, file);
}

fn delete(world: &mut World, client: &mut Client, name: &str) {
    let file = client.open_as(world, name, MAKE).unwrap();
    assert_eq!(client.set_info(world, file, class::DISPOSITION, &DELETED), NtStatus::SUCCESS);
    client.close(world, file);
}

#[test]
fn a_document_that_is_saved_through_another_file_keeps_its_date_of_creation() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    make(&mut world, &mut client, "Report.docx");
    let first = created(&mut world, &mut client, "Report.docx");
    // Word: the new content under a name of its own, the old file away, the new one in its place, the old one deleted. ReplaceFile does
    // the same without the deletion.
    for (saved, deletes_old) in [("~WRD0001.tmp", true), ("~WRD0002.tmp", false)] {
        make(&mut world, &mut client, saved);
        assert_ne!(created(&mut world, &mut client, saved), first);
        rename(&mut world, &mut client, "Report.docx", "~WRL0003.tmp");
        rename(&mut world, &mut client, saved, "report.docx");
        assert_eq!(created(&mut world, &mut client, "Report.docx"), first);
        assert_eq!(created(&mut world, &mut client, "~WRL0003.tmp"), first, "it is the file of before");
        if deletes_old {
            delete(&mut world, &mut client, "~WRL0003.tmp");
        }
    }
    // Excel, and editors: the old file deleted, the new one renamed or made under its name.
    delete(&mut world, &mut client, "Report.docx");
    make(&mut world, &mut client, "Report.docx");
    assert_eq!(created(&mut world, &mut client, "Report.docx"), first);
    // A file keeps an inherited date.
    world.wait(Duration::from_secs(60));
    assert_eq!(created(&mut world, &mut client, "Report.docx"), first);
}

#[test]
fn a_removed_name_hands_down_its_date_for_15_s() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    for (waited_s, is_kept) in [(13, true), (16, false)] {
        make(&mut world, &mut client, "name");
        let first = created(&mut world, &mut client, "name");
        delete(&mut world, &mut client, "name");
        world.wait(Duration::from_secs(waited_s));
        make(&mut world, &mut client, "name");
        assert_eq!(created(&mut world, &mut client, "name") == first, is_kept, "after {waited_s} s");
        world.wait(Duration::from_secs(60));
        delete(&mut world, &mut client, "name");
        world.wait(Duration::from_secs(60));
    }
}
