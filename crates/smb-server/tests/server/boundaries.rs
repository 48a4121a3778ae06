//! A share of a directory: nothing that a client sends leads out of it, and no answer mentions anything
//! outside.

use crate::fixture::*;
use crate::raw::{Asked, DELETE_ON_CLOSE, MAKE, MAKE_DIRECTORY, to};
use smb::wire::*;
use types::NtStatus;

/// A volume with `secret.txt` beside the share `public` of the directory of that name; a client of the whole volume, and one of the share.
fn beside() -> (World, Client, Client) {
    let mut world = World::over_volume();
    let mut whole = Client::ready(&mut world);
    whole.make(&mut world, "secret.txt", MAKE);
    for directory in ["public", r"public\below", "elsewhere"] {
        whole.make(&mut world, directory, MAKE_DIRECTORY);
    }
    whole.make(&mut world, r"public\in.txt", MAKE);
    let public = Client::ready_at(&mut world, "public");
    (world, whole, public)
}

fn names(client: &mut Client, world: &mut World, directory: &str) -> Vec<String> {
    let open = client.open_as(world, directory, Asked::default()).unwrap();
    let mut names: Vec<String> = client.list(world, open).into_iter().map(|(name, _)| name).collect();
    client.close(world, open);
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

const ESCAPES: [&str; 12] = [
    "..",
    r"..\",
    r"..\secret.txt",
    "../secret.txt",
    r"..\public\in.txt",
    r"below\..\..\secret.txt",
    "below/../../secret.txt",
    r"below\..\..\public\in.txt",
    r"missing\..\..\secret.txt",
    r"..\..\..\secret.txt",
    "..:stream",
    r"in.txt\..\..\new.txt",
];

#[test]
fn dots_lead_nowhere_above_a_share() {
    let (mut world, mut whole, mut public) = beside();
    let before = names(&mut whole, &mut world, "");
    for path in ESCAPES {
        for disposition in
            [FILE_SUPERSEDE, FILE_OPEN, FILE_CREATE, FILE_OPEN_IF, FILE_OVERWRITE, FILE_OVERWRITE_IF]
        {
            let found = public.open_as(&mut world, path, Asked { disposition, ..MAKE });
            assert_eq!(found, Err(NtStatus::OBJECT_PATH_SYNTAX_BAD), "{path} {disposition}");
        }
    }
    assert_eq!(names(&mut whole, &mut world, ""), before);
    // Within the share they take away the name before.
    for path in [r"below\..\in.txt", "below/../in.txt", r"missing\..\in.txt"] {
        let file = public.open_as(&mut world, path, Asked::default()).unwrap();
        public.close(&mut world, file);
    }
    for path in [r".\in.txt", r"below\.\x", "."] {
        let found = public.open_as(&mut world, path, MAKE);
        assert_eq!(found, Err(NtStatus::OBJECT_NAME_INVALID), "{path}");
    }
    let found = public.open_as(&mut world, r"\in.txt", MAKE);
    assert_eq!(found, Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn renames_and_hard_links_stay_below_their_share() {
    let (mut world, mut whole, mut public) = beside();
    let before = names(&mut whole, &mut world, "");
    let file = public.open_as(&mut world, "in.txt", MAKE).unwrap();
    for class in [class::RENAME, class::RENAME_EX, class::LINK] {
        for path in ESCAPES {
            // A slash is no separator here, and no name holds one.
            let expected = if path.contains('/') || path.contains(':') && !path.starts_with("..") {
                NtStatus::OBJECT_NAME_INVALID
            } else {
                NtStatus::OBJECT_PATH_SYNTAX_BAD
            };
            for path in [path.to_owned(), format!(r"\{path}")] {
                let status = public.rename(&mut world, file, class, to(&path));
                let refused = [expected, NtStatus::OBJECT_NAME_INVALID, NtStatus::OBJECT_PATH_SYNTAX_BAD];
                assert!(refused.contains(&status), "{class} {path}: {status:?}");
            }
        }
        assert_eq!(public.rename(&mut world, file, class, to(r"\\..\new")), NtStatus::INVALID_PARAMETER);
        let mut relative = to("new");
        relative.root_directory = file.volatile.get();
        assert_eq!(public.rename(&mut world, file, class, relative), NtStatus::INVALID_PARAMETER);
    }
    assert_eq!(names(&mut whole, &mut world, ""), before);
    assert_eq!(public.rename(&mut world, file, class::LINK, to(r"below\..\link.txt")), NtStatus::SUCCESS);
    assert_eq!(public.rename(&mut world, file, class::RENAME, to(r"\below\in.txt")), NtStatus::SUCCESS);
    assert_eq!(names(&mut whole, &mut world, ""), before);
    assert_eq!(names(&mut whole, &mut world, "public"), ["below", "link.txt"]);
    assert_eq!(names(&mut whole, &mut world, r"public\below"), ["in.txt"]);
}

#[test]
fn a_shares_root_lists_itself_as_its_parent() {
    let (mut world, mut whole, mut public) = beside();
    let root = public.open_as(&mut world, "", Asked::default()).unwrap();
    let entries = public.list(&mut world, root);
    assert_eq!((&entries[0].0[..], &entries[1].0[..]), (".", ".."));
    assert_eq!(entries[0].1, entries[1].1);
    // Below it `..` is the parent, if that lies below the root.
    let below = public.open_as(&mut world, "below", MAKE).unwrap();
    assert_eq!(public.list(&mut world, below)[1].1, entries[0].1);
    let moved = whole.open_as(&mut world, r"public\below", MAKE).unwrap();
    assert_eq!(whole.rename(&mut world, moved, class::RENAME, to(r"elsewhere\moved")), NtStatus::SUCCESS);
    let listed = public.list(&mut world, below);
    assert_eq!(listed[0].1, listed[1].1);
}

#[test]
fn what_a_client_is_told_of_names_begins_at_its_share() {
    let (mut world, mut whole, mut public) = beside();
    for (path, name) in
        [("in.txt", "in.txt"), ("below", "below"), ("", ""), (":root", ":root"), ("IN.TXT:s", "in.txt:s")]
    {
        let open = public.open_as(&mut world, path, MAKE).unwrap();
        let normalized = public.query_info(&mut world, open, class::NORMALIZED_NAME).unwrap();
        assert_eq!(normalized[4..], *bytes_of(name), "{path}");
        let all = public.query_info(&mut world, open, class::ALL).unwrap();
        assert_eq!(all[100..], *bytes_of(&format!(r"\{name}")), "{path}");
        public.close(&mut world, open);
    }
    assert_eq!(names(&mut whole, &mut world, ""), ["elsewhere", "public", "secret.txt"]);
}

fn bytes_of(name: &str) -> Vec<u8> {
    name.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn a_shares_root_is_not_renamed_or_deleted_through_the_share() {
    let (mut world, mut whole, mut public) = beside();
    let mut deep = Client::ready_at(&mut world, "deep");
    let root = deep.open_as(&mut world, "", MAKE_DIRECTORY).unwrap();
    for class in [class::RENAME, class::RENAME_EX] {
        assert_eq!(deep.rename(&mut world, root, class, to("other")), NtStatus::INVALID_PARAMETER);
    }
    assert_eq!(deep.set_info(&mut world, root, class::DISPOSITION, &[1]), NtStatus::CANNOT_DELETE);
    for flags in [1_u32, 1 | 8] {
        let status = deep.set_info(&mut world, root, class::DISPOSITION_EX, &flags.to_le_bytes());
        assert_eq!(status, NtStatus::CANNOT_DELETE);
    }
    let asked = Asked { options: MAKE_DIRECTORY.options | DELETE_ON_CLOSE, ..MAKE_DIRECTORY };
    assert_eq!(deep.open_as(&mut world, "", asked), Err(NtStatus::CANNOT_DELETE));
    assert!(deep.query_info(&mut world, root, class::ALTERNATE_NAME).is_err());
    deep.close(&mut world, root);
    assert_eq!(names(&mut public, &mut world, ""), ["below", "in.txt"]);
    // A client that sees the directory from above may rename it.
    let from_above = public.open_as(&mut world, "below", MAKE).unwrap();
    assert_eq!(public.rename(&mut world, from_above, class::RENAME, to("renamed")), NtStatus::SUCCESS);
    assert_eq!(names(&mut whole, &mut world, "public"), ["in.txt", "renamed"]);
}

#[test]
fn a_share_follows_its_directory_when_that_is_renamed() {
    let (mut world, mut whole, mut public) = beside();
    let open_root = public.open_as(&mut world, "", Asked::default()).unwrap();
    let directory = whole.open_as(&mut world, "public", MAKE).unwrap();
    assert_eq!(whole.rename(&mut world, directory, class::RENAME, to(r"elsewhere\moved")), NtStatus::SUCCESS);
    whole.close(&mut world, directory);
    whole.make(&mut world, "public", MAKE_DIRECTORY);
    public.make(&mut world, "new.txt", MAKE);
    assert_eq!(names(&mut whole, &mut world, r"elsewhere\moved"), ["below", "in.txt", "new.txt"]);
    assert_eq!(names(&mut whole, &mut world, "public"), [""; 0]);
    let file = public.open_as(&mut world, "in.txt", MAKE).unwrap();
    assert_eq!(public.rename(&mut world, file, class::RENAME, to("out.txt")), NtStatus::SUCCESS);
    assert_eq!(public.open_as(&mut world, r"..\x", MAKE), Err(NtStatus::OBJECT_PATH_SYNTAX_BAD));
    assert_eq!(public.list(&mut world, open_root).len(), 5);
    // A client that connects from now on gets the directory that is at the path now.
    let mut later = Client::ready_at(&mut world, "public");
    assert_eq!(names(&mut later, &mut world, ""), [""; 0]);
    assert_eq!(names(&mut whole, &mut world, r"elsewhere\moved"), ["below", "new.txt", "out.txt"]);
}

#[test]
fn a_share_whose_directory_is_deleted_leads_nowhere_until_clients_connect_anew() {
    let (mut world, mut whole, _) = beside();
    let mut deep = Client::ready_at(&mut world, "deep");
    deep.make(&mut world, "file", MAKE);
    let delete = Asked { options: DELETE_ON_CLOSE, ..MAKE };
    deep.make(&mut world, "file", delete);
    let directory = whole.open_as(&mut world, r"public\below", MAKE).unwrap();
    assert_eq!(whole.set_info(&mut world, directory, class::DISPOSITION, &[1]), NtStatus::SUCCESS);
    for path in ["", "file"] {
        assert_eq!(deep.open_as(&mut world, path, MAKE), Err(NtStatus::DELETE_PENDING), "{path}");
    }
    whole.close(&mut world, directory);
    for again in [false, true] {
        for (path, asked) in
            [("", Asked::default()), ("file", MAKE), (r"x\y", MAKE), ("dir", MAKE_DIRECTORY), (":s", MAKE)]
        {
            assert_eq!(
                deep.open_as(&mut world, path, asked),
                Err(NtStatus::NETWORK_NAME_DELETED),
                "{path} {again}"
            );
        }
        if !again {
            assert_eq!(
                Client::ready(&mut world).tree_connect(&mut world, "deep"),
                NtStatus::BAD_NETWORK_NAME
            );
            // Another directory of that name is another directory.
            whole.make(&mut world, r"public\below", MAKE_DIRECTORY);
        }
    }
    assert_eq!(deep.tree_connect(&mut world, "deep"), NtStatus::SUCCESS);
    deep.make(&mut world, "file", MAKE);
    assert_eq!(names(&mut whole, &mut world, r"public\below"), ["file"]);
}

#[test]
fn a_share_without_a_directory_is_no_share() {
    let (mut world, mut whole, _) = beside();
    assert_eq!(whole.tree_connect(&mut world, "not a directory"), NtStatus::BAD_NETWORK_NAME);
    let mut empty = World::over_volume();
    let mut client = Client::ready(&mut empty);
    for share in ["public", "deep", "not a directory", "unknown"] {
        assert_eq!(client.tree_connect(&mut empty, share), NtStatus::BAD_NETWORK_NAME, "{share}");
    }
}

#[test]
fn a_compound_goes_on_below_the_root_that_its_tree_connect_found() {
    let (mut world, _, _) = beside();
    let mut client = Client::ready(&mut world);
    (client.tree, client.seal) = (0, true);
    let path = wide_from_str(r"\\server\public");
    let connect = client.build(Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
    let create = client.build(Command::Create, Client::create_body("in.txt"));
    let outside = client.build(Command::Create, Client::create_body(r"..\secret.txt"));
    client.send(&mut world, join(vec![connect, create, outside], true));
    let answers = split(&client.receive(&mut world).unwrap());
    let found: Vec<NtStatus> = answers.iter().map(|answer| status(answer)).collect();
    assert_eq!(found, [NtStatus::SUCCESS, NtStatus::SUCCESS, NtStatus::OBJECT_PATH_SYNTAX_BAD]);
    let tree = Header::parse(&answers[0]).unwrap().tree_id.get();
    assert!(tree != 0 && answers.iter().all(|answer| Header::parse(answer).unwrap().tree_id.get() == tree));
}

#[test]
fn a_tree_connect_ends_with_its_session_while_the_root_is_looked_up() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.sign = true;
    world.layer.0.borrow_mut().hold = true;
    let path = wide_from_str(r"\\server\public");
    let connect = client.build(Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
    client.send(&mut world, connect);
    assert!(client.receive(&mut world).is_none());
    assert!(world.server.close_session(client.session));
    world
        .layer
        .0
        .borrow_mut()
        .asked
        .retain(|(_, asked)| matches!(asked, volume::backend::Operation::OpenRoot { .. }));
    world.layer.release(0);
    world.run_until_idle();
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::USER_SESSION_DELETED);
}

#[test]
fn a_volume_that_comes_back_knows_no_tree_connect_from_before() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let id = types::VolumeId::from_bytes([9; 16]);
    let volume = world.server.remove_volume(id, world.now).unwrap();
    world.server.add_volume(id, volume);
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::NETWORK_NAME_DELETED);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    client.create(&mut world, "file");
}
