//! The copy of a pool's records that every disk of the pool carries (D8).
//!
//! Owns the contents of such a copy and its text form. Promises: it never grows beyond the space in a
//! disk's label, pool, disks and volumes always come first; of two copies the newer one can be told,
//! over any imports between them; a reader trusts nothing. Never writes a disk. Users are in it with
//! their sealed NT hashes: without the key file these are useless.
//!
//! A header line of JSON, then, in form 1, a line for each record: its key, a tab, its value as in the
//! cluster state. Form 2 has the same packed ([`crate::packing`]), and is written only if form 1 needs
//! too much space, since earlier programs read that one.

use crate::accounts::{Group, UserRecord};
use crate::packing;
use crate::settings::ServerSettings;
use crate::shares::Share;
use crate::{DeletedVolume, DiskRecord, PoolRecord, Record, StateDump, Transaction, VolumeRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, Epoch, PoolId, VolumeId};
use uuid::Uuid;

/// The forms that are written.
const PLAIN: u32 = 1;
const PACKED: u32 = 2;

/// Bytes by which a volume's packed record may grow when a node's disks leave, some of them come back,
/// and chunks are copied: epochs that are written out, and the numbers of a few lists.
const GROWTH_BYTES: usize = 32;

/// Which copy is newer: an import begins a new generation, since it begins a new cluster state too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageVersion {
    pub generation: u32,
    /// Revision of the cluster state from which the copy was taken.
    pub revision: u64,
}

/// Origin of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageHeader {
    pub form: u32,
    pub pool: PoolId,
    pub version: ImageVersion,
    /// The history in the pool's record: copies of one generation and different histories come from two
    /// servers.
    pub history: Uuid,
    /// ServerGuid of the server that has the pool.
    pub server: Uuid,
    /// The server's name, for people.
    #[serde(default)]
    pub host: String,
    pub written_unix_s: u64,
    /// The server exported the pool in an orderly way.
    #[serde(default)]
    pub exported: bool,
    /// Records of accounts and shares that had no space.
    #[serde(default)]
    pub omitted: u32,
}

impl ImageHeader {
    /// Tells which copy it is, for people.
    pub fn in_words(&self) -> String {
        let ImageVersion { generation, revision } = self.version;
        let written = self.written_unix_s;
        let (year, month, day) = types::civil_date(i64::try_from(written / 86_400).unwrap_or_default());
        let (hour, minute) = (written % 86_400 / 3600, written % 3600 / 60);
        let exported = if self.exported { ", exported" } else { "" };
        format!(
            "records of {year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC, generation {generation}, revision {revision}{exported}"
        )
    }
}

/// Tells which copy of the records a disk carries, for people.
pub fn records_in_words(bytes: &[u8]) -> String {
    parse_header(bytes).map_or_else(|error| format!("no records ({error})"), |header| header.in_words())
}

/// A pool's records as of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolImage {
    pub header: ImageHeader,
    /// Key and value, the most important first.
    pub entries: Vec<(String, Vec<u8>)>,
}

/// Why bytes are no such copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("the disk carries no copy of the pool's records")]
    Absent,
    #[error("the disk's copy of the records has form {0}, newer than this program's {PACKED}")]
    Newer(u32),
    #[error("the disk's copy of the records does not parse: {0}")]
    Malformed(String),
}

impl PoolImage {
    /// The image for a pool's disks; `None` if the state does not have the pool.
    pub fn of(dump: &StateDump, pool: PoolId, host: &str, now_unix_s: u64) -> Option<Self> {
        let find = |key: &str| {
            dump.entries
                .binary_search_by(|(other, _)| other.as_str().cmp(key))
                .ok()
                .map(|at| &dump.entries[at].1)
        };
        let key = PoolRecord::key_of(&pool.to_string());
        let record = PoolRecord::decode(&key, find(&key)?).ok()?;
        let server = find(&ServerSettings::key_of("server"))
            .and_then(|value| ServerSettings::decode("settings/server", value).ok())
            .map_or(Uuid::nil(), |settings| settings.server_guid);
        let volumes = volumes_of(dump, pool);
        let mut ranked: Vec<(u32, &(String, Vec<u8>))> =
            dump.entries.iter().filter_map(|entry| Some((rank(entry, pool, &volumes)?, entry))).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let header = ImageHeader {
            form: PLAIN,
            pool,
            version: ImageVersion { generation: record.generation, revision: dump.revision },
            history: record.history,
            server,
            host: host.to_owned(),
            written_unix_s: now_unix_s,
            exported: record.exported,
            omitted: 0,
        };
        Some(Self { header, entries: ranked.into_iter().map(|(_, entry)| entry.clone()).collect() })
    }

    /// Encodes the image in at most `bytes_max`. Accounts and shares without space are counted and left
    /// out; `None` if not even pool, disks and volumes have space.
    pub fn encode(&self, bytes_max: usize) -> Option<Vec<u8>> {
        // JSON of serde has no line breaks; anything else would not come back.
        let is_clean = |(key, value): &&(String, Vec<u8>)| {
            !value.contains(&b'\n') && !key.contains(['\n', '\t']) && !key.starts_with('=')
        };
        let entries: Vec<&(String, Vec<u8>)> = self.entries.iter().filter(is_clean).collect();
        // The header's own size, with its count of omissions.
        let room = bytes_max.checked_sub(self.header_line(PACKED, u32::MAX).len())?;
        let (form, mut body, kept) = match plain(&entries, room) {
            Some(body) => (PLAIN, body, entries.len()),
            None => {
                let (body, kept) = packed(&entries, room)?;
                (PACKED, body, kept)
            }
        };
        let mut text = self.header_line(form, (self.entries.len() - kept) as u32);
        text.append(&mut body);
        Some(text)
    }

    /// Whether all of it has space, with the growth of the volumes' records.
    fn fits_whole(&self, bytes_max: usize) -> bool {
        let volumes = self.entries.iter().filter(|(key, _)| key.starts_with(VolumeRecord::PREFIX)).count();
        let room = bytes_max.checked_sub(GROWTH_BYTES * volumes);
        let encoded = room.and_then(|room| self.encode(room));
        encoded.is_some_and(|bytes| parse_header(&bytes).is_ok_and(|header| header.omitted == 0))
    }

    /// Leaves out all records that an import can do without.
    fn of_essentials(self) -> Self {
        let essential = self.entries.into_iter().filter(|(key, _)| is_essential(key));
        Self { entries: essential.collect(), ..self }
    }

    fn header_line(&self, form: u32, omitted: u32) -> Vec<u8> {
        let header = ImageHeader { form, omitted, ..self.header.clone() };
        let mut line = serde_json::to_vec(&header).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Parses a disk's copy.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let header = parse_header(bytes)?;
        let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let body = bytes.get(at + 1..).unwrap_or_default();
        if header.form == PACKED {
            // The next writing sets the form itself.
            let header = ImageHeader { form: PLAIN, ..header };
            return Ok(Self { header, entries: packing::unpack(body).map_err(ImageError::Malformed)? });
        }
        let mut entries = Vec::new();
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let (key, value) = packing::split_line(line).map_err(ImageError::Malformed)?;
            entries.push((key.to_owned(), value.to_vec()));
        }
        Ok(Self { header, entries })
    }

    /// All records of a kind.
    ///
    /// # Errors
    /// [`ImageError::Malformed`] if one does not parse.
    pub fn records<R: Record>(&self) -> Result<Vec<R>, ImageError> {
        self.entries
            .iter()
            .filter(|(key, _)| key.starts_with(R::PREFIX))
            .map(|(key, value)| {
                R::decode(key, value).map_err(|error| ImageError::Malformed(error.to_string()))
            })
            .collect()
    }

    /// Whether this copy tells of changes that a server's own records do not have: these come from an older copy of its state, or the
    /// pool was taken elsewhere. A state that was restored counts its revisions on from there, so the volumes' epochs tell as
    /// well: each is in the state before it is on a disk.
    pub fn is_ahead_of(&self, own: &Self) -> bool {
        let (carried, known) = (self.header.version, own.header.version);
        self.header.pool == own.header.pool
            && carried.generation >= known.generation
            && (carried > known || self.header.history != own.header.history || self.has_later_epoch(own))
    }

    /// Whether some volume has a later epoch here than in the other copy.
    pub(crate) fn has_later_epoch(&self, other: &Self) -> bool {
        let volumes = |image: &Self| image.records::<VolumeRecord>().unwrap_or_default();
        let known: BTreeMap<VolumeId, Epoch> =
            volumes(other).into_iter().map(|volume| (volume.id, volume.epoch)).collect();
        volumes(self).iter().any(|volume| known.get(&volume.id).is_some_and(|epoch| *epoch < volume.epoch))
    }

    /// Whether the other says the same, but for parts that change during writes and may be older on the
    /// disks: a volume's epoch, up to which it is settled, and the promises of its disks.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let header = |image: &Self| ImageHeader {
            version: ImageVersion::default(),
            written_unix_s: 0,
            ..image.header.clone()
        };
        header(self) == header(other)
            && self.entries.len() == other.entries.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(left, right)| left == right || same_volume(left, right))
    }
}

/// Reads the first line only.
///
/// # Errors
/// [`ImageError`].
pub fn parse_header(bytes: &[u8]) -> Result<ImageHeader, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Absent);
    }
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let malformed = |error: serde_json::Error| ImageError::Malformed(error.to_string());
    let Form { form } = serde_json::from_slice(line).map_err(malformed)?;
    if form > PACKED {
        return Err(ImageError::Newer(form));
    }
    serde_json::from_slice(line).map_err(malformed)
}

/// Lines of all entries, if they have space.
fn plain(entries: &[&(String, Vec<u8>)], room: usize) -> Option<Vec<u8>> {
    let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
    if bytes > room {
        return None;
    }
    let mut body = Vec::with_capacity(bytes);
    for (key, value) in entries {
        body.extend_from_slice(key.as_bytes());
        body.push(b'\t');
        body.extend_from_slice(value);
        body.push(b'\n');
    }
    Some(body)
}

/// The entries that have space, packed, the most important first, and their number; `None` if an
/// indispensable one has none.
fn packed(entries: &[&(String, Vec<u8>)], room: usize) -> Option<(Vec<u8>, usize)> {
    let least = entries.iter().take_while(|(key, _)| is_essential(key)).count();
    let mut kept = entries.len();
    loop {
        let body = packing::pack(entries[..kept].iter().copied());
        if body.len() <= room {
            return Some((body, kept));
        }
        if kept == least {
            return None;
        }
        // Compression does not say how much one entry takes: a few tries instead of one for each.
        kept = least + (kept - least) / 2;
    }
}

/// Whether the pool's disks have space for the records with this volume's, and for their growth when
/// disks leave.
pub fn has_room_for(dump: &StateDump, volume: &VolumeRecord, bytes_max: usize) -> bool {
    let after = dump.after(&Transaction::default().put(volume.key(), volume.encode()));
    PoolImage::of(&after, volume.pool, "", 0).is_some_and(|image| image.of_essentials().fits_whole(bytes_max))
}

/// Whether the pool's disks have space for the records with one more disk, at `path`, that gets chunks
/// of all volumes of the pool.
pub fn has_room_for_disk(dump: &StateDump, pool: PoolId, path: &str, bytes_max: usize) -> bool {
    let Some(image) = PoolImage::of(dump, pool, "", 0) else { return false };
    let mut disks = image.records::<DiskRecord>().unwrap_or_default();
    let Some(alike) = disks.pop() else { return true };
    // An id compresses as badly as any.
    let id = DiskId(Uuid::from_u128(!alike.id.0.as_u128()));
    let node = alike.fault_domain.node.clone();
    let disk = DiskRecord { id, path: path.to_owned(), ..alike };
    let mut added = Transaction::default().put(disk.key(), disk.encode());
    for mut volume in image.records::<VolumeRecord>().unwrap_or_default() {
        volume.in_sync.push(id);
        if let Some(home) = volume.homes.iter_mut().find(|home| home.node == node) {
            home.disks.push(id);
        }
        added = added.put(volume.key(), volume.encode());
    }
    let after = PoolImage::of(&dump.after(&added), pool, "", 0);
    after.is_some_and(|image| image.of_essentials().fits_whole(bytes_max))
}

/// Names a pool of which the disks would not carry all records any more after this transaction on accounts and shares: an import would lose some.
/// One that makes no record longer is no reason.
pub fn pool_without_room(dump: &StateDump, transaction: &Transaction, bytes_max: usize) -> Option<String> {
    let after = dump.after(transaction);
    let bytes = |dump: &StateDump| dump.entries.iter().map(|(_, value)| value.len()).sum::<usize>();
    if bytes(&after) <= bytes(dump) {
        return None;
    }
    let pools = dump.entries.iter().filter(|(key, _)| key.starts_with(PoolRecord::PREFIX));
    let pools = pools.filter_map(|(key, value)| PoolRecord::decode(key, value).ok());
    let lacks_room = |pool: &PoolRecord| {
        let image = |dump: &StateDump| PoolImage::of(dump, pool.id, "", 0);
        image(&after).is_some_and(|after| {
            image(dump).is_some_and(|before| before.entries != after.entries) && !after.fits_whole(bytes_max)
        })
    };
    pools.filter(lacks_room).map(|pool| pool.name).next()
}

fn same_volume(left: &(String, Vec<u8>), right: &(String, Vec<u8>)) -> bool {
    let still = |(key, value): &(String, Vec<u8>)| {
        let mut record = VolumeRecord::decode(key, value).ok()?;
        (record.epoch, record.settled, record.promised) = (Epoch(0), Epoch(0), Epoch(0));
        record.owner = None;
        Some(record)
    };
    left.0 == right.0 && left.0.starts_with(VolumeRecord::PREFIX) && still(left) == still(right)
}

fn is_essential(key: &str) -> bool {
    let prefixes = [PoolRecord::PREFIX, DiskRecord::PREFIX, VolumeRecord::PREFIX, ServerSettings::PREFIX];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Whether an entry belongs to the pool, and its place: the lower, the less it can be done without.
fn rank((key, value): &(String, Vec<u8>), pool: PoolId, volumes: &BTreeSet<VolumeId>) -> Option<u32> {
    let kind = key.split_once('/').map(|(kind, _)| kind)?;
    match kind {
        "pool" => (PoolRecord::decode(key, value).ok()?.id == pool).then_some(0),
        "disk" => (DiskRecord::decode(key, value).ok()?.pool == pool).then_some(1),
        "volume" => (VolumeRecord::decode(key, value).ok()?.pool == pool).then_some(2),
        "settings" => Some(3),
        "deleted-volume" => (DeletedVolume::decode(key, value).ok()?.pool == pool).then_some(4),
        "share" => volumes.contains(&Share::decode(key, value).ok()?.volume).then_some(5),
        "group" => Group::decode(key, value).ok().map(|_| 6),
        "user" => UserRecord::decode(key, value).ok().map(|_| 7),
        _ => None,
    }
}

fn volumes_of(dump: &StateDump, pool: PoolId) -> BTreeSet<VolumeId> {
    let volumes = dump.entries.iter().filter(|(key, _)| key.starts_with(VolumeRecord::PREFIX));
    volumes
        .filter_map(|(key, value)| VolumeRecord::decode(key, value).ok())
        .filter(|volume| volume.pool == pool)
        .map(|volume| volume.id)
        .collect()
}
