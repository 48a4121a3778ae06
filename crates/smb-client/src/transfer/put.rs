//! From this machine to a share.

use super::names::{Names, unfit_for_share};
use super::{BLOCK_BYTES_MAX, Copier, DEPTH, Tally, TransferError, below, file_time, local, temporary_name};
use crate::ClientError;
use crate::client::Contents;
use crate::connection::Token;
use crate::file::{File, OpenOptions};
use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use sys::{Buf, BufMut, Payload};
use types::{FileTime, NtStatus};

/// What is left to do of a tree.
enum Step {
    /// A local directory, and where it goes.
    Enter(PathBuf, String),
    /// All of it is there: its times are set.
    Leave(PathBuf, String),
}

/// Whether the place that a file goes to may be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// What is there is replaced, and leaves its access list.
    MayBeTaken,
}

/// When a local file was written and read last.
fn times_of(source: &Metadata) -> (FileTime, FileTime) {
    let time = |time: std::io::Result<SystemTime>| time.map(file_time).unwrap_or_default();
    (time(source.modified()), time(source.accessed()))
}

/// Where a file is that goes to `path`, until it is whole.
fn part_of(path: &str) -> Result<String, std::io::Error> {
    let name = temporary_name()?;
    Ok(match path.rfind('\\') {
        Some(at) => below(path.get(..at).unwrap_or_default(), &name),
        None => name,
    })
}

impl Copier<'_> {
    /// Copies a file, in place of the one that has that name: its access list stays, everything else is new.
    ///
    /// # Errors
    /// [`TransferError`]; the share is then as it was.
    pub fn put(&mut self, source: &Path, path: &str) -> Result<Tally, TransferError> {
        let found = fs::metadata(source).map_err(|error| local(source, error))?;
        if found.is_dir() {
            let what = source.display().to_string();
            return Err(TransferError::Refused {
                what,
                why: "it is a directory, which is copied with --recursive",
            });
        }
        self.put_file(source, path, Room::MayBeTaken)?;
        Ok(self.tally)
    }

    /// Copies a directory with all that is in it; what is there already stays, or is replaced if its name is the very same.
    ///
    /// # Errors
    /// Those after which nothing can go on; all others go to the watcher.
    pub fn put_tree(&mut self, source: &Path, path: &str) -> Result<Tally, TransferError> {
        if !fs::metadata(source).map_err(|error| local(source, error))?.is_dir() {
            return self.put(source, path);
        }
        let mut steps = vec![Step::Enter(source.to_owned(), path.to_owned())];
        while let Some(step) = steps.pop() {
            self.go_on()?;
            let done = match step {
                Step::Enter(source, path) => self.put_entries(&source, &path, &mut steps),
                Step::Leave(source, path) => self.keep_directory_times(&source, &path),
            };
            if let Err(error) = done {
                self.leave_out(error)?;
            }
        }
        Ok(self.tally)
    }

    fn put_entries(&mut self, source: &Path, path: &str, steps: &mut Vec<Step>) -> Result<(), TransferError> {
        let failed = |error| local(source, error);
        let mut names = self.enter(path)?;
        let entries = fs::read_dir(source).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = entries.map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        self.tally.directories += 1;
        steps.push(Step::Leave(source.to_owned(), path.to_owned()));
        for entry in entries {
            self.go_on()?;
            if let Err(error) = self.put_entry(&entry, path, &mut names, steps) {
                self.leave_out(error)?;
            }
        }
        Ok(())
    }

    /// Makes the directory unless it is there; the names in it.
    fn enter(&mut self, path: &str) -> Result<Names, TransferError> {
        let made = match path {
            "" => Err(None),
            path => self.client.create_directory(self.tree, path).map_err(Some),
        };
        let mut names = Names::default();
        match made {
            Ok(()) => return Ok(names),
            Err(None) => {}
            Err(Some(error)) if error.status() == Some(NtStatus::OBJECT_NAME_COLLISION) => {}
            Err(Some(error)) => return Err(self.remote(path, error)),
        }
        let there = self.client.list(self.tree, path, "*").map_err(|error| self.remote(path, error))?;
        for entry in there {
            // A server that tells names apart by case has them side by side.
            let _ = names.take(&entry.name);
        }
        Ok(names)
    }

    fn put_entry(
        &mut self,
        entry: &fs::DirEntry,
        directory: &str,
        names: &mut Names,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransferError> {
        let source = entry.path();
        let refused = |why| TransferError::Refused { what: source.display().to_string(), why };
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| refused("its name is not UTF-8"))?;
        if let Some(why) = unfit_for_share(name) {
            return Err(refused(why));
        }
        let kind = entry.file_type().map_err(|error| local(&source, error))?;
        if kind.is_symlink() {
            return Err(refused("it is a symbolic link, which is not followed"));
        }
        if !kind.is_dir() && !kind.is_file() {
            return Err(refused("it is neither a file nor a directory"));
        }
        let room = if names.has(name) { Room::MayBeTaken } else { Room::Free };
        if let Err(there) = names.take(name) {
            let place = self.place(&below(directory, &there));
            return Err(TransferError::SameName { path: source.display().to_string(), place });
        }
        let path = below(directory, name);
        if kind.is_dir() {
            steps.push(Step::Enter(source, path));
            return Ok(());
        }
        self.put_file(&source, &path, room)
    }

    fn keep_directory_times(&mut self, source: &Path, path: &str) -> Result<(), TransferError> {
        let found = fs::metadata(source).map_err(|error| local(source, error))?;
        let (written, accessed) = times_of(&found);
        let kept = self.client.set_directory_times(self.tree, path, written, accessed);
        kept.map_err(|error| self.remote(path, error))
    }

    /// The access list of the file that will be replaced, if there is one.
    fn list_of_predecessor(&mut self, path: &str, room: Room) -> Result<Option<Vec<u8>>, TransferError> {
        if room == Room::Free {
            return Ok(None);
        }
        match self.client.access_list(self.tree, path) {
            Ok(list) => Ok(Some(list)),
            Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(None),
            Err(error) => Err(self.remote(path, error)),
        }
    }

    fn put_file(&mut self, source: &Path, path: &str, room: Room) -> Result<(), TransferError> {
        let input = fs::File::open(source).map_err(|error| local(source, error))?;
        let found = input.metadata().map_err(|error| local(source, error))?;
        self.watcher.begin(path, found.len());
        let list = self.list_of_predecessor(path, room)?;
        let part = part_of(path).map_err(|error| local(source, error))?;
        let mut input = input;
        let mut start = Vec::new();
        if found.is_file() && self.client.can_create_filled(&part, list.as_deref(), found.len() as usize) {
            // It may have grown since.
            let most = found.len() + 1;
            input.by_ref().take(most).read_to_end(&mut start).map_err(|error| local(source, error))?;
        }
        let is_whole = found.is_file() && start.len() as u64 == found.len();
        let small =
            if is_whole { self.put_small(&part, path, &start, list.as_deref(), &found)? } else { None };
        let bytes = match small {
            Some(bytes) => bytes,
            None => self.put_large(path, start.chain(input), source, list.as_deref(), &found)?,
        };
        self.tally.files += 1;
        self.tally.bytes += bytes;
        Ok(())
    }

    /// Two messages: the file with all that is in it, and its name. `None`: the connection was lost on the way, and nobody knows what
    /// the server has done; what there may be of it is removed.
    fn put_small(
        &mut self,
        part: &str,
        path: &str,
        data: &[u8],
        list: Option<&[u8]>,
        found: &Metadata,
    ) -> Result<Option<u64>, TransferError> {
        self.go_on()?;
        let (written, accessed) = times_of(found);
        let contents = Contents { data: Buf::from(data).into(), written, accessed };
        let is_lost = |error: &ClientError| error.status() == Some(NtStatus::CONNECTION_DISCONNECTED);
        let file = match self.client.create_filled(self.tree, part, list, &contents) {
            Ok(file) => file,
            Err(error) if is_lost(&error) => return Ok(None),
            Err(error) => {
                // It went with its handle, unless it was refused that this be so.
                let _ = self.client.delete(self.tree, part);
                return Err(self.remote(path, error));
            }
        };
        self.watcher.advance(data.len() as u64);
        if let Err(stopped) = self.go_on() {
            self.client.close(file).map_err(|error| self.remote(path, error))?;
            return Err(stopped);
        }
        let Err(error) = self.client.keep_as(file, path) else { return Ok(Some(data.len() as u64)) };
        // It is there still if the name was refused after it was told to stay.
        let _ = self.client.delete(self.tree, part);
        if is_lost(&error) { Ok(None) } else { Err(self.remote(path, error)) }
    }

    fn put_large(
        &mut self,
        path: &str,
        input: impl Read,
        source: &Path,
        list: Option<&[u8]>,
        found: &Metadata,
    ) -> Result<u64, TransferError> {
        let part = part_of(path).map_err(|error| local(source, error))?;
        let options = OpenOptions::create_temporary().durable();
        let opened = match list {
            Some(list) => self.client.create_secured(self.tree, &part, options, list),
            None => self.client.open(self.tree, &part, options),
        };
        let file = opened.map_err(|error| self.remote(path, error))?;
        let written = self.fill_remote(&file, path, input, source, found);
        let closed = self.client.close(file).map_err(|error| self.remote(path, error));
        let bytes = written?;
        closed?;
        Ok(bytes)
    }

    /// Until the file is whole it is one that goes with its handle, also if this process is killed.
    fn fill_remote(
        &mut self,
        file: &File,
        path: &str,
        input: impl Read,
        source: &Path,
        found: &Metadata,
    ) -> Result<u64, TransferError> {
        self.client.set_delete_pending(file, true).map_err(|error| self.remote(path, error))?;
        let mut asked = VecDeque::new();
        let written = self.write_all(file, path, input, source, &mut asked);
        for (token, _) in asked {
            if self.client.wait(token).is_err() {
                break;
            }
        }
        let bytes = written?;
        let (last_written, accessed) = times_of(found);
        let kept = self.client.set_times(file, last_written, accessed);
        kept.map_err(|error| self.remote(path, error))?;
        self.client.flush(file).map_err(|error| self.remote(path, error))?;
        self.go_on()?;
        self.client.set_delete_pending(file, false).map_err(|error| self.remote(path, error))?;
        if let Err(error) = self.client.rename_open(file, path, true) {
            // If this fails too, the connection is lost, and what it is told below says so.
            let _ = self.client.set_delete_pending(file, true);
            return Err(self.remote(path, error));
        }
        Ok(bytes)
    }

    fn write_all(
        &mut self,
        file: &File,
        path: &str,
        mut input: impl Read,
        source: &Path,
        asked: &mut VecDeque<(Token, usize)>,
    ) -> Result<u64, TransferError> {
        let block = self.client.limits().write_bytes.min(BLOCK_BYTES_MAX) as usize;
        let (mut offset, mut at_end) = (0_u64, false);
        loop {
            self.go_on()?;
            while !at_end && asked.len() < DEPTH {
                let mut data = BufMut::for_overwrite(block);
                let mut filled = 0;
                while filled < block && !at_end {
                    let room = data.get_mut(filled..).unwrap_or_default();
                    let count = input.read(room).map_err(|error| local(source, error))?;
                    filled += count;
                    at_end = count == 0;
                }
                data.truncate(filled);
                if filled == 0 {
                    break;
                }
                let payload = Payload::from(data.freeze());
                let token = self.client.submit_write(file, offset, payload);
                asked.push_back((token.map_err(|error| self.remote(path, error))?, filled));
                offset += filled as u64;
            }
            let Some((token, len)) = asked.pop_front() else { return Ok(offset) };
            let reply = self.client.wait(token).map_err(|error| self.remote(path, error))?;
            let written = reply.written_bytes().map_err(|error| self.remote(path, error))?;
            if written as usize != len {
                return Err(self.refused(path, "the server wrote fewer bytes than it was given"));
            }
            self.watcher.advance(len as u64);
        }
    }
}
