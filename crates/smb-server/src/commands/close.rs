//! CLOSE (MS-SMB2 3.3.5.10).

use crate::directory::Directory;
use crate::exchange::{ChainFile, Context, Element, Step};
use crate::state::State;
use smb::wire::{CLOSE_FLAG_POSTQUERY_ATTRIB, CloseRequest, CloseResponseBody, Put};
use types::NtStatus;
use volume::backend::{Backend, FileInformation, Operation, Reply};

/// A CLOSE that its volume is working on.
pub(crate) struct CloseWork {
    /// The client requests the attributes.
    query: bool,
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<CloseWork>, NtStatus> {
    let request = CloseRequest::parse(element.bytes())?;
    let key = context.find_open(&state.opens, related, request.file_id)?;
    let query = request.flags.get() & CLOSE_FLAG_POSTQUERY_ATTRIB != 0;
    let open = state.opens.get_mut(key)?;
    open.closing = true;
    match open.volume_open() {
        Some((volume, open)) => Ok(Step::Submit {
            volume,
            operation: Operation::Close { open, query },
            work: CloseWork { query },
        }),
        None => {
            state.forget_open(key);
            Ok(Step::ok(body(None)))
        }
    }
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    work: CloseWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<CloseWork>, NtStatus> {
    // The open is closed even if the volume could not store its writes.
    if let Some(key) = context.open {
        state.forget_open(key);
    }
    match result? {
        Reply::Closed(information) => Ok(Step::ok(body(information.as_ref().filter(|_| work.query)))),
        _ => Err(NtStatus::INTERNAL_ERROR),
    }
}

/// Makes the body of a CLOSE response, with attributes if requested.
fn body(information: Option<&FileInformation>) -> Vec<u8> {
    let body = match information {
        None => CloseResponseBody::default(),
        Some(file) => CloseResponseBody {
            flags: CLOSE_FLAG_POSTQUERY_ATTRIB.into(),
            creation_time: file.created.0.into(),
            last_access_time: file.accessed.0.into(),
            last_write_time: file.written.0.into(),
            change_time: file.changed.0.into(),
            allocation_size: file.allocation_bytes.into(),
            end_of_file: file.end_of_file.into(),
            file_attributes: file.attributes.into(),
            ..Default::default()
        },
    };
    let mut out = Vec::new();
    out.put(&body);
    out
}
