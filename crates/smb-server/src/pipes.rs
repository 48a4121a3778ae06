//! Named pipes of IPC$: opens, reads, writes and transactions over `smb::rpc`.

use crate::directory::Directory;
use crate::exchange::Context;
use crate::state::budget::Charge;
use crate::state::connections::Connections;
use crate::state::keys::OpenKey;
use crate::state::opens::{Enumeration, Open, OpenKind};
use crate::state::pipe::Pipe;
use crate::state::sessions::{SessionState, Sessions};
use crate::state::share_figures::FiguresSlot;
use crate::state::{State, Wake};
use smb::rpc::{
    AccountEntry, PipeError, PipeRead, RpcCaller, ServerEntry, SessionEntry, ShareEntry, ShareKind,
};
use types::{FileTime, Monotonic, NtStatus, Sid};
use volume::backend::{Backend, CacheGrant, OplockLevel};

/// Size in bytes that the attributes of a pipe claim.
pub(crate) const PIPE_ALLOCATION_BYTES: u64 = 4096;

/// The server as the RPC interfaces see it: looked up when a call asks, and only for this call.
struct View<'a, D> {
    directory: &'a D,
    server_name: &'a str,
    sessions: &'a Sessions,
    connections: &'a Connections,
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
            current_uses: self.sessions.uses_of(&share.name),
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

/// Opens a pipe by its name in IPC$.
pub(crate) fn open<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    name: &[u16],
    desired_access: u32,
    create_options: u32,
    now: Monotonic,
) -> Result<OpenKey, NtStatus> {
    let text = String::from_utf16(name).map_err(|_| NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let session_key = context.session_key()?;
    let session = context.session_mut(&mut state.sessions)?;
    if session.opens.pipes() >= state.config.limits.pipes_per_session {
        return Err(NtStatus::TOO_MANY_OPENED_FILES);
    }
    let caller = RpcCaller {
        user: session.account.clone(),
        domain: state.config.server_name.clone(),
        is_administrator: session.token.groups.contains(&Sid::administrators()),
    };
    // Without what stands before it, which may be as long as a client likes.
    let bare = text.trim_start_matches('\\');
    let path = bare.encode_utf16().collect();
    let end = smb::rpc::Pipe::open(bare, caller).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let persistent = state.opens.next_pipe();
    let key = state.opens.insert(&session.token.user, |holder| Open {
        session: session_key,
        holder,
        connection: context.connection,
        lease: None,
        tree_id: context.tree_id,
        figures: FiguresSlot::default(),
        client: session.client(),
        kind: OpenKind::Pipe(Box::new(Pipe::new(end))),
        persistent,
        path,
        directory: false,
        granted_access: desired_access,
        cache: CacheGrant::Oplock(OplockLevel::None),
        durable: false,
        is_persistent: false,
        create_options,
        enumeration: Enumeration::default(),
        closing: false,
        channel_sequence: context.channel_sequence,
        outstanding: 0,
        outstanding_before: 0,
        position: 0,
        quota_scan: None,
        opened_at: now,
        read_bytes: 0,
        written_bytes: 0,
    });
    session.opens.insert(context.tree_id, key, true);
    Ok(key)
}

/// Takes the pipe's end out of the open, lets `work` use it with a view of the server, and puts it back.
fn with_pipe<B: Backend, D: Directory, T>(
    state: &mut State<B, D>,
    key: OpenKey,
    now: Monotonic,
    work: impl FnOnce(&mut smb::rpc::Pipe, &dyn smb::rpc::Directory) -> T,
) -> Result<T, NtStatus> {
    let mut end = state.opens.pipe_mut(key)?.end.take().ok_or(NtStatus::PIPE_BUSY)?;
    let view = View {
        directory: &state.directory,
        server_name: &state.config.server_name,
        sessions: &state.sessions,
        connections: &state.connections,
        now,
        wall: state.clock.at(now),
    };
    let done = work(&mut end, &view);
    state.opens.pipe_mut(key)?.end = Some(end);
    charge(state, key)?;
    Ok(done)
}

/// Counts what a pipe keeps by now. A pipe that may not keep so much is emptied, and ends.
fn charge<B: Backend, D: Directory>(state: &mut State<B, D>, key: OpenKey) -> Result<(), NtStatus> {
    let found = state.opens.get(key).ok().and_then(|open| state.sessions.get(open.session));
    let user = found.map(|session| session.token.user.clone()).ok_or(NtStatus::USER_SESSION_DELETED)?;
    let pipe = state.opens.pipe_mut(key)?;
    let bytes = pipe.end.as_ref().map_or(0, smb::rpc::Pipe::held_bytes);
    state.memory.release(std::mem::replace(&mut pipe.charge, Charge::none()));
    if bytes == 0 {
        return Ok(());
    }
    let Some(charge) = state.memory.park(&user, bytes) else {
        if let Some(end) = &mut pipe.end {
            end.abandon();
        }
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    };
    pipe.charge = charge;
    Ok(())
}

/// Writes to a pipe, and lets READs go on that wait for its answer.
pub(crate) fn write<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    bytes: &[u8],
    now: Monotonic,
) -> Result<(), NtStatus> {
    with_pipe(state, key, now, |pipe, view| pipe.write(bytes, view))?.map_err(PipeError::status)?;
    state.woken.push(Wake::Readers(key));
    Ok(())
}

/// Reads from a pipe. `None`: it has nothing to say yet.
pub(crate) fn read<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    length: usize,
) -> Result<Option<PipeRead>, NtStatus> {
    let end = state.opens.pipe_mut(key)?.end.as_mut().ok_or(NtStatus::PIPE_BUSY)?;
    let read = end.read(length);
    if read.is_some() {
        charge(state, key)?;
    }
    Ok(read)
}

/// Writes a call to a pipe and reads its answer, of at most `output_max` bytes.
pub(crate) fn transact<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    input: &[u8],
    output_max: usize,
    now: Monotonic,
) -> Result<PipeRead, NtStatus> {
    with_pipe(state, key, now, |pipe, view| pipe.transact(input, output_max, view))?
        .map_err(PipeError::status)?
        .ok_or(NtStatus::PIPE_EMPTY)
}

/// Says what FSCTL_PIPE_PEEK answers (MS-FSCC 2.3.46): what waits, without taking it.
pub(crate) fn peek(pipe: &Pipe) -> Vec<u8> {
    const CONNECTED_STATE: u32 = 3;
    let waiting = pipe.waiting_bytes();
    let mut out = Vec::new();
    for value in [CONNECTED_STATE, waiting, u32::from(waiting > 0), waiting] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out
}
