//! A share's grants to its callers, and the rights that each operation needs of it beside the file's
//! descriptor.
//!
//! Every operation that changes something is checked here: a CREATE with [`needed_to_create`], one on
//! an open with [`needed`]. An open's own rights are not enough: a hard link needs none of them, and a
//! share's options may have changed since.

use super::options;
use crate::backend::{Caller, Create, OpenId, Operation, SetInformation, ShareOptions};
use crate::security::{Control, Parts, SecurityDescriptor, rights};
use types::NtStatus;

/// The rights that change something: a read-only share gives none of them.
const CHANGING: u32 = rights::WRITE_DATA
    | rights::APPEND_DATA
    | rights::WRITE_EA
    | rights::WRITE_ATTRIBUTES
    | rights::DELETE
    | rights::DELETE_CHILD
    | rights::WRITE_DAC
    | rights::WRITE_OWNER;

/// Rights that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    All(u32),
    /// One of these will do.
    Any(u32),
}

/// The rights of files that a share gives a caller at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant(u32);

impl Grant {
    /// Makes the grant of a share that gives the user `access`.
    pub const fn new(access: u32, share: ShareOptions) -> Self {
        Self(if share.read_only { access & !CHANGING } else { access })
    }

    pub const fn of(caller: &Caller) -> Self {
        Self::new(caller.share_access, caller.share)
    }

    /// Checks that the share gives these rights. Rights that are not those of files are not the share's to give.
    ///
    /// # Errors
    /// ACCESS_DENIED.
    pub const fn check(self, needs: Needs) -> Result<(), NtStatus> {
        let enough = match needs {
            Needs::All(wanted) => wanted & rights::FILE_ALL & !self.0 == 0,
            Needs::Any(wanted) => wanted & self.0 != 0,
        };
        if enough { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
    }

    /// Returns the part of `access` that the share lets through.
    pub const fn limit(self, access: u32) -> u32 {
        access & (self.0 | !rights::FILE_ALL)
    }
}

/// Effect of a CREATE beside opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Opens,
    Overwrites,
    Supersedes,
    /// The open makes a stream of an existing file.
    MakesStream,
    MakesFile,
    MakesDirectory,
}

/// Returns the rights that an effect on an existing file needs beside the desired access, of the file's
/// descriptor and of the share alike (MS-FSA 2.1.5.1.2.1). A new file belongs to its maker: for that
/// the directory's descriptor decides.
pub const fn beside(create: &Create, effect: Effect) -> u32 {
    let attributes = if create.extended_attributes.is_empty() { 0 } else { rights::WRITE_EA };
    match effect {
        Effect::Opens | Effect::MakesFile | Effect::MakesDirectory => 0,
        Effect::MakesStream => rights::WRITE_DATA,
        Effect::Overwrites => rights::WRITE_DATA | attributes,
        Effect::Supersedes => rights::WRITE_DATA | rights::DELETE | attributes,
    }
}

/// Returns the rights that a CREATE needs of its share: those of the open, and those that its
/// disposition, its options and its contexts would need as separate operations. `given` is its own
/// descriptor, if it is used.
pub fn needed_to_create(create: &Create, effect: Effect, given: Option<&SecurityDescriptor>) -> Needs {
    let made = match effect {
        Effect::MakesFile => rights::ADD_FILE,
        Effect::MakesDirectory => rights::ADD_SUBDIRECTORY,
        _ => 0,
    };
    let mut needed = rights::map_generic(create.desired_access) | beside(create, effect) | made;
    if create.options & options::DELETE_ON_CLOSE != 0 {
        needed |= rights::DELETE;
    }
    if made != 0 && !create.extended_attributes.is_empty() {
        needed |= rights::WRITE_EA;
    }
    if let Some(given) = given {
        // The maker of a file decides about others' access, as in Windows, but not about audit: a present
        // SACL, empty and NULL ones included, changes what is inherited.
        if given.control.contains(Control::SACL_PRESENT) {
            needed |= rights::WRITE_DAC;
        }
        let token = &create.caller.token;
        let other_owner = given.owner.as_ref().is_some_and(|owner| *owner != token.user);
        let other_group = given.group.as_ref().is_some_and(|group| *group != token.primary_group);
        if other_owner || other_group {
            needed |= rights::WRITE_OWNER;
        }
    }
    Needs::All(needed)
}

/// Returns the open whose share an operation counts against, and the rights that it needs of that share; `None` if it changes nothing,
/// or is no open's.
pub fn needed(operation: &Operation) -> Option<(OpenId, Needs)> {
    let writing = Needs::Any(rights::WRITE_DATA | rights::APPEND_DATA);
    let marking = Needs::Any(rights::WRITE_DATA | rights::WRITE_ATTRIBUTES);
    match operation {
        Operation::Write { open, .. }
        | Operation::CopyChunks { target: open, .. }
        | Operation::DuplicateExtents { target: open, .. } => Some((*open, writing)),
        Operation::ZeroRange { open, .. } | Operation::Trim { open, .. } => {
            Some((*open, Needs::All(rights::WRITE_DATA)))
        }
        Operation::SetInformation { open, set } => Some((*open, Needs::All(needed_to_set(set)))),
        Operation::SetSecurity { open, parts, .. } => Some((*open, Needs::All(needed_to_secure(*parts)))),
        // No share grants the management of a volume: callers who may not write through it may not change
        // quotas either.
        Operation::SetQuotas { open, .. } => Some((*open, writing)),
        Operation::SetSparse { open, .. }
        | Operation::SetReparsePoint { open, .. }
        | Operation::DeleteReparsePoint { open, .. }
        | Operation::SetIntegrity { open, .. } => Some((*open, marking)),
        Operation::ObjectId { open, create: true } => Some((*open, marking)),
        // Create and Reconnect check the access that their callers want; the rest only reads, waits or ends.
        Operation::OpenRoot { .. }
        | Operation::Create(_)
        | Operation::Reconnect(_)
        | Operation::Close { .. }
        | Operation::Read { .. }
        | Operation::Flush { .. }
        | Operation::QueryInformation { .. }
        | Operation::QueryStreams { .. }
        | Operation::QueryShortName { .. }
        | Operation::QueryExtendedAttributes { .. }
        | Operation::QuerySecurity { .. }
        | Operation::QueryVolume { .. }
        | Operation::QueryQuotas { .. }
        | Operation::QueryDirectory { .. }
        | Operation::Lock { .. }
        | Operation::Notify { .. }
        | Operation::QueryAllocatedRanges { .. }
        | Operation::QueryReparsePoint { .. }
        | Operation::ObjectId { create: false, .. }
        | Operation::AcknowledgeOplock { .. }
        | Operation::AcknowledgeLease { .. }
        | Operation::EndSession { .. }
        | Operation::Abandon(..)
        | Operation::ForceClose { .. }
        | Operation::OpenDevice(_)
        | Operation::Control { .. } => None,
    }
}

const fn needed_to_set(set: &SetInformation) -> u32 {
    match set {
        SetInformation::Basic { .. } => rights::WRITE_ATTRIBUTES,
        SetInformation::EndOfFile(_) | SetInformation::Allocation(_) | SetInformation::ValidDataLength(_) => {
            rights::WRITE_DATA
        }
        SetInformation::Disposition { .. } => rights::DELETE,
        // One name goes, another one comes, of a file or of a directory.
        SetInformation::Rename { .. } => rights::DELETE | rights::ADD_FILE | rights::ADD_SUBDIRECTORY,
        SetInformation::Link { replace: false, .. } => rights::ADD_FILE | rights::WRITE_ATTRIBUTES,
        SetInformation::Link { replace: true, .. } => {
            rights::ADD_FILE | rights::WRITE_ATTRIBUTES | rights::DELETE
        }
        SetInformation::ExtendedAttributes(_) => rights::WRITE_EA,
    }
}

/// Returns the rights that a change of these parts needs. No share grants ACCESS_SYSTEM_SECURITY:
/// callers who may not change a DACL through it may not change a SACL either.
fn needed_to_secure(parts: u32) -> u32 {
    let needed = Parts::from_bits_truncate(parts).access_to_set();
    let audited = if needed & rights::ACCESS_SYSTEM_SECURITY != 0 { rights::WRITE_DAC } else { 0 };
    needed & rights::FILE_ALL | audited
}
