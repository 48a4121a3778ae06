//! wkssvc (MS-WKST): what kind of computer this is.

use super::ndr::{BadStub, Reader, Writer};
use super::{Directory, Win32};

/// PLATFORM_ID_NT
const PLATFORM_NT: u32 = 500;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    stub: &[u8],
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    match operation {
        0 => Some(get_info(stub, directory)),
        _ => None,
    }
}

/// NetrWkstaGetInfo (MS-WKST 3.2.4.1), levels 100 to 102.
fn get_info(stub: &[u8], directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    let mut reader = Reader::new(stub);
    reader.optional_string()?;
    let level = reader.u32()?;
    let mut out = Writer::default();
    out.u32(level);
    if !(100..=102).contains(&level) {
        out.null();
        out.u32(Win32::INVALID_LEVEL.0);
        return Ok(out.into_stub());
    }
    let server = directory.server();
    out.pointer();
    out.u32(PLATFORM_NT);
    out.pointer();
    out.pointer();
    out.u32(server.version_major);
    out.u32(server.version_minor);
    if level >= 101 {
        out.pointer();
    }
    if level == 102 {
        out.count(directory.sessions().len());
    }
    out.string(&server.name);
    out.string(&server.domain);
    if level >= 101 {
        out.string("");
    }
    out.u32(Win32::SUCCESS.0);
    Ok(out.into_stub())
}
