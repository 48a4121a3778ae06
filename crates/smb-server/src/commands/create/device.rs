//! Opens of devices: the disks on the share of the storage bus. They have no name in a volume, no caching and no durable handles.

use smb::wire::{CONTEXT_BUS_SESSION, CreateContextWriter};
use volume::backend::{
    CacheGrant, Caller, CreateAction, Created, FileInformation, OpenDevice, OpenId, Operation, OplockLevel,
    WideString,
};
use volume::security::rights;

pub(super) fn open(caller: Caller, path: WideString, context: &[u8]) -> Operation {
    Operation::OpenDevice(Box::new(OpenDevice { caller, path, context: context.to_vec() }))
}

/// Describes an open of a device as CREATE describes opens.
pub(super) fn opened(open: OpenId) -> Created {
    Created {
        open,
        action: CreateAction::Opened,
        cache: CacheGrant::Oplock(OplockLevel::None),
        information: FileInformation::default(),
        granted_access: rights::READ_DATA | rights::WRITE_DATA,
        maximal_access: None,
        durable: None,
        persistent: false,
        path: WideString::default(),
        is_stream: false,
    }
}

/// Builds the create contexts of the answer.
pub(super) fn answer(data: &[u8]) -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_BUS_SESSION, data);
    contexts.finish()
}
