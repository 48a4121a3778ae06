//! From this machine to a share.

use super::names::{Names, unfit_for_share};
use super::{
    BLOCK_BYTES_MAX, Copier, DEPTH, FILES_IN_FLIGHT, Tally, TransferError, below, file_time, is_lost, local,
    temporary_name,
};
use crate::ClientError;
use crate::client::{Changing, Contents, Filling, Keeping, NotWhole, Whole};
use crate::connection::Token;
use crate::file::{File, OpenOptions};
use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use sys::{Buf, BufMut, Payload};
use types::{FileTime, NtStatus};

/// Directories of one depth that are made, or are given their times, at once.
const DIRECTORIES_IN_FLIGHT: usize = 64;

/// A file on its way.
struct Begun {
    source: PathBuf,
    path: String,
    /// Name of the file until it is whole.
    part: String,
    /// The access list of the file that it replaces.
    list: Option<Vec<u8>>,
    found: Metadata,
    /// First bytes; all of a file that fits into a message.
    start: Buf,
    /// Rest of the file.
    input: fs::File,
    stage: Stage,
}

/// Stage of a file's transfer.
enum Stage {
    /// The file is being made with all its contents and its name.
    Whole(Whole),
    /// The file is being made with all its contents.
    Filling(Filling),
    /// The file is being given its name.
    Keeping(Keeping),
    /// The file goes block by block.
    Large,
}

fn is_taken(error: &ClientError) -> bool {
    error.status() == Some(NtStatus::OBJECT_NAME_COLLISION)
}

/// Whether the server fails a FLUSH that others follow in its message, as Samba before 4.17.2 does (MS-SMB2 3.3.5.2.7.2).
fn is_unable(error: &ClientError) -> bool {
    error.status() == Some(NtStatus::INTERNAL_ERROR)
}

/// Whether the place that a file goes to may be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// An existing file is replaced, and leaves its access list.
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
    /// Copies a file, in place of an existing one of that name: its access list stays, everything else is
    /// new.
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

    /// Copies a directory with all its contents; existing entries stay, or are replaced if their name is
    /// the very same.
    ///
    /// # Errors
    /// Errors after which nothing can continue; all others go to the watcher.
    pub fn put_tree(&mut self, source: &Path, path: &str) -> Result<Tally, TransferError> {
        if !fs::metadata(source).map_err(|error| local(source, error))?.is_dir() {
            return self.put(source, path);
        }
        let mut begun = VecDeque::new();
        let done = self.put_all(source, path, &mut begun);
        if done.is_err() {
            self.take_back(begun);
        }
        done.map(|()| self.tally)
    }

    /// Goes down level by level: all directories of one depth are asked for before those below them, and files are under way meanwhile.
    fn put_all(
        &mut self,
        source: &Path,
        path: &str,
        begun: &mut VecDeque<Begun>,
    ) -> Result<(), TransferError> {
        let mut level = vec![(source.to_owned(), path.to_owned())];
        let mut entered = Vec::new();
        while !level.is_empty() {
            let mut deeper = Vec::new();
            let (mut rest, mut asked) = (level.into_iter(), VecDeque::new());
            loop {
                self.go_on()?;
                while asked.len() < DIRECTORIES_IN_FLIGHT
                    && let Some((source, path)) = rest.next()
                {
                    let making = self.ask_directory(&path)?;
                    asked.push_back((source, path, making));
                }
                let Some((source, path, making)) = asked.pop_front() else { break };
                let names = self.enter(&path, making);
                match names.and_then(|names| self.put_entries(&source, &path, names, &mut deeper, begun)) {
                    Ok(()) => entered.push((source, path)),
                    Err(error) => self.leave_out(error)?,
                }
            }
            level = deeper;
        }
        self.end_files(begun, 0)?;
        // Last, as each entry made in a directory changes the directory's times.
        self.keep_times_of_directories(entered)
    }

    fn put_entries(
        &mut self,
        source: &Path,
        path: &str,
        mut names: Names,
        deeper: &mut Vec<(PathBuf, String)>,
        begun: &mut VecDeque<Begun>,
    ) -> Result<(), TransferError> {
        let failed = |error| local(source, error);
        let entries = fs::read_dir(source).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = entries.map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        self.tally.directories += 1;
        for entry in entries {
            self.go_on()?;
            match self.put_entry(&entry, path, &mut names, deeper) {
                Ok(file) => begun.extend(file),
                Err(error) => self.leave_out(error)?,
            }
            self.end_files(begun, FILES_IN_FLIGHT - 1)?;
        }
        Ok(())
    }

    /// Asks for a directory; `None`: it is the share's root, which is there.
    fn ask_directory(&mut self, path: &str) -> Result<Option<Changing>, TransferError> {
        if path.is_empty() {
            return Ok(None);
        }
        let making = self.client.submit_create_directory(self.tree, path);
        making.map(Some).map_err(|error| self.remote(path, error))
    }

    /// Waits for a directory, which is there now if it was not before; the names in it.
    fn enter(&mut self, path: &str, making: Option<Changing>) -> Result<Names, TransferError> {
        let made = match making.map(|making| self.client.changed(making)) {
            // The directory may have been made, or not.
            Some(Err(error)) if is_lost(&error) => Some(self.client.create_directory(self.tree, path)),
            made => made,
        };
        let mut names = Names::default();
        match made {
            Some(Ok(())) => return Ok(names),
            None => {}
            Some(Err(error)) if error.status() == Some(NtStatus::OBJECT_NAME_COLLISION) => {}
            Some(Err(error)) => return Err(self.remote(path, error)),
        }
        let there = self.client.list(self.tree, path, "*").map_err(|error| self.remote(path, error))?;
        for entry in there {
            // A server whose names are case-sensitive has them side by side.
            let _ = names.take(&entry.name);
        }
        Ok(names)
    }

    fn put_entry(
        &mut self,
        entry: &fs::DirEntry,
        directory: &str,
        names: &mut Names,
        deeper: &mut Vec<(PathBuf, String)>,
    ) -> Result<Option<Begun>, TransferError> {
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
            deeper.push((source, path));
            return Ok(None);
        }
        self.begin_file(&source, &path, room).map(Some)
    }

    fn keep_times_of_directories(&mut self, entered: Vec<(PathBuf, String)>) -> Result<(), TransferError> {
        let (mut rest, mut asked) = (entered.into_iter(), VecDeque::new());
        loop {
            self.go_on()?;
            while asked.len() < DIRECTORIES_IN_FLIGHT
                && let Some((source, path)) = rest.next()
            {
                match fs::metadata(&source) {
                    Ok(found) => {
                        let times = times_of(&found);
                        let changing = self.client.submit_directory_times(self.tree, &path, times);
                        asked.push_back((changing.map_err(|error| self.remote(&path, error))?, path, times));
                    }
                    Err(error) => self.leave_out(local(&source, error))?,
                }
            }
            let Some((changing, path, times)) = asked.pop_front() else { return Ok(()) };
            let kept = match self.client.changed(changing) {
                Err(error) if is_lost(&error) => self.client.set_directory_times(self.tree, &path, times),
                kept => kept,
            };
            if let Err(error) = kept.map_err(|error| self.remote(&path, error)) {
                self.leave_out(error)?;
            }
        }
    }

    /// The access list of the file that will be replaced, if there is one.
    fn list_of_predecessor(&mut self, path: &str, room: Room) -> Result<Option<Vec<u8>>, TransferError> {
        if room == Room::Free {
            return Ok(None);
        }
        let found = match self.client.access_list(self.tree, path) {
            // Files before it may have lost the connection; to ask again changes nothing.
            Err(error) if is_lost(&error) => self.client.access_list(self.tree, path),
            found => found,
        };
        match found {
            Ok(list) => Ok(Some(list)),
            Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(None),
            Err(error) => Err(self.remote(path, error)),
        }
    }

    fn put_file(&mut self, source: &Path, path: &str, room: Room) -> Result<(), TransferError> {
        let begun = self.begin_file(source, path, room)?;
        self.end_file(begun)
    }

    /// Begins a file: one that fits into a message is on its way at the return. [`Self::end_file`] does the rest.
    fn begin_file(&mut self, source: &Path, path: &str, room: Room) -> Result<Begun, TransferError> {
        let mut input = fs::File::open(source).map_err(|error| local(source, error))?;
        let found = input.metadata().map_err(|error| local(source, error))?;
        self.watcher.begin(path, found.len());
        let list = self.list_of_predecessor(path, room)?;
        let part = part_of(path).map_err(|error| local(source, error))?;
        let mut start = Vec::new();
        if found.is_file() && self.client.can_create_filled(&part, list.as_deref(), found.len() as usize) {
            // The file may have grown since.
            let most = found.len() + 1;
            input.by_ref().take(most).read_to_end(&mut start).map_err(|error| local(source, error))?;
        }
        self.go_on()?;
        let is_small = found.is_file() && start.len() as u64 == found.len();
        let start = Buf::from(&start[..]);
        let stage = match is_small {
            true => {
                let (written, accessed) = times_of(&found);
                let contents = Contents { data: start.clone().into(), written, accessed };
                match self.submit_small(&part, path, list.as_deref(), &contents, room) {
                    Ok(stage) => stage,
                    // With the files before it: it is copied anew, as they are.
                    Err(error) if is_lost(&error) => Stage::Large,
                    Err(error) => return Err(self.remote(path, error)),
                }
            }
            false => Stage::Large,
        };
        let (source, path) = (source.to_owned(), path.to_owned());
        Ok(Begun { source, path, part, list, found, start, input, stage })
    }

    /// One message does everything, unless a file is replaced: that has to stay until the new one is whole,
    /// and a server continues with a message of which it has refused a part.
    fn submit_small(
        &mut self,
        part: &str,
        path: &str,
        list: Option<&[u8]>,
        contents: &Contents,
        room: Room,
    ) -> Result<Stage, ClientError> {
        let is_able = self.takes_whole_files && room == Room::Free;
        if is_able && self.client.can_create_whole(part, path, contents.data.len()) {
            return self.client.submit_whole(self.tree, part, path, contents).map(Stage::Whole);
        }
        self.client.submit_filled(self.tree, part, list, contents).map(Stage::Filling)
    }

    /// Continues with a file until it is there.
    fn end_file(&mut self, begun: Begun) -> Result<(), TransferError> {
        let mut begun = Some(begun);
        while let Some(file) = begun.take() {
            begun = self.advance_file(file)?;
        }
        Ok(())
    }

    /// Waits for the next answer about a file, and asks for the following step. `None`: the file is there.
    fn advance_file(&mut self, mut begun: Begun) -> Result<Option<Begun>, TransferError> {
        let bytes = match std::mem::replace(&mut begun.stage, Stage::Large) {
            Stage::Whole(whole) => match self.client.whole(self.tree, whole) {
                Ok(()) => {
                    self.watcher.advance(begun.found.len());
                    begun.found.len()
                }
                Err(NotWhole { error, left: None })
                    if is_lost(&error) || is_taken(&error) || is_unable(&error) =>
                {
                    self.takes_whole_files &= !is_unable(&error);
                    // The file may be there, or something else may be by now, which is replaced.
                    begun.list = self.list_of_predecessor(&begun.path, Room::MayBeTaken)?;
                    return Ok(Some(begun));
                }
                Err(failed) => {
                    // Full volumes refuse more: from now on by two messages each, of which nothing stays if this process ends.
                    self.takes_whole_files = false;
                    return Err(self.not_whole(&begun.path, failed));
                }
            },
            Stage::Filling(filling) => match self.keep_filled(&begun, filling)? {
                Some(keeping) => return Ok(Some(Begun { stage: Stage::Keeping(keeping), ..begun })),
                None => return Ok(Some(begun)),
            },
            Stage::Keeping(keeping) => match self.client.kept(keeping) {
                Ok(()) => begun.found.len(),
                Err(error) => {
                    // The part is still there if it was made permanent and its name was then refused.
                    let _ = self.client.delete(self.tree, &begun.part);
                    if is_lost(&error) {
                        return Ok(Some(begun));
                    }
                    return Err(self.remote(&begun.path, error));
                }
            },
            Stage::Large => {
                let Begun { source, path, list, found, start, input, .. } = &begun;
                self.put_large(path, Read::chain(&start[..], input), source, list.as_deref(), found)?
            }
        };
        self.tally.files += 1;
        self.tally.bytes += bytes;
        Ok(None)
    }

    fn not_whole(&self, path: &str, failed: NotWhole) -> TransferError {
        let NotWhole { error, left } = failed;
        match left {
            Some(left) => TransferError::InPart { place: self.place(path), left: self.place(&left), error },
            None => self.remote(path, error),
        }
    }

    /// Renames a file that exists with all its contents. `None`: the connection was lost on the way, and
    /// nobody knows what the server has done; any remainder of the file goes with its handle, and the file
    /// is copied anew.
    fn keep_filled(&mut self, begun: &Begun, filling: Filling) -> Result<Option<Keeping>, TransferError> {
        let Begun { path, part, found, .. } = begun;
        let file = match self.client.filled(self.tree, filling) {
            Ok(file) => file,
            Err(error) if is_lost(&error) => return Ok(None),
            Err(error) => {
                // The part went with its handle, unless the server refused to delete it on close.
                let _ = self.client.delete(self.tree, part);
                return Err(self.remote(path, error));
            }
        };
        self.watcher.advance(found.len());
        if let Err(stopped) = self.go_on() {
            self.client.close(file).map_err(|error| self.remote(path, error))?;
            return Err(stopped);
        }
        match self.client.submit_keep_as(file, path) {
            Ok(keeping) => Ok(Some(keeping)),
            Err(error) if is_lost(&error) => Ok(None),
            Err(error) => Err(self.remote(path, error)),
        }
    }

    /// Ends files that were begun, the first ones first, until at most `most` are left. Files that fail are
    /// left out.
    fn end_files(&mut self, begun: &mut VecDeque<Begun>, most: usize) -> Result<(), TransferError> {
        while begun.len() > most {
            let Some(first) = begun.pop_front() else { return Ok(()) };
            match self.advance_file(first) {
                // Behind the others: its next request is under way meanwhile.
                Ok(Some(goes_on)) => begun.push_back(goes_on),
                Ok(None) => {}
                Err(error) => self.leave_out(error)?,
            }
        }
        Ok(())
    }

    /// Takes back files of a transfer that ends early: those without their name yet go with their handles.
    fn take_back(&mut self, begun: VecDeque<Begun>) {
        for file in begun {
            let ended = match file.stage {
                Stage::Filling(filling) => {
                    self.client.filled(self.tree, filling).and_then(|file| self.client.close(file))
                }
                Stage::Keeping(keeping) => self.client.kept(keeping),
                // The file is whole, or its part has been removed.
                Stage::Whole(whole) => self.client.whole(self.tree, whole).map_err(|failed| failed.error),
                Stage::Large => Ok(()),
            };
            if ended.is_err_and(|error| error.is_fatal()) {
                return;
            }
        }
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
            // If this fails too, the connection is lost, and the error below says so.
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
