//! Small files of the data directory that pages are made of.

use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// Reads a JSON file. A missing or damaged one, or one longer than `bytes_max`, gives the default.
pub(crate) fn read_or_default<T: DeserializeOwned + Default>(path: &Path, bytes_max: u64) -> T {
    let is_short = fs::metadata(path).is_ok_and(|found| found.len() <= bytes_max);
    let text = if is_short { fs::read(path).unwrap_or_default() } else { Vec::new() };
    serde_json::from_slice(&text).unwrap_or_default()
}
