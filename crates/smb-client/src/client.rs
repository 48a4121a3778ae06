//! One server over one TCP socket: blocking calls, and `submit` and `next` for pipelines.

use crate::connection::{Connection, Event, Limits, Token};
use crate::file::{DirectoryEntry, File, FileStatus, OpenOptions, Tree};
use crate::operation::{Reply, Request};
use crate::stream::Stream;
use crate::{ClientError, Options};
use smb::auth::Credentials;
use smb::wire::{
    CreateResponse, Dialect, DirectoryClass, FileId, INFO_FILE, INFO_SECURITY, NetworkOpenInformation,
    QUERY_DIRECTORY_RESTART_SCANS, RENAME_REPLACE_IF_EXISTS, RenameInformation, SHARE_TYPE_PIPE, ShareFlags,
    TreeConnectResponse, class, fsctl, parse_directory, view_at, wide_from_str,
};
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::SystemTime;
use sys::{Buf, Payload};
use types::{FileTime, NtStatus};

/// Answers in bytes that a listing asks for.
const LISTING_BYTES: u32 = 64 << 10;
/// Operations of one file transfer that are in flight at once.
const TRANSFER_DEPTH: usize = 8;

/// A session at a server.
pub struct Client {
    connection: Connection,
    stream: Stream,
    server: String,
    last_token: u64,
    answers: HashMap<Token, Reply>,
    /// Answers in the order in which they came, for [`Client::next`].
    order: VecDeque<Token>,
    is_validated: bool,
}

impl Client {
    /// Connects, negotiates and logs on. `server` is a name or address, `port` 445 as a rule.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(
        server: &str,
        port: u16,
        credentials: Credentials,
        options: Options,
    ) -> Result<Self, ClientError> {
        let addresses: Vec<SocketAddr> = (server, port).to_socket_addrs()?.collect();
        let mut last = ClientError::Invalid("the server's name has no address");
        for address in addresses {
            match Stream::connect(address, options.timeout) {
                Ok(stream) => return Self::log_on(stream, server, credentials, options),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn log_on(
        stream: Stream,
        server: &str,
        credentials: Credentials,
        mut options: Options,
    ) -> Result<Self, ClientError> {
        let mut is_failed = false;
        if options.client_guid == [0; 16] {
            is_failed |= getrandom::fill(&mut options.client_guid).is_err();
        }
        if is_failed {
            return Err(ClientError::Invalid("the system has no random bytes"));
        }
        let random = Box::new(|bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("a system that gave random bytes once gives them again");
        });
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(FileTime::UNIX_EPOCH, |since| FileTime::from_unix_nanos(since.as_nanos() as i128));
        let mut client = Self {
            connection: Connection::new(options, credentials, server, now, random),
            stream,
            server: server.to_owned(),
            last_token: 0,
            answers: HashMap::new(),
            order: VecDeque::new(),
            is_validated: false,
        };
        while !client.connection.is_ready() {
            client.turn()?;
        }
        Ok(client)
    }

    pub fn dialect(&self) -> Option<Dialect> {
        self.connection.dialect()
    }

    pub fn limits(&self) -> Limits {
        self.connection.limits()
    }

    pub fn is_signed(&self) -> bool {
        self.connection.is_signed()
    }

    pub fn is_encrypted(&self) -> bool {
        self.connection.is_encrypted()
    }

    /// Queues a request and sends what the socket takes at once. Its answer comes from [`Self::next`] or [`Self::wait`].
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn submit(&mut self, request: Request) -> Result<Token, ClientError> {
        let token = self.new_token();
        self.connection.submit(token, request);
        self.push_out()?;
        Ok(token)
    }

    /// Queues related requests that go out in one message (see [`Connection::submit_compound`]).
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn submit_compound(&mut self, requests: Vec<Request>) -> Result<Vec<Token>, ClientError> {
        let chain: Vec<(Token, Request)> =
            requests.into_iter().map(|request| (self.new_token(), request)).collect();
        let tokens = chain.iter().map(|(token, _)| *token).collect();
        self.connection.submit_compound(chain);
        self.push_out()?;
        Ok(tokens)
    }

    /// Asks the server to give up a request; its answer still comes.
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn cancel(&mut self, token: Token) -> Result<(), ClientError> {
        self.connection.cancel(token);
        self.push_out()
    }

    /// The next answer, to whichever request; `None` where nothing is in flight.
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn next_reply(&mut self) -> Result<Option<(Token, Reply)>, ClientError> {
        loop {
            while let Some(token) = self.order.pop_front() {
                if let Some(reply) = self.answers.remove(&token) {
                    return Ok(Some((token, reply)));
                }
            }
            if self.connection.in_flight() == 0 {
                return Ok(None);
            }
            self.turn()?;
        }
    }

    /// The answer to one request.
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn wait(&mut self, token: Token) -> Result<Reply, ClientError> {
        loop {
            if let Some(reply) = self.answers.remove(&token) {
                self.order.retain(|waiting| *waiting != token);
                return Ok(reply);
            }
            if self.connection.in_flight() == 0 {
                return Err(ClientError::Invalid("a token that is not in flight"));
            }
            self.turn()?;
        }
    }

    /// Sends a request and waits for its answer, whatever it is.
    ///
    /// # Errors
    /// [`ClientError`] where the connection failed.
    pub fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let token = self.submit(request)?;
        self.wait(token)
    }

    /// Connects a share; `IPC$` for pipes.
    ///
    /// # Errors
    /// [`ClientError::Status`] where the server refuses; others where the connection failed.
    pub fn tree_connect(&mut self, share: &str) -> Result<Tree, ClientError> {
        let reply = self.call(Request::tree_connect(&format!("\\\\{}\\{share}", self.server)))?;
        reply.success()?;
        let response = TreeConnectResponse::parse(reply.message())?;
        let flags = ShareFlags::from_bits_retain(response.share_flags.get());
        let tree = Tree {
            id: reply.tree_id(),
            must_encrypt: flags.contains(ShareFlags::ENCRYPT_DATA),
            is_pipe: response.share_type == SHARE_TYPE_PIPE,
            maximal_access: response.maximal_access.get(),
        };
        self.validate_negotiate(tree)?;
        Ok(tree)
    }

    /// Asks on the first tree whether what NEGOTIATE agreed on is what the server meant (MS-SMB2 3.2.5.5).
    fn validate_negotiate(&mut self, tree: Tree) -> Result<(), ClientError> {
        if self.is_validated {
            return Ok(());
        }
        self.is_validated = true;
        let Some((input, expected)) = self.connection.validation() else { return Ok(()) };
        let mut request = Request::fsctl(
            tree.id,
            FileId::RELATED,
            fsctl::VALIDATE_NEGOTIATE_INFO,
            &input,
            expected.len() as u32,
        );
        request.must_sign = true;
        request.must_encrypt = tree.must_encrypt;
        let reply = self.call(request)?;
        // A server that does not know the question says so in a signed answer (MS-SMB2 3.2.5.5).
        let unknown = [NtStatus::INVALID_DEVICE_REQUEST, NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED];
        if unknown.contains(&reply.status()) {
            return Ok(());
        }
        if reply.fsctl_output()? == expected {
            Ok(())
        } else {
            Err(ClientError::Protocol("NEGOTIATE was changed on the way"))
        }
    }

    /// # Errors
    /// [`ClientError::Status`] where the server refuses; others where the connection failed.
    pub fn tree_disconnect(&mut self, tree: Tree) -> Result<(), ClientError> {
        self.call(Request::tree_disconnect(tree.id))?.success().map(|_| ())
    }

    /// Opens `path`, relative to the share, with either kind of slash.
    ///
    /// # Errors
    /// [`ClientError::Status`] where the server refuses; others where the connection failed.
    pub fn open(&mut self, tree: Tree, path: &str, options: OpenOptions) -> Result<File, ClientError> {
        let reply = self.call(Self::open_request(tree, path, options))?;
        Self::opened(tree, &reply)
    }

    fn open_request(tree: Tree, path: &str, options: OpenOptions) -> Request {
        let path = path.replace('/', "\\");
        let request = Request::create(tree.id, path.trim_matches('\\'), options.body(), &[]);
        Self::protected(request, tree)
    }

    fn opened(tree: Tree, reply: &Reply) -> Result<File, ClientError> {
        reply.success()?;
        let response = CreateResponse::parse(reply.message())?;
        Ok(File { tree, id: response.file_id, status: FileStatus::from_create(&response) })
    }

    fn protected(mut request: Request, tree: Tree) -> Request {
        request.must_encrypt |= tree.must_encrypt;
        request
    }

    /// # Errors
    /// As [`Self::open`].
    pub fn close(&mut self, file: File) -> Result<(), ClientError> {
        let request = Self::protected(Request::close(file.tree.id, file.id), file.tree);
        self.call(request)?.success().map(|_| ())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn flush(&mut self, file: &File) -> Result<(), ClientError> {
        let request = Self::protected(Request::flush(file.tree.id, file.id), file.tree);
        self.call(request)?.success().map(|_| ())
    }

    /// Queues one read; `len` at most [`Limits::read_bytes`]. The answer's [`Reply::read_data`] is the data.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] over the limit; others where the connection failed.
    pub fn submit_read(&mut self, file: &File, offset: u64, len: u32) -> Result<Token, ClientError> {
        if len > self.limits().read_bytes {
            return Err(ClientError::Invalid("a read over the server's limit"));
        }
        self.submit(Self::protected(Request::read(file.tree.id, file.id, offset, len), file.tree))
    }

    /// Queues one write; at most [`Limits::write_bytes`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] over the limit; others where the connection failed.
    pub fn submit_write(&mut self, file: &File, offset: u64, data: Payload) -> Result<Token, ClientError> {
        if data.len() > self.limits().write_bytes as usize {
            return Err(ClientError::Invalid("a write over the server's limit"));
        }
        self.submit(Self::protected(Request::write(file.tree.id, file.id, offset, data, 0), file.tree))
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
        let most = self.limits().write_bytes as usize;
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
            Self::open_request(tree, path, OpenOptions::any()),
            Self::protected(Request::close(tree.id, FileId::RELATED), tree),
        ];
        let replies = self.call_compound(requests)?;
        let [opened, closed] = &replies[..] else { return Err(ClientError::Protocol("answers are missing")) };
        let file = Self::opened(tree, opened)?;
        closed.success()?;
        Ok(file.status)
    }

    fn call_compound(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, ClientError> {
        let tokens = self.submit_compound(requests)?;
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
            let reply = self.call(Self::protected(request, directory.tree))?;
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
                if let (Some(times), false) = (entry.times, name == "." || name == "..") {
                    let status = FileStatus::from_directory(&times);
                    entries.push(DirectoryEntry { name, status, file_id: entry.file_id });
                }
            }
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_directory(&mut self, tree: Tree, path: &str) -> Result<(), ClientError> {
        let directory = self.open(tree, path, OpenOptions::create_directory())?;
        self.close(directory)
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
        let target = target.replace('/', "\\");
        let mut buffer = Vec::new();
        RenameInformation {
            flags: if replace { RENAME_REPLACE_IF_EXISTS } else { 0 },
            root_directory: 0,
            name: wide_from_str(target.trim_matches('\\')),
        }
        .write(&mut buffer);
        self.change(tree, path, class::RENAME, &buffer)
    }

    /// Opens, sets one file information, and closes, in one message.
    fn change(&mut self, tree: Tree, path: &str, class: u8, buffer: &[u8]) -> Result<(), ClientError> {
        let requests = vec![
            Self::open_request(tree, path, OpenOptions::delete()),
            Request::set_info(tree.id, FileId::RELATED, INFO_FILE, class, 0, buffer),
            Request::close(tree.id, FileId::RELATED),
        ];
        let replies = self.call_compound(requests)?;
        replies.iter().try_for_each(|reply| reply.success().map(|_| ()))
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
        Ok(self.call(Self::protected(request, file.tree))?.output()?.to_vec())
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
        self.call(Self::protected(request, file.tree))?.success().map(|_| ())
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
        Ok(self.call(Self::protected(request, file.tree))?.fsctl_output()?.to_vec())
    }

    /// Asks whether the server is there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn echo(&mut self) -> Result<(), ClientError> {
        self.call(Request::echo())?.success().map(|_| ())
    }

    /// Ends the session.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn log_off(mut self) -> Result<(), ClientError> {
        self.call(Request::logoff())?.success().map(|_| ())
    }

    fn new_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Hands messages to the socket as far as it takes them.
    fn push_out(&mut self) -> Result<(), ClientError> {
        while let Some(message) = self.connection.poll_transmit() {
            self.stream.send(message);
        }
        self.stream.flush().map(|_| ())
    }

    /// Sends, receives, and waits only where neither is possible.
    fn turn(&mut self) -> Result<(), ClientError> {
        self.push_out()?;
        let mut any = false;
        while let Some(message) = self.stream.receive()? {
            any = true;
            self.connection.handle_message(message)?;
            while let Some(event) = self.connection.poll_event() {
                if let Event::Completed { token, reply } = event {
                    self.answers.insert(token, reply);
                    self.order.push_back(token);
                }
            }
        }
        self.push_out()?;
        if !any {
            self.stream.wait()?;
        }
        Ok(())
    }
}
