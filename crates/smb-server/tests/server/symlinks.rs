//! Symbolic links: the server follows none, but shows a client that meets one its target (MS-SMB2
//! 2.2.2.2.1, 3.3.5.9, 3.3.5.21.1).

use crate::fixture::*;
use crate::raw::{Asked, MAKE, MAKE_DIRECTORY, OPEN_REPARSE_POINT, to};
use smb::wire::*;
use types::NtStatus;

/// SYMLINK_FLAG_RELATIVE (MS-FSCC 2.1.2.4).
const RELATIVE: u32 = 1;
const PATH_BUFFER: usize = 20;

/// Makes a symbolic link's REPARSE_DATA_BUFFER: the substitute name follows the print name.
fn reparse(substitute: &str, flags: u32) -> Vec<u8> {
    let print = bytes_of("print");
    let name = bytes_of(substitute);
    let mut out = REPARSE_TAG_SYMLINK.to_le_bytes().to_vec();
    for field in [12 + print.len() + name.len(), 0, print.len(), name.len(), 0, print.len()] {
        out.extend_from_slice(&(field as u16).to_le_bytes());
    }
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&print);
    out.extend_from_slice(&name);
    out
}

fn bytes_of(name: &str) -> Vec<u8> {
    name.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Details of a refusal about the link that the path met.
#[derive(Debug, PartialEq, Eq)]
struct Met {
    unparsed: usize,
    substitute: String,
    is_relative: bool,
}

/// Reads a Symbolic Link Error Response by the offsets in it.
fn met(answer: &[u8], dialect: Dialect) -> Met {
    assert_eq!(status(answer), NtStatus::STOPPED_ON_SYMLINK);
    let raw = &answer[HEADER_BYTES..];
    assert_eq!(raw[2], u8::from(dialect == Dialect::Smb311), "ErrorContextCount");
    assert_eq!(u32::from_le_bytes(raw[4..8].try_into().unwrap()) as usize, raw.len() - 8, "ByteCount");
    let data = ErrorResponse::parse(answer).unwrap().data().unwrap();
    if dialect == Dialect::Smb311 {
        assert_eq!(raw[8..16], [&(data.len() as u32).to_le_bytes()[..], &[0; 4]].concat());
    }
    let short = |at: usize| usize::from(u16::from_le_bytes([data[at], data[at + 1]]));
    assert_eq!(u32::from_le_bytes(data[..4].try_into().unwrap()) as usize, data.len() - 4);
    assert_eq!(data[4..12], *b"SYML\x0C\0\0\xA0");
    let name = &data[8 + PATH_BUFFER..][short(16)..][..short(18)];
    let units: Vec<u16> = name.chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    Met {
        unparsed: short(14),
        substitute: String::from_utf16(&units).unwrap(),
        is_relative: data[24..28] == RELATIVE.to_le_bytes(),
    }
}

/// Returns the path that a client tries next: as Windows and Linux make it.
fn follow(path: &str, met: &Met) -> String {
    let (link, rest) = path.split_at(path.len() - met.unparsed / 2);
    if !met.is_relative {
        let below = met.substitute.strip_prefix(r"\??\UNC\server\share\").expect("on this server");
        return format!("{below}{rest}");
    }
    let mut names: Vec<&str> = link.split('\\').collect();
    names.pop();
    for name in met.substitute.split('\\') {
        if name == ".." {
            names.pop();
        } else {
            names.push(name);
        }
    }
    format!("{}{rest}", names.join("\\"))
}

/// Opens as clients do that follow links. `Err`: they gave up, or the file is not there.
fn open_following(client: &mut Client, world: &mut World, path: &str) -> Result<String, NtStatus> {
    let mut path = path.to_owned();
    for _ in 0..8 {
        let body = Client::create_body_with(&path, 0x0002_0089, FILE_OPEN, Vec::new());
        let answer = client.call(world, Command::Create, body);
        match status(&answer) {
            NtStatus::STOPPED_ON_SYMLINK => path = follow(&path, &met(&answer, client.dialect)),
            NtStatus::SUCCESS => {
                let file = CreateResponse::parse(&answer).unwrap().file_id;
                client.close(world, file);
                return Ok(path);
            }
            status => return Err(status),
        }
    }
    Err(NtStatus::STOPPED_ON_SYMLINK)
}

fn link(client: &mut Client, world: &mut World, name: &str, substitute: &str, flags: u32, directory: bool) {
    let asked = if directory { MAKE_DIRECTORY } else { MAKE };
    let file = client.open_as(world, name, asked).unwrap();
    let (status, _) = client.fsctl(world, file, fsctl::SET_REPARSE_POINT, &reparse(substitute, flags));
    assert_eq!(status, NtStatus::SUCCESS);
    client.close(world, file);
}

/// `dir\sub\file`, and links of all kinds to it.
fn with_links(dialect: u16) -> (World, Client) {
    let mut world = World::over_volume();
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes { dialects: vec![dialect], ..Wishes::default() });
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    for directory in ["dir", r"dir\sub"] {
        client.make(&mut world, directory, MAKE_DIRECTORY);
    }
    client.make(&mut world, r"dir\sub\file", MAKE);
    client.make(&mut world, r"dir\sub\file:s", MAKE);
    for (name, substitute, flags, directory) in [
        ("file", r"dir\sub\file", RELATIVE, false),
        (r"dir\up", r"..\dir\sub", RELATIVE, true),
        ("whole", r"\??\UNC\server\share\dir", 0, true),
        ("loop", "pool", RELATIVE, true),
        ("pool", "loop", RELATIVE, true),
        ("gone", "nothing", RELATIVE, false),
    ] {
        link(&mut client, &mut world, name, substitute, flags, directory);
    }
    (world, client)
}

#[test]
fn clients_of_each_dialect_walk_by_links_to_where_they_lead() {
    for dialect in [0x0210, 0x0302, 0x0311] {
        let (mut world, mut client) = with_links(dialect);
        for (path, found) in [
            ("file", Ok(r"dir\sub\file")),
            (r"dir\up", Ok(r"dir\sub")),
            (r"dir\up\file", Ok(r"dir\sub\file")),
            (r"dir\up\file:s", Ok(r"dir\sub\file:s")),
            ("file:s", Ok(r"dir\sub\file:s")),
            ("whole", Ok("dir")),
            (r"whole\up\file", Ok(r"dir\sub\file")),
            (r"whole\..\whole\sub", Ok(r"dir\sub")),
            (r"loop\x", Err(NtStatus::STOPPED_ON_SYMLINK)),
            ("gone", Err(NtStatus::OBJECT_NAME_NOT_FOUND)),
            (r"whole\nothing\file", Err(NtStatus::OBJECT_PATH_NOT_FOUND)),
        ] {
            let opened = open_following(&mut client, &mut world, path);
            assert_eq!(opened.as_deref().map_err(|status| *status), found, "{dialect:x} {path}");
        }
    }
}

#[test]
fn a_link_is_told_with_what_lies_behind_it_and_opened_itself_if_that_is_asked_for() {
    let (mut world, mut client) = with_links(0x0311);
    for (path, unparsed) in [("file", ""), ("file:s", ":s"), (r"dir\up\a\b", r"\a\b"), (r"dir\up\", r"\")] {
        let answer = client.call(&mut world, Command::Create, Client::create_body(path));
        assert_eq!(met(&answer, Dialect::Smb311).unparsed, 2 * unparsed.len(), "{path}");
    }
    for (path, options) in [("file", OPEN_REPARSE_POINT), ("whole", OPEN_REPARSE_POINT)] {
        let file = client.open_as(&mut world, path, Asked { options, ..Asked::default() }).unwrap();
        client.close(&mut world, file);
    }
}

#[test]
fn renames_and_hard_links_below_a_link_are_refused_with_it_and_lose_nothing() {
    for dialect in [Dialect::Smb302, Dialect::Smb311] {
        let (mut world, mut client) = with_links(dialect as u16);
        let file = client.open_as(&mut world, r"dir\sub\file", MAKE).unwrap();
        for class in [class::RENAME, class::RENAME_EX, class::LINK] {
            let mut data = Vec::new();
            to(r"whole\new\name").write(&mut data);
            let answer = client.call(&mut world, Command::SetInfo, |out| {
                let body = SetInfoRequestBody {
                    info_type: INFO_FILE,
                    file_info_class: class,
                    file_id: file,
                    ..Default::default()
                };
                write_set_info_request(out, body, &data);
            });
            let told = met(&answer, dialect);
            assert_eq!((told.unparsed, told.is_relative), (2 * r"\new\name".len(), false));
            assert_eq!(told.substitute, r"\??\UNC\server\share\dir");
        }
        assert_eq!(client.rename(&mut world, file, class::LINK, to(r"dir\hard")), NtStatus::SUCCESS);
        client.close(&mut world, file);
        for path in [r"dir\sub\file", r"dir\hard"] {
            client.open_as(&mut world, path, Asked::default()).unwrap();
        }
    }
}

#[test]
fn a_link_whose_data_lead_out_of_it_is_told_as_damaged() {
    let (mut world, mut client) = with_links(0x0311);
    for (name, at) in [("substitute", 10), ("print", 14), ("offset", 8)] {
        let file = client.open_as(&mut world, name, MAKE).unwrap();
        let mut data = reparse("x", RELATIVE);
        data[at + 1] = 0x7F;
        let (set, _) = client.fsctl(&mut world, file, fsctl::SET_REPARSE_POINT, &data);
        assert_eq!(set, NtStatus::SUCCESS, "{name}");
        client.close(&mut world, file);
        let opened = client.open_as(&mut world, name, Asked::default());
        assert_eq!(opened, Err(NtStatus::IO_REPARSE_DATA_INVALID), "{name}");
    }
}

#[test]
fn a_buffer_too_small_for_a_descriptor_is_told_its_length_in_the_dialects_form() {
    for (dialect, context) in [(0x0302, &[][..]), (0x0311, &[4, 0, 0, 0, 0, 0, 0, 0][..])] {
        let (mut world, mut client) = with_links(dialect);
        let file = client.open_as(&mut world, r"dir\sub\file", MAKE).unwrap();
        let needed = client.security(&mut world, file).len() as u32;
        let answer = client.call(&mut world, Command::QueryInfo, |out| {
            let body = QueryInfoRequestBody {
                info_type: INFO_SECURITY,
                additional_information: 7.into(),
                output_buffer_length: 4.into(),
                file_id: file,
                ..Default::default()
            };
            write_query_info_request(out, body, &[]);
        });
        assert_eq!(status(&answer), NtStatus::BUFFER_TOO_SMALL);
        assert_eq!(answer[HEADER_BYTES + 8..], [context, &needed.to_le_bytes()[..]].concat());
        assert_eq!(ErrorResponse::parse(&answer).unwrap().data().unwrap(), needed.to_le_bytes());
    }
}
