//! Copies, new directories and removals: the work, and the messages on it.

use super::{Failure, failed, fallback_told, open_tree, output};
use crate::args::{Confirmation, SmbOptions};
use crate::printable::eprintln;
use crate::progress::Copying;
use smb_client::transfer::{Copier, Tally, TransferError};
use smb_client::{Client, Location, Tree};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;
use types::size::show_size;

/// Exit status by which a shell shows that SIGINT ended a command.
const INTERRUPTED: u8 = 130;

/// One command on a share.
struct Work<'a> {
    client: Client,
    tree: Tree,
    place: &'a Location,
    how: &'a SmbOptions,
    began: Instant,
    is_json: bool,
}

impl<'a> Work<'a> {
    fn begin(place: &'a Location, how: &'a SmbOptions, is_json: bool) -> Result<Self, Failure> {
        let (client, tree) = open_tree(place, how)?;
        // From here on Ctrl-C stops between two blocks, and unfinished files are removed.
        sys::interrupt::install()
            .map_err(|error| Failure::new(format!("signals cannot be caught: {error}")))?;
        Ok(Self { client, tree, place, how, began: Instant::now(), is_json })
    }

    fn run(
        &mut self,
        is_single: bool,
        act: impl FnOnce(&mut Copier<'_>) -> Result<Tally, TransferError>,
    ) -> Result<Tally, Failure> {
        let is_hidden = self.is_json || !std::io::stderr().is_terminal();
        let mut watcher = Copying::new(is_hidden, is_single.then_some(0));
        let mut transfer = Copier::new(&mut self.client, self.tree, self.place, &mut watcher);
        let done = act(&mut transfer);
        watcher.end();
        done.map_err(|error| {
            let exit_status = if matches!(error, TransferError::Stopped) { INTERRUPTED } else { 1 };
            Failure { exit_status, ..Failure::new(error.to_string()) }
        })
    }

    /// Reports amount, direction and speed. A tree with omissions fails the command.
    fn say_copied(&self, what: &str, tally: Tally) -> Result<(), Failure> {
        if let Some(reason) = fallback_told(&self.client, self.how) {
            eprintln!("no SMB Direct ({reason}): TCP was used");
        }
        let transport = if self.client.is_rdma() { "SMB Direct" } else { "TCP" };
        let counters = self.client.counters();
        let remote = counters.rdma_read_bytes + counters.rdma_written_bytes;
        let seconds = self.began.elapsed().as_secs_f64().max(1e-6);
        let rate = show_size((tally.bytes as f64 / seconds) as u64);
        let by_rdma =
            if remote > 0 { format!(", {} of it by RDMA", show_size(remote)) } else { String::new() };
        let copied = show_size(tally.bytes);
        let files = if tally.directories > 0 { format!("{}, ", counted(tally)) } else { String::new() };
        output::say(
            self.is_json,
            format!("{what}: {files}{copied} in {seconds:.2} s ({rate}/s) over {transport}{by_rdma}"),
        )?;
        whole(tally, "copied")
    }
}

fn counted(tally: Tally) -> String {
    let many = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    format!("{}, {}", many(tally.files, "file", "files"), many(tally.directories, "directory", "directories"))
}

fn whole(tally: Tally, done: &str) -> Result<(), Failure> {
    match tally.left_out {
        0 => Ok(()),
        1 => Err(Failure::new(format!("not everything was {done}: 1 name was left out, as said above"))),
        count => Err(Failure::new(format!(
            "not everything was {done}: {count} names were left out, as said above"
        ))),
    }
}

fn last_name(place: &Location) -> &str {
    place.path.rsplit('\\').next().unwrap_or_default()
}

/// # Errors
/// The message to print; a local file that was not copied is as it was.
pub fn get(
    place: &Location,
    target: Option<PathBuf>,
    recursive: bool,
    how: &SmbOptions,
    is_json: bool,
) -> Result<(), Failure> {
    let name = match last_name(place) {
        "" if recursive => place.share.as_str(),
        name => name,
    };
    if matches!(name, "" | "." | "..") {
        return Err(Failure::new(format!("{place} names no file")));
    }
    let target = match target {
        None => PathBuf::from(name),
        Some(path) if path.is_dir() => path.join(name),
        Some(path) => path,
    };
    let mut work = Work::begin(place, how, is_json)?;
    let tally = work.run(!recursive, |transfer| match recursive {
        true => transfer.get_tree(&place.path, &target),
        false => transfer.get(&place.path, &target),
    })?;
    work.say_copied(&target.display().to_string(), tally)
}

/// # Errors
/// The message to print; a file on the server that was not copied is as it was.
pub fn put(
    source: &Path,
    place: Location,
    recursive: bool,
    how: &SmbOptions,
    is_json: bool,
) -> Result<(), Failure> {
    let found =
        std::fs::metadata(source).map_err(|error| Failure::new(format!("{}: {error}", source.display())))?;
    if found.is_dir() && !recursive {
        let text =
            format!("{} is a directory: --recursive copies it with all that is in it", source.display());
        return Err(Failure::new(text));
    }
    let mut work = Work::begin(&place, how, is_json)?;
    let is_directory = place.path.is_empty()
        || work.client.stat(work.tree, &place.path).is_ok_and(|status| status.is_directory());
    let mut path = place.path.clone();
    if is_directory {
        // The directory of `.` and `dir/..` has a name, too.
        let whole = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let named = if source.file_name().is_some() { source } else { &whole };
        let name = named.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Failure::new(format!("{} has no name that a share could have: give one", source.display()))
        })?;
        path = if path.is_empty() { name.to_owned() } else { format!("{path}\\{name}") };
    }
    let tally = work.run(!found.is_dir(), |transfer| match recursive {
        true => transfer.put_tree(source, &path),
        false => transfer.put(source, &path),
    })?;
    work.say_copied(&Location { path, ..place.clone() }.to_string(), tally)
}

/// # Errors
/// The message to print.
pub fn make_directory(
    place: &Location,
    parents: bool,
    how: &SmbOptions,
    is_json: bool,
) -> Result<(), Failure> {
    let mut work = Work::begin(place, how, is_json)?;
    work.run(true, |transfer| transfer.make_directory(&place.path, parents))?;
    output::say(is_json, format!("{place} was made"))
}

/// Removes a tree if there is a confirmation, for which it asks; else a file or an empty directory.
///
/// # Errors
/// The message to print.
pub fn remove(
    place: &Location,
    confirmation: Option<&Confirmation>,
    how: &SmbOptions,
    is_json: bool,
) -> Result<(), Failure> {
    let mut work = Work::begin(place, how, is_json)?;
    let found = work.client.stat(work.tree, &place.path).map_err(|error| failed(place, &error))?;
    if let (Some(confirmation), true) = (confirmation, found.is_directory() && !place.path.is_empty()) {
        let what = format!("this removes {place} with all that is in it");
        output::confirm(&what, last_name(place), confirmation.yes.as_deref())?;
    }
    let tally = work.run(true, |transfer| match confirmation {
        Some(_) => transfer.remove_tree(&place.path),
        None => transfer.remove(&place.path),
    })?;
    let what = if tally.directories > 0 { format!(" ({})", counted(tally)) } else { String::new() };
    output::say(is_json, format!("{place} is gone{what}"))?;
    whole(tally, "removed")
}
