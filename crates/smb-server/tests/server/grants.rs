//! A share's grant bounds its clients' changes: every change, by every access that a client can
//! request, through every grant, compared with tables. The files themselves are open to everyone: every
//! refusal is the share's.

use crate::fixture::*;
use crate::raw::{Asked, DELETE_ON_CLOSE, DIRECTORY, MAKE, MAKE_DIRECTORY, OPEN_REPARSE_POINT, to};
use smb::wire::*;
use types::{NtStatus, Sid};
use volume::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};
use zerocopy::IntoBytes;

/// Grant of a share to its clients; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grant {
    Read,
    Change,
    Full,
}
use Grant::{Change, Full, Read};

const SHARES: [(&str, Grant); 4] = [("read-only", Read), ("read", Read), ("change", Change), ("full", Full)];

const MAXIMUM_ALLOWED: u32 = 0x0200_0000;

/// DesiredAccess, and the least grant with which a client may open anything with it.
const ACCESSES: [(u32, Grant); 21] = [
    (0x0000_0001, Read),
    (0x0000_0080, Read),
    (0x0002_0000, Read),
    (0x0010_0000, Read),
    (0x0012_0089, Read),
    (0x0012_00A9, Read),
    (0x8000_0000, Read),
    (0xA000_0000, Read),
    (MAXIMUM_ALLOWED, Read),
    (0x0000_0002, Change),
    (0x0000_0004, Change),
    (0x0000_0010, Change),
    (0x0000_0100, Change),
    (0x0001_0000, Change),
    (0x4000_0000, Change),
    (0xC000_0000, Change),
    (0x0013_01BF, Change),
    (0x0004_0000, Full),
    (0x0008_0000, Full),
    (0x001F_01FF, Full),
    (0x1000_0000, Full),
];

/// Returns the rights of a MAXIMUM_ALLOWED open, and of generic rights.
fn rights_of(access: u32, grant: Grant) -> u32 {
    match access {
        MAXIMUM_ALLOWED => match grant {
            Read => 0x0012_00A9,
            Change => 0x0013_01BF,
            Full => 0x001F_01FF,
        },
        0x8000_0000 => 0x0012_0089,
        0xA000_0000 => 0x0012_00A9,
        0x4000_0000 => 0x0012_0116,
        0xC000_0000 => 0x0012_019F,
        0x1000_0000 => 0x001F_01FF,
        plain => plain,
    }
}

/// A volume with `file` (9 bytes, with a stream `s`), an empty `directory` and `other`, and a client that may do everything.
fn prepared() -> (World, Client) {
    let mut world = World::over_volume();
    let mut full = Client::ready_at(&mut world, "full");
    restore(&mut world, &mut full);
    (world, full)
}

/// Restores the volume's initial state.
fn restore(world: &mut World, full: &mut Client) {
    let options = DELETE_ON_CLOSE | OPEN_REPARSE_POINT;
    let delete = Asked { options, disposition: FILE_OPEN, ..MAKE };
    let root = full.open_as(world, "", Asked::default()).unwrap();
    for (name, _) in full.list(world, root) {
        if name != "." && name != ".." {
            full.make(world, &name, delete);
        }
    }
    full.close(world, root);
    full.make(world, "directory", MAKE_DIRECTORY);
    for name in ["file", "other"] {
        let file = full.open_as(world, name, MAKE).unwrap();
        let answer = full.call(world, Command::Write, Client::write_body(file, b"some data"));
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        full.close(world, file);
    }
    full.make(world, "file:s", MAKE);
}

/// All that a change could change: names, and of the file times, sizes, attributes, streams, attributes of others' making, security.
fn state(world: &mut World, full: &mut Client) -> Vec<Vec<u8>> {
    let root = full.open_as(world, "", Asked::default()).unwrap();
    let mut state: Vec<Vec<u8>> =
        full.list(world, root).into_iter().map(|(name, _)| name.into_bytes()).collect();
    full.close(world, root);
    for name in ["file", "other", "directory"] {
        let Ok(open) = full.open_as(world, name, Asked { disposition: FILE_OPEN, ..MAKE }) else { continue };
        // Last access and change times do not count: the open itself may change them.
        let basic = full.query_info(world, open, class::BASIC).unwrap();
        state.push([&basic[..8], &basic[16..24], &basic[32..36]].concat());
        for class in [class::STANDARD, class::STREAM, class::EA, class::FULL_EA] {
            state.push(full.query_info(world, open, class).unwrap_or_default());
        }
        state.push(full.security(world, open));
        let (answer, _) = full.fsctl(world, open, fsctl::GET_OBJECT_ID, &[]);
        state.push(answer.0.to_le_bytes().to_vec());
        full.close(world, open);
    }
    state
}

/// One way to make or change something by CREATE.
struct Way {
    what: &'static str,
    path: &'static str,
    asked: Asked<'static>,
    context: fn() -> Vec<u8>,
    /// The least grant that lets it.
    least: Grant,
}

fn nothing() -> Vec<u8> {
    Vec::new()
}

fn attribute() -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_EXTENDED_ATTRIBUTES, &full_ea());
    contexts.finish()
}

fn full_ea() -> Vec<u8> {
    // FILE_FULL_EA_INFORMATION (MS-FSCC 2.4.15): A=1.
    vec![0, 0, 0, 0, 0, 1, 1, 0, b'A', 0, b'1']
}

fn allocation() -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_ALLOCATION_SIZE, &(1_u64 << 20).to_le_bytes());
    contexts.finish()
}

fn dacl() -> SecurityDescriptor {
    let all = Ace::allow(Sid::everyone(), 0x001F_01FF, AceFlags::empty());
    SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl::new(vec![all])),
        ..Default::default()
    }
}

fn security() -> Vec<u8> {
    security_of(dacl())
}

const fn way(
    what: &'static str,
    path: &'static str,
    disposition: u32,
    options: u32,
    context: fn() -> Vec<u8>,
    least: Grant,
) -> Way {
    let asked = Asked { access: 0, attributes: 0, disposition, options, contexts: &[] };
    Way { what, path, asked, context, least }
}

fn security_of(descriptor: SecurityDescriptor) -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_SECURITY_DESCRIPTOR, &descriptor.build().unwrap());
    contexts.finish()
}

fn own_security() -> Vec<u8> {
    security_of(SecurityDescriptor { owner: Some(user_sid()), group: Some(Sid::users()), ..dacl() })
}

fn group() -> Vec<u8> {
    security_of(SecurityDescriptor { group: Some(Sid::administrators()), ..dacl() })
}

fn audit() -> Vec<u8> {
    let control = Control::DACL_PRESENT | Control::SACL_PRESENT;
    security_of(SecurityDescriptor { control, sacl: Some(Acl::new(Vec::new())), ..dacl() })
}

const WAYS: [Way; 30] = [
    way("open", "file", FILE_OPEN, 0, nothing, Read),
    way("open if there", "file", FILE_OPEN_IF, 0, nothing, Read),
    way("open a directory", "directory", FILE_OPEN, DIRECTORY, nothing, Read),
    way("open the root", "", FILE_OPEN_IF, 0, nothing, Read),
    way("open a stream", "file:s", FILE_OPEN_IF, 0, nothing, Read),
    way("open, with an allocation size", "file", FILE_OPEN_IF, 0, allocation, Read),
    way("open, with attributes", "file", FILE_OPEN_IF, 0, attribute, Read),
    way("open, with security", "file", FILE_OPEN_IF, 0, security, Read),
    way("make", "new", FILE_CREATE, 0, nothing, Change),
    way("open if there, else make", "new", FILE_OPEN_IF, 0, nothing, Change),
    way("overwrite, else make", "new", FILE_OVERWRITE_IF, 0, nothing, Change),
    way("supersede, else make", "new", FILE_SUPERSEDE, 0, nothing, Change),
    way("make a directory", "new", FILE_CREATE, DIRECTORY, nothing, Change),
    way("open a directory, else make", "new", FILE_OPEN_IF, DIRECTORY, nothing, Change),
    way("make with a stream", "new:s", FILE_CREATE, 0, nothing, Change),
    way("make a stream", "file:new", FILE_CREATE, 0, nothing, Change),
    way("open a stream, else make", "file:new", FILE_OPEN_IF, 0, nothing, Change),
    way("make a directory's stream", "directory:new", FILE_OPEN_IF, 0, nothing, Change),
    way("overwrite", "file", FILE_OVERWRITE, 0, nothing, Change),
    way("overwrite if there", "file", FILE_OVERWRITE_IF, 0, nothing, Change),
    way("overwrite with attributes", "file", FILE_OVERWRITE_IF, 0, attribute, Change),
    way("overwrite a stream", "file:s", FILE_OVERWRITE, 0, nothing, Change),
    way("supersede", "file", FILE_SUPERSEDE, 0, nothing, Change),
    way("make with an allocation size", "new", FILE_CREATE, 0, allocation, Change),
    way("make with attributes", "new", FILE_CREATE, 0, attribute, Change),
    way("make with security", "new", FILE_CREATE, 0, security, Change),
    way("make a directory with security", "new", FILE_CREATE, DIRECTORY, security, Change),
    way("make with the maker's own owner and group", "new", FILE_CREATE, 0, own_security, Change),
    way("make for another group", "new", FILE_CREATE, 0, group, Full),
    way("make with a SACL", "new", FILE_CREATE, 0, audit, Full),
];

#[test]
fn a_create_does_no_more_than_its_share_grants_whatever_it_asks_for() {
    let (mut world, mut full) = prepared();
    for (share, grant) in SHARES {
        let mut client = Client::ready_at(&mut world, share);
        for way in &WAYS {
            let before = state(&mut world, &mut full);
            let (allowed, refused): (Vec<_>, Vec<_>) =
                ACCESSES.iter().partition(|(_, least)| grant >= way.least.max(*least));
            for &(access, _) in refused {
                let contexts = (way.context)();
                let answer =
                    client.open_as(&mut world, way.path, Asked { access, contexts: &contexts, ..way.asked });
                assert_eq!(answer, Err(NtStatus::ACCESS_DENIED), "{share}: {} with {access:08X}", way.what);
            }
            assert_eq!(state(&mut world, &mut full), before, "{share}: {}", way.what);
            for &(access, _) in allowed {
                let contexts = (way.context)();
                let answer =
                    client.open_as(&mut world, way.path, Asked { access, contexts: &contexts, ..way.asked });
                let file = answer
                    .unwrap_or_else(|status| panic!("{share}: {} with {access:08X}: {status}", way.what));
                client.close(&mut world, file);
                if way.least > Read {
                    restore(&mut world, &mut full);
                }
            }
            if way.least == Read {
                assert_eq!(state(&mut world, &mut full), before, "{share}: {}", way.what);
            }
        }
    }
}

#[test]
fn a_file_is_not_made_for_another_owner_without_a_grant_of_that() {
    let (mut world, _full) = prepared();
    let contexts = security_of(SecurityDescriptor { owner: Some(Sid::administrators()), ..dacl() });
    for (share, grant) in SHARES {
        let mut client = Client::ready_at(&mut world, share);
        let answer = client.open_as(&mut world, "new", Asked { access: 1, contexts: &contexts, ..MAKE });
        // The share lets its client say so; the client is no administrator.
        let refusal = if grant == Full { NtStatus::INVALID_OWNER } else { NtStatus::ACCESS_DENIED };
        assert_eq!(answer, Err(refusal), "{share}");
    }
}

#[test]
fn deletion_on_close_needs_a_grant_of_deletion() {
    let (mut world, mut full) = prepared();
    for (share, grant) in SHARES {
        let mut client = Client::ready_at(&mut world, share);
        for (path, disposition) in
            [("file", FILE_OPEN), ("new", FILE_CREATE), ("file:s", FILE_OPEN), ("file:new", FILE_CREATE)]
        {
            for (access, least) in ACCESSES {
                let asked = Asked { access, disposition, options: DELETE_ON_CLOSE, ..MAKE };
                let answer = client.open_as(&mut world, path, asked);
                let deletes = rights_of(access, Full) & 0x0001_0000 != 0;
                let what = format!("{share}: {path} with {access:08X}");
                assert_eq!(answer.is_ok(), deletes && grant >= least.max(Change), "{what}: {answer:?}");
                if let Ok(file) = answer {
                    client.close(&mut world, file);
                    restore(&mut world, &mut full);
                }
            }
        }
    }
}

/// A change through an open.
struct Deed {
    what: &'static str,
    path: &'static str,
    /// One of these rights has to be the open's.
    rights: u32,
    least: Grant,
    run: fn(&mut Client, &mut World, FileId) -> NtStatus,
}

const fn deed(
    what: &'static str,
    path: &'static str,
    rights: u32,
    least: Grant,
    run: fn(&mut Client, &mut World, FileId) -> NtStatus,
) -> Deed {
    Deed { what, path, rights, least, run }
}

const ANY: u32 = u32::MAX;

const DEEDS: [Deed; 26] = [
    deed("write", "file", 0x6, Change, |client, world, file| {
        // Behind the end, as the right to append takes no other place.
        let body = WriteRequestBody {
            length: 4.into(),
            offset: (b"some data".len() as u64).into(),
            file_id: file,
            ..Default::default()
        };
        status(&client.call(world, Command::Write, |out| {
            write_write_request(out, body, &[]);
            out.extend_from_slice(b"more");
        }))
    }),
    deed("write a stream", "file:s", 0x6, Change, |client, world, file| {
        status(&client.call(world, Command::Write, Client::write_body(file, b"other data")))
    }),
    deed("set the end of file", "file", 0x2, Change, |client, world, file| {
        client.set_info(world, file, class::END_OF_FILE, &1_u64.to_le_bytes())
    }),
    deed("set the allocation", "file", 0x2, Change, |client, world, file| {
        client.set_info(world, file, class::ALLOCATION, &0_u64.to_le_bytes())
    }),
    deed("set attributes", "file", 0x100, Change, |client, world, file| {
        client.set_info(
            world,
            file,
            class::BASIC,
            BasicInformation { file_attributes: 2.into(), ..Default::default() }.as_bytes(),
        )
    }),
    deed("set times", "directory", 0x100, Change, |client, world, file| {
        let basic =
            BasicInformation { last_write_time: 130_000_000_000_000_000.into(), ..Default::default() };
        client.set_info(world, file, class::BASIC, basic.as_bytes())
    }),
    deed("delete", "file", 0x1_0000, Change, |client, world, file| {
        client.set_info(world, file, class::DISPOSITION, &[1])
    }),
    deed("delete a directory", "directory", 0x1_0000, Change, |client, world, file| {
        client.set_info(world, file, class::DISPOSITION_EX, &1_u32.to_le_bytes())
    }),
    deed("delete on close", "file", 0x1_0000, Change, |client, world, file| {
        client.set_info(world, file, class::DISPOSITION_EX, &9_u32.to_le_bytes())
    }),
    deed("delete a stream", "file:s", 0x1_0000, Change, |client, world, file| {
        client.set_info(world, file, class::DISPOSITION, &[1])
    }),
    deed("rename", "file", 0x1_0000, Change, |client, world, file| {
        client.rename(world, file, class::RENAME, to("renamed"))
    }),
    deed("rename over another", "file", 0x1_0000, Change, |client, world, file| {
        client.rename(world, file, class::RENAME_EX, RenameInformation { flags: 1, ..to("other") })
    }),
    deed("rename a directory", "directory", 0x1_0000, Change, |client, world, file| {
        client.rename(world, file, class::RENAME, to("renamed"))
    }),
    deed("rename a stream", "file:s", 0x1_0000, Change, |client, world, file| {
        client.rename(world, file, class::RENAME, to(":t"))
    }),
    deed("link", "file", ANY, Change, |client, world, file| {
        client.rename(world, file, class::LINK, to(r"directory\..\link"))
    }),
    deed("link over another", "file", ANY, Change, |client, world, file| {
        client.rename(world, file, class::LINK, RenameInformation { flags: 1, ..to("other") })
    }),
    deed("set extended attributes", "file", 0x10, Change, |client, world, file| {
        client.set_info(world, file, class::FULL_EA, &full_ea())
    }),
    deed("set the DACL", "file", 0x4_0000, Full, |client, world, file| {
        client.set_security(world, file, 4, &dacl().build().unwrap())
    }),
    deed("set the owner", "file", 0x8_0000, Full, |client, world, file| {
        let owner = SecurityDescriptor { owner: Some(user_sid()), ..Default::default() };
        client.set_security(world, file, 1, &owner.build().unwrap())
    }),
    deed("make sparse", "file", 0x106, Change, |client, world, file| {
        client.fsctl(world, file, fsctl::SET_SPARSE, &[1]).0
    }),
    deed("zero", "file", 0x2, Change, |client, world, file| {
        client.fsctl(world, file, fsctl::SET_ZERO_DATA, &[0_u64, 5].map(u64::to_le_bytes).concat()).0
    }),
    deed("trim", "file", 0x2, Change, |client, world, file| {
        let ranges =
            [&0_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &0_u64.to_le_bytes(), &5_u64.to_le_bytes()];
        client.fsctl(world, file, fsctl::FILE_LEVEL_TRIM, &ranges.concat()).0
    }),
    deed("set a reparse point", "other", 0x102, Change, |client, world, file| {
        // A tag of nobody's, without data (MS-FSCC 2.1.2.2).
        client.fsctl(world, file, fsctl::SET_REPARSE_POINT, &[0x17, 0, 0, 0x80, 0, 0, 0, 0]).0
    }),
    deed("make an object id", "file", ANY, Change, |client, world, file| {
        client.fsctl(world, file, fsctl::CREATE_OR_GET_OBJECT_ID, &[]).0
    }),
    deed("copy onto it", "file", 0x2, Change, |client, world, file| {
        let source = client.open_as(world, "other", Asked::default()).unwrap();
        let (status, key) = client.fsctl(world, source, fsctl::SRV_REQUEST_RESUME_KEY, &[]);
        assert_eq!(status, NtStatus::SUCCESS);
        let mut copy = key[..24].to_vec();
        copy.extend([1_u32, 0].map(u32::to_le_bytes).concat());
        copy.extend([0_u64, 2].map(u64::to_le_bytes).concat());
        copy.extend([4_u32, 0].map(u32::to_le_bytes).concat());
        let answer = client.fsctl(world, file, fsctl::SRV_COPYCHUNK_WRITE, &copy).0;
        client.close(world, source);
        answer
    }),
    deed("set integrity", "file", 0x102, Change, |client, world, file| {
        client.fsctl(world, file, fsctl::SET_INTEGRITY_INFORMATION, &[0; 8]).0
    }),
];

#[test]
fn an_open_changes_no_more_than_its_share_grants() {
    let (mut world, mut full) = prepared();
    for (share, grant) in SHARES {
        let mut client = Client::ready_at(&mut world, share);
        for deed in &DEEDS {
            let before = state(&mut world, &mut full);
            let opens = ACCESSES.iter().filter(|(_, least)| grant >= *least);
            let (allowed, refused): (Vec<_>, Vec<_>) = opens
                .partition(|(access, _)| grant >= deed.least && rights_of(*access, grant) & deed.rights != 0);
            for (access, _) in refused {
                let status = open_and_run(deed, &mut client, &mut world, access);
                // Without the right to make one, an object id is one that is not there.
                let no_id = deed.what.contains("object id") && status == NtStatus::OBJECTID_NOT_FOUND;
                let refused = status == NtStatus::ACCESS_DENIED || no_id;
                assert!(refused, "{share}: {} with {access:08X}: {status}", deed.what);
            }
            assert_eq!(state(&mut world, &mut full), before, "{share}: {}", deed.what);
            for (access, _) in allowed {
                let status = open_and_run(deed, &mut client, &mut world, access);
                assert_eq!(status, NtStatus::SUCCESS, "{share}: {} with {access:08X}", deed.what);
                restore(&mut world, &mut full);
            }
        }
    }
}

fn open_and_run(deed: &Deed, client: &mut Client, world: &mut World, access: u32) -> NtStatus {
    let file = client.open_as(world, deed.path, Asked { access, ..Asked::default() }).unwrap();
    let status = (deed.run)(client, world, file);
    client.close(world, file);
    status
}

#[test]
fn a_share_that_grants_nothing_is_not_connected_to() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "forbidden"), NtStatus::ACCESS_DENIED);
}
