//! Writers side by side: each has a file of its own and a stripe of a shared one; every block names its writer and its place.

use crate::random::Random;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK_BYTES: usize = 64 << 10;

fn block(writer: u64, number: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    Random(seed ^ writer << 40 ^ number).fill(&mut bytes);
    bytes[..8].copy_from_slice(&writer.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn open(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| format!("{}: {error}", path.display()))
}

pub fn run(folder: &Path, count: u64, mib: u64, seed: u64) -> Result<String, String> {
    let blocks = (mib << 20) / BLOCK_BYTES as u64;
    let shared = folder.join("shared");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|writer| {
                let shared = &shared;
                scope.spawn(move || -> Result<(), String> {
                    let own = open(&folder.join(format!("own-{writer}")))?;
                    let shared = open(shared)?;
                    let mut order: Vec<u64> = (0..blocks).collect();
                    let mut random = Random(seed ^ writer);
                    for at in (1..order.len()).rev() {
                        order.swap(at, random.below(at as u64 + 1) as usize);
                    }
                    for number in order {
                        let bytes = block(writer, number, seed);
                        let fail = |error| format!("writer {writer}, block {number}: {error}");
                        own.write_all_at(&bytes, number * BLOCK_BYTES as u64).map_err(fail)?;
                        let at = (number * count + writer) * BLOCK_BYTES as u64;
                        shared.write_all_at(&bytes, at).map_err(fail)?;
                    }
                    own.sync_all().and_then(|()| shared.sync_all()).map_err(|error| format!("fsync: {error}"))
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a writer panicked".to_owned())?)
    })?;
    let mut bytes = vec![0; BLOCK_BYTES];
    let shared_file = open(&shared)?;
    for writer in 0..count {
        let path = folder.join(format!("own-{writer}"));
        let own = open(&path)?;
        for number in 0..blocks {
            for (file, at) in [(&own, number), (&shared_file, number * count + writer)] {
                file.read_exact_at(&mut bytes, at * BLOCK_BYTES as u64).map_err(|error| error.to_string())?;
                if bytes != block(writer, number, seed) {
                    return Err(format!("block {number} of writer {writer} is not what it wrote"));
                }
            }
        }
        std::fs::remove_file(&path).map_err(|error| error.to_string())?;
    }
    std::fs::remove_file(&shared).map_err(|error| error.to_string())?;
    Ok(format!("writers: {count} side by side, {mib} MiB each, twice: every block is there"))
}
