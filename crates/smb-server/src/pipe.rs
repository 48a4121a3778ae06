//! Named pipes of IPC$: opens, reads, writes and transactions over `smb::rpc`.

use crate::directory::Directory;
use crate::open::{Enumeration, Open, OpenKind};
use crate::request::{Body, Context, Step, Work};
use crate::server::Server;
use smb::rpc::{AccountEntry, PipeError, RpcCaller, ServerEntry, SessionEntry, ShareEntry, ShareKind};
use smb::wire::{CreateRequest, CreateResponseBody, Put, WriteResponseBody, write_create_response};
use sys::{Buf, Payload};
use types::{FileTime, Monotonic, NtStatus, Sid, attribute};
use volume::backend::{Backend, CacheGrant, OplockLevel};

/// Bytes of a pipe that its attributes claim.
pub(crate) const PIPE_ALLOCATION_BYTES: u64 = 4096;

/// An open end of a pipe.
pub(crate) struct Pipe {
    /// `None` while it is being worked on.
    end: Option<smb::rpc::Pipe>,
    /// READs that wait for something to read, oldest first.
    readers: std::collections::VecDeque<u64>,
}

/// What the interfaces ask of the server.
struct View<'a, D> {
    directory: &'a D,
    server_name: &'a str,
    sessions: Vec<SessionEntry>,
    uses: Vec<(String, u32)>,
    now: FileTime,
}

impl<D: Directory> smb::rpc::Directory for View<'_, D> {
    fn server(&self) -> ServerEntry {
        ServerEntry {
            name: self.server_name.to_owned(),
            comment: "Cenote".to_owned(),
            domain: "WORKGROUP".to_owned(),
            // What clients of today expect of a server of SMB 3.1.1.
            version_major: 10,
            version_minor: 0,
        }
    }

    fn shares(&self) -> Vec<ShareEntry> {
        let disk = self.directory.shares().into_iter().map(|share| ShareEntry {
            name: share.name.clone(),
            kind: ShareKind::Disk,
            is_special: false,
            comment: share.comment.clone(),
            path: format!("C:\\{}", share.name),
            current_uses: self.uses.iter().find(|(name, _)| *name == share.name).map_or(0, |(_, uses)| *uses),
            flags: 0,
            security_descriptor: None,
        });
        let ipc = ShareEntry {
            name: "IPC$".to_owned(),
            kind: ShareKind::Pipe,
            is_special: true,
            comment: "IPC".to_owned(),
            path: String::new(),
            current_uses: 0,
            flags: 0,
            security_descriptor: None,
        };
        disk.chain([ipc]).collect()
    }

    fn sessions(&self) -> Vec<SessionEntry> {
        self.sessions.clone()
    }

    fn domain_sid(&self) -> Sid {
        self.directory.domain_sid()
    }

    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        self.directory.account_by_sid(sid)
    }

    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        self.directory.account_by_name(name)
    }

    fn now(&self) -> FileTime {
        self.now
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    fn view(&self, now: Monotonic) -> View<'_, D> {
        let mut uses: Vec<(String, u32)> = Vec::new();
        let mut sessions = Vec::new();
        for (_, session) in self.sessions.iter() {
            for (_, tree) in &session.trees {
                match uses.iter_mut().find(|(name, _)| name == tree.name()) {
                    Some((_, count)) => *count += 1,
                    None => uses.push((tree.name().to_owned(), 1)),
                }
            }
            let peer = session
                .channels
                .first()
                .and_then(|channel| self.connections.get(channel.connection))
                .map(|connection| connection.info.peer.ip().to_string());
            sessions.push(SessionEntry {
                client: peer.unwrap_or_default(),
                user: session.account.clone(),
                open_files: session.opens.len() as u32,
                active_s: now.since(session.created_at).as_secs() as u32,
                idle_s: now.since(session.last_request_at).as_secs() as u32,
                is_guest: false,
            });
        }
        View {
            directory: &self.directory,
            server_name: &self.config.server_name,
            sessions,
            uses,
            now: self.wall_clock(now),
        }
    }

    pub(crate) fn create_pipe(
        &mut self,
        context: &mut Context,
        name: &[u16],
        request: &CreateRequest<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let text = String::from_utf16(name).map_err(|_| NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let session = self.session_of(context)?;
        let caller = RpcCaller {
            user: session.account.clone(),
            domain: self.config.server_name.clone(),
            is_administrator: session.token.groups.contains(&Sid::administrators()),
        };
        let bare = text.trim_start_matches('\\');
        let end = smb::rpc::Pipe::open(bare, caller).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        // Above every name a volume gives, so that the two never meet.
        let persistent = u64::MAX - self.next_pipe;
        self.next_pipe += 1;
        let key = self.opens.insert(Open {
            session: context.session,
            connection: context.connection,
            lease: None,
            tree_id: context.tree_id,
            kind: OpenKind::Pipe(Box::new(Pipe { end: Some(end), readers: Default::default() })),
            persistent,
            path: name.into(),
            directory: false,
            granted_access: request.desired_access.get(),
            cache: CacheGrant::Oplock(OplockLevel::None),
            durable: false,
            create_options: request.create_options.get(),
            enumeration: Enumeration::default(),
            closing: false,
            channel_sequence: context.channel_sequence,
            outstanding: 0,
            outstanding_before: 0,
            position: 0,
            opened_at: now,
            read_bytes: 0,
            written_bytes: 0,
        });
        if let Some(session) = self.sessions.get_mut(context.session) {
            session.opens.insert(key);
        }
        context.open = key;
        let file_id = self.opens.get(key).map(|open| open.file_id(key)).unwrap_or_default();
        let mut out = Vec::new();
        let body = CreateResponseBody {
            create_action: 1.into(),
            allocation_size: PIPE_ALLOCATION_BYTES.into(),
            file_attributes: attribute::NORMAL.into(),
            file_id,
            ..Default::default()
        };
        write_create_response(&mut out, body, &[]);
        Ok(Step::ok(out))
    }

    fn pipe(&mut self, key: u64) -> Result<&mut Pipe, NtStatus> {
        match &mut self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?.kind {
            OpenKind::Pipe(pipe) => Ok(pipe),
            OpenKind::File { .. } => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// Takes the pipe's end out of the open, lets `work` use it with the server's view, and puts it back.
    fn with_pipe<T>(
        &mut self,
        key: u64,
        now: Monotonic,
        work: impl FnOnce(&mut smb::rpc::Pipe, &dyn smb::rpc::Directory) -> T,
    ) -> Result<T, NtStatus> {
        let mut end = self.pipe(key)?.end.take().ok_or(NtStatus::PIPE_BUSY)?;
        let done = work(&mut end, &self.view(now));
        self.pipe(key)?.end = Some(end);
        Ok(done)
    }

    pub(crate) fn write_pipe(&mut self, key: u64, bytes: &[u8], now: Monotonic) -> Result<Step, NtStatus> {
        self.with_pipe(key, now, |pipe, view| pipe.write(bytes, view))?.map_err(PipeError::status)?;
        self.serve_readers(key, now);
        let mut out = Vec::new();
        out.put(&WriteResponseBody { count: (bytes.len() as u32).into(), ..Default::default() });
        out.push(0);
        Ok(Step::ok(out))
    }

    /// Gives what a pipe has to say to READs that wait for it.
    fn serve_readers(&mut self, key: u64, now: Monotonic) {
        while let Ok(pipe) = self.pipe(key) {
            if pipe.end.as_ref().is_none_or(|end| end.waiting_bytes() == 0) {
                return;
            }
            let Some(reader) = pipe.readers.pop_front() else { return };
            self.complete(reader, Ok(volume::backend::Reply::Done), now);
        }
    }

    pub(crate) fn read_pipe(
        &mut self,
        context: &Context,
        length: u32,
        _now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let pipe = self.pipe(context.open)?;
        let end = pipe.end.as_mut().ok_or(NtStatus::PIPE_BUSY)?;
        match end.read(length as usize) {
            Some(read) => {
                let status = if read.is_partial { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
                Ok(Step::Reply(status, Body::Read(Payload::from(Buf::from(&read.bytes[..])))))
            }
            None => Ok(Step::Park(Work::PipeRead { length })),
        }
    }

    /// A READ of a pipe waits: the client is told, the pipe remembers.
    pub(crate) fn wait_for_pipe(&mut self, open: u64, request: u64, now: Monotonic) {
        if let Ok(pipe) = self.pipe(open) {
            pipe.readers.push_back(request);
            self.went_pending(request, now);
        }
    }

    /// Ends the READs that wait on a pipe that is closed.
    pub(crate) fn fail_readers(&mut self, key: u64, now: Monotonic) {
        let readers = match self.pipe(key) {
            Ok(pipe) => std::mem::take(&mut pipe.readers),
            Err(_) => return,
        };
        for reader in readers {
            self.complete(reader, Err(NtStatus::FILE_CLOSED), now);
        }
    }

    pub(crate) fn transact_pipe(
        &mut self,
        key: u64,
        input: &[u8],
        output_max: usize,
        now: Monotonic,
    ) -> Result<(NtStatus, Vec<u8>), NtStatus> {
        let answer = self
            .with_pipe(key, now, |pipe, view| pipe.transact(input, output_max, view))?
            .map_err(PipeError::status)?
            .ok_or(NtStatus::PIPE_EMPTY)?;
        let status = if answer.is_partial { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
        Ok((status, answer.bytes))
    }

    /// FSCTL_PIPE_PEEK (MS-FSCC 2.3.46): what waits, without taking it.
    pub(crate) fn peek_pipe(&mut self, key: u64) -> Result<Vec<u8>, NtStatus> {
        const CONNECTED_STATE: u32 = 3;
        let waiting = self.pipe(key)?.end.as_ref().map_or(0, smb::rpc::Pipe::waiting_bytes) as u32;
        let mut out = Vec::new();
        for value in [CONNECTED_STATE, waiting, u32::from(waiting > 0), waiting] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(out)
    }

    /// Bytes that wait to be read from a pipe.
    pub(crate) fn pipe_waiting_bytes(&self, key: u64) -> u32 {
        match self.opens.get(key).map(|open| &open.kind) {
            Some(OpenKind::Pipe(pipe)) => pipe.end.as_ref().map_or(0, smb::rpc::Pipe::waiting_bytes) as u32,
            _ => 0,
        }
    }
}
