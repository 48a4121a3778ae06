//! Leads a call to its interface.

use super::handles::Handles;
use super::interface::Interface;
use super::ndr::{BadStub, Reader};
use super::{
    Answer, Directory, RpcCaller, dssetup, epmapper, lsarpc, management, samr, srvsvc, svcctl, winreg, wkssvc,
};

/// Whether an operation begins with a handle, and a stub names none that is open (C706 6.1.6.2): such a call does not reach its interface.
pub(super) fn is_mismatched(
    interface: Interface,
    operation: u16,
    stub: Reader<'_>,
    handles: &Handles,
) -> bool {
    let begins_with_handle = match interface {
        Interface::Lsarpc => !matches!(operation, 6 | 44 | 45 | 76 | 77),
        Interface::Samr => !matches!(operation, 0 | 54..=57 | 59 | 61 | 62 | 63 | 64 | 66..),
        Interface::Winreg => matches!(operation, 5..=23 | 26),
        Interface::Svcctl => matches!(operation, 0..=14 | 16..=26 | 28..=45),
        _ => false,
    };
    let mut stub = stub;
    begins_with_handle && stub.handle().is_ok_and(|handle| handles.find(handle).is_none())
}

/// Answers one operation of an interface; `None` if it is not known. `served`: all interfaces of the pipe.
pub(super) fn call(
    interface: Interface,
    operation: u16,
    reader: &mut Reader<'_>,
    handles: &mut Handles,
    (caller, served): (&RpcCaller, &[Interface]),
    directory: &dyn Directory,
) -> Option<Result<Answer, BadStub>> {
    let stub = match interface {
        Interface::Srvsvc => return srvsvc::call(operation, reader, caller, directory),
        Interface::Wkssvc => wkssvc::call(operation, reader, caller, directory),
        Interface::Lsarpc => lsarpc::call(operation, reader, handles, caller, directory),
        Interface::Samr => samr::call(operation, reader, handles, caller, directory),
        Interface::Dssetup => dssetup::call(operation, reader, directory),
        Interface::Winreg => winreg::call(operation, reader, handles, caller, directory),
        Interface::Svcctl => svcctl::call(operation, reader, handles, caller),
        Interface::Epmapper => epmapper::call(operation, reader, &directory.server().name),
        Interface::Management => management::call(operation, reader, served),
    };
    Some(stub?.map(Answer::from))
}
