//! Form 2 of a pool's records ([`crate::image`]), which a pool of many disks and volumes needs so that they fit on each of its disks.
//!
//! Every volume's record names all disks of the pool, twice in a cluster. Here a list of disks stands
//! once, and the volumes refer to it: that alone makes the records grow by volumes and disks instead of
//! by their product. The rest is compressed. Promises: unpacked records mean the same (disks within a
//! list are in the order of their ids); a reader allocates a bounded amount for any input.
//!
//! A line for each list, then for each record, as in form 1, but for volumes, whose keys have a `=` before them:
//!
//! | key | value |
//! |---|---|
//! | `disks` | the ids of all disks that are named, in order |
//! | `list` | places in `disks`; lists are numbered from 0 |
//! | `homes` | pairs of a node and the number of a list; numbered from 0 |
//! | `=volume/ID` | [`PackedVolume`] |

use crate::{Home, Record, StaleDisk, VolumeRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use types::{ChunkIndex, DiskId, Epoch};

/// Most bytes of the lines: sixty times those of 1,000 volumes on 416 disks.
const LINES_BYTES_MAX: usize = 32 << 20;
/// Most disks, and nodes that have them, that all records name together: more than twice those of 1,000
/// volumes on 416 disks of 16 nodes.
const NAMED_MAX: usize = 2 << 20;
/// Most nodes that have disks of one volume: a cluster has 16.
const HOMES_MAX: usize = 1024;
/// Most bytes of unpacked records: four times those of 1,000 volumes on 416 disks.
const UNPACKED_BYTES_MAX: usize = 128 << 20;
const LEVEL: u8 = 6;

type Entry = (String, Vec<u8>);

/// A volume's record without its lists of disks, and the numbers of these.
#[derive(Serialize, Deserialize)]
struct PackedVolume {
    in_sync: u32,
    homes: u32,
    /// Disks that left under the same epochs: the list, `since`, `promised`.
    stale: Vec<(u32, Epoch, Epoch)>,
    /// Places in `disks`.
    building: Vec<(u32, ChunkIndex)>,
    volume: VolumeRecord,
}

/// Gives each distinct disk and list one number.
#[derive(Default)]
struct Lists {
    places: BTreeMap<DiskId, u32>,
    lists: BTreeMap<Vec<u32>, u32>,
    homes: BTreeMap<Vec<(String, u32)>, u32>,
    lines: Vec<u8>,
}

fn put_line(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'\t');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl Lists {
    fn of(volumes: &[VolumeRecord]) -> Self {
        let named = volumes.iter().flat_map(|volume| {
            let stale = volume.stale.iter().map(|stale| stale.disk);
            let building = volume.building.iter().map(|(disk, _)| *disk);
            let homes = volume.homes.iter().flat_map(|home| home.disks.iter().copied());
            volume.in_sync.iter().copied().chain(stale).chain(building).chain(homes)
        });
        let named: BTreeSet<DiskId> = named.collect();
        let mut lines = Vec::new();
        put_line(&mut lines, "disks", &json(&named));
        let places = named.into_iter().zip(0..).collect();
        Self { places, lines, ..Self::default() }
    }

    fn list(&mut self, disks: impl Iterator<Item = DiskId>) -> u32 {
        let mut list: Vec<u32> = disks.map(|disk| self.places[&disk]).collect();
        list.sort_unstable();
        let number = self.lists.len() as u32;
        if let Some(known) = self.lists.get(&list) {
            return *known;
        }
        put_line(&mut self.lines, "list", &json(&list));
        self.lists.insert(list, number);
        number
    }

    fn homes(&mut self, homes: &[Home]) -> u32 {
        let packed: Vec<(String, u32)> =
            homes.iter().map(|home| (home.node.clone(), self.list(home.disks.iter().copied()))).collect();
        let number = self.homes.len() as u32;
        if let Some(known) = self.homes.get(&packed) {
            return *known;
        }
        put_line(&mut self.lines, "homes", &json(&packed));
        self.homes.insert(packed, number);
        number
    }

    fn pack(&mut self, mut volume: VolumeRecord) -> PackedVolume {
        let in_sync = self.list(std::mem::take(&mut volume.in_sync).into_iter());
        let homes = self.homes(&std::mem::take(&mut volume.homes));
        let mut left: BTreeMap<(Epoch, Epoch), Vec<DiskId>> = BTreeMap::new();
        for StaleDisk { disk, since, promised } in std::mem::take(&mut volume.stale) {
            left.entry((since, promised)).or_default().push(disk);
        }
        let stale = left.into_iter().map(|((since, promised), disks)| {
            let list = self.list(disks.into_iter());
            (list, since, promised)
        });
        let stale = stale.collect();
        let building = std::mem::take(&mut volume.building).into_iter();
        let building = building.map(|(disk, chunk)| (self.places[&disk], chunk)).collect();
        PackedVolume { in_sync, homes, stale, building, volume }
    }
}

/// Packs lines; entries must have neither line breaks nor tabs where they do not belong.
pub(crate) fn pack<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<u8> {
    let is_volume = |key: &str| key.starts_with(VolumeRecord::PREFIX);
    let mut volumes: Vec<VolumeRecord> = Vec::new();
    let mut others = Vec::new();
    for (key, value) in entries {
        match is_volume(key).then(|| VolumeRecord::decode(key, value)) {
            Some(Ok(volume)) => volumes.push(volume),
            _ => put_line(&mut others, key, value),
        }
    }
    let mut lists = Lists::of(&volumes);
    let mut packed = Vec::new();
    for volume in volumes {
        let key = format!("={}", volume.key());
        put_line(&mut packed, &key, &json(&lists.pack(volume)));
    }
    let mut lines = lists.lines;
    lines.append(&mut packed);
    lines.append(&mut others);
    miniz_oxide::deflate::compress_to_vec_zlib(&lines, LEVEL)
}

fn malformed(why: impl ToString) -> String {
    why.to_string()
}

/// The lists that were read so far.
#[derive(Default)]
struct Unpacking {
    disks: Vec<DiskId>,
    lists: Vec<Vec<u32>>,
    homes: Vec<Vec<(String, u32)>>,
    /// Disks and nodes that records have named so far.
    named: usize,
    /// Of the records so far.
    bytes: usize,
}

impl Unpacking {
    fn disk(&self, place: u32) -> Result<DiskId, String> {
        self.disks.get(place as usize).copied().ok_or_else(|| malformed("a disk that is not listed"))
    }

    fn list(&mut self, number: u32) -> Result<Vec<DiskId>, String> {
        let list = self.lists.get(number as usize).ok_or_else(|| malformed("a list that is not there"))?;
        self.named = count_named(self.named, list.len())?;
        list.iter().map(|place| self.disk(*place)).collect()
    }

    fn add_homes(&mut self, homes: Vec<(String, u32)>) -> Result<(), String> {
        if homes.len() > HOMES_MAX {
            return Err(malformed("more nodes than any cluster has"));
        }
        self.homes.push(homes);
        Ok(())
    }

    fn homes(&mut self, number: u32) -> Result<Vec<Home>, String> {
        let homes = self.homes.get(number as usize).ok_or_else(|| malformed("homes that are not there"))?;
        // A node without disks takes space as well.
        self.named = count_named(self.named, homes.len())?;
        let homes = homes.clone().into_iter();
        homes.map(|(node, list)| Ok(Home { node, disks: self.list(list)? })).collect()
    }

    fn volume(&mut self, value: &[u8]) -> Result<VolumeRecord, String> {
        let packed: PackedVolume = serde_json::from_slice(value).map_err(malformed)?;
        let in_sync = self.list(packed.in_sync)?;
        let homes = self.homes(packed.homes)?;
        let mut stale = Vec::new();
        for (list, since, promised) in packed.stale {
            let disks = self.list(list)?.into_iter();
            stale.extend(disks.map(|disk| StaleDisk { disk, since, promised }));
        }
        let building: Result<Vec<(DiskId, ChunkIndex)>, String> =
            packed.building.into_iter().map(|(place, chunk)| Ok((self.disk(place)?, chunk))).collect();
        Ok(VolumeRecord { in_sync, homes, stale, building: building?, ..packed.volume })
    }
}

/// Counts further disks or nodes that a record names.
fn count_named(named: usize, more: usize) -> Result<usize, String> {
    let named = named + more;
    if named > NAMED_MAX { Err(malformed("more disks in all than any pool has")) } else { Ok(named) }
}

/// Unpacks the output of [`pack`].
///
/// # Errors
/// Why they are none.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let lines = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, LINES_BYTES_MAX)
        .map_err(|error| malformed(format!("it cannot be decompressed: {:?}", error.status)))?;
    let mut unpacking = Unpacking::default();
    let mut entries = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let (key, value) = split_line(line)?;
        match key {
            "disks" => unpacking.disks = serde_json::from_slice(value).map_err(malformed)?,
            "list" => unpacking.lists.push(serde_json::from_slice(value).map_err(malformed)?),
            "homes" => unpacking.add_homes(serde_json::from_slice(value).map_err(malformed)?)?,
            key if key.starts_with('=') => {
                let volume = unpacking.volume(value)?;
                let (key, value) = (volume.key(), volume.encode());
                // Names of nodes stand once, and come back with each volume.
                unpacking.bytes += key.len() + value.len();
                if unpacking.bytes > UNPACKED_BYTES_MAX {
                    return Err(malformed("more in all than any pool has"));
                }
                entries.push((key, value));
            }
            key => entries.push((key.to_owned(), value.to_vec())),
        }
    }
    Ok(entries)
}

/// Splits a line into key and value.
///
/// # Errors
/// Why they are none.
pub(crate) fn split_line(line: &[u8]) -> Result<(&str, &[u8]), String> {
    let at = line.iter().position(|byte| *byte == b'\t').ok_or_else(|| malformed("a line without a key"))?;
    let (key, value) = line.split_at(at);
    let key = std::str::from_utf8(key).map_err(|_| malformed("a key that is not UTF-8"))?;
    Ok((key, value.get(1..).unwrap_or_default()))
}
