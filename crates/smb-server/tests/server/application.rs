//! An application that moves to another client takes its opens along (MS-SMB2 3.3.5.9.13), and nobody else's.

use crate::fixture::*;
use smb::wire::*;
use smb_server::Directory;
use types::NtStatus;
use volume::security::rights;

const INSTANCE: [u8; 16] = [0xA5; 16];

struct Asked {
    access: u32,
    version: Option<(u64, u64)>,
}

const PLAIN: Asked = Asked { access: rights::FILE_GENERIC_READ | rights::FILE_GENERIC_WRITE, version: None };

fn connected(world: &mut World, user: &str, guid: u8, share: &str) -> Client {
    let mut client = Client::new(world);
    client.user = user.to_owned();
    client.guid = [guid; 16];
    client.negotiate(world, &Wishes::default());
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(world, share), NtStatus::SUCCESS);
    client
}

/// An open that shares the file with nobody.
fn open(client: &mut Client, world: &mut World, name: &str, asked: &Asked) -> Result<FileId, NtStatus> {
    let mut contexts = CreateContextWriter::default();
    let id = AppInstanceId { structure_size: 20.into(), id: INSTANCE, ..Default::default() };
    contexts.push_struct(CONTEXT_APP_INSTANCE_ID, &id);
    if let Some((high, low)) = asked.version {
        let structure_size = 24.into();
        let version =
            AppInstanceVersion { structure_size, high: high.into(), low: low.into(), ..Default::default() };
        contexts.push_struct(CONTEXT_APP_INSTANCE_VERSION, &version);
    }
    let contexts = contexts.finish();
    let answer = client.call(world, Command::Create, |out| {
        let body = CreateRequestBody {
            impersonation_level: 2.into(),
            desired_access: asked.access.into(),
            create_disposition: FILE_OPEN_IF.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str(name), &contexts);
    });
    match status(&answer) {
        NtStatus::SUCCESS => Ok(CreateResponse::parse(&answer).unwrap().file_id),
        status => Err(status),
    }
}

fn is_open(client: &mut Client, world: &mut World, file: FileId) -> bool {
    let answer = client.call(world, Command::Write, Client::write_body(file, b"mine"));
    status(&answer) == NtStatus::SUCCESS
}

#[test]
fn the_same_application_at_another_client_closes_all_that_it_had_open_of_a_file() {
    let mut world = World::over_volume();
    let mut old = connected(&mut world, "user", 5, "share");
    let files = ["one", "two"].map(|name| (name, open(&mut old, &mut world, name, &PLAIN).unwrap()));
    let mut new = connected(&mut world, "user", 6, "share");
    for (name, file) in files {
        assert!(is_open(&mut old, &mut world, file), "{name}");
        open(&mut new, &mut world, name, &PLAIN).unwrap();
        assert!(!is_open(&mut old, &mut world, file), "{name}");
    }
}

#[test]
fn nobody_closes_what_is_not_the_same_users_at_another_client_through_the_same_share() {
    for (what, user, guid, share) in [
        ("another user", "second", 6, "share"),
        ("the same client", "user", 5, "share"),
        ("another share", "user", 6, "full"),
    ] {
        let mut world = World::over_volume();
        let mut old = connected(&mut world, "user", 5, "share");
        let file = open(&mut old, &mut world, "file", &PLAIN).unwrap();
        let mut new = connected(&mut world, user, guid, share);
        let refused = open(&mut new, &mut world, "file", &PLAIN);
        assert_eq!(refused, Err(NtStatus::SHARING_VIOLATION), "{what}");
        assert!(is_open(&mut old, &mut world, file), "{what}");
    }
}

#[test]
fn another_users_opens_do_not_hide_those_of_the_application() {
    let mut world = World::over_volume();
    let mut old = connected(&mut world, "user", 5, "share");
    let file = open(&mut old, &mut world, "file", &PLAIN).unwrap();
    let mut other = connected(&mut world, "second", 7, "share");
    open(&mut other, &mut world, "another file", &PLAIN).unwrap();
    let mut new = connected(&mut world, "user", 6, "share");
    open(&mut new, &mut world, "file", &PLAIN).unwrap();
    assert!(!is_open(&mut old, &mut world, file));
}

#[test]
fn a_create_that_fails_its_access_check_closes_nothing() {
    let mut world = World::over_volume();
    let mut old = connected(&mut world, "user", 5, "share");
    let file = open(&mut old, &mut world, "file", &PLAIN).unwrap();
    // The user may still read the share, and not write.
    let mut narrow = smb_server::Share::clone(&world.people.share("share").unwrap());
    narrow.access[0].1 = rights::FILE_GENERIC_READ;
    world.people.0.borrow_mut().shares.insert("share".into(), Some(narrow));
    let mut new = connected(&mut world, "user", 6, "share");
    assert_eq!(open(&mut new, &mut world, "file", &PLAIN), Err(NtStatus::ACCESS_DENIED));
    assert!(is_open(&mut old, &mut world, file));
    // With that which it may do it takes the open's place.
    let reads = Asked { access: rights::FILE_GENERIC_READ, ..PLAIN };
    open(&mut new, &mut world, "file", &reads).unwrap();
    assert!(!is_open(&mut old, &mut world, file));
}

#[test]
fn only_a_higher_version_takes_the_place_of_one_with_a_version() {
    for (held, asked, replaces) in [
        (Some((2, 5)), Some((2, 5)), false),
        (Some((2, 5)), Some((2, 4)), false),
        (Some((2, 5)), Some((1, 9)), false),
        (Some((2, 5)), None, false),
        (Some((2, 5)), Some((2, 6)), true),
        (Some((2, 5)), Some((3, 0)), true),
        (None, Some((0, 0)), true),
    ] {
        let mut world = World::over_volume();
        let mut old = connected(&mut world, "user", 5, "share");
        let file = open(&mut old, &mut world, "file", &Asked { version: held, ..PLAIN }).unwrap();
        let mut new = connected(&mut world, "user", 6, "share");
        let opened = open(&mut new, &mut world, "file", &Asked { version: asked, ..PLAIN });
        let expected = if replaces { None } else { Some(NtStatus::FILE_FORCED_CLOSED) };
        assert_eq!(opened.err(), expected, "{held:?} {asked:?}");
        assert_eq!(is_open(&mut old, &mut world, file), !replaces, "{held:?} {asked:?}");
    }
}
