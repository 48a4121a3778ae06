//! States that a disk may be in after a crash: everything acknowledged; each other request whole or not at all.

use super::{Rig, VOLUME, small_options};
use disk::crash::CrashDisk;
use store::Store;
use store::api::{StoreError, WriteClass};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Lba};

pub const CHUNK_BLOCKS: u64 = 256;
/// Chunks 0, 1 and 3 hold data, chunk 2 is for append writes. Chunk 3 is allocated and freed.
pub const CHUNKS: u64 = 4;
pub const APPEND_CHUNK: u64 = 2;
pub const CHANGING_CHUNK: u64 = 3;

/// A change, in order of submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Write { class: WriteClass, lba: u64, blocks: u64, version: u64 },
    Discard { lba: u64, blocks: u64 },
    Allocate { chunk: u64 },
    Free { chunk: u64 },
    Promise { epoch: u64 },
}

/// Versions by block (zero: zeroes), and the mapped chunks and promises.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub blocks: Vec<u64>,
    pub mapped: [bool; CHUNKS as usize],
    pub promised: u64,
}

impl Default for State {
    fn default() -> Self {
        let blocks = vec![0; (CHUNKS * CHUNK_BLOCKS) as usize];
        Self { blocks, mapped: [false; CHUNKS as usize], promised: 0 }
    }
}

/// Returns the content of a block: its version throughout.
pub fn block_of(version: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = version.to_le_bytes());
    block
}

/// Returns the version of the `at`th block of a write.
pub fn version_at(version: u64, at: u64) -> u64 {
    version << 16 | at << 4 | 1
}

impl State {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { lba, blocks, version, .. } => {
                for at in 0..*blocks {
                    self.blocks[(lba + at) as usize] = version_at(*version, at);
                }
            }
            Change::Discard { lba, blocks } => self.blocks[*lba as usize..(lba + blocks) as usize].fill(0),
            Change::Allocate { chunk } => self.mapped[*chunk as usize] = true,
            Change::Free { chunk } => {
                let start = (chunk * CHUNK_BLOCKS) as usize;
                self.blocks[start..start + CHUNK_BLOCKS as usize].fill(0);
                self.mapped[*chunk as usize] = false;
            }
            Change::Promise { epoch } => self.promised = self.promised.max(*epoch),
        }
    }

    /// A fresh write over written blocks may have only made them unwritten so far.
    fn withdrawn(&self, change: &Change) -> Option<Self> {
        match change {
            Change::Write { class: WriteClass::Fresh, lba, blocks, .. } if *blocks > 7 => {
                let mut state = self.clone();
                state.apply(&Change::Discard { lba: *lba, blocks: *blocks });
                Some(state)
            }
            _ => None,
        }
    }
}

/// Requests, and which of them were acknowledged.
#[derive(Default)]
pub struct Oracle {
    acknowledged_state: State,
    changes: Vec<(u64, Change, bool)>,
}

impl Oracle {
    pub fn submitted(&mut self, token: u64, change: Change) {
        self.changes.push((token, change, false));
    }

    pub fn acknowledged(&mut self, token: u64) {
        for (known, _, acknowledged) in &mut self.changes {
            *acknowledged |= *known == token;
        }
        while let Some((_, change, true)) = self.changes.first() {
            self.acknowledged_state.apply(change);
            self.changes.remove(0);
        }
    }

    pub fn refused(&mut self, token: u64) {
        self.changes.retain(|(known, ..)| *known != token);
        self.acknowledged(u64::MAX);
    }

    pub fn outstanding(&self) -> usize {
        self.changes.iter().filter(|(.., acknowledged)| !acknowledged).count()
    }

    pub fn acknowledged_state(&self) -> &State {
        &self.acknowledged_state
    }

    /// Whether a crash at this point may leave the found state. Appended blocks are judged one by
    /// one.
    pub fn allows(&self, found: &State) -> Result<(), String> {
        let (appends, others): (Vec<_>, Vec<_>) = self
            .changes
            .iter()
            .partition(|(_, change, _)| matches!(change, Change::Write { class: WriteClass::Append, .. }));
        let mut expected = self.acknowledged_state.clone();
        let mut found = found.clone();
        for (_, change, acknowledged) in appends {
            let Change::Write { lba, blocks, version, .. } = change else { continue };
            for at in 0..*blocks {
                let block = (lba + at) as usize;
                let written = version_at(*version, at);
                if *acknowledged {
                    expected.blocks[block] = written;
                } else if found.blocks[block] == written || found.blocks[block] == u64::MAX {
                    // Not atomic: an unacknowledged block may be old, new, or torn.
                    found.blocks[block] = expected.blocks[block];
                }
            }
        }
        let changes: Vec<(Change, bool)> =
            others.into_iter().map(|(_, change, acknowledged)| (change.clone(), *acknowledged)).collect();
        if reachable(&expected, &changes, &found) {
            return Ok(());
        }
        for (_, acknowledged) in changes.iter().filter(|(_, acknowledged)| *acknowledged) {
            debug_assert!(acknowledged);
        }
        let mut all = expected;
        changes.iter().filter(|(_, acknowledged)| *acknowledged).for_each(|(change, _)| all.apply(change));
        let differs: Vec<(usize, u64, u64)> = (0..all.blocks.len())
            .filter(|at| all.blocks[*at] != found.blocks[*at])
            .map(|at| (at, all.blocks[at], found.blocks[at]))
            .take(8)
            .collect();
        Err(format!(
            "found a state that no crash may leave: against what is acknowledged (block, expected, found): {differs:x?}, \
             mapped {:?} / {:?}, promised {} / {}; in flight: {changes:?}",
            all.mapped, found.mapped, all.promised, found.promised
        ))
    }
}

fn reachable(state: &State, changes: &[(Change, bool)], found: &State) -> bool {
    let Some(((change, acknowledged), rest)) = changes.split_first() else { return state == found };
    let mut applied = state.clone();
    applied.apply(change);
    if reachable(&applied, rest, found) {
        return true;
    }
    if *acknowledged {
        return false;
    }
    reachable(state, rest, found)
        || state.withdrawn(change).is_some_and(|withdrawn| reachable(&withdrawn, rest, found))
}

/// Opens the disk after a crash and reads everything. Any corrupt block is an error.
pub fn examine(disk: CrashDisk) -> Result<(State, Rig<CrashDisk>), String> {
    let store = Store::open_with(disk, small_options()).map_err(|error| format!("does not open: {error}"))?;
    let mut rig = Rig::new(store);
    let state = read_state(&mut rig)?;
    Ok((state, rig))
}

pub fn read_state(rig: &mut Rig<CrashDisk>) -> Result<State, String> {
    let mut state = State { promised: rig.store.promised(VOLUME).0, ..State::default() };
    for chunk in rig.store.chunks() {
        let ChunkIndex(index) = chunk.chunk;
        state.mapped[index as usize] = true;
        let first = u64::from(index) * CHUNK_BLOCKS;
        let (whole, torn) = match rig.read(first, CHUNK_BLOCKS as u32) {
            Err(StoreError::Corrupt { lbas }) if chunk.append => (None, lbas),
            other => (Some(other.map_err(|error| format!("chunk {index}: {error}"))?), Vec::new()),
        };
        for (at, lba) in (first..first + CHUNK_BLOCKS).enumerate() {
            if torn.contains(&Lba(lba)) {
                state.blocks[lba as usize] = u64::MAX;
                continue;
            }
            let block = match &whole {
                Some(bytes) => bytes[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].to_vec(),
                None => rig.read(lba, 1).map_err(|error| format!("block {lba}: {error}"))?,
            };
            let end = if chunk.append { block.len() - codes::SEAL_BYTES } else { block.len() };
            let words = block[..end].as_chunks::<8>().0;
            let version = u64::from_le_bytes(words[0]);
            if words.iter().any(|word| u64::from_le_bytes(*word) != version) {
                return Err(format!("block {lba} is a mix of versions"));
            }
            state.blocks[lba as usize] = version;
        }
    }
    Ok(state)
}

/// Returns the request for a change.
pub fn request_of(change: &Change, epoch: Epoch) -> store::api::StoreRequest {
    use store::api::StoreRequest;
    match change {
        Change::Write { class, lba, blocks, version } => {
            let bytes: Vec<u8> = (0..*blocks).flat_map(|at| block_of(version_at(*version, at))).collect();
            super::write_request_at(epoch, *class, *lba, &bytes)
        }
        Change::Discard { lba, blocks } => StoreRequest::Discard {
            volume: VOLUME,
            stamp: epoch.into(),
            lba: Lba(*lba),
            blocks: *blocks as u32,
        },
        Change::Allocate { chunk } => StoreRequest::AllocateChunk {
            volume: VOLUME,
            epoch,
            chunk: ChunkIndex(*chunk as u32),
            append: *chunk == APPEND_CHUNK,
        },
        Change::Free { chunk } => {
            StoreRequest::FreeChunk { volume: VOLUME, epoch, chunk: ChunkIndex(*chunk as u32) }
        }
        Change::Promise { epoch } => StoreRequest::Promise { volume: VOLUME, epoch: Epoch(*epoch) },
    }
}

/// Random numbers, the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Makes a change that is valid in `state`; `busy`: the changing chunk has changes in flight.
    pub fn change(&mut self, version: u64, state: &State, busy: bool) -> Change {
        let chunk = [0, 0, 0, 1, APPEND_CHUNK, CHANGING_CHUNK][self.below(6) as usize];
        if chunk == CHANGING_CHUNK {
            let mapped = state.mapped[chunk as usize];
            match (mapped, busy, self.below(4)) {
                (false, false, _) => return Change::Allocate { chunk },
                (true, false, 0) => return Change::Free { chunk },
                (true, false, _) => {}
                (_, true, _) => return self.change(version, state, busy),
            }
        }
        let kind = if chunk == APPEND_CHUNK { 0 } else { self.below(8) };
        let (class, most) = match kind {
            _ if chunk == APPEND_CHUNK => (WriteClass::Append, 16),
            0..=3 => (WriteClass::Overwrite, [1, 1, 2, 16][self.below(4) as usize]),
            _ => (WriteClass::Fresh, [4, 12, 40][self.below(3) as usize]),
        };
        let blocks = 1 + self.below(most);
        // Most changes hit the same few blocks.
        let span = if self.below(4) == 0 { CHUNK_BLOCKS } else { 64 };
        let lba = chunk * CHUNK_BLOCKS + self.below(span.max(blocks + 1) - blocks);
        match kind {
            6 => Change::Discard { lba, blocks },
            _ => Change::Write { class, lba, blocks, version },
        }
    }
}
