//! Files and directories in blocking calls.

use super::chains::{
    Changing, Contents, FILLED_BYTES_MAX, FILLED_REQUESTS, FILLED_REQUESTS_BYTES, Fetching, Filling, Keeping,
    NotWhole, WHOLE_REQUESTS, Whole, filling, keeping, rename_buffer, times_buffer,
};
use super::{Client, TRANSFER_DEPTH};
use crate::ClientError;
use crate::connection::Token;
use crate::file::{DirectoryEntry, File, FileStatus, OpenOptions, Tree};
use crate::operation::{Reply, Request};
use smb::wire::{
    CONTEXT_SECURITY_DESCRIPTOR, Command, CreateContextWriter, CreateResponse, Dialect, DirectoryClass,
    FileId, INFO_FILE, INFO_SECURITY, NetworkOpenInformation, QUERY_DIRECTORY_RESTART_SCANS,
    READ_FLAG_UNBUFFERED, WRITE_FLAG_UNBUFFERED, class, parse_directory, view_at,
};
use std::collections::VecDeque;
use sys::{Buf, Payload};
use types::{FileTime, NtStatus};

/// Answers in bytes that a listing asks for.
const LISTING_BYTES: u32 = 64 << 10;

/// Memory that the entries of one directory may take, some two million names: a hostile server lists for ever.
const LISTED_BYTES_MAX: usize = 512 << 20;

/// MS-SMB2 2.2.37.
const DACL_SECURITY_INFORMATION: u32 = 4;

/// Whether the server did what it was asked for, and wrote all of the data if that was it.
fn is_done(reply: &Reply, data_bytes: usize) -> Result<(), ClientError> {
    if reply.command() == Command::Write && reply.written_bytes()? as usize != data_bytes {
        return Err(ClientError::Protocol("a write that was cut short"));
    }
    reply.success().map(drop)
}

impl Client {
    /// Opens `path`, relative to the share, with either kind of slash.
    ///
    /// # Errors
    /// [`ClientError::Status`] if the server refuses; others if the connection failed.
    pub fn open(&mut self, tree: Tree, path: &str, options: OpenOptions) -> Result<File, ClientError> {
        self.open_with(tree, path, options, CreateContextWriter::default())
    }

    /// As [`Self::open`], of a file that is made with this security descriptor (MS-SMB2 2.2.13.2.2).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_secured(
        &mut self,
        tree: Tree,
        path: &str,
        options: OpenOptions,
        descriptor: &[u8],
    ) -> Result<File, ClientError> {
        let mut contexts = CreateContextWriter::default();
        contexts.push(CONTEXT_SECURITY_DESCRIPTOR, descriptor);
        self.open_with(tree, path, options, contexts)
    }

    fn open_with(
        &mut self,
        tree: Tree,
        path: &str,
        options: OpenOptions,
        contexts: CreateContextWriter,
    ) -> Result<File, ClientError> {
        let path = path.replace('/', "\\");
        let path = path.trim_matches('\\');
        let is_kept = options.is_durable() || options.is_persistent() && tree.is_continuously_available;
        if is_kept && self.dialect() >= Some(Dialect::Smb300) {
            return self.durable_open(tree, path, options, contexts);
        }
        let request = Request::create(tree.id, path, options.body(), &contexts.finish());
        let reply = self.call(request.within(tree))?;
        self.opened(tree, &reply).map(|file| File { is_unbuffered: options.is_unbuffered(), ..file })
    }

    /// Queues a new file with all of its data and its times, durable. It is deleted when it is closed or
    /// this client is lost, unless [`Self::submit_keep_as`] gives it another name. One round trip, not
    /// repeated if the connection dies meanwhile. [`Self::filled`] takes the answer.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if [`Self::can_create_filled`] says no; others if the connection failed.
    pub fn submit_filled(
        &mut self,
        tree: Tree,
        path: &str,
        descriptor: Option<&[u8]>,
        contents: &Contents,
    ) -> Result<Filling, ClientError> {
        if !self.can_create_filled(path, descriptor, contents.data.len()) {
            return Err(ClientError::Invalid("a file that is too large for one message"));
        }
        let requests = filling(tree, path, descriptor, contents);
        Ok(Filling { tokens: self.submit_compound(requests)?, data_bytes: contents.data.len() })
    }

    /// Waits for the answers to [`Self::submit_filled`].
    ///
    /// # Errors
    /// As [`Self::open`]; then there is no such file.
    pub fn filled(&mut self, tree: Tree, filling: Filling) -> Result<File, ClientError> {
        let replies = self.wait_for_all(filling.tokens)?;
        let (opened, rest) = replies.split_first().ok_or(ClientError::Protocol("answers are missing"))?;
        let file = self.opened(tree, opened)?;
        let done = rest.iter().try_for_each(|reply| is_done(reply, filling.data_bytes));
        if let Err(error) = done {
            // An error of the close adds nothing to that.
            let _ = self.close(file);
            return Err(error);
        }
        Ok(file)
    }

    /// Whether a file of this many bytes can be made by [`Self::submit_filled`].
    pub fn can_create_filled(&self, path: &str, descriptor: Option<&[u8]>, len_bytes: usize) -> bool {
        let whole = len_bytes + 2 * path.len() + descriptor.map_or(0, <[u8]>::len) + FILLED_REQUESTS_BYTES;
        len_bytes <= FILLED_BYTES_MAX
            && self.channels.iter().all(|channel| channel.can_compound(FILLED_REQUESTS, whole))
    }

    /// Queues that a file of [`Self::filled`] gets the name `target`, in place of an existing one, and is
    /// closed: one round trip. [`Self::kept`] takes the answer.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn submit_keep_as(&mut self, file: File, target: &str) -> Result<Keeping, ClientError> {
        // Each names the file: ksmbd of Linux 6.1 takes over a FileId from a CREATE alone.
        let requests = keeping(file.tree, file.id, target, true).to_vec();
        Ok(Keeping { tokens: self.submit_compound(requests)?, file })
    }

    /// Waits for the answers to [`Self::submit_keep_as`].
    ///
    /// # Errors
    /// As [`Self::open`]; the file may then still be there under its first name.
    pub fn kept(&mut self, keeping: Keeping) -> Result<(), ClientError> {
        let Keeping { tokens, file } = keeping;
        let replies = self.wait_for_all(tokens)?;
        let (closed, rest) = replies.split_last().ok_or(ClientError::Protocol("answers are missing"))?;
        let done = rest.iter().try_for_each(|reply| reply.success().map(drop));
        if closed.success().is_err() {
            // Servers may fail what follows a failed request (MS-SMB2 3.3.5.2.7.2); ksmbd fails a related CLOSE whose chain no CREATE began.
            return done.and(self.close(file));
        }
        done
    }

    /// Whether a file of this many bytes can be made by [`Self::submit_whole`].
    pub fn can_create_whole(&self, part: &str, target: &str, len_bytes: usize) -> bool {
        let whole = len_bytes + 2 * (part.len() + target.len()) + FILLED_REQUESTS_BYTES;
        len_bytes <= FILLED_BYTES_MAX
            && self.channels.iter().all(|channel| channel.can_compound(WHOLE_REQUESTS, whole))
    }

    /// Queues, in one message, all of [`Self::submit_filled`] under the name `part`, and all of [`Self::submit_keep_as`] with the name `target`, which nothing may
    /// have; [`Self::whole`] answers it.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if [`Self::can_create_whole`] says no; others if the connection failed.
    pub fn submit_whole(
        &mut self,
        tree: Tree,
        part: &str,
        target: &str,
        contents: &Contents,
    ) -> Result<Whole, ClientError> {
        if !self.can_create_whole(part, target, contents.data.len()) {
            return Err(ClientError::Invalid("a file that is too large for one message"));
        }
        let mut requests = filling(tree, part, None, contents);
        requests.extend(keeping(tree, FileId::RELATED, target, false));
        let tokens = self.submit_compound(requests)?;
        let (part, target) = (part.to_owned(), target.to_owned());
        Ok(Whole { tokens, data_bytes: contents.data.len(), part, target })
    }

    /// Waits for the answers to [`Self::submit_whole`]. Servers continue with a chain of which a part was
    /// refused (MS-SMB2 3.3.5.2.7.2): anything that exists then is removed.
    ///
    /// # Errors
    /// [`NotWhole`], with the first refusal.
    pub fn whole(&mut self, tree: Tree, whole: Whole) -> Result<(), NotWhole> {
        let Whole { tokens, data_bytes, part, target } = whole;
        let nothing = |error| NotWhole { error, left: None };
        let replies = self.wait_for_all(tokens).map_err(nothing)?;
        let done = replies.iter().try_for_each(|reply| is_done(reply, data_bytes));
        let Err(error) = done else { return Ok(()) };
        let Some(Ok(file)) = replies.first().map(|created| self.opened(tree, created)) else {
            return Err(nothing(error));
        };
        let (mut is_named, mut is_closed) = (false, false);
        if let [.., renamed, closed] = &replies[..] {
            (is_named, is_closed) = (renamed.success().is_ok(), closed.success().is_ok());
        }
        if !is_closed {
            // If it is not closed, it is when the connection ends; the error of its removal says more.
            let _ = self.close(file);
        }
        let name = if is_named { target } else { part };
        let left = match self.delete(tree, &name) {
            Err(refused) if refused.status() != Some(NtStatus::OBJECT_NAME_NOT_FOUND) => Some(name),
            _ => None,
        };
        Err(NotWhole { error, left })
    }

    /// Whether a file of this many bytes can be read by [`Self::submit_fetch`].
    pub fn can_fetch(&self, path: &str, len_bytes: usize) -> bool {
        let whole = len_bytes + 2 * path.len() + FILLED_REQUESTS_BYTES;
        len_bytes <= FILLED_BYTES_MAX
            && self.channels.iter().all(|channel| channel.can_compound(FILLED_REQUESTS, whole))
    }

    /// Queues a query for the first `len_bytes` bytes of a file, in one message; [`Self::fetched`] answers it.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn submit_fetch(
        &mut self,
        tree: Tree,
        path: &str,
        len_bytes: usize,
    ) -> Result<Fetching, ClientError> {
        let mut requests = vec![Self::create_request(tree, path, OpenOptions::read(), &[])];
        if len_bytes > 0 {
            let read = Request::read_with(tree.id, FileId::RELATED, 0, len_bytes as u32, 0);
            requests.push(read.within(tree));
        }
        requests.push(Request::close(tree.id, FileId::RELATED).within(tree));
        Ok(Fetching { tokens: self.submit_compound(requests)? })
    }

    /// Waits for the answers to [`Self::submit_fetch`]: the file's status as it was opened, and the bytes.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn fetched(&mut self, tree: Tree, fetching: Fetching) -> Result<(FileStatus, Buf), ClientError> {
        let replies = self.wait_for_all(fetching.tokens)?;
        let (opened, rest) = replies.split_first().ok_or(ClientError::Protocol("answers are missing"))?;
        let file = self.opened(tree, opened)?;
        let status = file.status;
        let data = match rest {
            [read, _] if read.status() != NtStatus::END_OF_FILE => read.read_data(),
            _ => Ok(Buf::empty()),
        };
        match rest.last().map(Reply::success) {
            Some(Ok(_)) => {}
            // The chain's CLOSE failed. If this one fails too, the file is closed with the connection.
            _ => drop(self.close(file)),
        }
        Ok((status, data?))
    }

    /// Most bytes of one write to files of this share: a protected one goes in messages, which may have to be shorter.
    fn write_bytes_max(&self, tree: Tree) -> usize {
        self.limits_of(tree.must_encrypt).write_bytes as usize
    }

    pub(super) fn create_request(tree: Tree, path: &str, options: OpenOptions, contexts: &[u8]) -> Request {
        let path = path.replace('/', "\\");
        Request::create(tree.id, path.trim_matches('\\'), options.body(), contexts).within(tree)
    }

    fn opened(&self, tree: Tree, reply: &Reply) -> Result<File, ClientError> {
        reply.success()?;
        let response = CreateResponse::parse(reply.message())?;
        let tree = self.names.tree_of(tree, reply);
        let status = FileStatus::from_create(&response);
        Ok(File { tree, id: response.file_id, status, is_unbuffered: false, is_durable: false })
    }

    /// # Errors
    /// As [`Self::open`].
    pub fn close(&mut self, file: File) -> Result<(), ClientError> {
        let reply = self.call(Request::close(file.tree.id, file.id).within(file.tree))?;
        self.names.forget(&file);
        reply.success().map(|_| ())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn flush(&mut self, file: &File) -> Result<(), ClientError> {
        self.call(Request::flush(file.tree.id, file.id).within(file.tree))?.success().map(|_| ())
    }

    /// Queues one read; `len` at most [`Limits::read_bytes`]. The answer's [`Reply::read_data`] is the data.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] over the limit; others if the connection failed.
    pub fn submit_read(&mut self, file: &File, offset: u64, len: u32) -> Result<Token, ClientError> {
        if len > self.limits().read_bytes {
            return Err(ClientError::Invalid("a read over the server's limit"));
        }
        let is_unbuffered = file.is_unbuffered && self.dialect() >= Some(Dialect::Smb302);
        let flags = if is_unbuffered { READ_FLAG_UNBUFFERED } else { 0 };
        let request = Request::read_with(file.tree.id, file.id, offset, len, flags);
        self.submit(request.within(file.tree))
    }

    /// Queues one write; at most [`Limits::write_bytes`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] over the limit; others if the connection failed.
    pub fn submit_write(&mut self, file: &File, offset: u64, data: Payload) -> Result<Token, ClientError> {
        if data.len() > self.write_bytes_max(file.tree) {
            return Err(ClientError::Invalid("a write over the server's limit"));
        }
        let is_unbuffered = file.is_unbuffered && self.dialect() >= Some(Dialect::Smb302);
        let flags = if is_unbuffered { WRITE_FLAG_UNBUFFERED } else { 0 };
        let request = Request::write(file.tree.id, file.id, offset, data, flags);
        self.submit(request.within(file.tree))
    }

    /// Reads `len` bytes, or fewer at the end of the file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read_at(&mut self, file: &File, offset: u64, len: usize) -> Result<Vec<u8>, ClientError> {
        let most = self.limits().read_bytes;
        let mut out = Vec::new();
        let mut asked = VecDeque::new();
        let mut next = 0;
        let mut is_at_end = false;
        loop {
            while next < len && asked.len() < TRANSFER_DEPTH && !is_at_end {
                let part = (len - next).min(most as usize) as u32;
                asked.push_back((self.submit_read(file, offset + next as u64, part)?, part));
                next += part as usize;
            }
            let Some((token, part)) = asked.pop_front() else { return Ok(out) };
            let reply = self.wait(token)?;
            if is_at_end {
                continue;
            }
            if reply.status() == NtStatus::END_OF_FILE {
                is_at_end = true;
                continue;
            }
            let data = match reply.read_data() {
                Ok(data) => data,
                Err(error) => {
                    for (token, _) in asked {
                        self.wait(token)?;
                    }
                    return Err(error);
                }
            };
            out.extend_from_slice(&data);
            is_at_end = data.len() < part as usize;
        }
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// As [`Self::open`]; what came before the failed part may have been written.
    pub fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let most = self.write_bytes_max(file.tree);
        let mut parts = data.chunks(most).scan(offset, |at, part| {
            let here = *at;
            *at += part.len() as u64;
            Some((here, part))
        });
        let mut asked = VecDeque::new();
        let mut failed = None;
        loop {
            while failed.is_none() && asked.len() < TRANSFER_DEPTH {
                let Some((at, part)) = parts.next() else { break };
                asked.push_back((self.submit_write(file, at, Buf::from(part).into())?, part.len()));
            }
            let Some((token, len)) = asked.pop_front() else {
                return failed.map_or(Ok(()), Err);
            };
            match self.wait(token)?.written_bytes() {
                Ok(written) if written as usize == len => {}
                Ok(_) => failed = Some(ClientError::Protocol("a write that was cut short")),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }

    /// Size, times and attributes of an open file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn file_status(&mut self, file: &File) -> Result<FileStatus, ClientError> {
        let bytes = self.query_info(file, INFO_FILE, class::NETWORK_OPEN, 0, 56)?;
        Ok(FileStatus::from_network_open(view_at::<NetworkOpenInformation>(&bytes, 0)?))
    }

    /// Size, times and attributes of the file or directory at this path: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn stat(&mut self, tree: Tree, path: &str) -> Result<FileStatus, ClientError> {
        let requests = vec![
            Self::create_request(tree, path, OpenOptions::any(), &[]),
            Request::close(tree.id, FileId::RELATED).within(tree),
        ];
        let replies = self.call_compound(requests)?;
        let [opened, closed] = &replies[..] else { return Err(ClientError::Protocol("answers are missing")) };
        let file = self.opened(tree, opened)?;
        closed.success()?;
        Ok(file.status)
    }

    fn call_compound(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, ClientError> {
        let tokens = self.submit_compound(requests)?;
        self.wait_for_all(tokens)
    }

    fn wait_for_all(&mut self, tokens: Vec<Token>) -> Result<Vec<Reply>, ClientError> {
        tokens.into_iter().map(|token| self.wait(token)).collect()
    }

    /// The names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn list(
        &mut self,
        tree: Tree,
        path: &str,
        pattern: &str,
    ) -> Result<Vec<DirectoryEntry>, ClientError> {
        let directory = self.open(tree, path, OpenOptions::directory())?;
        let listed = self.list_open(&directory, pattern);
        let closed = self.close(directory);
        let entries = listed?;
        closed?;
        Ok(entries)
    }

    fn list_open(&mut self, directory: &File, pattern: &str) -> Result<Vec<DirectoryEntry>, ClientError> {
        let mut entries = Vec::new();
        let mut listed_bytes = 0;
        let mut flags = QUERY_DIRECTORY_RESTART_SCANS;
        loop {
            let bytes = LISTING_BYTES.min(self.limits().transact_bytes);
            let request = Request::query_directory(
                directory.tree.id,
                directory.id,
                class::ID_BOTH_DIRECTORY,
                pattern,
                flags,
                bytes,
            );
            let reply = self.call(request.within(directory.tree))?;
            let is_first = flags != 0;
            flags = 0;
            match reply.status() {
                NtStatus::NO_MORE_FILES => return Ok(entries),
                NtStatus::NO_SUCH_FILE if is_first => return Ok(entries),
                _ => {}
            }
            let found = parse_directory(DirectoryClass::IdBothDirectory, reply.output()?)?;
            if found.is_empty() {
                return Err(ClientError::Protocol("a listing without end"));
            }
            for entry in found {
                let name = String::from_utf16_lossy(&entry.name);
                listed_bytes += size_of::<DirectoryEntry>() + name.len();
                if listed_bytes > LISTED_BYTES_MAX {
                    return Err(ClientError::Protocol("a directory that does not fit into memory"));
                }
                if let (Some(times), false) = (entry.times, name == "." || name == "..") {
                    let status = FileStatus::from_directory(&times);
                    entries.push(DirectoryEntry { name, status, file_id: entry.file_id });
                }
            }
        }
    }

    /// Makes a directory: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_directory(&mut self, tree: Tree, path: &str) -> Result<(), ClientError> {
        let changing = self.submit_create_directory(tree, path)?;
        self.changed(changing)
    }

    /// Queues [`Self::create_directory`]; [`Self::changed`] answers it.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn submit_create_directory(&mut self, tree: Tree, path: &str) -> Result<Changing, ClientError> {
        self.submit_between(tree, path, OpenOptions::create_directory(), None)
    }

    /// Sets when a directory was written and read last: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_directory_times(
        &mut self,
        tree: Tree,
        path: &str,
        (written, accessed): (FileTime, FileTime),
    ) -> Result<(), ClientError> {
        let changing = self.submit_directory_times(tree, path, (written, accessed))?;
        self.changed(changing)
    }

    /// Queues [`Self::set_directory_times`]; [`Self::changed`] answers it.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn submit_directory_times(
        &mut self,
        tree: Tree,
        path: &str,
        (written, accessed): (FileTime, FileTime),
    ) -> Result<Changing, ClientError> {
        let buffer = times_buffer(written, accessed);
        let change = Request::set_info(tree.id, FileId::RELATED, INFO_FILE, class::BASIC, 0, &buffer);
        self.submit_between(tree, path, OpenOptions::directory_times(), Some(change))
    }

    /// Waits for the answers to a change of a directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn changed(&mut self, changing: Changing) -> Result<(), ClientError> {
        self.all_done(changing).map(drop)
    }

    /// Deletes a file or an empty directory: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn delete(&mut self, tree: Tree, path: &str) -> Result<(), ClientError> {
        self.change(tree, path, class::DISPOSITION, &[1])
    }

    /// Renames within the share; `replace` an existing file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn rename(&mut self, tree: Tree, path: &str, target: &str, replace: bool) -> Result<(), ClientError> {
        self.change(tree, path, class::RENAME, &rename_buffer(target, replace))
    }

    /// Opens, sets one file information, and closes, in one message.
    fn change(&mut self, tree: Tree, path: &str, class: u8, buffer: &[u8]) -> Result<(), ClientError> {
        let change = Request::set_info(tree.id, FileId::RELATED, INFO_FILE, class, 0, buffer);
        self.between(tree, path, OpenOptions::delete(), Some(change)).map(drop)
    }

    /// Opens, asks for one thing more, and closes, in one message. Returns all answers.
    fn between(
        &mut self,
        tree: Tree,
        path: &str,
        options: OpenOptions,
        request: Option<Request>,
    ) -> Result<Vec<Reply>, ClientError> {
        let changing = self.submit_between(tree, path, options, request)?;
        self.all_done(changing)
    }

    fn submit_between(
        &mut self,
        tree: Tree,
        path: &str,
        options: OpenOptions,
        request: Option<Request>,
    ) -> Result<Changing, ClientError> {
        let mut requests = vec![Self::create_request(tree, path, options, &[])];
        requests.extend(request.map(|request| request.within(tree)));
        requests.push(Request::close(tree.id, FileId::RELATED).within(tree));
        Ok(Changing { tokens: self.submit_compound(requests)? })
    }

    fn all_done(&mut self, changing: Changing) -> Result<Vec<Reply>, ClientError> {
        let replies = self.wait_for_all(changing.tokens)?;
        replies.iter().try_for_each(|reply| reply.success().map(drop))?;
        Ok(replies)
    }

    /// One information of an open file (MS-SMB2 2.2.37).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn query_info(
        &mut self,
        file: &File,
        info_type: u8,
        class: u8,
        additional: u32,
        bytes: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let request = Request::query_info(file.tree.id, file.id, info_type, class, additional, bytes);
        Ok(self.call(request.within(file.tree))?.output()?.to_vec())
    }

    /// Changes one information of an open file (MS-SMB2 2.2.39).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_info(
        &mut self,
        file: &File,
        info_type: u8,
        class: u8,
        additional: u32,
        buffer: &[u8],
    ) -> Result<(), ClientError> {
        let request = Request::set_info(file.tree.id, file.id, info_type, class, additional, buffer);
        self.call(request.within(file.tree))?.success().map(|_| ())
    }

    /// Sets when an open file was written and read last.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_times(
        &mut self,
        file: &File,
        written: FileTime,
        accessed: FileTime,
    ) -> Result<(), ClientError> {
        self.set_info(file, INFO_FILE, class::BASIC, 0, &times_buffer(written, accessed))
    }

    /// Says whether an open file is deleted when it is closed, or when its client is lost.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_delete_pending(&mut self, file: &File, is_pending: bool) -> Result<(), ClientError> {
        self.set_info(file, INFO_FILE, class::DISPOSITION, 0, &[u8::from(is_pending)])
    }

    /// Renames an open file within the share; `replace` an existing one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn rename_open(&mut self, file: &File, target: &str, replace: bool) -> Result<(), ClientError> {
        self.set_info(file, INFO_FILE, class::RENAME, 0, &rename_buffer(target, replace))
    }

    /// The access list of the file or directory at this path: a security descriptor that holds nothing
    /// else.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn access_list(&mut self, tree: Tree, path: &str) -> Result<Vec<u8>, ClientError> {
        let (file, parts) = (FileId::RELATED, DACL_SECURITY_INFORMATION);
        let query = Request::query_info(tree.id, file, INFO_SECURITY, 0, parts, 64 << 10);
        let replies = self.between(tree, path, OpenOptions::access_list(), Some(query))?;
        let queried = replies.get(1).ok_or(ClientError::Protocol("answers are missing"))?;
        Ok(queried.output()?.to_vec())
    }

    /// Sets the end of an open file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_size(&mut self, file: &File, size_bytes: u64) -> Result<(), ClientError> {
        self.set_info(file, INFO_FILE, class::END_OF_FILE, 0, &size_bytes.to_le_bytes())
    }

    /// The security descriptor of an open file: owner, group and DACL.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn security_descriptor(&mut self, file: &File) -> Result<Vec<u8>, ClientError> {
        self.query_info(file, INFO_SECURITY, 0, 7, 64 << 10)
    }

    /// One FSCTL; its output.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn fsctl(
        &mut self,
        file: &File,
        code: u32,
        input: &[u8],
        bytes: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let request = Request::fsctl(file.tree.id, file.id, code, input, bytes);
        Ok(self.call(request.within(file.tree))?.fsctl_output()?.to_vec())
    }
}
