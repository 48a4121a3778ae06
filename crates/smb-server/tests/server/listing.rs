//! Enumerations of a directory: their beginning, their pattern, and the answer at their end (MS-FSA
//! 2.1.5.6.3).

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

/// The names that one request finds, or its refusal.
fn list(
    world: &mut World,
    client: &mut Client,
    file_id: FileId,
    flags: u8,
    pattern: &str,
) -> Result<Vec<String>, NtStatus> {
    let answer = client.call(world, Command::QueryDirectory, |out| {
        let body = QueryDirectoryRequestBody {
            file_information_class: class::NAMES,
            flags,
            file_id,
            output_buffer_length: 4096.into(),
            ..Default::default()
        };
        write_query_directory_request(out, body, &wide_from_str(pattern));
    });
    if status(&answer) != NtStatus::SUCCESS {
        return Err(status(&answer));
    }
    let data = OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec();
    let (mut names, mut at) = (Vec::new(), 0);
    let number = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
    loop {
        let units: Vec<u16> = data[at + 12..at + 12 + number(at + 8)]
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .collect();
        names.push(String::from_utf16(&units).unwrap());
        match number(at) {
            0 => return Ok(names),
            next => at += next,
        }
    }
}

fn directory(world: &mut World, client: &mut Client, names: &[&str]) -> FileId {
    for name in names {
        let made = client.create(world, name);
        client.call(world, Command::Close, Client::close_body(made));
    }
    let body = Client::create_body_with("", 0x0012_0089, FILE_OPEN, Vec::new());
    let answer = client.call(world, Command::Create, body);
    CreateResponse::parse(&answer).unwrap().file_id
}

#[test]
fn a_scan_that_restarts_looks_for_its_own_pattern() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let root = directory(&mut world, &mut client, &["a1", "a2", "b1"]);
    let mut list = |flags: u8, pattern: &str| list(&mut world, &mut client, root, flags, pattern);
    assert_eq!(list(0, "a*").unwrap(), ["a1", "a2"]);
    assert_eq!(list(0, "b*"), Err(NtStatus::NO_MORE_FILES), "it goes on with its pattern");
    let restart = QUERY_DIRECTORY_RESTART_SCANS;
    assert_eq!(list(restart, "b*").unwrap(), ["b1"]);
    assert_eq!(list(0, "a*"), Err(NtStatus::NO_MORE_FILES));
    assert_eq!(list(restart, "c*"), Err(NtStatus::NO_MORE_FILES), "it is not the first query");
    assert_eq!(list(restart, "A1").unwrap(), ["a1"]);
    assert_eq!(list(QUERY_DIRECTORY_REOPEN, "c*"), Err(NtStatus::NO_SUCH_FILE), "it begins anew");
    assert_eq!(list(0, "c*"), Err(NtStatus::NO_MORE_FILES));
}

#[test]
fn a_listing_meets_each_entry_once_though_its_client_renames_what_it_finds() {
    let names = ["a", "b", "c", "y", "z"];
    for flags in [0, QUERY_DIRECTORY_RETURN_SINGLE_ENTRY] {
        let mut world = World::over_volume();
        let mut client = Client::ready(&mut world);
        let root = directory(&mut world, &mut client, &names);
        let mut met = Vec::new();
        while let Ok(found) = list(&mut world, &mut client, root, flags, "*") {
            for name in found.into_iter().filter(|name| !name.starts_with('.')) {
                let body = Client::create_body_with(&name, 0x0013_0089, FILE_OPEN, Vec::new());
                let answer = client.call(&mut world, Command::Create, body);
                let file = CreateResponse::parse(&answer).unwrap().file_id;
                // Twice between two questions: only the last name counts.
                for suffix in ["_", ".done"] {
                    let renamed = crate::names::set_name(
                        &mut world,
                        &mut client,
                        file,
                        class::RENAME,
                        &format!("{name}{suffix}"),
                    );
                    assert_eq!(renamed, NtStatus::SUCCESS);
                }
                client.call(&mut world, Command::Close, Client::close_body(file));
                met.push(name);
            }
            assert!(met.len() <= names.len(), "{met:?}");
        }
        assert_eq!(met, names);
        let again = list(&mut world, &mut client, root, QUERY_DIRECTORY_RESTART_SCANS, "*.done").unwrap();
        assert_eq!(again.len(), names.len(), "a scan that restarts meets them again");
    }
}
