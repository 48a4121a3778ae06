//! Stored records of opens that outlive the server, byte for byte (docs/ON_DISK.md). Little-endian,
//! behind a version; nothing in them names a server.
//!
//! Decoding takes bytes of unknown origin: `None` if they are not a record of this version, whole and nothing else.

use super::range_locks::SEQUENCE_BUCKETS;
use crate::backend::{
    AccessToken, AppInstance, CreateAction, Guid, LeaseState, LeaseVersion2, OplockLevel, WideString,
};
use crate::fs::{FileId, NAME_UNITS_MAX, OpenStateKey, StreamId};
use std::time::Duration;
use types::Sid;

const VERSION: u8 = 1;

/// Longest name of a share in bytes of UTF-8: 80 characters (MS-SRVS 2.2.4.23).
const SHARE_BYTES_MAX: usize = 320;

bitflags::bitflags! {
    #[derive(Clone, Copy)]
    struct Flags: u32 {
        const DIRECTORY = 1;
        const DELETE_ON_CLOSE = 2;
        const LINK = 4;
        const PARENT_KEY = 8;
        const APP_INSTANCE = 0x10;
        const APP_VERSION = 0x20;
        const SEQUENCES = 0x40;
        const RENAMED = 0x80;
    }
}

bitflags::bitflags! {
    /// Times that one open does not change as a side effect (MS-FSA Open.UserSet*Time).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FixedTimes: u8 {
        const ACCESSED = 1;
        const WRITTEN = 2;
        const CHANGED = 4;
    }
}

/// Digest of a token's groups and privileges: two tokens with the same one are taken to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest(pub u64);

impl TokenDigest {
    pub fn of(token: &AccessToken) -> Self {
        let wire = |sid: &Sid| {
            let mut bytes = Vec::with_capacity(sid.len_bytes());
            sid.write_to(&mut bytes);
            bytes
        };
        let mut groups: Vec<Vec<u8>> = token.groups.iter().map(wire).collect();
        groups.sort_unstable();
        groups.dedup();
        let begun = codes::crc64_append(codes::crc64(&wire(&token.user)), &wire(&token.primary_group));
        let crc = groups.iter().fold(begun, |crc, group| codes::crc64_append(crc, group));
        Self(codes::crc64_append(crc, &token.privileges.bits().to_le_bytes()))
    }
}

/// Caching of an open, as stored with the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredCache {
    Oplock(OplockLevel),
    /// Key of the client's lease, which has its own record.
    Lease(Guid),
}

/// An open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRecord {
    pub stream: StreamId,
    pub directory: bool,
    /// Directory and name at the open; `None`: the volume's root.
    pub link: Option<(FileId, WideString)>,
    /// The directory that is its share's root.
    pub root: FileId,
    pub share: String,
    pub user: Sid,
    pub token: TokenDigest,
    pub client: Guid,
    pub create_guid: Guid,
    pub app_instance: Option<AppInstance>,
    pub access: u32,
    pub share_access: u32,
    pub options: u32,
    pub delete_on_close: bool,
    /// The file was renamed since: the client may not know its present name.
    pub renamed: bool,
    pub timeout: Duration,
    pub action: CreateAction,
    pub cache: StoredCache,
    pub parent_key: Option<Guid>,
    /// Times that it does not change as a side effect.
    pub fixed_times: FixedTimes,
    /// Open.LockSequenceArray; FF: no number.
    pub sequences: Option<[u8; SEQUENCE_BUCKETS]>,
}

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRecord {
    pub stream: StreamId,
    pub state: LeaseState,
    pub epoch: u16,
    pub version_2: Option<LeaseVersion2>,
}

/// One record of open state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateRecord {
    Open(Box<OpenRecord>),
    /// The number of times that a lock is held.
    Lock(u32),
    Lease(LeaseRecord),
    /// The name to delete, in its original case.
    DeletedLink(WideString),
    DeletedStream,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn guid_if(&mut self, is_there: bool) -> Option<Option<Guid>> {
        if is_there { self.array().map(Some) } else { Some(None) }
    }

    /// A name that a file can have, to the end.
    fn name(&mut self) -> Option<WideString> {
        let (pairs, rest) = self.0.as_chunks::<2>();
        self.0 = rest;
        let name: WideString = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
        (!name.is_empty() && name.len() <= NAME_UNITS_MAX).then_some(name)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn push_name(out: &mut Vec<u8>, name: &[u16]) {
    name.iter().for_each(|unit| out.extend_from_slice(&unit.to_le_bytes()));
}

const fn action_number(action: CreateAction) -> u8 {
    match action {
        CreateAction::Superseded => 0,
        CreateAction::Opened => 1,
        CreateAction::Created => 2,
        CreateAction::Overwritten => 3,
    }
}

const fn action_of(number: u8) -> Option<CreateAction> {
    Some(match number {
        0 => CreateAction::Superseded,
        1 => CreateAction::Opened,
        2 => CreateAction::Created,
        3 => CreateAction::Overwritten,
        _ => return None,
    })
}

impl StoredCache {
    const LEASE: u8 = 4;

    const fn number(self) -> u8 {
        match self {
            Self::Oplock(OplockLevel::None) => 0,
            Self::Oplock(OplockLevel::LevelII) => 1,
            Self::Oplock(OplockLevel::Exclusive) => 2,
            Self::Oplock(OplockLevel::Batch) => 3,
            Self::Lease(_) => Self::LEASE,
        }
    }

    fn decode(number: u8, reader: &mut Reader<'_>) -> Option<Self> {
        Some(match number {
            0 => Self::Oplock(OplockLevel::None),
            1 => Self::Oplock(OplockLevel::LevelII),
            2 => Self::Oplock(OplockLevel::Exclusive),
            3 => Self::Oplock(OplockLevel::Batch),
            Self::LEASE => Self::Lease(reader.array()?),
            _ => return None,
        })
    }
}

impl OpenRecord {
    fn flags(&self) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::DIRECTORY, self.directory);
        flags.set(Flags::DELETE_ON_CLOSE, self.delete_on_close);
        flags.set(Flags::RENAMED, self.renamed);
        flags.set(Flags::LINK, self.link.is_some());
        flags.set(Flags::PARENT_KEY, self.parent_key.is_some());
        flags.set(Flags::APP_INSTANCE, self.app_instance.is_some());
        flags.set(Flags::APP_VERSION, self.app_instance.is_some_and(|app| app.version.is_some()));
        flags.set(Flags::SEQUENCES, self.sequences.is_some());
        flags
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.cache.number(), action_number(self.action), self.fixed_times.bits()];
        out.extend_from_slice(&self.flags().bits().to_le_bytes());
        out.extend_from_slice(&self.stream.file.0.to_le_bytes());
        out.extend_from_slice(&self.stream.index.to_le_bytes());
        let timeout_ms = self.timeout.as_millis().min(u128::from(u32::MAX)) as u32;
        for number in [timeout_ms, self.access, self.share_access, self.options] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.root.0.to_le_bytes());
        out.extend_from_slice(&self.token.0.to_le_bytes());
        out.extend_from_slice(&self.client);
        out.extend_from_slice(&self.create_guid);
        if let StoredCache::Lease(key) = self.cache {
            out.extend_from_slice(&key);
        }
        out.extend(self.parent_key.into_iter().flatten());
        if let Some(app) = self.app_instance {
            out.extend_from_slice(&app.id);
            if let Some((high, low)) = app.version {
                out.extend_from_slice(&high.to_le_bytes());
                out.extend_from_slice(&low.to_le_bytes());
            }
        }
        out.extend(self.sequences.into_iter().flatten());
        out.extend_from_slice(&(self.user.len_bytes() as u16).to_le_bytes());
        self.user.write_to(&mut out);
        out.extend_from_slice(&(self.share.len() as u16).to_le_bytes());
        out.extend_from_slice(self.share.as_bytes());
        if let Some((parent, name)) = &self.link {
            out.extend_from_slice(&parent.0.to_le_bytes());
            push_name(&mut out, name);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let (cache, action) = (reader.u8()?, action_of(reader.u8()?)?);
        let fixed_times = FixedTimes::from_bits(reader.u8()?)?;
        let flags = Flags::from_bits(reader.u32()?)?;
        let stream = StreamId { file: FileId(reader.u64()?), index: reader.u32()? };
        let timeout = Duration::from_millis(reader.u32()?.into());
        let (access, share_access, options) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (root, token) = (FileId(reader.u64()?), TokenDigest(reader.u64()?));
        let (client, create_guid) = (reader.array()?, reader.array()?);
        let cache = StoredCache::decode(cache, &mut reader)?;
        let parent_key = reader.guid_if(flags.contains(Flags::PARENT_KEY))?;
        let app_instance = match reader.guid_if(flags.contains(Flags::APP_INSTANCE))? {
            Some(id) if flags.contains(Flags::APP_VERSION) => {
                Some(AppInstance { id, version: Some((reader.u64()?, reader.u64()?)) })
            }
            id => id.map(|id| AppInstance { id, version: None }),
        };
        let sequences = if flags.contains(Flags::SEQUENCES) { Some(reader.array()?) } else { None };
        let user_bytes = usize::from(reader.u16()?);
        let user = Sid::parse(reader.take(user_bytes)?).ok().filter(|sid| sid.len_bytes() == user_bytes)?;
        let share_bytes = usize::from(reader.u16()?);
        let share = std::str::from_utf8(reader.take(share_bytes)?).ok()?.to_owned();
        (share_bytes <= SHARE_BYTES_MAX).then_some(())?;
        let link = match flags.contains(Flags::LINK) {
            true => Some((FileId(reader.u64()?), reader.name()?)),
            false => None,
        };
        reader.end()?;
        Some(Self {
            stream,
            directory: flags.contains(Flags::DIRECTORY),
            link,
            root,
            share,
            user,
            token,
            client,
            create_guid,
            app_instance,
            access,
            share_access,
            options,
            delete_on_close: flags.contains(Flags::DELETE_ON_CLOSE),
            renamed: flags.contains(Flags::RENAMED),
            timeout,
            action,
            cache,
            parent_key,
            fixed_times,
            sequences,
        })
    }
}

impl LeaseRecord {
    fn encode(&self) -> Vec<u8> {
        let parent_key = self.version_2.and_then(|version| version.parent_key);
        let flags = u8::from(self.version_2.is_some()) | u8::from(parent_key.is_some()) << 1;
        let mut out = vec![VERSION, flags, self.state.bits() as u8, 0];
        out.extend_from_slice(&self.stream.file.0.to_le_bytes());
        out.extend_from_slice(&self.stream.index.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend(parent_key.into_iter().flatten());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let flags = reader.u8()?;
        let state = LeaseState::from_bits(reader.u8()?.into())?;
        (flags & !3 == 0 && flags != 2 && reader.u8()? == 0).then_some(())?;
        let stream = StreamId { file: FileId(reader.u64()?), index: reader.u32()? };
        let epoch = reader.u16()?;
        let parent_key = reader.guid_if(flags & 2 != 0)?;
        reader.end()?;
        let version_2 = (flags & 1 != 0).then_some(LeaseVersion2 { parent_key, epoch });
        Some(Self { stream, state, epoch, version_2 })
    }
}

impl StateRecord {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Open(open) => open.encode(),
            Self::Lock(times) => {
                let mut out = vec![VERSION];
                out.extend_from_slice(&times.to_le_bytes());
                out
            }
            Self::Lease(lease) => lease.encode(),
            Self::DeletedLink(name) => {
                let mut out = vec![VERSION];
                push_name(&mut out, name);
                out
            }
            Self::DeletedStream => vec![VERSION],
        }
    }

    /// Reads the value that is stored under a key.
    pub fn decode(key: &OpenStateKey, bytes: &[u8]) -> Option<Self> {
        match key {
            OpenStateKey::Open(_) => return OpenRecord::decode(bytes).map(Box::new).map(Self::Open),
            OpenStateKey::Lease { .. } => return LeaseRecord::decode(bytes).map(Self::Lease),
            _ => {}
        }
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let record = match key {
            OpenStateKey::Lock { .. } => Self::Lock(reader.u32().filter(|times| *times > 0)?),
            OpenStateKey::DeletedLink { .. } => Self::DeletedLink(reader.name()?),
            _ => Self::DeletedStream,
        };
        reader.end()?;
        Some(record)
    }
}

#[cfg(test)]
#[path = "tests/open_record.rs"]
mod tests;
