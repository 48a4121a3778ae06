//! Named pipes of IPC$: opens, reads, writes and transactions over `smb::rpc`.

use crate::arena::Arena;
use crate::budget::Charge;
use crate::connection::Connection;
use crate::directory::Directory;
use crate::open::{Enumeration, Open, OpenKind};
use crate::request::{Body, Context, Step, Work};
use crate::server::Server;
use crate::session::{SessionState, SessionTable};
use crate::share_uses::ShareUses;
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
    /// What it keeps in memory.
    pub charge: Charge,
    /// READs that wait for something to read, oldest first.
    readers: std::collections::VecDeque<u64>,
}

/// What the interfaces ask of the server: looked up when a call asks, and only for this call.
struct View<'a, D> {
    directory: &'a D,
    server_name: &'a str,
    sessions: &'a SessionTable,
    connections: &'a Arena<Connection>,
    uses: &'a ShareUses,
    now: Monotonic,
    wall: FileTime,
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
            current_uses: self.uses.of(&share.name),
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
        let proven = self.sessions.iter().filter(|(_, session)| session.state == SessionState::Valid);
        proven
            .map(|(_, session)| {
                let peer = session
                    .channels
                    .first()
                    .and_then(|channel| self.connections.get(channel.connection))
                    .map(|connection| connection.info.peer.ip().to_string());
                SessionEntry {
                    client: peer.unwrap_or_default(),
                    user: session.account.clone(),
                    open_files: session.opens.len() as u32,
                    active_s: self.now.since(session.created_at).as_secs() as u32,
                    idle_s: self.now.since(session.last_request_at).as_secs() as u32,
                    is_guest: false,
                }
            })
            .collect()
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
        self.wall
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    fn view(&self, now: Monotonic) -> View<'_, D> {
        View {
            directory: &self.directory,
            server_name: &self.config.server_name,
            sessions: &self.sessions,
            connections: &self.connections,
            uses: &self.share_uses,
            now,
            wall: self.wall_clock(now),
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
        if session.opens.pipes() >= self.config.limits.pipes_per_session {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
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
        let holder = self.open_holder(context)?;
        let pipe = Pipe { end: Some(end), charge: Charge::none(), readers: Default::default() };
        let key = self.opens.insert(Open {
            session: context.session,
            holder,
            connection: context.connection,
            lease: None,
            tree_id: context.tree_id,
            kind: OpenKind::Pipe(Box::new(pipe)),
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
            session.opens.insert(context.tree_id, key, true);
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
        self.charge_pipe(key)?;
        Ok(done)
    }

    /// Counts what a pipe keeps by now. One that may not keep so much is emptied, and ends.
    fn charge_pipe(&mut self, key: u64) -> Result<(), NtStatus> {
        let user = match self.opens.get(key).and_then(|open| self.sessions.get(open.session)) {
            Some(session) => session.token.user.clone(),
            None => return Err(NtStatus::USER_SESSION_DELETED),
        };
        let pipe = self.pipe(key)?;
        let bytes = pipe.end.as_ref().map_or(0, smb::rpc::Pipe::held_bytes);
        let before = std::mem::replace(&mut pipe.charge, Charge::none());
        self.memory.release(before);
        if bytes == 0 {
            return Ok(());
        }
        let charge = self.memory.park(&user, bytes);
        let pipe = self.pipe(key)?;
        match charge {
            Some(charge) => pipe.charge = charge,
            None => {
                if let Some(end) = &mut pipe.end {
                    end.abandon();
                }
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
        }
        Ok(())
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
                self.charge_pipe(context.open)?;
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
