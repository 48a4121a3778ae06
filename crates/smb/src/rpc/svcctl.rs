//! svcctl (MS-SCMR): the manager of services is there, for administrators, and no service is. Tools
//! that look for one get the answer that Windows gives for one that is not installed.

use super::Win32;
use super::handles::{Handles, Object, close_answer, open_answer};
use super::ndr::{BadStub, Reader, Writer};
use super::{INVALID_HANDLE, RpcCaller};

/// ERROR_SERVICE_DOES_NOT_EXIST
const NO_SUCH_SERVICE: u32 = 1060;
/// Longest buffer of a list that a client may have filled (MS-SCMR 3.1.4.11).
const LIST_BYTES_MAX: usize = 256 << 10;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    handles: &mut Handles,
    caller: &RpcCaller,
) -> Option<Result<Vec<u8>, BadStub>> {
    Some(match operation {
        0 => reader.handle().map(|handle| close_answer(handles, handle, INVALID_HANDLE)),
        // ROpenSCManagerW and A (MS-SCMR 3.1.4.15, 3.1.4.27).
        15 | 27 => Ok(open_manager(handles, caller)),
        // RCreateServiceW and A, and their ways with a WOW64 service: no tag, no handle.
        12 | 24 | 44 | 45 => Ok(zeros_and(24, Win32::ACCESS_DENIED.0)),
        // ROpenServiceW and A (MS-SCMR 3.1.4.16, 3.1.4.28).
        16 | 28 => of_manager(reader, handles, 20, |_| Ok(NO_SUCH_SERVICE)),
        14 | 26 | 42 => list(operation, reader, handles),
        // RGetServiceDisplayNameW and RGetServiceKeyNameW (MS-SCMR 3.1.4.20, 3.1.4.21): an empty string and its length.
        20 | 21 => of_manager(reader, handles, 20, |_| Ok(NO_SUCH_SERVICE)),
        _ => return None,
    })
}

fn zeros_and(zeros: usize, status: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(&vec![0; zeros]);
    out.u32(status);
    out.into_stub()
}

fn open_manager(handles: &mut Handles, caller: &RpcCaller) -> Vec<u8> {
    if !caller.is_administrator {
        return zeros_and(20, Win32::ACCESS_DENIED.0);
    }
    open_answer(handles, Object::Services, Win32::NOT_ENOUGH_MEMORY.0)
}

/// Answers zeros and a status, which is that of a handle if it is not the manager's.
fn of_manager(
    reader: &mut Reader<'_>,
    handles: &Handles,
    zeros: usize,
    status: impl FnOnce(&mut Reader<'_>) -> Result<u32, BadStub>,
) -> Result<Vec<u8>, BadStub> {
    let is_manager = handles.find(reader.handle()?) == Some(&Object::Services);
    let status = if is_manager { status(reader)? } else { INVALID_HANDLE };
    Ok(zeros_and(zeros, status))
}

/// REnumServicesStatusW, A and REnumServicesStatusExW (MS-SCMR 3.1.4.11, 3.1.4.26, 3.1.4.39): no services.
fn list(operation: u16, reader: &mut Reader<'_>, handles: &Handles) -> Result<Vec<u8>, BadStub> {
    let is_manager = handles.find(reader.handle()?) == Some(&Object::Services);
    if operation == 42 {
        reader.u32()?;
    }
    reader.u32()?;
    reader.u32()?;
    let len = reader.u32()? as usize;
    if len > LIST_BYTES_MAX {
        return Err(BadStub);
    }
    let resume = reader.pointer()?;
    let mut out = Writer::default();
    out.byte_array(&vec![0; len]);
    // Bytes that are missing, and services.
    out.u32(0);
    out.u32(0);
    out.pointer_if(resume);
    if resume {
        out.u32(0);
    }
    out.u32(if is_manager { 0 } else { INVALID_HANDLE });
    Ok(out.into_stub())
}
