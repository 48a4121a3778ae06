//! A tree of files whose every name, size and byte follows from a seed: made once, verified any time later, also by another client.

use crate::random::Random;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Path, size and content seed of file `number`.
fn plan(folder: &Path, number: u64, seed: u64) -> (PathBuf, usize, u64) {
    let mut random = Random(seed ^ number.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let mut path = folder.to_path_buf();
    for depth in 0..random.below(4) {
        path.push(format!("folder {depth}-{}", random.below(5)));
    }
    path.push(format!("Datei {number:05} ä.bin"));
    let size = match random.below(10) {
        0 => 0,
        1..=6 => random.below(16 << 10),
        7 | 8 => random.below(256 << 10),
        _ => random.below(3 << 20),
    };
    (path, size as usize, random.next())
}

fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Random(seed).fill(&mut bytes);
    bytes
}

pub fn make(folder: &Path, files: u64, seed: u64) -> Result<String, String> {
    let mut total = 0;
    for number in 0..files {
        let (path, size, bytes) = plan(folder, number, seed);
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(fail)?;
        let mut file = fs::File::create(&path).map_err(fail)?;
        file.write_all(&content(size, bytes)).map_err(fail)?;
        drop(file);
        total += size;
    }
    Ok(format!("tree: {files} files, {total} bytes made with seed {seed}"))
}

pub fn verify(folder: &Path, files: u64, seed: u64) -> Result<String, String> {
    let mut listed = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(one) = folders.pop() {
        for entry in fs::read_dir(&one).map_err(|error| format!("{}: {error}", one.display()))? {
            let entry = entry.map_err(|error| error.to_string())?;
            if entry.file_type().map_err(|error| error.to_string())?.is_dir() {
                folders.push(entry.path());
            } else {
                listed += 1;
            }
        }
    }
    if listed != files {
        return Err(format!("tree: {listed} files are listed, {files} were made"));
    }
    for number in 0..files {
        let (path, size, bytes) = plan(folder, number, seed);
        let got = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if got != content(size, bytes) {
            let first = got.iter().zip(content(size, bytes)).position(|(a, b)| *a != b);
            return Err(format!(
                "{}: {} of {size} bytes, first difference at {first:?}",
                path.display(),
                got.len()
            ));
        }
    }
    Ok(format!("tree: {files} files with seed {seed} are as they were made"))
}
