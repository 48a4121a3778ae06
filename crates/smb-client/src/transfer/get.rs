//! From a share to this machine.

use super::names::is_fit_for_disk;
use super::{
    BLOCK_BYTES_MAX, Copier, DEPTH, FILES_IN_FLIGHT, PATH_BYTES_MAX, Tally, TransferError, below, is_lost,
    local, system_time, temporary_name,
};
use crate::client::Fetching;
use crate::connection::Token;
use crate::file::{DirectoryEntry, File, FileStatus, OpenOptions};
use std::collections::VecDeque;
use std::fs::{self, FileTimes};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use types::{NtStatus, attribute};

/// Files here that are made durable together, and threads that do it: a file system takes those that wait at once into one transaction of its
/// journal.
const SYNCED_FILES: usize = 128;
const SYNCING_THREADS: usize = 16;

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

/// A directory of the share, its target, and its state when it was listed.
type Directory = (String, PathBuf, FileStatus);

/// Small files of a tree on their way.
#[derive(Default)]
struct UnderWay {
    asked: VecDeque<Asked>,
    written: Vec<Written>,
}

/// A file whose answer is still to be taken.
struct Asked {
    path: String,
    target: PathBuf,
    fetching: Fetching,
}

/// A file that is here with all its contents, and neither durable nor under its name.
struct Written {
    out: fs::File,
    part: Unfinished,
    target: PathBuf,
    bytes: u64,
}

/// Makes files durable.
fn sync_all(written: &[Written]) -> Vec<io::Result<()>> {
    let share = written.len().div_ceil(SYNCING_THREADS).max(1);
    std::thread::scope(|scope| {
        let sync = |files: &[Written]| files.iter().map(|file| file.out.sync_all()).collect::<Vec<_>>();
        let threads: Vec<_> = written.chunks(share).map(|files| scope.spawn(move || sync(files))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|it| resume_unwind(it)));
        joined.flatten().collect()
    })
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

    /// Copies a directory with all its contents; existing entries stay, or are overwritten if names are the
    /// same.
    ///
    /// # Errors
    /// Errors after which nothing can continue; all others go to the watcher.
    pub fn get_tree(&mut self, path: &str, target: &Path) -> Result<Tally, TransferError> {
        let top = self.client.stat(self.tree, path).map_err(|error| self.remote(path, error))?;
        if !top.is_directory() {
            return self.get(path, target);
        }
        let mut entered = Vec::new();
        let mut under_way = UnderWay::default();
        let mut steps = vec![(path.to_owned(), target.to_owned(), top)];
        while let Some(directory) = steps.pop() {
            self.go_on()?;
            if let Err(error) = self.get_entries(directory, &mut steps, &mut entered, &mut under_way) {
                self.leave_out(error)?;
            }
        }
        self.store(&mut under_way, 0)?;
        self.sync_and_rename(&mut under_way)?;
        // Last, as each entry made in a directory changes the directory's times.
        for (target, status) in entered.into_iter().rev() {
            let set = fs::File::open(&target).and_then(|it| it.set_times(times_of(&status)));
            if let Err(error) = set {
                self.leave_out(local(&target, error))?;
            }
        }
        Ok(self.tally)
    }

    fn get_entries(
        &mut self,
        (path, target, status): Directory,
        steps: &mut Vec<Directory>,
        entered: &mut Vec<(PathBuf, FileStatus)>,
        under_way: &mut UnderWay,
    ) -> Result<(), TransferError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(self.refused(&path, "the tree is too deep"));
        }
        let mut entries =
            self.client.list(self.tree, &path, "*").map_err(|error| self.remote(&path, error))?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        self.enter_local(&target, entered.is_empty())?;
        self.tally.directories += 1;
        entered.push((target.clone(), status));
        for entry in entries {
            self.go_on()?;
            let here = below(&path, &entry.name);
            if let Err(error) = self.get_entry(here, &target, &entry, steps, under_way) {
                self.leave_out(error)?;
            }
            self.store(under_way, FILES_IN_FLIGHT - 1)?;
        }
        Ok(())
    }

    fn get_entry(
        &mut self,
        path: String,
        directory: &Path,
        entry: &DirectoryEntry,
        steps: &mut Vec<Directory>,
        under_way: &mut UnderWay,
    ) -> Result<(), TransferError> {
        if !is_fit_for_disk(&entry.name) {
            return Err(self.refused(&path, "no file here can have that name"));
        }
        if entry.status.attributes & attribute::REPARSE_POINT != 0 {
            return Err(self.refused(&path, "it is a link, which is not followed"));
        }
        let target = directory.join(&entry.name);
        if entry.status.is_directory() {
            steps.push((path, target, entry.status));
            return Ok(());
        }
        let len = usize::try_from(entry.status.size_bytes).unwrap_or(usize::MAX);
        if !self.client.can_fetch(&path, len) {
            return self.get_file(&path, &target);
        }
        let asked = self.client.submit_fetch(self.tree, &path, len);
        let fetching = asked.map_err(|error| self.remote(&path, error))?;
        under_way.asked.push_back(Asked { path, target, fetching });
        Ok(())
    }

    /// Takes answers, the first ones first, until at most `most` are left. Files that fail are left out.
    fn store(&mut self, under_way: &mut UnderWay, most: usize) -> Result<(), TransferError> {
        while under_way.asked.len() > most {
            self.go_on()?;
            let Some(first) = under_way.asked.pop_front() else { return Ok(()) };
            match self.store_one(first) {
                Ok(written) => under_way.written.extend(written),
                Err(error) => self.leave_out(error)?,
            }
            if under_way.written.len() >= SYNCED_FILES {
                self.sync_and_rename(under_way)?;
            }
        }
        Ok(())
    }

    /// Writes a file that was asked for. `None`: it was copied by itself.
    fn store_one(&mut self, asked: Asked) -> Result<Option<Written>, TransferError> {
        let Asked { path, target, fetching } = asked;
        let (status, data) = match self.client.fetched(self.tree, fetching) {
            Ok((status, data)) if status.size_bytes == data.len() as u64 => (status, data),
            Err(error) if !is_lost(&error) => return Err(self.remote(&path, error)),
            // The file's length changed since it was listed, or its answer was lost.
            _ => return self.get_file(&path, &target).map(|()| None),
        };
        self.watcher.begin(&path, status.size_bytes);
        let name = temporary_name().map_err(|error| local(&target, error))?;
        let part = Unfinished { path: target.with_file_name(name), is_finished: false };
        let out = fs::OpenOptions::new().write(true).create_new(true).open(&part.path);
        let out = out.and_then(|out| {
            out.write_all_at(&data, 0)?;
            out.set_times(times_of(&status))?;
            Ok(out)
        });
        let out = out.map_err(|error| local(&target, error))?;
        self.watcher.advance(status.size_bytes);
        Ok(Some(Written { out, part, target, bytes: status.size_bytes }))
    }

    /// Makes what is written durable, and gives it its names.
    fn sync_and_rename(&mut self, under_way: &mut UnderWay) -> Result<(), TransferError> {
        let written = std::mem::take(&mut under_way.written);
        let synced = sync_all(&written);
        for (mut file, synced) in written.into_iter().zip(synced) {
            match synced.and_then(|()| fs::rename(&file.part.path, &file.target)) {
                Ok(()) => {
                    file.part.is_finished = true;
                    self.tally.files += 1;
                    self.tally.bytes += file.bytes;
                }
                Err(error) => self.leave_out(local(&file.target, error))?,
            }
        }
        Ok(())
    }

    /// Makes a directory here, or enters the existing one. The directory that was named may be a symbolic
    /// link; one below it would lead out of the tree.
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
        // Callers that wait for another file find no answers of this one.
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
