//! IOCTL (MS-SMB2 3.3.5.15): FSCTLs without a file, on a pipe, and on a file.
//!
//! The FSCTLs on files that a volume answers are rows of the table in [`file`]: a new one is added there, and its answer in [`answer`].

mod answer;
mod copy;
mod file;
mod validate_negotiate;

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step, Until};
use crate::pipes;
use crate::state::State;
use crate::state::keys::OpenKey;
use copy::CopyProgress;
use file::{Ask, Target};
use smb::wire::{
    Dialect, FileId, IOCTL_IS_FSCTL, IoctlRequest, PipeWait, fsctl, put_network_interfaces, range, view_at,
    wide, write_ioctl_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, ByteRange, Reply};

/// An IOCTL that its volume is working on.
pub(crate) struct IoctlWork {
    code: u32,
    file_id: FileId,
    output_max: usize,
    detail: Detail,
}

/// The part of a request that its answer needs.
enum Detail {
    None,
    TrimmedRanges(u32),
    Region(ByteRange),
    Copy(Box<CopyProgress>),
    /// A pipe's answer waits for a change.
    Pipe,
}

impl IoctlWork {
    /// Whether a pipe has to answer, and no volume.
    pub fn waits_for_pipe(&self) -> bool {
        matches!(self.detail, Detail::Pipe)
    }
}

/// One IOCTL's parts.
struct Call<'a> {
    code: u32,
    file_id: FileId,
    input: &'a [u8],
    output_max: usize,
}

fn reply(code: u32, file_id: FileId, status: NtStatus, output: &[u8]) -> Step<IoctlWork> {
    let mut body = Vec::with_capacity(48 + output.len());
    write_ioctl_response(&mut body, code, file_id, output);
    if output.is_empty() {
        body.push(0);
    }
    Step::Reply(status, Body::Bytes(body))
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<IoctlWork>, NtStatus> {
    let request = IoctlRequest::parse(element.bytes())?;
    if request.flags.get() != IOCTL_IS_FSCTL {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let input = request.input()?;
    let output_max = request.max_output_response.get() as usize;
    let limit = state.config.limits.transact_bytes;
    if request.max_input_response.get() > limit {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    context.check_size(&state.connections, input.len().max(output_max), limit)?;
    let call = Call { code: request.control_code.get(), file_id: request.file_id, input, output_max };
    match call.code {
        fsctl::VALIDATE_NEGOTIATE_INFO
        | fsctl::QUERY_NETWORK_INTERFACE_INFO
        | fsctl::DFS_GET_REFERRALS
        | fsctl::DFS_GET_REFERRALS_EX
        | fsctl::PIPE_WAIT => without_file(state, context, &call),
        _ => {
            let key = context.find_open(&state.opens, related, call.file_id)?;
            if state.opens.get(key)?.pipe().is_some() {
                of_pipe(state, key, &call, now)
            } else {
                of_file(state, context, key, &call)
            }
        }
    }
}

fn without_file<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    call: &Call<'_>,
) -> Result<Step<IoctlWork>, NtStatus> {
    if call.file_id != FileId::RELATED {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let output = match call.code {
        fsctl::VALIDATE_NEGOTIATE_INFO => {
            // 3.1.1 protects its negotiation otherwise, and the request is a sign of tampering.
            if context.dialect(&state.connections) == Dialect::Smb311 {
                return Ok(Step::Disconnect);
            }
            match validate_negotiate::answer(state, context, call.input, call.output_max)? {
                Some(output) => output,
                None => return Ok(Step::Disconnect),
            }
        }
        fsctl::QUERY_NETWORK_INTERFACE_INFO => {
            if context.dialect(&state.connections) < Dialect::Smb300 || state.config.interfaces.is_empty() {
                return Err(NtStatus::INVALID_DEVICE_REQUEST);
            }
            let mut output = Vec::new();
            put_network_interfaces(&mut output, &state.config.interfaces);
            output
        }
        fsctl::PIPE_WAIT => {
            let wait: &PipeWait = view_at(call.input, 0)?;
            let name = range(call.input, size_of::<PipeWait>(), wait.name_length.get() as usize);
            let name = String::from_utf16_lossy(&wide(name?)?);
            if !smb::rpc::is_pipe(&name) {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            Vec::new()
        }
        _ => return Err(NtStatus::FS_DRIVER_REQUIRED),
    };
    if output.len() > call.output_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(reply(call.code, FileId::RELATED, NtStatus::SUCCESS, &output))
}

fn of_file<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    key: OpenKey,
    call: &Call<'_>,
) -> Result<Step<IoctlWork>, NtStatus> {
    let open = state.opens.get(key)?;
    let file_id = open.file_id(key);
    let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let target = Target {
        open: name,
        granted: open.granted_access,
        is_directory: open.directory,
        output_max: call.output_max,
    };
    let (changes, ask) = match call.code {
        fsctl::SRV_REQUEST_RESUME_KEY => return copy::resume_key(open, key, call),
        fsctl::SRV_COPYCHUNK | fsctl::SRV_COPYCHUNK_WRITE => {
            (true, copy::copy_chunks(&state.opens, &state.config.limits, context, key, call)?)
        }
        fsctl::DUPLICATE_EXTENTS_TO_FILE | fsctl::DUPLICATE_EXTENTS_TO_FILE_EX => {
            (true, copy::duplicate_extents(&state.opens, context, volume, &target, call)?)
        }
        code if fsctl::is_of_bus(code) => (true, file::of_device(&target, code, call.input, call.output_max)),
        code => {
            let row = file::row(code).ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
            (row.changes, (row.ask)(&target, call.input)?)
        }
    };
    match ask {
        Ask::Volume(operation, detail) => {
            context.check_channel_sequence(&state.connections, &mut state.opens, key, changes)?;
            let work = IoctlWork { code: call.code, file_id, output_max: call.output_max, detail };
            Ok(Step::Submit { volume, operation, work })
        }
        Ask::Nothing(output) => {
            if output.len() > call.output_max {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            Ok(reply(call.code, file_id, NtStatus::SUCCESS, &output))
        }
        Ask::Limits(output) => Ok(reply(call.code, call.file_id, NtStatus::INVALID_PARAMETER, &output)),
    }
}

fn of_pipe<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    call: &Call<'_>,
    now: Monotonic,
) -> Result<Step<IoctlWork>, NtStatus> {
    let (status, output) = match call.code {
        fsctl::PIPE_TRANSCEIVE => {
            let Some(read) = pipes::transact(state, key, call.input, call.output_max, now)? else {
                let (code, output_max, detail) = (call.code, call.output_max, Detail::Pipe);
                return Ok(Step::Park(
                    IoctlWork { code, file_id: call.file_id, output_max, detail },
                    Until::PipeSays,
                ));
            };
            let status = if read.is_partial { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
            (status, read.bytes)
        }
        fsctl::PIPE_PEEK => {
            let output = pipes::peek(state.opens.pipe_mut(key)?);
            if output.len() > call.output_max {
                return Err(NtStatus::BUFFER_OVERFLOW);
            }
            (NtStatus::SUCCESS, output)
        }
        _ => return Err(NtStatus::INVALID_DEVICE_REQUEST),
    };
    let file_id = state.opens.get(key)?.file_id(key);
    Ok(reply(call.code, file_id, status, &output))
}

/// Reads a pipe's answer to the bytes written, as far as it is there.
fn answer_of_pipe<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    work: IoctlWork,
) -> Result<Step<IoctlWork>, NtStatus> {
    let Some(read) = pipes::read(state, key, work.output_max)? else {
        return Ok(Step::Park(work, Until::PipeSays));
    };
    let status = if read.is_partial { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    let file_id = state.opens.get(key)?.file_id(key);
    Ok(reply(work.code, file_id, status, &read.bytes))
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    work: IoctlWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<IoctlWork>, NtStatus> {
    if work.waits_for_pipe() {
        expect_done(result)?;
        return answer_of_pipe(state, context.open_key()?, work);
    }
    let open = context.open.and_then(|key| state.opens.get(key).ok());
    let volume = open.and_then(|open| open.volume_open()).map(|(volume, _)| volume);
    match work.detail {
        Detail::Copy(_) => copy::resume(volume, work, result),
        _ => answer::answer(&work, result?, volume.map(|volume| state.volumes.id_of(volume))),
    }
}
