//! From a share to this machine.

use super::names::is_fit_for_disk;
use super::{
    BLOCK_BYTES_MAX, Copier, DEPTH, PATH_BYTES_MAX, Tally, TransferError, below, local, system_time,
    temporary_name,
};
use crate::connection::Token;
use crate::file::{File, FileStatus, OpenOptions};
use std::collections::VecDeque;
use std::fs::{self, FileTimes};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use types::{NtStatus, attribute};

/// A local file under another name until it is whole.
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

/// What is left to do of a tree.
enum Step {
    /// A directory of the share, and where it goes.
    Enter(String, PathBuf, FileStatus),
    /// All of it is there: its times are set.
    Leave(PathBuf, FileStatus),
}

fn times_of(status: &FileStatus) -> FileTimes {
    let mut times = FileTimes::new();
    if let Some(written) = system_time(status.written) {
        times = times.set_modified(written);
    }
    if let Some(accessed) = system_time(status.accessed) {
        times = times.set_accessed(accessed);
    }
    times
}

impl Copier<'_> {
    /// Copies a file, over what has that name here.
    ///
    /// # Errors
    /// [`TransferError`]; the local file is then as it was.
    pub fn get(&mut self, path: &str, target: &Path) -> Result<Tally, TransferError> {
        self.get_file(path, target)?;
        Ok(self.tally)
    }

    /// Copies a directory with all that is in it; what is there already stays, or is written over where names are the same.
    ///
    /// # Errors
    /// Those after which nothing can go on; all others go to the watcher.
    pub fn get_tree(&mut self, path: &str, target: &Path) -> Result<Tally, TransferError> {
        let top = self.client.stat(self.tree, path).map_err(|error| self.remote(path, error))?;
        if !top.is_directory() {
            return self.get(path, target);
        }
        let mut steps = vec![Step::Enter(path.to_owned(), target.to_owned(), top)];
        while let Some(step) = steps.pop() {
            self.go_on()?;
            match step {
                Step::Leave(target, status) => {
                    let set = fs::File::open(&target).and_then(|it| it.set_times(times_of(&status)));
                    if let Err(error) = set {
                        self.leave_out(local(&target, error))?;
                    }
                }
                Step::Enter(path, target, status) => {
                    if let Err(error) = self.get_entries(&path, &target, &status, &mut steps) {
                        self.leave_out(error)?;
                    }
                }
            }
        }
        Ok(self.tally)
    }

    fn get_entries(
        &mut self,
        path: &str,
        target: &Path,
        status: &FileStatus,
        steps: &mut Vec<Step>,
    ) -> Result<(), TransferError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(self.refused(path, "the tree is too deep"));
        }
        let mut entries = self.client.list(self.tree, path, "*").map_err(|error| self.remote(path, error))?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        self.enter_local(target, steps.is_empty())?;
        self.tally.directories += 1;
        steps.push(Step::Leave(target.to_owned(), *status));
        for entry in entries {
            self.go_on()?;
            let here = below(path, &entry.name);
            let copied = if !is_fit_for_disk(&entry.name) {
                Err(self.refused(&here, "no file here can have that name"))
            } else if entry.status.attributes & attribute::REPARSE_POINT != 0 {
                Err(self.refused(&here, "it is a link, which is not followed"))
            } else if entry.status.is_directory() {
                steps.push(Step::Enter(here, target.join(&entry.name), entry.status));
                Ok(())
            } else {
                self.get_file(&here, &target.join(&entry.name))
            };
            if let Err(error) = copied {
                self.leave_out(error)?;
            }
        }
        Ok(())
    }

    /// Makes a directory here, or goes into the one that is there. The directory that was named may be a symbolic link; one below it would
    /// lead out of the tree.
    fn enter_local(&self, target: &Path, is_named: bool) -> Result<(), TransferError> {
        let found = if is_named { fs::metadata(target) } else { fs::symlink_metadata(target) };
        match found {
            Ok(found) if found.is_symlink() => {
                let error = io::Error::other("a symbolic link is in the way, which is not followed");
                Err(local(target, error))
            }
            Ok(found) if found.is_dir() => Ok(()),
            _ => fs::create_dir(target).map_err(|error| local(target, error)),
        }
    }

    fn get_file(&mut self, path: &str, target: &Path) -> Result<(), TransferError> {
        let source = self
            .client
            .open(self.tree, path, OpenOptions::read())
            .map_err(|error| self.remote(path, error))?;
        let copied = self.fill_local(&source, path, target);
        let closed = self.client.close(source).map_err(|error| self.remote(path, error));
        let bytes = copied?;
        closed?;
        self.tally.files += 1;
        self.tally.bytes += bytes;
        Ok(())
    }

    fn fill_local(&mut self, source: &File, path: &str, target: &Path) -> Result<u64, TransferError> {
        self.watcher.begin(path, source.status.size_bytes);
        let name = temporary_name().map_err(|error| local(target, error))?;
        let mut part = Unfinished { path: target.with_file_name(name), is_finished: false };
        let out = fs::OpenOptions::new().write(true).create_new(true).open(&part.path);
        let out = out.map_err(|error| local(target, error))?;
        let mut asked = VecDeque::new();
        let read = self.read_all(source, path, &mut asked, |offset, data| {
            out.write_all_at(data, offset).map_err(|error| local(target, error))
        });
        // Whoever waits for another file finds no answers of this one.
        for (token, _) in asked {
            if self.client.wait(token).is_err() {
                break;
            }
        }
        let bytes = read?;
        out.set_times(times_of(&source.status)).map_err(|error| local(target, error))?;
        out.sync_all().map_err(|error| local(target, error))?;
        fs::rename(&part.path, target).map_err(|error| local(target, error))?;
        part.is_finished = true;
        Ok(bytes)
    }

    fn read_all(
        &mut self,
        file: &File,
        path: &str,
        asked: &mut VecDeque<(Token, u64)>,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), TransferError>,
    ) -> Result<u64, TransferError> {
        let block = self.client.limits().read_bytes.min(BLOCK_BYTES_MAX);
        let size = file.status.size_bytes;
        let shrunk = "it became shorter meanwhile: try again";
        let (mut next, mut bytes) = (0, 0);
        loop {
            self.go_on()?;
            while next < size && asked.len() < DEPTH {
                let len = u64::from(block).min(size - next) as u32;
                let token = self.client.submit_read(file, next, len);
                asked.push_back((token.map_err(|error| self.remote(path, error))?, next));
                next += u64::from(len);
            }
            let Some((token, offset)) = asked.pop_front() else { return Ok(bytes) };
            let reply = self.client.wait(token).map_err(|error| self.remote(path, error))?;
            if reply.status() == NtStatus::END_OF_FILE {
                return Err(self.refused(path, shrunk));
            }
            let data = reply.read_data().map_err(|error| self.remote(path, error))?;
            let wanted = u64::from(block).min(size - offset);
            if data.len() as u64 != wanted {
                return Err(self.refused(path, shrunk));
            }
            take(offset, &data)?;
            bytes += wanted;
            self.watcher.advance(wanted);
        }
    }
}
