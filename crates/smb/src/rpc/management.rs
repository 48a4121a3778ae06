//! mgmt (C706 appendix Q): the interface that every server of DCE/RPC has, on every pipe.

use super::Win32;
use super::interface::Interface;
use super::ndr::{BadStub, Reader, Writer};

/// Number of figures that a server reports: calls received and sent, packets received and sent.
const STATISTICS: u32 = 4;
/// rpc_s_unknown_authn_service
const UNKNOWN_AUTHENTICATION: u32 = 1747;

/// Answers one operation; `None` if it is not known. `served`: the interfaces of the pipe.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    served: &[Interface],
) -> Option<Result<Vec<u8>, BadStub>> {
    Some(match operation {
        0 => Ok(interfaces(served)),
        1 => statistics(reader),
        // is_server_listening: a status, and yes.
        2 => Ok(words(&[0, 1])),
        // stop_server_listening
        3 => Ok(words(&[Win32::ACCESS_DENIED.0])),
        4 => principal_name(reader),
        _ => return None,
    })
}

fn words(values: &[u32]) -> Vec<u8> {
    let mut out = Writer::default();
    values.iter().for_each(|value| out.u32(*value));
    out.into_stub()
}

/// inq_if_ids: a pointer to rpc_if_id_vector_t.
fn interfaces(served: &[Interface]) -> Vec<u8> {
    let all = || served.iter().chain([&Interface::Management]);
    let count = all().count();
    let mut out = Writer::default();
    out.pointer();
    out.count(count);
    out.count(count);
    all().for_each(|_| out.pointer());
    for interface in all() {
        let syntax = interface.syntax();
        out.bytes(&syntax.uuid);
        out.u32(syntax.version);
    }
    out.u32(Win32::SUCCESS.0);
    out.into_stub()
}

/// inq_stats: nothing is counted by pipe.
fn statistics(reader: &mut Reader<'_>) -> Result<Vec<u8>, BadStub> {
    let count = reader.u32()?.min(STATISTICS);
    let mut out = Writer::default();
    out.u32(count);
    out.u32(count);
    (0..count).for_each(|_| out.u32(0));
    out.u32(Win32::SUCCESS.0);
    Ok(out.into_stub())
}

/// inq_princ_name: a logon in a pipe needs no name of the server.
fn principal_name(reader: &mut Reader<'_>) -> Result<Vec<u8>, BadStub> {
    reader.u32()?;
    let room = reader.u32()?;
    let len = u32::from(room > 0);
    let mut out = Writer::default();
    for value in [room, 0, len] {
        out.u32(value);
    }
    out.bytes(&[0; 1][..len as usize]);
    out.u32(UNKNOWN_AUTHENTICATION);
    Ok(out.into_stub())
}
