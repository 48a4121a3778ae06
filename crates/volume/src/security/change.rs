//! Reading and changing a descriptor by parts (MS-DTYP 2.4.7, MS-FSA 2.1.5.13, 2.1.5.16).

use super::access::valid_owner;
use super::descriptor::{Ace, AceKind, Acl, Control, SecurityDescriptor};
use super::rights;
use crate::backend::AccessToken;
use types::NtStatus;

/// ACE types that a SACL holds beside those of auditing (MS-DTYP 2.4.4.1).
const MANDATORY_LABEL: u8 = 0x11;
const RESOURCE_ATTRIBUTE: u8 = 0x12;
const SCOPED_POLICY: u8 = 0x13;

bitflags::bitflags! {
    /// SECURITY_INFORMATION (MS-DTYP 2.4.7).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Parts: u32 {
        /// The owner.
        const OWNER = 0x0000_0001;
        /// The primary group.
        const GROUP = 0x0000_0002;
        /// The discretionary ACL.
        const DACL = 0x0000_0004;
        /// The audit entries of the system ACL.
        const SACL = 0x0000_0008;
        /// The mandatory label in the system ACL.
        const LABEL = 0x0000_0010;
        /// The resource attributes in the system ACL.
        const ATTRIBUTE = 0x0000_0020;
        /// The central access policy in the system ACL.
        const SCOPE = 0x0000_0040;
        /// All parts, as a backup needs them.
        const BACKUP = 0x0001_0000;
        /// A set SACL takes entries from the parent.
        const UNPROTECTED_SACL = 0x1000_0000;
        /// A set DACL takes entries from the parent.
        const UNPROTECTED_DACL = 0x2000_0000;
        /// A set SACL takes no entries from the parent.
        const PROTECTED_SACL = 0x4000_0000;
        /// A set DACL takes no entries from the parent.
        const PROTECTED_DACL = 0x8000_0000;
    }
}

impl Parts {
    /// Returns the rights that an open needs to read these parts.
    pub fn access_to_query(self) -> u32 {
        let mut access = 0;
        if self.intersects(Self::OWNER | Self::GROUP | Self::DACL | Self::LABEL | Self::BACKUP) {
            access |= rights::READ_CONTROL;
        }
        if self.intersects(Self::SACL | Self::ATTRIBUTE | Self::SCOPE | Self::BACKUP) {
            access |= rights::ACCESS_SYSTEM_SECURITY;
        }
        access
    }

    /// Returns the rights that an open needs to change these parts.
    pub fn access_to_set(self) -> u32 {
        let mut access = 0;
        if self.intersects(Self::OWNER | Self::GROUP | Self::LABEL) {
            access |= rights::WRITE_OWNER;
        }
        if self.intersects(Self::DACL | Self::ATTRIBUTE) {
            access |= rights::WRITE_DAC;
        }
        if self.intersects(Self::SACL | Self::SCOPE) {
            access |= rights::ACCESS_SYSTEM_SECURITY;
        }
        access
    }
}

/// Returns the parts asked for, alone.
pub fn select(descriptor: &SecurityDescriptor, parts: Parts) -> SecurityDescriptor {
    let mut control = Control::SELF_RELATIVE;
    if parts.contains(Parts::DACL) {
        control |= Control::DACL_PRESENT;
        control |= descriptor.control & (Control::DACL_AUTO_INHERITED | Control::DACL_PROTECTED);
    }
    let sacl = select_sacl(descriptor.sacl.as_ref(), parts);
    if sacl.is_some() {
        control |= Control::SACL_PRESENT;
        control |= descriptor.control & (Control::SACL_AUTO_INHERITED | Control::SACL_PROTECTED);
    }
    SecurityDescriptor {
        control,
        owner: descriptor.owner.clone().filter(|_| parts.contains(Parts::OWNER)),
        group: descriptor.group.clone().filter(|_| parts.contains(Parts::GROUP)),
        dacl: descriptor.dacl.clone().filter(|_| parts.contains(Parts::DACL)),
        sacl,
    }
}

/// Returns the ACEs of a SACL that these parts name: LABEL, ATTRIBUTE and SCOPE name the ACEs of one type, SACL all of them.
fn select_sacl(sacl: Option<&Acl>, parts: Parts) -> Option<Acl> {
    let sacl = sacl?;
    if parts.contains(Parts::SACL) {
        return Some(sacl.clone());
    }
    let named = |ace: &&Ace| match ace.kind {
        AceKind::Other(MANDATORY_LABEL) => parts.contains(Parts::LABEL),
        AceKind::Other(RESOURCE_ATTRIBUTE) => parts.contains(Parts::ATTRIBUTE),
        AceKind::Other(SCOPED_POLICY) => parts.contains(Parts::SCOPE),
        AceKind::Allow | AceKind::Deny | AceKind::Other(_) => false,
    };
    let aces: Vec<Ace> = sacl.aces.iter().filter(named).cloned().collect();
    (!aces.is_empty()).then(|| Acl::new(aces))
}

/// Puts the given parts of `new` in place of those of `current`.
///
/// # Errors
/// INVALID_OWNER if the owner is not one that the token may set.
pub fn change(
    current: &SecurityDescriptor,
    new: &SecurityDescriptor,
    parts: Parts,
    token: &AccessToken,
) -> Result<SecurityDescriptor, NtStatus> {
    let mut changed = current.clone();
    if parts.contains(Parts::OWNER) {
        let owner = new.owner.as_ref().ok_or(NtStatus::INVALID_OWNER)?;
        if current.owner.as_ref() != Some(owner) && !valid_owner(token, owner) {
            return Err(NtStatus::INVALID_OWNER);
        }
        changed.owner = Some(owner.clone());
    }
    if parts.contains(Parts::GROUP) {
        changed.group = new.group.clone().or(changed.group);
    }
    if parts.contains(Parts::DACL) {
        changed.dacl = new.dacl.clone().map(Acl::with_rights_of_files);
        changed.control |= Control::DACL_PRESENT;
        changed.control.set(
            Control::DACL_PROTECTED,
            protected(
                new.control.contains(Control::DACL_PROTECTED),
                parts.contains(Parts::PROTECTED_DACL),
                parts.contains(Parts::UNPROTECTED_DACL),
            ),
        );
        // Both bits together say that the writer has computed the inherited entries itself (MS-DTYP 2.4.6).
        let auto = Control::DACL_AUTO_INHERITED | Control::DACL_AUTO_INHERIT_REQUIRED;
        changed.control.set(Control::DACL_AUTO_INHERITED, new.control.contains(auto));
    }
    if parts.contains(Parts::SACL) {
        changed.sacl = new.sacl.clone();
        changed.control.set(Control::SACL_PRESENT, changed.sacl.is_some());
        changed.control.set(
            Control::SACL_PROTECTED,
            protected(
                new.control.contains(Control::SACL_PROTECTED),
                parts.contains(Parts::PROTECTED_SACL),
                parts.contains(Parts::UNPROTECTED_SACL),
            ),
        );
        let auto = Control::SACL_AUTO_INHERITED | Control::SACL_AUTO_INHERIT_REQUIRED;
        changed.control.set(Control::SACL_AUTO_INHERITED, new.control.contains(auto));
    }
    Ok(changed)
}

const fn protected(in_descriptor: bool, asked: bool, refused: bool) -> bool {
    (in_descriptor || asked) && !refused
}
