//! WRITE (MS-SMB2 3.3.5.13): the hot path. Payload goes from the message to the volume by reference.

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step, Until};
use crate::pipes;
use crate::remote::{self, RemoteMemory};
use crate::state::State;
use crate::state::keys::VolumeSlot;
use smb::wire::{
    CHANNEL_NONE, Put, WRITE_FLAG_UNBUFFERED, WRITE_FLAG_WRITE_THROUGH, WriteRequest, WriteResponseBody,
};
use sys::{Buf, Payload};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, OpenId, Operation, Reply};
use volume::security::rights;

/// Highest byte offset of a file: offsets are signed on the wire.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A WRITE that waits for its volume, or for its payload.
pub(crate) enum WriteWork {
    Submitted { length: u32 },
    Remote(Box<RemoteWrite>),
}

/// A WRITE whose payload is being fetched out of the client's memory.
pub(crate) struct RemoteWrite {
    memory: RemoteMemory,
    target: Target,
    length: u32,
    data: Option<Buf>,
}

/// The place that a WRITE goes to, and how.
struct Target {
    volume: VolumeSlot,
    open: OpenId,
    offset: u64,
    write_through: bool,
    unbuffered: bool,
}

impl Target {
    fn submit(self, data: Payload, length: u32) -> Step<WriteWork> {
        let Self { volume, open, offset, write_through, unbuffered } = self;
        let operation = Operation::Write { open, offset, data, write_through, unbuffered };
        Step::Submit { volume, operation, work: WriteWork::Submitted { length } }
    }
}

impl RemoteWrite {
    /// Takes in the payload that the transport has fetched.
    pub fn take_payload(&mut self, data: Buf) {
        self.data = Some(data);
    }
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<WriteWork>, NtStatus> {
    let request = WriteRequest::parse(element.bytes())?;
    let channel = request.channel.get();
    // By RDMA, the message carries no data and RemainingBytes has the length.
    let length = if channel == CHANNEL_NONE { request.length.get() } else { request.remaining_bytes.get() };
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, length as usize, state.config.limits.write_bytes)?;
    if channel != CHANNEL_NONE && request.length.get() != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let memory = match channel {
        CHANNEL_NONE => None,
        channel => Some(remote::memory_to_read(&state.connections, context, channel, length, &request)?),
    };
    let range = request.data_range()?;
    context.check_channel_sequence(&state.connections, &mut state.opens, key, true)?;
    let open = state.opens.get(key)?;
    let Some((volume, name)) = open.volume_open() else {
        let bytes = &element.bytes()[range];
        pipes::write(state, key, bytes, now)?;
        return Ok(written_to_pipe(bytes.len()));
    };
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if open.granted_access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let offset = request.offset.get();
    // All ones: at the end of the file, if only appending is granted.
    let appends = open.granted_access & rights::WRITE_DATA == 0 && offset == u64::MAX;
    if !appends && offset.checked_add(length.into()).is_none_or(|end| end > OFFSET_MAX) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let flags = request.flags.get();
    let target = Target {
        volume,
        open: name,
        offset,
        write_through: flags & WRITE_FLAG_WRITE_THROUGH != 0,
        unbuffered: flags & WRITE_FLAG_UNBUFFERED != 0,
    };
    context.bytes = length as usize;
    if let Some(memory) = memory {
        let until = Until::Fetched { len_bytes: length as usize, descriptors: memory.descriptors.clone() };
        return Ok(Step::Park(
            WriteWork::Remote(Box::new(RemoteWrite { memory, target, length, data: None })),
            until,
        ));
    }
    let data = element.whole.slice(element.start + range.start..element.start + range.end);
    Ok(target.submit(Payload::from(data), length))
}

/// Answers a WRITE to a pipe. Most clients expect a byte of padding.
fn written_to_pipe(count: usize) -> Step<WriteWork> {
    let mut body = Vec::new();
    body.put(&WriteResponseBody { count: (count as u32).into(), ..Default::default() });
    body.push(0);
    Step::ok(body)
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: WriteWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<WriteWork>, NtStatus> {
    let length = match work {
        WriteWork::Submitted { length } => length,
        WriteWork::Remote(work) => {
            expect_done(result)?;
            return write_fetched(state, context, *work);
        }
    };
    let Reply::Written(count) = result? else { return Err(NtStatus::INTERNAL_ERROR) };
    state.counters.written_bytes += u64::from(count);
    if let Some(key) = context.open
        && let Ok(open) = state.opens.get_mut(key)
    {
        open.written_bytes += u64::from(count);
        state.share_figures.of(open.figures).written_bytes += u64::from(count);
    }
    if let Ok(session) = context.session_mut(&mut state.sessions) {
        session.written_bytes += u64::from(count);
        session.writes += 1;
    }
    Ok(Step::Reply(NtStatus::SUCCESS, Body::Written(count.min(length))))
}

/// Gives the fetched payload to the volume, if it is the one that the client protected.
fn write_fetched<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    work: RemoteWrite,
) -> Result<Step<WriteWork>, NtStatus> {
    let RemoteWrite { memory, target, length, data } = work;
    let data = remote::open(&state.sessions, context, &memory, data.ok_or(NtStatus::INTERNAL_ERROR)?)?;
    Ok(target.submit(Payload::from(data), length))
}
