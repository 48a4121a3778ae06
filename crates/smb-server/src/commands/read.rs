//! READ (MS-SMB2 3.3.5.12): the hot path. Payload goes from the volume to the answer by reference.

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step, Until};
use crate::pipes;
use crate::remote::{self, RemoteMemory};
use crate::state::State;
use crate::state::keys::OpenKey;
use smb::wire::{CHANNEL_NONE, Dialect, READ_FLAG_UNBUFFERED, ReadRequest};
use sys::{Buf, Payload};
use types::NtStatus;
use volume::backend::{Backend, ByteRange, Operation, Reply};
use volume::security::rights;

/// Highest byte offset of a file: offsets are signed on the wire.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A READ that waits for its volume, or for a pipe to have something to say.
pub(crate) enum ReadWork {
    File(Wanted),
    /// The payload goes into the client's memory.
    Remote(Wanted, Box<RemoteMemory>),
    Pipe {
        length: u32,
    },
}

/// The bytes that a READ wants.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    minimum: u32,
    length: u32,
    offset: u64,
}

#[inline]
pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<ReadWork>, NtStatus> {
    let request = ReadRequest::parse(element.bytes())?;
    let length = request.length.get();
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, length as usize, state.config.limits.read_bytes)?;
    let memory = match request.channel.get() {
        CHANNEL_NONE => None,
        channel => Some(remote::memory_to_write(&state.connections, context, channel, length, &request)?),
    };
    let open = state.opens.get(key)?;
    let unbuffered = request.flags & READ_FLAG_UNBUFFERED != 0;
    let Some((volume, name)) = open.volume_open() else {
        // There is no pipe whose data are not buffered (MS-SMB2 3.3.5.12).
        if unbuffered && context.dialect(&state.connections) >= Dialect::Smb302 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        return read_pipe(state, key, length);
    };
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if open.granted_access & (rights::READ_DATA | rights::EXECUTE) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let offset = request.offset.get();
    if offset.checked_add(length.into()).is_none_or(|end| end > OFFSET_MAX) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    context.check_channel_sequence(&state.connections, &mut state.opens, key, false)?;
    context.bytes = length as usize;
    let wanted = Wanted { minimum: request.minimum_count.get(), length, offset };
    let operation =
        Operation::Read { open: name, range: ByteRange { offset, len_bytes: length.into() }, unbuffered };
    let work = match memory {
        None => ReadWork::File(wanted),
        Some(memory) => ReadWork::Remote(wanted, Box::new(memory)),
    };
    Ok(Step::Submit { volume, operation, work })
}

#[inline]
pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: ReadWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<ReadWork>, NtStatus> {
    match work {
        ReadWork::File(wanted) => {
            let data = file_read(state, context, wanted, result?)?;
            Ok(Step::Reply(NtStatus::SUCCESS, Body::Read(data)))
        }
        ReadWork::Remote(wanted, memory) => {
            let data = file_read(state, context, wanted, result?)?;
            let body = remote::send(state, context, *memory, data)?;
            Ok(Step::Reply(NtStatus::SUCCESS, body))
        }
        ReadWork::Pipe { length } => {
            expect_done(result)?;
            read_pipe(state, context.open_key()?, length)
        }
    }
}

/// Takes the volume's data for a READ, and counts it.
#[inline]
fn file_read<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    wanted: Wanted,
    answer: Reply,
) -> Result<Payload, NtStatus> {
    let Wanted { minimum, length, offset } = wanted;
    let Reply::Read(data) = answer else { return Err(NtStatus::INTERNAL_ERROR) };
    let count = data.len() as u64;
    if length > 0 && data.is_empty() || count < u64::from(minimum) {
        return Err(NtStatus::END_OF_FILE);
    }
    state.counters.read_bytes += count;
    if let Some(key) = context.open
        && let Ok(open) = state.opens.get_mut(key)
    {
        open.read_bytes += count;
        state.share_figures.of(open.figures).read_bytes += count;
        open.position = offset + count;
    }
    if let Ok(session) = context.session_mut(&mut state.sessions) {
        session.read_bytes += count;
        session.reads += 1;
    }
    Ok(data)
}

fn read_pipe<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    length: u32,
) -> Result<Step<ReadWork>, NtStatus> {
    let Some(read) = pipes::read(state, key, length as usize)? else {
        return Ok(Step::Park(ReadWork::Pipe { length }, Until::PipeSays));
    };
    let status = if read.is_partial { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    Ok(Step::Reply(status, Body::Read(Payload::from(Buf::from(&read.bytes[..])))))
}
