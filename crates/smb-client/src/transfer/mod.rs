//! Copies of files and trees between a share and this machine, and removal of trees on a share.
//!
//! Promises: a file appears under its name only when it is whole, with the times of its source, on
//! either side. Until then it has another name, and is removed if the transfer fails or is stopped. It
//! stays only if a server refuses a part of a new small file, and this process ends before it has
//! removed the rest; the files behind such a refusal are copied so that nothing stays. Names that
//! differ by case only are never merged. A name from a server leads nowhere but into the directory
//! that is copied to. Files that cannot be copied are reported and left out.

mod get;
mod names;
mod put;
mod remove;

use crate::client::Client;
use crate::file::Tree;
use crate::{ClientError, Location};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};
use types::{FileTime, NtStatus};

/// Blocks of one file in flight.
const DEPTH: usize = 8;
/// Files of a tree that are under way at once. Each waits twice for a server's disks, so that many share each wait; they take at most 16 MiB here and
/// there, of the 40 MiB that a server holds of one connection.
const FILES_IN_FLIGHT: usize = 256;
/// Credits that these take, eight requests each: to be asked for by `Options::credits`. With fewer the rest waits here.
pub const CREDITS: u16 = 2048;
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Longest path that is followed down, in bytes: a server may show a tree without end.
const PATH_BYTES_MAX: usize = 32 << 10;

/// Observer of a transfer.
pub trait Watcher {
    /// A file begins.
    fn begin(&mut self, path: &str, size_bytes: u64);
    /// This many bytes more have arrived.
    fn advance(&mut self, bytes: u64);
    /// Reports a file or directory that is left out; the others are copied.
    fn left_out(&mut self, why: &TransferError);
    /// Whether the transfer shall stop and clean up.
    fn is_stopped(&self) -> bool;
}

/// Why something was not copied, made or removed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The server refused, or the connection failed.
    #[error("{place}: {error}")]
    Remote { place: String, error: ClientError },
    /// The server refused a part of it, and then to remove the rest.
    #[error("{place}: {error}; {left} is there in part: remove it, or copy it again")]
    InPart { place: String, left: String, error: ClientError },
    /// A local file cannot be read or written.
    #[error("{path}: {error}")]
    Local { path: String, error: io::Error },
    /// Not of a kind that can be copied or removed.
    #[error("{what}: {why}")]
    Refused { what: String, why: &'static str },
    /// Two names are one to the server.
    #[error(
        "{path} is not copied: {place} has the same name but for upper and lower case, which the server takes for one"
    )]
    SameName { path: String, place: String },
    /// The watcher asked for it.
    #[error("interrupted; nothing unfinished was left behind")]
    Stopped,
}

impl TransferError {
    /// Whether nothing else can continue either.
    fn is_final(&self) -> bool {
        match self {
            Self::Stopped => true,
            Self::Remote { error, .. } | Self::InPart { error, .. } => error.is_fatal(),
            _ => false,
        }
    }

    /// The status that a server refused with.
    fn status(&self) -> Option<NtStatus> {
        match self {
            Self::Remote { error, .. } | Self::InPart { error, .. } => error.status(),
            _ => None,
        }
    }
}

/// Amount of work done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    /// Files and directories that were reported to the watcher instead.
    pub left_out: u64,
}

/// One work on a share: a copy, a new directory, a removal.
pub struct Copier<'a> {
    client: &'a mut Client,
    tree: Tree,
    /// `//SERVER/SHARE`.
    share: String,
    watcher: &'a mut dyn Watcher,
    tally: Tally,
    /// Until the server says otherwise: it makes and names a file by one message.
    takes_whole_files: bool,
}

impl<'a> Copier<'a> {
    /// `place` is what messages name server and share by.
    pub fn new(client: &'a mut Client, tree: Tree, place: &Location, watcher: &'a mut dyn Watcher) -> Self {
        let share = format!("//{}/{}", place.server, place.share);
        Self { client, tree, share, watcher, tally: Tally::default(), takes_whole_files: true }
    }

    /// Makes a directory; with `parents` also those above it that are missing, and none if it is there.
    ///
    /// # Errors
    /// [`TransferError::Remote`]; `Refused` for the share's root.
    pub fn make_directory(&mut self, path: &str, parents: bool) -> Result<Tally, TransferError> {
        if path.is_empty() {
            return Err(self.refused(path, "it names a share: give a directory of it"));
        }
        let ends = path.match_indices('\\').map(|(at, _)| at).filter(|_| parents).chain([path.len()]);
        for end in ends {
            let part = path.get(..end).unwrap_or_default();
            let made = self.client.create_directory(self.tree, part);
            match made.map_err(|error| self.remote(part, error)) {
                Ok(()) => self.tally.directories += 1,
                Err(error) if parents && error.status() == Some(NtStatus::OBJECT_NAME_COLLISION) => {
                    self.demand_directory(part)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.tally)
    }

    fn demand_directory(&mut self, path: &str) -> Result<(), TransferError> {
        let found = self.client.stat(self.tree, path);
        if found.map_err(|error| self.remote(path, error))?.is_directory() {
            return Ok(());
        }
        Err(self.refused(path, "there is a file of that name"))
    }

    fn place(&self, path: &str) -> String {
        format!("{}/{}", self.share, path.replace('\\', "/"))
    }

    fn remote(&self, path: &str, error: ClientError) -> TransferError {
        TransferError::Remote { place: self.place(path), error }
    }

    fn refused(&self, path: &str, why: &'static str) -> TransferError {
        TransferError::Refused { what: self.place(path), why }
    }

    fn go_on(&self) -> Result<(), TransferError> {
        if self.watcher.is_stopped() { Err(TransferError::Stopped) } else { Ok(()) }
    }

    /// Reports why something is left out. An error that ends everything else too is returned.
    fn leave_out(&mut self, error: TransferError) -> Result<(), TransferError> {
        if error.is_final() {
            return Err(error);
        }
        self.tally.left_out += 1;
        self.watcher.left_out(&error);
        Ok(())
    }
}

/// Whether nobody knows what became of a request: the connection died before its answer.
fn is_lost(error: &ClientError) -> bool {
    error.status() == Some(NtStatus::CONNECTION_DISCONNECTED)
}

fn local(path: &Path, error: io::Error) -> TransferError {
    TransferError::Local { path: path.display().to_string(), error }
}

/// A path in a directory of a share; the root's is empty.
fn below(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}\\{name}") }
}

/// A name that nothing has yet, for a file that is not whole.
fn temporary_name() -> Result<String, io::Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!(".cenote-{:016x}.part", u64::from_ne_bytes(random)))
}

fn file_time(time: SystemTime) -> FileTime {
    let nanos = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    FileTime::from_unix_nanos(nanos)
}

/// `None` for times that this machine has no way to keep.
fn system_time(time: FileTime) -> Option<SystemTime> {
    let nanos = time.to_unix_nanos();
    let length = |nanos: i128| u64::try_from(nanos).ok().map(Duration::from_nanos);
    match nanos {
        0.. => SystemTime::UNIX_EPOCH.checked_add(length(nanos)?),
        _ => SystemTime::UNIX_EPOCH.checked_sub(length(-nanos)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (seconds, nanos) in [(0, 0), (1_700_000_000, 123_456_700), (4_000_000_000, 0)] {
            let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
            assert_eq!(system_time(file_time(time)), Some(time));
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(86_400);
        assert_eq!(system_time(file_time(before)), Some(before));
        assert_eq!(system_time(FileTime(u64::MAX)), None);
    }

    #[test]
    fn paths_below_the_root_have_no_slash_before_them() {
        assert_eq!((below("", "a").as_str(), below("a\\b", "c").as_str()), ("a", "a\\b\\c"));
    }
}
