//! dssetup (MS-DSSP): this server's part in a domain, which is none.

use super::ndr::{BadStub, Reader, Writer};
use super::{Directory, Win32};

/// DsRole_RoleStandaloneServer
const STANDALONE_SERVER: u16 = 2;

/// Answers one operation; `None` if it is not known. Windows has taken all but the first one out.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    (operation == 0).then(|| domain_information(reader, directory))
}

/// DsRolerGetPrimaryDomainInformation (MS-DSSP 3.2.5.1): basic information, state of an upgrade, state of an operation.
fn domain_information(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    let class = reader.u16()?;
    let mut out = Writer::default();
    if !(1..=3).contains(&class) {
        out.null();
        out.u32(Win32::INVALID_PARAMETER.0);
        return Ok(out.into_stub());
    }
    let workgroup = directory.server().domain;
    out.pointer();
    out.u16(class);
    out.u64_alignment();
    match class {
        1 => {
            out.u16(STANDALONE_SERVER);
            out.u32(0);
            // The workgroup's name; no DNS name, no forest, no GUID.
            out.pointer();
            out.null();
            out.null();
            out.bytes(&[0; 16]);
            out.string(&workgroup);
        }
        2 => {
            out.u32(0);
            out.u16(0);
        }
        _ => out.u16(0),
    }
    out.u32(Win32::SUCCESS.0);
    Ok(out.into_stub())
}
