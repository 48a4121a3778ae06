//! Random operations against a model, with power cuts at random points over a disk that answers out of order.
//!
//! While the power is on, every answer equals the model's. After a power cut the names are those of
//! some moment since the last flush. Flushed files that were not touched since are intact; each block
//! of touched ones is one of the contents it had since, or zeroes.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const BLOCK: usize = ::types::BLOCK_BYTES;
const FILE_BYTES_MAX: usize = 300_000;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// A file as clients see it, and the contents of its blocks since it was last durable.
#[derive(Clone)]
struct Model {
    id: FileId,
    bytes: Vec<u8>,
    past: BTreeMap<usize, BTreeSet<Vec<u8>>>,
    /// Largest size since it was last durable, and the smallest.
    sizes: (usize, usize),
    durable: bool,
}

struct World {
    bench: Bench,
    random: Random,
    files: BTreeMap<String, Model>,
    /// Names and ids at each moment since the last flush of everything.
    moments: Vec<BTreeMap<String, FileId>>,
    stamp: u8,
}

fn block(bytes: &[u8], index: usize) -> Vec<u8> {
    let from = (index * BLOCK).min(bytes.len());
    let mut out = bytes[from..(from + BLOCK).min(bytes.len())].to_vec();
    out.resize(BLOCK, 0);
    out
}

impl World {
    fn new(seed: u64) -> Self {
        let bench = Bench::with(24, 256, small());
        bench.disk.1.set(Some(seed | 1));
        Self {
            bench,
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            files: BTreeMap::new(),
            moments: vec![BTreeMap::new()],
            stamp: 0,
        }
    }

    fn moment(&mut self) {
        let names = self.files.iter().map(|(name, model)| (name.clone(), model.id)).collect();
        self.moments.push(names);
    }

    fn any(&mut self) -> Option<String> {
        let at = self.random.below(self.files.len() as u64) as usize;
        self.files.keys().nth(at).cloned()
    }

    /// The model's file is about to change: its blocks' contents are remembered.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let model = self.files.get_mut(name).unwrap();
        let old = model.bytes.clone();
        change(&mut model.bytes);
        model.sizes = (model.sizes.0.max(model.bytes.len()), model.sizes.1.min(model.bytes.len()));
        for index in 0..old.len().max(model.bytes.len()).div_ceil(BLOCK) {
            let (before, after) = (block(&old, index), block(&model.bytes, index));
            if before != after || old.len() != model.bytes.len() {
                model.durable = false;
                let past = model.past.entry(index).or_default();
                past.insert(before);
                past.insert(after);
            }
        }
    }

    fn made_durable(&mut self, name: &str) {
        let model = self.files.get_mut(name).unwrap();
        model.past.clear();
        model.sizes = (model.bytes.len(), model.bytes.len());
        model.durable = true;
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        let stamp = self.stamp;
        (0..len).map(|at| stamp.wrapping_add((at / 512) as u8) | 1).collect()
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..15 => self.create(),
            15..45 => self.write(),
            45..55 => self.verify_one(),
            55..62 => self.resize(),
            62..68 => self.zero(),
            68..73 => self.clone_some(),
            73..79 => self.rename(),
            79..86 => self.remove(),
            86..90 => self.flush_one(),
            90..93 => self.flush_everything(),
            93..96 => {
                let millis = self.random.below(3000);
                self.bench.sleep(Duration::from_millis(millis));
            }
            96..98 => self.verify_names(),
            _ => self.crash(),
        }
    }

    fn create(&mut self) {
        let name = format!("f{}", self.random.below(40));
        let wide = wide(&name);
        let made = self.bench.run(|fs| fs.create(FileId::ROOT, &wide, &file(5)));
        if self.files.contains_key(&name) {
            assert_eq!(made, Err(FsError::Exists));
            return;
        }
        let model = Model {
            id: made.unwrap(),
            bytes: Vec::new(),
            past: BTreeMap::new(),
            sizes: (0, 0),
            durable: true,
        };
        self.files.insert(name, model);
        self.moment();
    }

    fn write(&mut self) {
        let Some(name) = self.any() else { return };
        let id = self.files[&name].id;
        let offset = self.random.below(FILE_BYTES_MAX as u64 / 2) as usize;
        let offset = if self.random.below(3) == 0 { offset / BLOCK * BLOCK } else { offset };
        let len = match self.random.below(4) {
            0 => 1 + self.random.below(600),
            1 => BLOCK as u64,
            2 => 1 + self.random.below(20_000),
            _ => 1 + self.random.below(FILE_BYTES_MAX as u64 / 2),
        } as usize;
        let data = self.data(len);
        let durable = self.random.below(4) == 0;
        let stream = StreamId::unnamed(id);
        self.change(&name, |bytes| {
            bytes.resize(bytes.len().max(offset + len), 0);
            bytes[offset..offset + len].copy_from_slice(&data);
        });
        if durable {
            self.bench.write_durably(stream, offset as u64, &data).unwrap();
            // The blocks are durable: a crash leaves them as they are.
            let model = self.files.get_mut(&name).unwrap();
            for index in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
                model.past.insert(index, [block(&model.bytes, index)].into());
            }
        } else {
            self.bench.write(stream, offset as u64, &data).unwrap();
        }
    }

    fn resize(&mut self) {
        let Some(name) = self.any() else { return };
        let stream = StreamId::unnamed(self.files[&name].id);
        let size = self.random.below(FILE_BYTES_MAX as u64) as usize;
        self.bench.run(|fs| fs.set_end_of_file(stream, size as u64, FileTime(9))).unwrap();
        self.change(&name, |bytes| bytes.resize(size, 0));
    }

    fn zero(&mut self) {
        let Some(name) = self.any() else { return };
        let stream = StreamId::unnamed(self.files[&name].id);
        let (offset, len) = (self.random.below(FILE_BYTES_MAX as u64), self.random.below(100_000));
        self.bench.run(|fs| fs.zero_range(stream, offset, len, FileTime(9))).unwrap();
        self.change(&name, |bytes| {
            let end = (offset + len).min(bytes.len() as u64) as usize;
            if (offset as usize) < end {
                bytes[offset as usize..end].fill(0);
            }
        });
    }

    fn clone_some(&mut self) {
        let (Some(from), Some(to)) = (self.any(), self.any()) else { return };
        if from == to {
            return;
        }
        let (source, target) = (&self.files[&from], &self.files[&to]);
        let blocks = (source.bytes.len() / BLOCK).min(target.bytes.len() / BLOCK);
        if blocks == 0 {
            return;
        }
        let len = 1 + self.random.below(blocks as u64) as usize;
        let start = self.random.below((source.bytes.len() / BLOCK - len + 1) as u64) as usize * BLOCK;
        let target_start = self.random.below((target.bytes.len() / BLOCK - len + 1) as u64) as usize * BLOCK;
        let (one, two) = (StreamId::unnamed(source.id), StreamId::unnamed(target.id));
        let data = source.bytes[start..start + len * BLOCK].to_vec();
        let done = self
            .bench
            .run(|fs| {
                let len = (len * BLOCK) as u64;
                fs.clone_range(one, start as u64, two, target_start as u64, len, FileTime(9))
            })
            .unwrap();
        assert_eq!(done, (len * BLOCK) as u64, "the files have few extents");
        self.change(&to, |bytes| bytes[target_start..target_start + len * BLOCK].copy_from_slice(&data));
    }

    fn rename(&mut self) {
        let Some(name) = self.any() else { return };
        let target = format!("f{}", self.random.below(40));
        let (from, to) = (wide(&name), wide(&target));
        let result = self
            .bench
            .run(|fs| fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9)))
            .unwrap();
        if name == target {
            return;
        }
        let model = self.files.remove(&name).unwrap();
        let replaced = self.files.insert(target, model);
        self.moment();
        assert_eq!(result.map(|unlinked| unlinked.file), replaced.map(|model| model.id));
        if let Some(unlinked) = result {
            self.bench.run(|fs| fs.reclaim(unlinked.file)).unwrap();
        }
    }

    fn remove(&mut self) {
        let Some(name) = self.any() else { return };
        let from = wide(&name);
        let unlinked = self.bench.run(|fs| fs.unlink(FileId::ROOT, &from, FileTime(9))).unwrap();
        self.files.remove(&name);
        self.moment();
        self.bench.run(|fs| fs.reclaim(unlinked.file)).unwrap();
    }

    fn flush_one(&mut self) {
        let Some(name) = self.any() else { return };
        self.bench.flush(self.files[&name].id).unwrap();
        self.made_durable(&name);
        // All names so far became durable with it.
        self.moments.drain(..self.moments.len() - 1);
    }

    fn flush_everything(&mut self) {
        self.bench.flush_all().unwrap();
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            self.made_durable(&name);
        }
        self.moments.drain(..self.moments.len() - 1);
    }

    fn verify(&mut self, name: &str) {
        let model = self.files[name].clone();
        let read = self.bench.read(StreamId::unnamed(model.id), 0, FILE_BYTES_MAX as u32 * 2).unwrap();
        assert_eq!(read.len(), model.bytes.len(), "size of {name}");
        if let Some(at) = (0..read.len()).find(|at| read[*at] != model.bytes[*at]) {
            panic!("{name} differs at {at}: {} and not {}", read[at], model.bytes[at]);
        }
    }

    fn verify_one(&mut self) {
        if let Some(name) = self.any() {
            self.verify(&name);
        }
    }

    fn names(&mut self) -> BTreeMap<String, FileId> {
        let entries = self.bench.run(|fs| fs.list(FileId::ROOT, None, 1000)).unwrap();
        entries.into_iter().map(|entry| (String::from_utf16_lossy(&entry.name), entry.file)).collect()
    }

    fn verify_names(&mut self) {
        let expected: BTreeMap<_, _> =
            self.files.iter().map(|(name, model)| (name.clone(), model.id)).collect();
        assert_eq!(self.names(), expected);
    }

    fn crash(&mut self) {
        let mut random = Random(self.random.below(u64::MAX) | 1);
        // Some of the requests under way are answered, the rest is lost or not.
        for _ in 0..self.random.below(4) {
            self.bench.poll();
        }
        self.bench.crash(|limit| random.below(limit));
        let names = self.names();
        let known_moment = self.moments.contains(&names);
        assert!(known_moment, "names of no moment: {names:?}\n{:#?}", self.moments);
        let known: BTreeMap<FileId, Model> =
            self.files.values().map(|model| (model.id, model.clone())).collect();
        self.files.clear();
        for (name, id) in names {
            let size = self.bench.run(|fs| fs.attributes(id)).unwrap().end_of_file as usize;
            let read = self.bench.read(StreamId::unnamed(id), 0, FILE_BYTES_MAX as u32 * 2).unwrap();
            assert_eq!(read.len(), size);
            // A file removed after that moment is not followed further.
            if let Some(model) = known.get(&id) {
                check_survivor(&name, model, &read);
            }
            let size = read.len();
            let model = Model { id, bytes: read, past: BTreeMap::new(), sizes: (size, size), durable: true };
            self.files.insert(name, model);
        }
        self.moments.clear();
        self.moment();
        self.bench.check_clean();
    }
}

fn check_survivor(name: &str, model: &Model, read: &[u8]) {
    if model.durable {
        assert!(read == model.bytes, "{name} was durable and is not as it was");
        return;
    }
    assert!(read.len() <= model.sizes.0, "{name} is larger than it ever was");
    for index in 0..read.len().div_ceil(BLOCK) {
        let found = block(read, index);
        let zero = found.iter().all(|byte| *byte == 0);
        let current = found == block(&model.bytes, index);
        // The last block may be cut if the end was published before.
        let cut = (index + 1) * BLOCK > read.len();
        let past = model.past.get(&index);
        let known = past.is_some_and(|past| {
            past.iter().any(|old| {
                let len = if cut { read.len() - index * BLOCK } else { BLOCK };
                old[..len] == found[..len] && found[len..].iter().all(|byte| *byte == 0)
            })
        });
        assert!(
            current || known || (zero && past.is_some()),
            "block {index} of {name} is nothing it ever was since its last flush (size {})",
            read.len()
        );
    }
}

fn run(seed: u64, steps: usize) {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.flush_everything();
    world.crash();
    world.verify_names();
    for name in world.files.keys().cloned().collect::<Vec<_>>() {
        world.verify(&name);
    }
}

#[test]
fn random_operations_with_power_cuts_equal_the_model() {
    let (first, count) = match std::env::var("CENOTE_FS_SEEDS") {
        Ok(text) => {
            let (first, count) = text.split_once('+').unwrap_or((&text, "1"));
            (first.parse().unwrap_or(0), count.parse().unwrap_or(1))
        }
        Err(_) => (1, 4),
    };
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| run(seed, 300));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
pub fn a_batch_that_a_power_cut_took_away_does_not_have_the_order_of_one_that_is_written_later() {
    let mut bench = Bench::new(8);
    for round in 0..40_u64 {
        bench.create(&format!("kept {round}"));
        bench.flush_all().unwrap();
        let lost = 1 + round % 2;
        bench.disk.0.borrow_mut().hold(true);
        for part in 0..lost {
            let name = wide(&format!("lost {round} {part}"));
            let _ = bench.fs.create(FileId::ROOT, &name, &file(5));
            let token = bench.token();
            let _ = bench.fs.flush_metadata(token);
            bench.poll();
        }
        assert!(bench.disk.0.borrow().pending() > 0, "a batch is under way");
        // The disk checks that the order grows.
        bench.crash(|_| 0);
    }
}
