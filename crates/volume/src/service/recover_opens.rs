//! Recovers opens, leases, locks and deletions that outlived a restart of the server from the journal,
//! before any operation.
//!
//! Their clients are disconnected at first, each for the promised timeout of its open; for others that
//! means the same as a client whose connection was lost. Orphaned records (a lock without its open, a
//! lease without any open) are dropped.

use super::caching::Caching;
use super::close::remove_link;
use super::file_opens::Doomed;
use super::intervals::Interval;
use super::open::{CacheHolder, Durable, LeaseName, LinkName, Open, WriteTime, places_of};
use super::open_record::{LeaseRecord, OpenRecord, StateRecord, StoredCache};
use super::parts::Parts;
use super::path::join;
use super::persist_opens::record_changes;
use super::range_locks::LockSequences;
use super::suspend::Suspend;
use crate::backend::{
    AccessToken, DurableRequest, OpenId, OplockLevel, Privileges, SessionId, ShareOptions, ShareRoot,
    Standing, WideString,
};
use crate::fs::{FileId, FileSystem, FsError, OpenStateKey, OpenStateWalk, StreamId};
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Lba, Monotonic};

/// Steps of one poll: some milliseconds.
const STEPS_AT_ONCE: usize = 1000;

/// The session of opens whose clients are away since a start: no client's.
const NOBODY: SessionId = SessionId(0);

/// The way back of opens, leases, locks and deletions that outlived a start.
#[derive(Debug, Default)]
pub struct RecoverOpens {
    walk: OpenStateWalk,
    all_read: bool,
    leases: VecDeque<(LeaseName, LeaseRecord)>,
    opens: VecDeque<(OpenId, Box<OpenRecord>)>,
    locks: VecDeque<(OpenId, Interval, bool, u32)>,
    deletions: VecDeque<(FileId, Doomed)>,
    /// Recovered leases.
    names: Vec<LeaseName>,
    /// The last step had to wait for metadata.
    waits: bool,
}

impl RecoverOpens {
    /// Whether the next step can run immediately.
    pub fn is_due(&self) -> bool {
        !self.waits
    }

    /// Takes some steps. Returns whether recovery is done.
    ///
    /// # Errors
    /// `Miss` until metadata is in memory; `Corrupt` if a record makes no sense; those of reading.
    pub fn step(&mut self, parts: &mut Parts<'_>) -> Result<bool, FsError> {
        self.waits = true;
        for _ in 0..STEPS_AT_ONCE {
            let result = if self.all_read { self.restore_one(parts) } else { self.read_one(parts.fs) };
            let done = match result {
                Err(FsError::Corrupt { lba, .. }) if lba != Lba::default() => self.pass_over(),
                result => result?,
            };
            if done {
                record_changes(parts);
                return Ok(true);
            }
        }
        self.waits = false;
        Ok(false)
    }

    fn read_one(&mut self, fs: &mut FileSystem) -> Result<bool, FsError> {
        let Some((key, value)) = fs.next_open_state(&mut self.walk)? else {
            self.all_read = true;
            return Ok(false);
        };
        let record = StateRecord::decode(&key, &value)
            .ok_or(FsError::Corrupt { what: what(&key), lba: Lba::default() })?;
        match (key, record) {
            (OpenStateKey::Open(id), StateRecord::Open(open)) => self.opens.push_back((OpenId(id), open)),
            (OpenStateKey::Lock { open, offset, len_bytes, shared }, StateRecord::Lock(times)) => {
                let interval = Interval { start: offset, end: u128::from(offset) + u128::from(len_bytes) };
                let lock = (OpenId(open), interval, shared, times);
                // A shared lock may lie on its owner's exclusive one, which has to be added first.
                if shared { self.locks.push_back(lock) } else { self.locks.push_front(lock) }
            }
            (OpenStateKey::Lease { client, key }, StateRecord::Lease(lease)) => {
                self.leases.push_back(((client, key), lease));
            }
            (OpenStateKey::DeletedLink { file, parent, .. }, StateRecord::DeletedLink(name)) => {
                self.deletions.push_back((file, Doomed::Link(LinkName { parent, name })));
            }
            (OpenStateKey::DeletedStream(stream), StateRecord::DeletedStream) => {
                self.deletions.push_back((stream.file, Doomed::Stream(stream.index)));
            }
            _ => unreachable!("a record is that of its key"),
        }
        Ok(false)
    }

    /// Skips everything below a page of metadata that no copy has intact: the rest of the volume can be
    /// used.
    fn pass_over(&mut self) -> bool {
        if !std::mem::replace(&mut self.all_read, true) {
            return false;
        }
        if self.opens.pop_front().is_none() {
            self.deletions.pop_front();
        }
        false
    }

    /// Recovers one record: leases first, then the opens that have them, then locks and deletions. Returns
    /// whether none is left.
    fn restore_one(&mut self, parts: &mut Parts<'_>) -> Result<bool, FsError> {
        if let Some((name, lease)) = self.leases.pop_front() {
            parts.caching.restore(name, &lease);
            self.names.push(name);
            return Ok(false);
        }
        if let Some((id, record)) = self.opens.front() {
            restore_open(parts, *id, record)?;
            self.opens.pop_front();
            return Ok(false);
        }
        if let Some(name) = self.names.pop() {
            parts.caching.drop_unused(parts.agenda, name);
            return Ok(false);
        }
        if let Some((id, interval, shared, times)) = self.locks.pop_front() {
            let is_back = parts
                .opens
                .get(id)
                .is_some_and(|open| parts.locks.restore(id, open, (interval, shared), times));
            if !is_back {
                parts.agenda.records.lock(id, interval, shared);
            }
            return Ok(false);
        }
        if let Some((file, doomed)) = self.deletions.front() {
            restore_deletion(parts, *file, doomed)?;
            self.deletions.pop_front();
            return Ok(false);
        }
        Ok(true)
    }
}

const fn what(key: &OpenStateKey) -> &'static str {
    match key {
        OpenStateKey::Open(_) => "record of an open",
        OpenStateKey::Lock { .. } => "record of a byte-range lock",
        OpenStateKey::Lease { .. } => "record of a lease",
        OpenStateKey::DeletedLink { .. } | OpenStateKey::DeletedStream(_) => "record of a deletion",
    }
}

/// Finds the path of an open's file or stream; `None` if that was deleted.
fn path_of(fs: &mut FileSystem, record: &OpenRecord) -> Result<Option<WideString>, FsError> {
    let found = (|| {
        let mut path = match &record.link {
            Some((parent, name)) => {
                let entry = fs.lookup(*parent, name)?;
                if entry.file != record.stream.file {
                    return Err(FsError::NotFound);
                }
                join(&fs.path(*parent)?, &entry.name).to_vec()
            }
            None => Vec::new(),
        };
        fs.attributes(record.stream.file)?;
        if record.stream.index != 0 {
            path.push(u16::from(b':'));
            path.extend_from_slice(&fs.stream_information(record.stream)?.name);
        }
        Ok(path.into())
    })();
    match found {
        Ok(path) => Ok(Some(path)),
        Err(FsError::NotFound | FsError::NotDirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn restore_open(parts: &mut Parts<'_>, id: OpenId, record: &OpenRecord) -> Result<(), FsError> {
    let Some(path) = path_of(parts.fs, record)? else {
        parts.agenda.records.open(id);
        return Ok(());
    };
    let holder = holder_of(parts.caching, record);
    let caches = parts.caching.caches(&holder);
    let open = open_of(record, path, holder);
    let (stream, writes) = (open.stream, open.writes());
    if !parts.opens.restore(id, open, caches, parts.agenda) {
        return Err(FsError::Corrupt { what: "identifier of an open", lba: Lba::default() });
    }
    parts.replays.restore(record.client, record.create_guid, id);
    if writes {
        parts.locks.hold_writes(id, stream);
    }
    Ok(())
}

fn holder_of(caching: &mut Caching, record: &OpenRecord) -> CacheHolder {
    match record.cache {
        StoredCache::Lease(key) => {
            let name = (record.client, key);
            // Without its lease it caches nothing.
            match caching.rejoin(name, record.stream, &record.user) {
                true => CacheHolder::Lease(name),
                false => CacheHolder::None,
            }
        }
        StoredCache::Oplock(OplockLevel::None) => CacheHolder::None,
        StoredCache::Oplock(level) => {
            CacheHolder::Oplock(super::cache_state::CacheState::new(super::cache_state::state_of(level)))
        }
    }
}

/// Makes the open of a record. Values that are not stored come from its client's reconnect.
fn open_of(record: &OpenRecord, path: WideString, holder: CacheHolder) -> Open {
    let token = AccessToken {
        user: record.user.clone(),
        primary_group: record.user.clone(),
        groups: Vec::new(),
        privileges: Privileges::empty(),
    };
    let request = DurableRequest::Version2 {
        create_guid: record.create_guid,
        timeout: Some(record.timeout),
        persistent: true,
    };
    let link = record.link.clone().map(|(parent, name)| LinkName { parent, name });
    Open {
        stream: record.stream,
        place: 0,
        places: places_of(path.len()),
        directory: record.directory,
        path,
        link,
        root: ShareRoot::of(record.root),
        session: NOBODY,
        client: record.client,
        token: Arc::new(token),
        share: ShareOptions { continuously_available: true, ..ShareOptions::default() },
        standing: Standing::new(record.share.as_str(), ()),
        granted_by_share: 0,
        access: record.access,
        share_access: record.share_access,
        options: record.options,
        holder,
        told: true,
        parent_key: record.parent_key,
        delete_on_close: record.delete_on_close,
        renamed: record.renamed,
        durable: Some(Durable { request, timeout: record.timeout }),
        persistent: true,
        token_digest: Some(record.token),
        create_guid: Some(record.create_guid),
        app_instance: record.app_instance,
        disconnected: None::<Monotonic>,
        closing: false,
        used: false,
        fixed_times: record.fixed_times,
        sequences: record.sequences.map(|bytes| Box::new(LockSequences::from_bytes(bytes))),
        write_time: WriteTime::default(),
        dirty: false,
        flushes: 0,
        modified: false,
        listing: None,
        create_action: record.action,
    }
}

/// Marks a name or a stream for deletion with the last open again; deletes it if none of its opens has
/// outlived the start.
fn restore_deletion(parts: &mut Parts<'_>, file: FileId, doomed: &Doomed) -> Result<(), FsError> {
    let is_open = match doomed {
        Doomed::Link(_) => parts.opens.file(file).is_some(),
        Doomed::Stream(index) => parts.opens.is_open(StreamId { file, index: *index }),
    };
    if is_open {
        parts.mark_deleting(file, doomed.clone(), true);
        return Ok(());
    }
    parts.fs.ready_to_change_opens()?;
    match doomed {
        Doomed::Link(link) => {
            let directory = match parts.fs.attributes(file) {
                Ok(found) => found.directory,
                Err(FsError::NotFound) => false,
                Err(error) => return Err(error),
            };
            match remove_link(parts, file, link, directory, None) {
                Ok(_) | Err(Suspend::Status(_)) => {}
                Err(_) => return Err(FsError::Miss),
            }
        }
        Doomed::Stream(index) => {
            let (stream, now) = (StreamId { file, index: *index }, parts.time());
            match parts.fs.unlink_stream(stream, now) {
                Ok(()) => parts.reclaims.add_stream(stream),
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }
    parts.agenda.records.deletion(file, doomed.clone(), false);
    Ok(())
}
