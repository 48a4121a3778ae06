//! FLUSH (MS-SMB2 3.3.5.11).

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{ChainFile, Context, Element, Step};
use crate::state::State;
use smb::wire::FlushRequest;
use types::NtStatus;
use volume::backend::{Backend, Operation, Reply};
use volume::security::rights;

/// A FLUSH that its volume is working on.
pub(crate) struct FlushWork;

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<FlushWork>, NtStatus> {
    let request = FlushRequest::parse(element.bytes())?;
    let key = context.find_open(&state.opens, related, request.file_id)?;
    let open = state.opens.get(key)?;
    let Some((volume, name)) = open.volume_open() else { return Ok(Step::empty()) };
    if open.granted_access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(Step::Submit { volume, operation: Operation::Flush { open: name }, work: FlushWork })
}

pub(crate) fn resume(result: Result<Reply, NtStatus>) -> Result<Step<FlushWork>, NtStatus> {
    expect_done(result)?;
    Ok(Step::empty())
}
