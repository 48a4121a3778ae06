//! Context handles (C706 6.1.6.1): objects that a pipe's client has open in an interface. Each is of
//! one kind, known to its pipe alone, and gone with the pipe.

use super::ndr::Writer;
use types::Sid;

/// Most handles on one pipe.
const HANDLES_MAX: usize = 64;

/// The object of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// lsarpc's policy.
    Policy,
    /// lsarpc's account, which has privileges.
    PrivilegedAccount(Sid),
    /// samr's server.
    SamServer,
    SamDomain(Sid),
    SamUser(Sid),
    SamGroup(Sid),
    SamAlias(Sid),
    /// A key of the registry: its path, with the name of its root before it.
    Key(&'static str),
    /// svcctl's manager of services.
    Services,
}

/// The handles that a pipe's client holds.
#[derive(Default)]
pub(super) struct Handles {
    open: Vec<(u64, Object)>,
    last: u64,
}

impl Handles {
    /// `None`: there are too many.
    pub(super) fn open(&mut self, object: Object) -> Option<[u8; 20]> {
        if self.open.len() == HANDLES_MAX {
            return None;
        }
        self.last += 1;
        self.open.push((self.last, object));
        Some(Self::on_wire(self.last))
    }

    fn on_wire(number: u64) -> [u8; 20] {
        let mut handle = [0; 20];
        handle[4..12].copy_from_slice(&number.to_le_bytes());
        handle[12..20].copy_from_slice(b"cenote\0\0");
        handle
    }

    fn position(&self, handle: [u8; 20]) -> Option<usize> {
        self.open.iter().position(|(number, _)| Self::on_wire(*number) == handle)
    }

    pub(super) fn find(&self, handle: [u8; 20]) -> Option<&Object> {
        self.open.get(self.position(handle)?).map(|(_, object)| object)
    }

    /// False: there is no such handle.
    pub(super) fn close(&mut self, handle: [u8; 20]) -> bool {
        let found = self.position(handle);
        found.map(|position| self.open.swap_remove(position)).is_some()
    }
}

/// Opens a handle; `full` is the status if there are too many.
pub(super) fn open_answer(handles: &mut Handles, object: Object, full: u32) -> Vec<u8> {
    let handle = handles.open(object);
    let mut out = Writer::default();
    out.bytes(&handle.unwrap_or_default());
    out.u32(if handle.is_some() { 0 } else { full });
    out.into_stub()
}

/// Closes a handle; `invalid` is the status of one that is none.
pub(super) fn close_answer(handles: &mut Handles, handle: [u8; 20], invalid: u32) -> Vec<u8> {
    let is_closed = handles.close(handle);
    let mut out = Writer::default();
    out.bytes(if is_closed { &[0; 20] } else { &handle });
    out.u32(if is_closed { 0 } else { invalid });
    out.into_stub()
}
