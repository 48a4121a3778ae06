//! Windows security, as pure functions: descriptors in their wire form, the access check, inheritance, and changing a
//! descriptor by parts (MS-DTYP 2.4 and 2.5.3).
//!
//! Owns: meaning of rights, ACEs and control bits. Promises: input of any kind is parsed within bounds
//! or refused. Never knows files, opens or the place of a descriptor on disk.

mod access;
mod change;
mod descriptor;
pub mod edit;
mod inherit;
pub mod rights;

pub use access::{AccessRequest, access_check, holds_sid, maximal_access, parent_grants, valid_owner};
pub use change::{Parts, change, select};
pub use descriptor::{Ace, AceFlags, AceKind, Acl, Control, DESCRIPTOR_BYTES_MAX, SecurityDescriptor};
pub use inherit::{OwnEntries, default_for, hand_down, inherit, volume_root};

#[cfg(test)]
mod tests;
