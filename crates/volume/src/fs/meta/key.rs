//! Keys of the metadata store. Their byte order is the order of every listing.
//!
//! Numbers are big-endian. Keys of one file share a prefix, so that they share tree pages.
//!
//! | key | value |
//! |---|---|
//! | `01` | volume record |
//! | `02 item` | counters: next file id, next security id; item 2: how far descriptors' references are counted |
//! | `10 file 00` | inode |
//! | `10 file 01 parent name` | nothing: the file is linked as upper-case `name` in `parent` |
//! | `10 file 02 name` | index of the named stream |
//! | `10 file 03 index` | named stream |
//! | `10 file 04 index block` | extent that begins at this block of the stream |
//! | `10 file 05 piece` | extended attributes, in pieces |
//! | `10 file 06 piece` | reparse data, in pieces |
//! | `10 file 07` | object id |
//! | `20 parent name` | directory entry; `name` in upper case |
//! | `30 security piece` | security descriptor, in pieces |
//! | `31 hash security` | a descriptor with this hash: how many files have it; nothing if that was never counted |
//! | `40 object-id` | file |
//! | `50 lba` | shared run of blocks: length and reference count |
//! | `60 file index` | nothing: the stream has no name and is to be reclaimed; index FFFFFFFF: the whole file |
//! | `70 group` | allocation bitmap of a group of blocks |
//! | `80 open` | an open that outlives the server |
//! | `81 open offset length shared` | a byte-range lock that it holds |
//! | `82 client key` | a lease that such opens have |
//! | `83 file 0 parent name` | a name deleted with the last open of the file |
//! | `83 file 1 index` | a named stream deleted with its last open |
//! | `90` | quota settings |
//! | `91 sid` | a user's quota: what is used, and the user's own limits; the SID as on the wire |

use smallvec::SmallVec;
use types::{Lba, Sid};

use super::super::types::{FileId, OpenStateKey, SecurityId, StreamId};
use super::super::upcase::upcase_unit;

/// Bytes of a key, ordered as bytes.
pub type Key = SmallVec<[u8; 32]>;

/// Longest key in the store: a parent, a file and a name of 255 UTF-16 units, rounded up.
pub const KEY_BYTES_MAX: usize = 560;

const VOLUME: u8 = 0x01;
const COUNTER: u8 = 0x02;
const FILE: u8 = 0x10;
const ENTRY: u8 = 0x20;
const SECURITY: u8 = 0x30;
const SECURITY_HASH: u8 = 0x31;
const OBJECT_ID: u8 = 0x40;
const SHARED: u8 = 0x50;
const ORPHAN: u8 = 0x60;
const GROUP: u8 = 0x70;
const OPEN: u8 = 0x80;
const OPEN_LOCK: u8 = 0x81;
const LEASE: u8 = 0x82;
const DELETION: u8 = 0x83;
const QUOTA_SETTINGS: u8 = 0x90;
const QUOTA_USER: u8 = 0x91;

const INODE: u8 = 0;
const LINK: u8 = 1;
const STREAM_NAME: u8 = 2;
const STREAM: u8 = 3;
const EXTENT: u8 = 4;
const EXTENDED_ATTRIBUTES: u8 = 5;
const REPARSE: u8 = 6;
const FILE_OBJECT_ID: u8 = 7;

fn file_key(file: FileId, part: u8) -> Key {
    let mut key = Key::new();
    key.push(FILE);
    key.extend_from_slice(&file.0.to_be_bytes());
    key.push(part);
    key
}

fn push_name(key: &mut Key, name: &[u16]) {
    for &unit in name {
        key.extend_from_slice(&upcase_unit(unit).to_be_bytes());
    }
}

fn number_key(table: u8, number: u64) -> Key {
    let mut key = Key::new();
    key.push(table);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub fn volume() -> Key {
    Key::from_slice(&[VOLUME])
}

/// Kind of a counter.
#[derive(Debug, Clone, Copy)]
pub enum Counter {
    File = 0,
    Security = 1,
    /// No number: a [`DescriptorCountsRecord`](super::record::DescriptorCountsRecord).
    References = 2,
}

pub fn counter(counter: Counter) -> Key {
    Key::from_slice(&[COUNTER, counter as u8])
}

pub fn inode(file: FileId) -> Key {
    file_key(file, INODE)
}

/// All keys of one file lie from this one to that of the next file.
pub fn file_first(file: FileId) -> Key {
    number_key(FILE, file.0)
}

pub fn link(file: FileId, parent: FileId, name: &[u16]) -> Key {
    let mut key = links(file);
    key.extend_from_slice(&parent.0.to_be_bytes());
    push_name(&mut key, name);
    key
}

/// Prefix of all links of a file.
pub fn links(file: FileId) -> Key {
    file_key(file, LINK)
}

/// Parent and upper-case name of a link key.
pub fn parse_link(key: &[u8]) -> Option<(FileId, Vec<u16>)> {
    let parent = key.get(10..18)?;
    let name = key.get(18..)?;
    Some((FileId(u64::from_be_bytes(parent.try_into().ok()?)), units(name)?))
}

pub fn stream_name(file: FileId, name: &[u16]) -> Key {
    let mut key = file_key(file, STREAM_NAME);
    push_name(&mut key, name);
    key
}

pub fn stream(stream: StreamId) -> Key {
    let mut key = streams(stream.file);
    key.extend_from_slice(&stream.index.to_be_bytes());
    key
}

/// Prefix of all named streams of a file.
pub fn streams(file: FileId) -> Key {
    file_key(file, STREAM)
}

/// Index of a stream key.
pub fn parse_stream(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(10..14)?.try_into().ok()?))
}

pub fn extent(stream: StreamId, block: u64) -> Key {
    let mut key = extents(stream);
    key.extend_from_slice(&block.to_be_bytes());
    key
}

/// Prefix of all extents of a stream.
pub fn extents(stream: StreamId) -> Key {
    let mut key = file_extents(stream.file);
    key.extend_from_slice(&stream.index.to_be_bytes());
    key
}

/// Prefix of all extents of all streams of a file.
pub fn file_extents(file: FileId) -> Key {
    file_key(file, EXTENT)
}

/// Stream and first block of an extent key.
pub fn parse_extent(key: &[u8]) -> Option<(StreamId, u64)> {
    if key.len() != 22 || key[0] != FILE || key[9] != EXTENT {
        return None;
    }
    let file = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let index = u32::from_be_bytes(key.get(10..14)?.try_into().ok()?);
    let block = u64::from_be_bytes(key.get(14..22)?.try_into().ok()?);
    Some((StreamId { file: FileId(file), index }, block))
}

/// Prefix of the pieces of a file's extended attributes.
pub fn extended_attributes(file: FileId) -> Key {
    file_key(file, EXTENDED_ATTRIBUTES)
}

/// Prefix of the pieces of a file's reparse data.
pub fn reparse(file: FileId) -> Key {
    file_key(file, REPARSE)
}

pub fn file_object_id(file: FileId) -> Key {
    file_key(file, FILE_OBJECT_ID)
}

/// Whether a key of a file is that of its object id.
pub fn is_file_object_id(key: &[u8]) -> bool {
    key.len() == 10 && key[0] == FILE && key[9] == FILE_OBJECT_ID
}

pub fn entry(parent: FileId, name: &[u16]) -> Key {
    let mut key = entries(parent);
    push_name(&mut key, name);
    key
}

/// Prefix of all entries of a directory.
pub fn entries(parent: FileId) -> Key {
    number_key(ENTRY, parent.0)
}

/// Prefix of the pieces of a security descriptor.
pub fn security(id: SecurityId) -> Key {
    number_key(SECURITY, id.0)
}

pub fn security_hash(hash: u64, id: SecurityId) -> Key {
    let mut key = security_hashes(hash);
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

/// Prefix of all descriptors by their hashes.
pub fn all_security_hashes() -> Key {
    Key::from_slice(&[SECURITY_HASH])
}

/// Prefix of all descriptors with one hash.
pub fn security_hashes(hash: u64) -> Key {
    number_key(SECURITY_HASH, hash)
}

/// Hash and id of a descriptor.
pub fn parse_security_hash(key: &[u8]) -> Option<(u64, SecurityId)> {
    let id = u64::from_be_bytes(key.get(9..17)?.try_into().ok()?);
    Some((parse_number(key)?, SecurityId(id)))
}

pub fn object_id(id: [u8; 16]) -> Key {
    let mut key = Key::new();
    key.push(OBJECT_ID);
    key.extend_from_slice(&id);
    key
}

pub fn shared(lba: Lba) -> Key {
    number_key(SHARED, lba.0)
}

/// Prefix of all shared runs.
pub fn all_shared() -> Key {
    Key::from_slice(&[SHARED])
}

/// Index that stands for the whole file in an orphan's key.
pub const WHOLE_FILE: u32 = u32::MAX;

pub fn orphan(stream: StreamId) -> Key {
    let mut key = number_key(ORPHAN, stream.file.0);
    key.extend_from_slice(&stream.index.to_be_bytes());
    key
}

pub fn parse_orphan(key: &[u8]) -> Option<StreamId> {
    let file = FileId(parse_number(key)?);
    Some(StreamId { file, index: u32::from_be_bytes(key.get(9..13)?.try_into().ok()?) })
}

/// Prefix of all orphans.
pub fn orphans() -> Key {
    Key::from_slice(&[ORPHAN])
}

pub fn group(index: u32) -> Key {
    number_key(GROUP, u64::from(index))
}

pub fn open(open: u64) -> Key {
    number_key(OPEN, open)
}

pub fn open_lock(open: u64, offset: u64, len_bytes: u64, shared: bool) -> Key {
    let mut key = number_key(OPEN_LOCK, open);
    key.extend_from_slice(&offset.to_be_bytes());
    key.extend_from_slice(&len_bytes.to_be_bytes());
    key.push(u8::from(shared));
    key
}

pub fn lease(client: &[u8; 16], lease_key: &[u8; 16]) -> Key {
    let mut key = Key::from_slice(&[LEASE]);
    key.extend_from_slice(client);
    key.extend_from_slice(lease_key);
    key
}

pub fn deleted_link(file: FileId, parent: FileId, name: &[u16]) -> Key {
    let mut key = number_key(DELETION, file.0);
    key.push(0);
    key.extend_from_slice(&parent.0.to_be_bytes());
    push_name(&mut key, name);
    key
}

pub fn deleted_stream(stream: StreamId) -> Key {
    let mut key = number_key(DELETION, stream.file.0);
    key.push(1);
    key.extend_from_slice(&stream.index.to_be_bytes());
    key
}

/// First of all keys of open state, and the first behind them.
pub fn open_state() -> (Key, Key) {
    (Key::from_slice(&[OPEN]), Key::from_slice(&[DELETION + 1]))
}

/// Parses a key of open state. The name of a link is as in the key: in upper case.
pub fn parse_open_state(key: &[u8]) -> Option<OpenStateKey> {
    let number = |at: usize| Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?));
    match (*key.first()?, key.len()) {
        (OPEN, 9) => Some(OpenStateKey::Open(number(1)?)),
        (OPEN_LOCK, 26) => {
            let shared = match key[25] {
                0 => false,
                1 => true,
                _ => return None,
            };
            Some(OpenStateKey::Lock { open: number(1)?, offset: number(9)?, len_bytes: number(17)?, shared })
        }
        (LEASE, 33) => {
            let (client, lease_key) = (key[1..17].try_into().ok()?, key[17..].try_into().ok()?);
            Some(OpenStateKey::Lease { client, key: lease_key })
        }
        (DELETION, 14) if key[9] == 1 => {
            let index = u32::from_be_bytes(key[10..].try_into().ok()?);
            Some(OpenStateKey::DeletedStream(StreamId { file: FileId(number(1)?), index }))
        }
        (DELETION, 18..) if key[9] == 0 => Some(OpenStateKey::DeletedLink {
            file: FileId(number(1)?),
            parent: FileId(number(10)?),
            name: units(&key[18..])?.into(),
        }),
        _ => None,
    }
}

pub fn quota_settings() -> Key {
    Key::from_slice(&[QUOTA_SETTINGS])
}

/// Prefix of all users' quotas.
pub fn quota_users() -> Key {
    Key::from_slice(&[QUOTA_USER])
}

pub fn quota_user(user: &Sid) -> Key {
    let mut wire = Vec::with_capacity(user.len_bytes());
    user.write_to(&mut wire);
    let mut key = quota_users();
    key.extend_from_slice(&wire);
    key
}

pub fn parse_quota_user(key: &[u8]) -> Option<Sid> {
    let sid = Sid::parse(key.get(1..)?).ok()?;
    (key.len() == 1 + sid.len_bytes()).then_some(sid)
}

/// One piece of a long value.
pub fn piece(prefix: &[u8], index: u16) -> Key {
    let mut key = Key::from_slice(prefix);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// Kind of a key, as a check distinguishes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Inode(FileId),
    /// File, parent, upper-case name.
    Link(FileId, FileId, Vec<u16>),
    StreamName(FileId),
    Stream(StreamId),
    Extent(StreamId, u64),
    /// Parent, upper-case name.
    Entry(FileId, Vec<u16>),
    Shared(Lba),
    Orphan(StreamId),
    /// Known, and of no interest.
    Other,
    Unknown,
}

/// Returns the kind of a key of unknown origin.
pub fn kind(key: &[u8]) -> Kind {
    parse_kind(key).unwrap_or(Kind::Unknown)
}

fn parse_kind(key: &[u8]) -> Option<Kind> {
    let known = |fits: bool| fits.then_some(Kind::Other);
    match *key.first()? {
        VOLUME => known(key.len() == 1),
        COUNTER => known(key.len() == 2),
        FILE => {
            let file = FileId(parse_number(key)?);
            match *key.get(9)? {
                INODE => (key.len() == 10).then_some(Kind::Inode(file)),
                LINK => parse_link(key).map(|(parent, name)| Kind::Link(file, parent, name)),
                STREAM_NAME => Some(Kind::StreamName(file)),
                STREAM => parse_stream(key).map(|index| Kind::Stream(StreamId { file, index })),
                EXTENT => parse_extent(key).map(|(stream, block)| Kind::Extent(stream, block)),
                EXTENDED_ATTRIBUTES | REPARSE => known(key.len() == 12),
                FILE_OBJECT_ID => known(key.len() == 10),
                _ => None,
            }
        }
        ENTRY => Some(Kind::Entry(FileId(parse_number(key)?), units(key.get(9..)?)?)),
        SECURITY => known(key.len() == 11),
        SECURITY_HASH => known(key.len() == 17),
        OBJECT_ID => known(key.len() == 17),
        SHARED => parse_number(key).map(|lba| Kind::Shared(Lba(lba))),
        ORPHAN => parse_orphan(key).map(Kind::Orphan),
        GROUP => known(key.len() == 9),
        OPEN | OPEN_LOCK | LEASE | DELETION => known(parse_open_state(key).is_some()),
        QUOTA_SETTINGS => known(key.len() == 1),
        QUOTA_USER => known(parse_quota_user(key).is_some()),
        _ => None,
    }
}

/// The number of a key that is a table and one number.
pub fn parse_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The first key after all those that begin with `prefix`.
pub fn after(prefix: &[u8]) -> Key {
    let mut key = Key::from_slice(prefix);
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return key;
        }
    }
    Key::from_slice(&[u8::MAX; 2])
}

/// UTF-16 units of big-endian bytes.
fn units(bytes: &[u8]) -> Option<Vec<u16>> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect())
}
