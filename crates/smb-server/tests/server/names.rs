//! Names of opens: by CREATE, by rename, and in later answers.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

const DELETE_AND_READ: u32 = 0x0013_0089;

fn open(world: &mut World, client: &mut Client, name: &str) -> FileId {
    let body = Client::create_body_with(name, DELETE_AND_READ, FILE_OPEN, Vec::new());
    let answer = client.call(world, Command::Create, body);
    assert_eq!(status(&answer), NtStatus::SUCCESS, "{name}");
    CreateResponse::parse(&answer).unwrap().file_id
}

fn make_directory(world: &mut World, client: &mut Client, name: &str) {
    let answer = client.call(world, Command::Create, |out| {
        let body = CreateRequestBody {
            impersonation_level: 2.into(),
            desired_access: 0x0012_0089.into(),
            share_access: 7.into(),
            create_disposition: FILE_CREATE.into(),
            create_options: 1.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str(name), &[]);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS, "{name}");
    let made = CreateResponse::parse(&answer).unwrap().file_id;
    client.call(world, Command::Close, Client::close_body(made));
}

/// Sends FileRenameInformation or the like, without replacing.
pub fn set_name(world: &mut World, client: &mut Client, file_id: FileId, number: u8, name: &str) -> NtStatus {
    let answer = client.call(world, Command::SetInfo, |out| {
        let name = wide_from_str(name);
        let mut buffer = vec![0; 16];
        buffer.extend_from_slice(&(2 * name.len() as u32).to_le_bytes());
        buffer.extend(name.iter().flat_map(|unit| unit.to_le_bytes()));
        let body = SetInfoRequestBody {
            info_type: INFO_FILE,
            file_info_class: number,
            file_id,
            ..Default::default()
        };
        write_set_info_request(out, body, &buffer);
    });
    status(&answer)
}

/// The name in FileAllInformation or FileNormalizedNameInformation.
fn told(world: &mut World, client: &mut Client, file_id: FileId, number: u8) -> String {
    let answer = client.call(world, Command::QueryInfo, |out| {
        let body = QueryInfoRequestBody {
            info_type: INFO_FILE,
            file_info_class: number,
            output_buffer_length: 4096.into(),
            file_id,
            ..Default::default()
        };
        write_query_info_request(out, body, &[]);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let data = OutputBufferResponse::parse(&answer).unwrap().data().unwrap();
    let at = if number == class::ALL { size_of::<AllInformation>() } else { 0 };
    let units = data[at + 4..].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
}

#[test]
fn every_handle_of_a_renamed_file_tells_its_present_name() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    make_directory(&mut world, &mut client, "public");
    for name in ["public\\old", "public\\old:stream"] {
        let made = client.create(&mut world, name);
        client.call(&mut world, Command::Close, Client::close_body(made));
    }
    // The third is of a share that begins further down.
    let mut below = Client::ready_at(&mut world, "public");
    let (first, second) =
        (open(&mut world, &mut client, "public\\old"), open(&mut world, &mut client, "public\\old"));
    let stream = open(&mut world, &mut client, "public\\old:stream");
    let third = open(&mut world, &mut below, "old");
    assert_eq!(set_name(&mut world, &mut client, first, class::RENAME, "public\\new"), NtStatus::SUCCESS);
    for file in [first, second] {
        assert_eq!(told(&mut world, &mut client, file, class::ALL), "\\public\\new");
        assert_eq!(told(&mut world, &mut client, file, class::NORMALIZED_NAME), "public\\new");
    }
    assert_eq!(told(&mut world, &mut client, stream, class::NORMALIZED_NAME), "public\\new:stream");
    assert_eq!(told(&mut world, &mut below, third, class::NORMALIZED_NAME), "new");
    assert_eq!(set_name(&mut world, &mut client, stream, class::RENAME, ":other"), NtStatus::SUCCESS);
    assert_eq!(told(&mut world, &mut client, stream, class::NORMALIZED_NAME), "public\\new:other");
    let mut listed: Vec<_> =
        world.server.opens(world.now).iter().map(|open| String::from_utf16_lossy(&open.path)).collect();
    listed.sort();
    assert_eq!(listed, ["new", "public\\new", "public\\new", "public\\new:other"]);
}

#[test]
fn a_rename_and_a_link_take_the_paths_that_a_create_takes() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    for name in ["dir/", "dir\\sub"] {
        make_directory(&mut world, &mut client, name);
    }
    let made = client.create(&mut world, "dir/sub/file");
    client.call(&mut world, Command::Close, Client::close_body(made));
    let sub = open(&mut world, &mut client, "dir/sub");
    assert_eq!(set_name(&mut world, &mut client, sub, class::RENAME, "dir/moved\\"), NtStatus::SUCCESS);
    assert_eq!(told(&mut world, &mut client, sub, class::NORMALIZED_NAME), "dir\\moved");
    assert_eq!(set_name(&mut world, &mut client, sub, class::RENAME_EX, "dir\\again/"), NtStatus::SUCCESS);
    let file = open(&mut world, &mut client, "dir\\again\\file");
    assert_eq!(set_name(&mut world, &mut client, file, class::LINK, "dir/link"), NtStatus::SUCCESS);
    assert_eq!(set_name(&mut world, &mut client, file, class::RENAME, "dir/file"), NtStatus::SUCCESS);
    assert_eq!(told(&mut world, &mut client, file, class::NORMALIZED_NAME), "dir\\file");
    // Only a directory's name ends with a separator.
    let refused = set_name(&mut world, &mut client, file, class::RENAME, "dir/other/");
    assert_eq!(refused, NtStatus::OBJECT_NAME_INVALID);
    open(&mut world, &mut client, "dir\\link");
}

#[test]
fn an_empty_name_in_a_path_is_refused_for_what_lies_before_it() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    make_directory(&mut world, &mut client, "dir");
    for (name, refusal) in [
        ("nodir\\\\x", NtStatus::OBJECT_PATH_NOT_FOUND),
        ("dir\\nodir\\\\x", NtStatus::OBJECT_PATH_NOT_FOUND),
        ("nodir\\below\\\\x", NtStatus::OBJECT_PATH_NOT_FOUND),
        ("dir\\\\x", NtStatus::OBJECT_NAME_INVALID),
    ] {
        let body = Client::create_body_with(name, DELETE_AND_READ, FILE_OPEN, Vec::new());
        assert_eq!(status(&client.call(&mut world, Command::Create, body)), refusal, "{name}");
    }
}
