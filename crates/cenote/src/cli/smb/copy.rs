//! Copies of whole files, many blocks in flight.

use super::{Failure, failed, open_tree, output};
use crate::cli::args::SmbOptions;
use anstream::eprintln;
use smb_client::{Client, File, Location, OpenOptions, Token};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use sys::{BufMut, Payload};
use types::NtStatus;
use types::size::show_size;

/// Blocks in flight.
const DEPTH: usize = 8;
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// A file under another name until it is whole.
struct Unfinished {
    path: PathBuf,
    is_finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn local(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn say(client: &Client, what: &str, bytes: u64, began: Instant, is_json: bool) -> Result<(), Failure> {
    if let Some(reason) = client.fallback() {
        eprintln!("no SMB Direct ({reason}): TCP was used");
    }
    let transport = if client.is_rdma() { "SMB Direct" } else { "TCP" };
    let counters = client.counters();
    let remote = counters.rdma_read_bytes + counters.rdma_written_bytes;
    let seconds = began.elapsed().as_secs_f64().max(1e-6);
    let rate = show_size((bytes as f64 / seconds) as u64);
    let by_rdma = if remote > 0 { format!(", {} of it by RDMA", show_size(remote)) } else { String::new() };
    let copied = show_size(bytes);
    let message = format!("{what}: {copied} in {seconds:.2} s ({rate}/s) over {transport}{by_rdma}");
    output::say(is_json, message)
}

/// # Errors
/// What to print; the local file is then as it was.
pub fn get(place: &Location, file: Option<PathBuf>, how: &SmbOptions, is_json: bool) -> Result<(), Failure> {
    let name = place.path.rsplit('\\').next().unwrap_or_default();
    if name.is_empty() || name == ".." {
        return Err(Failure::new(format!("{place} names no file")));
    }
    let target = match file {
        None => PathBuf::from(name),
        Some(path) if path.is_dir() => path.join(name),
        Some(path) => path,
    };
    let (mut client, tree) = open_tree(place, how)?;
    let began = Instant::now();
    let source =
        client.open(tree, &place.path, OpenOptions::read()).map_err(|error| failed(place, &error))?;

    let mut part = target.clone().into_os_string();
    part.push(format!(".part-{}", std::process::id()));
    let mut part = Unfinished { path: part.into(), is_finished: false };
    let out = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part.path)
        .map_err(|error| local(&part.path, &error))?;
    let bytes = read_all(&mut client, &source, place, |offset, data| {
        out.write_all_at(data, offset).map_err(|error| local(&target, &error))
    })?;
    client.close(source).map_err(|error| failed(place, &error))?;
    out.sync_all().map_err(|error| local(&target, &error))?;
    fs::rename(&part.path, &target).map_err(|error| local(&target, &error))?;
    part.is_finished = true;
    say(&client, &target.display().to_string(), bytes, began, is_json)
}

fn read_all(
    client: &mut Client,
    file: &File,
    place: &Location,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let block = client.limits().read_bytes.min(BLOCK_BYTES_MAX);
    let size = file.status.size_bytes;
    let mut asked: VecDeque<(Token, u64)> = VecDeque::new();
    let (mut next, mut bytes) = (0, 0);
    loop {
        while next < size && asked.len() < DEPTH {
            let len = u64::from(block).min(size - next) as u32;
            let token = client.submit_read(file, next, len).map_err(|error| failed(place, &error))?;
            asked.push_back((token, next));
            next += u64::from(len);
        }
        let Some((token, offset)) = asked.pop_front() else { return Ok(bytes) };
        let reply = client.wait(token).map_err(|error| failed(place, &error))?;
        if reply.status() == NtStatus::END_OF_FILE {
            return Err(Failure::new(format!("{place} became shorter meanwhile: try again")));
        }
        let data = reply.read_data().map_err(|error| failed(place, &error))?;
        let wanted = u64::from(block).min(size - offset);
        if data.len() as u64 != wanted {
            return Err(Failure::new(format!("{place} became shorter meanwhile: try again")));
        }
        take(offset, &data)?;
        bytes += wanted;
    }
}

/// # Errors
/// What to print; what was written until then stays on the server.
pub fn put(source: &Path, mut place: Location, how: &SmbOptions, is_json: bool) -> Result<(), Failure> {
    let mut input = fs::File::open(source).map_err(|error| local(source, &error))?;
    if input.metadata().map_err(|error| local(source, &error))?.is_dir() {
        return Err(Failure::new(format!("{} is a directory: only files are copied", source.display())));
    }
    let (mut client, tree) = open_tree(&place, how)?;
    let began = Instant::now();
    let is_directory =
        place.path.is_empty() || client.stat(tree, &place.path).is_ok_and(|status| status.is_directory());
    if is_directory {
        let name = source.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Failure::new(format!("{} has no name that a share could have: give one", source.display()))
        })?;
        place.path = if place.path.is_empty() { name.to_owned() } else { format!("{}\\{name}", place.path) };
    }
    let file = client
        .open(tree, &place.path, OpenOptions::overwrite().durable())
        .map_err(|error| failed(&place, &error))?;
    let bytes = write_all(&mut client, &file, &place, &mut input, source)?;
    client.flush(&file).map_err(|error| failed(&place, &error))?;
    client.close(file).map_err(|error| failed(&place, &error))?;
    say(&client, &place.to_string(), bytes, began, is_json)
}

fn write_all(
    client: &mut Client,
    file: &File,
    place: &Location,
    input: &mut impl Read,
    source: &Path,
) -> Result<u64, Failure> {
    let block = client.limits().write_bytes.min(BLOCK_BYTES_MAX) as usize;
    let mut asked: VecDeque<(Token, usize)> = VecDeque::new();
    let (mut offset, mut at_end) = (0_u64, false);
    loop {
        while !at_end && asked.len() < DEPTH {
            let mut data = BufMut::for_overwrite(block);
            let mut filled = 0;
            while filled < block && !at_end {
                let count = input
                    .read(data.get_mut(filled..).unwrap_or_default())
                    .map_err(|error| local(source, &error))?;
                filled += count;
                at_end = count == 0;
            }
            data.truncate(filled);
            if filled == 0 {
                break;
            }
            let payload = Payload::from(data.freeze());
            let token = client.submit_write(file, offset, payload).map_err(|error| failed(place, &error))?;
            asked.push_back((token, filled));
            offset += filled as u64;
        }
        let Some((token, len)) = asked.pop_front() else { return Ok(offset) };
        let reply = client.wait(token).map_err(|error| failed(place, &error))?;
        let written = reply.written_bytes().map_err(|error| failed(place, &error))?;
        if written as usize != len {
            return Err(Failure::new(format!("{place}: the server wrote {written} of {len} bytes")));
        }
    }
}
