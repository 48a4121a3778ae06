//! Named pipes of IPC$: opens, reads, writes and transactions over `smb::rpc`.

use crate::directory::{Credential, Directory};
use crate::exchange::Context;
use crate::state::budget::Charge;
use crate::state::keys::OpenKey;
use crate::state::opens::{Enumeration, Open, OpenKind};
use crate::state::pipe::{Pipe, PipeChange};
use crate::state::share_figures::FiguresSlot;
use crate::state::{State, Wake};
use crate::view::View;
use smb::auth::NtHash;
use smb::rpc::{PipeError, PipeRead, RpcCaller, RpcDone, RpcRefusal};
use std::cell::RefCell;
use types::{Monotonic, NtStatus, Sid};
use volume::backend::{Backend, CacheGrant, OplockLevel};

/// Size in bytes that the attributes of a pipe claim.
pub(crate) const PIPE_ALLOCATION_BYTES: u64 = 4096;

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
        nt_hash: match session.credential {
            Credential::Password(hash) => Some(NtHash::from_bytes(hash)),
            Credential::Certificate(_) => None,
        },
    };
    // The name without its prefix, which may have any length.
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
    let volumes = &state.volumes;
    let lock_count = |volume, open| volumes.get(volume).map_or(0, |volume| volume.lock_count(open));
    let view = View {
        directory: &state.directory,
        server_name: &state.config.server_name,
        sessions: &state.sessions,
        connections: &state.connections,
        opens: &state.opens,
        lock_count: &lock_count,
        random: RefCell::new(&mut state.random),
        now,
        wall: state.clock.at(now),
    };
    let done = work(&mut end, &view);
    let change = end.take_change();
    state.opens.pipe_mut(key)?.end = Some(end);
    charge(state, key)?;
    if let Some(change) = change {
        let open = state.opens.get(key)?;
        let (session, connection) = (open.session, open.connection);
        let user = state.sessions.get(session).map(|session| session.account.clone()).unwrap_or_default();
        let peer = state.connections.get(connection).map(|connection| connection.info.peer);
        state.pipe_changes.push(PipeChange { pipe: key.get(), user, peer, change });
    }
    Ok(done)
}

/// Answers the call that waits for a change in this pipe, and lets READs continue that wait for it. The pipe may be closed meanwhile.
pub(crate) fn finish<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    outcome: Result<RpcDone, RpcRefusal>,
) {
    if let Ok(pipe) = state.opens.pipe_mut(key)
        && let Some(end) = &mut pipe.end
    {
        end.finish(outcome);
        // If the answer exceeds the user's memory the pipe ends, and its readers get an error.
        if charge(state, key).is_ok() {
            state.woken.push(Wake::Readers(key));
        } else {
            let waiting = state.opens.pipe_mut(key).map(Pipe::take_readers).unwrap_or_default();
            state.woken.push(Wake::WaitedForClosed(waiting.into()));
        }
    }
}

/// Counts the pipe's memory. A pipe beyond its user's limit is emptied, and ends.
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

/// Writes to a pipe, and lets READs continue that wait for its answer.
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

/// Writes a call to a pipe and reads its answer, of at most `output_max` bytes. `None`: it waits for a change.
pub(crate) fn transact<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    input: &[u8],
    output_max: usize,
    now: Monotonic,
) -> Result<Option<PipeRead>, NtStatus> {
    let (read, waits) = with_pipe(state, key, now, |pipe, view| {
        let read = pipe.transact(input, output_max, view);
        (read, pipe.is_pending())
    })?;
    let read = read.map_err(PipeError::status)?;
    if read.is_none() && !waits { Err(NtStatus::PIPE_EMPTY) } else { Ok(read) }
}

/// Returns the answer of FSCTL_PIPE_PEEK (MS-FSCC 2.3.46): the waiting bytes, without taking them.
pub(crate) fn peek(pipe: &Pipe) -> Vec<u8> {
    const CONNECTED_STATE: u32 = 3;
    let waiting = pipe.waiting_bytes();
    let mut out = Vec::new();
    for value in [CONNECTED_STATE, waiting, u32::from(waiting > 0), waiting] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out
}
