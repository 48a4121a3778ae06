//! Files and directories in blocking calls.

use super::{Client, TRANSFER_DEPTH};
use crate::ClientError;
use crate::connection::Token;
use crate::file::{DirectoryEntry, File, FileStatus, OpenOptions, Tree};
use crate::operation::{Reply, Request};
use smb::wire::{
    BasicInformation, CONTEXT_SECURITY_DESCRIPTOR, Command, CreateContextWriter, CreateResponse, Dialect,
    DirectoryClass, FileId, INFO_FILE, INFO_SECURITY, NetworkOpenInformation, Put,
    QUERY_DIRECTORY_RESTART_SCANS, READ_FLAG_UNBUFFERED, RENAME_REPLACE_IF_EXISTS, RenameInformation, U64,
    WRITE_FLAG_UNBUFFERED, class, parse_directory, view_at, wide_from_str,
};
use std::collections::VecDeque;
use sys::{Buf, Payload};
use types::{FileTime, NtStatus};

/// Answers in bytes that a listing asks for.
const LISTING_BYTES: u32 = 64 << 10;

/// Memory that the entries of one directory may take, some two million names: a hostile server lists for ever.
const LISTED_BYTES_MAX: usize = 512 << 20;

/// Most data of a file that is made by one message: one credit's worth.
const FILLED_BYTES_MAX: usize = 64 << 10;

/// Most requests of [`Client::create_filled`], one credit each.
const FILLED_REQUESTS: u32 = 5;

/// More than their headers and bodies take in that message, without data, name and descriptor.
const FILLED_REQUESTS_BYTES: usize = 4096;

/// What a new file holds, and when that was written and read.
#[derive(Debug, Clone)]
pub struct Contents {
    pub data: Payload,
    pub written: FileTime,
    pub accessed: FileTime,
}

/// A file of [`Client::submit_filled`] whose answers have not been looked at.
#[derive(Debug)]
pub struct Filling {
    tokens: Vec<Token>,
    data_bytes: usize,
}

/// A file of [`Client::submit_keep_as`] whose answers have not been looked at.
#[derive(Debug)]
pub struct Keeping {
    tokens: Vec<Token>,
    file: File,
}

/// MS-SMB2 2.2.37.
const DACL_SECURITY_INFORMATION: u32 = 4;

fn rename_buffer(target: &str, replace: bool) -> Vec<u8> {
    let target = target.replace('/', "\\");
    let mut buffer = Vec::new();
    RenameInformation {
        flags: if replace { RENAME_REPLACE_IF_EXISTS } else { 0 },
        root_directory: 0,
        name: wide_from_str(target.trim_matches('\\')),
    }
    .write(&mut buffer);
    buffer
}

fn times_buffer(written: FileTime, accessed: FileTime) -> Vec<u8> {
    let mut buffer = Vec::new();
    buffer.put(&BasicInformation {
        last_access_time: U64::new(accessed.0),
        last_write_time: U64::new(written.0),
        ..Default::default()
    });
    buffer
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
        if options.is_durable() && self.dialect() >= Some(Dialect::Smb300) {
            return self.durable_open(tree, path, options, contexts);
        }
        let request = Request::create(tree.id, path, options.body(), &contexts.finish());
        let reply = self.call(request.within(tree))?;
        self.opened(tree, &reply).map(|file| File { is_unbuffered: options.is_unbuffered(), ..file })
    }

    /// Makes a file with all of its data and its times, durable, which goes when it is closed or this client is lost, unless
    /// [`Self::keep_as`] gives it another name. One round trip; it is not asked again if the connection dies meanwhile.
    ///
    /// # Errors
    /// As [`Self::open`]; then there is no such file. [`ClientError::Invalid`] if [`Self::can_create_filled`] says no.
    pub fn create_filled(
        &mut self,
        tree: Tree,
        path: &str,
        descriptor: Option<&[u8]>,
        contents: &Contents,
    ) -> Result<File, ClientError> {
        let filling = self.submit_filled(tree, path, descriptor, contents)?;
        self.filled(tree, filling)
    }

    /// Queues [`Self::create_filled`]; [`Self::filled`] answers it.
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
        let mut contexts = CreateContextWriter::default();
        if let Some(descriptor) = descriptor {
            contexts.push(CONTEXT_SECURITY_DESCRIPTOR, descriptor);
        }
        let set = |class, buffer: &[u8]| {
            Request::set_info(tree.id, FileId::RELATED, INFO_FILE, class, 0, buffer).within(tree)
        };
        let mut requests = vec![
            Self::create_request(tree, path, OpenOptions::create_temporary(), &contexts.finish()),
            set(class::DISPOSITION, &[1]),
        ];
        if !contents.data.is_empty() {
            let data = contents.data.clone();
            requests.push(Request::write(tree.id, FileId::RELATED, 0, data, 0).within(tree));
        }
        requests.push(set(class::BASIC, &times_buffer(contents.written, contents.accessed)));
        requests.push(Request::flush(tree.id, FileId::RELATED).within(tree));
        Ok(Filling { tokens: self.submit_compound(requests)?, data_bytes: contents.data.len() })
    }

    /// Waits for the answers to [`Self::submit_filled`].
    ///
    /// # Errors
    /// As [`Self::create_filled`].
    pub fn filled(&mut self, tree: Tree, filling: Filling) -> Result<File, ClientError> {
        let replies = self.wait_for_all(filling.tokens)?;
        let (opened, rest) = replies.split_first().ok_or(ClientError::Protocol("answers are missing"))?;
        let file = self.opened(tree, opened)?;
        let done = rest.iter().try_for_each(|reply| {
            let is_cut = reply.command() == Command::Write
                && reply.success()?.written_bytes()? as usize != filling.data_bytes;
            if is_cut {
                Err(ClientError::Protocol("a write that was cut short"))
            } else {
                reply.success().map(drop)
            }
        });
        if let Err(error) = done {
            // What closing says adds nothing to that.
            let _ = self.close(file);
            return Err(error);
        }
        Ok(file)
    }

    /// Whether a file of so many bytes can be made by [`Self::create_filled`].
    pub fn can_create_filled(&self, path: &str, descriptor: Option<&[u8]>, len_bytes: usize) -> bool {
        let whole = len_bytes + 2 * path.len() + descriptor.map_or(0, <[u8]>::len) + FILLED_REQUESTS_BYTES;
        len_bytes <= FILLED_BYTES_MAX
            && self.channels.iter().all(|channel| channel.can_compound(FILLED_REQUESTS, whole))
    }

    /// Gives a file of [`Self::create_filled`] the name `target`, in place of what has it, and closes it: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`]; the file may then still be there under its first name.
    pub fn keep_as(&mut self, file: File, target: &str) -> Result<(), ClientError> {
        let keeping = self.submit_keep_as(file, target)?;
        self.kept(keeping)
    }

    /// Queues [`Self::keep_as`]; [`Self::kept`] answers it.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn submit_keep_as(&mut self, file: File, target: &str) -> Result<Keeping, ClientError> {
        let tree = file.tree;
        let set = |class, buffer: &[u8]| {
            Request::set_info(tree.id, file.id, INFO_FILE, class, 0, buffer).within(tree)
        };
        // Each names the file: ksmbd of Linux 6.1 takes over a FileId from a CREATE alone.
        let requests = vec![
            set(class::DISPOSITION, &[0]),
            set(class::RENAME, &rename_buffer(target, true)),
            Request::close(tree.id, file.id).within(tree),
        ];
        Ok(Keeping { tokens: self.submit_compound(requests)?, file })
    }

    /// Waits for the answers to [`Self::submit_keep_as`].
    ///
    /// # Errors
    /// As [`Self::keep_as`].
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

    /// Most bytes of one write to files of this share: a protected one goes in messages, which may have to be shorter.
    fn write_bytes_max(&self, tree: Tree) -> usize {
        self.limits_of(tree.must_encrypt).write_bytes as usize
    }

    fn create_request(tree: Tree, path: &str, options: OpenOptions, contexts: &[u8]) -> Request {
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

    /// Size, times and attributes of what has this path: one round trip.
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
        self.between(tree, path, OpenOptions::create_directory(), None).map(drop)
    }

    /// Sets when a directory was written and read last: one round trip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_directory_times(
        &mut self,
        tree: Tree,
        path: &str,
        written: FileTime,
        accessed: FileTime,
    ) -> Result<(), ClientError> {
        let buffer = times_buffer(written, accessed);
        let change = Request::set_info(tree.id, FileId::RELATED, INFO_FILE, class::BASIC, 0, &buffer);
        self.between(tree, path, OpenOptions::directory_times(), Some(change)).map(drop)
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

    /// Opens, asks for one thing more, and closes, in one message. Answers what was said to all of it.
    fn between(
        &mut self,
        tree: Tree,
        path: &str,
        options: OpenOptions,
        request: Option<Request>,
    ) -> Result<Vec<Reply>, ClientError> {
        let mut requests = vec![Self::create_request(tree, path, options, &[])];
        requests.extend(request.map(|request| request.within(tree)));
        requests.push(Request::close(tree.id, FileId::RELATED).within(tree));
        let replies = self.call_compound(requests)?;
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

    /// The access list of what has this path: a security descriptor that holds nothing else.
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
