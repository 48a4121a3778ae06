//! CHANGE_NOTIFY (MS-SMB2 3.3.5.19).

use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step};
use crate::state::State;
use smb::wire::{ChangeNotifyRequest, WATCH_TREE, put_notify_record, write_output_buffer_response};
use types::NtStatus;
use volume::backend::{Backend, Operation, Reply, WideString};
use volume::security::rights;

/// A CHANGE_NOTIFY that waits for changes.
pub(crate) struct ChangeNotifyWork {
    bytes_max: usize,
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<ChangeNotifyWork>, NtStatus> {
    let request = ChangeNotifyRequest::parse(element.bytes())?;
    let bytes_max = request.output_buffer_length.get();
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, bytes_max as usize, state.config.limits.transact_bytes)?;
    let open = state.opens.get(key)?;
    let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
    if !open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if open.granted_access & rights::LIST_DIRECTORY == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(Step::Submit {
        volume,
        operation: Operation::Notify {
            open: name,
            filter: request.completion_filter.get(),
            tree: request.flags.get() & WATCH_TREE != 0,
            bytes_max,
        },
        work: ChangeNotifyWork { bytes_max: bytes_max as usize },
    })
}

pub(crate) fn resume(
    work: ChangeNotifyWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<ChangeNotifyWork>, NtStatus> {
    match result {
        Ok(Reply::Notify(changes)) => Ok(answer(&changes, work.bytes_max)),
        Ok(_) => Err(NtStatus::INTERNAL_ERROR),
        Err(status) if !status.is_error() => {
            let mut body = Vec::new();
            write_output_buffer_response(&mut body, &[]);
            Ok(Step::Reply(status, Body::Bytes(body)))
        }
        Err(status) => Err(status),
    }
}

/// Makes the answer: the changes, or that there were too many to list.
fn answer(changes: &[(u32, WideString)], bytes_max: usize) -> Step<ChangeNotifyWork> {
    let (mut records, mut last) = (Vec::new(), None);
    for (action, name) in changes {
        put_notify_record(&mut records, &mut last, *action, name);
    }
    let status = if records.is_empty() || records.len() > bytes_max {
        records.clear();
        NtStatus::NOTIFY_ENUM_DIR
    } else {
        NtStatus::SUCCESS
    };
    let mut body = Vec::with_capacity(8 + records.len());
    write_output_buffer_response(&mut body, &records);
    Step::Reply(status, Body::Bytes(body))
}
