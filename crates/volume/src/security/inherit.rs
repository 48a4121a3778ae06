//! The descriptor of a new file: given by its creator, inherited from its directory, or by default (MS-DTYP 2.5.3.4).

use super::access::valid_owner;
use super::descriptor::{Ace, AceFlags, Acl, Control, SecurityDescriptor};
use super::rights;
use crate::backend::{AccessToken, Privileges};
use types::{NtStatus, Sid};

/// Makes the descriptor of a new file or directory.
///
/// An ACL from the creator is used unchanged; otherwise the descriptor inherits one from `parent`. If
/// neither gives a DACL, the default one is used (the owner and the system, everything).
///
/// A SACL says what is audited: only a creator with SeSecurityPrivilege gives one, even an empty one.
/// Without the privilege an absent or empty SACL counts as not given, since clients send that flag
/// idly, and must not switch off the audit inherited from the parent.
///
/// # Errors
/// INVALID_OWNER if the creator may not make the named owner one; PRIVILEGE_NOT_HELD if it may not give
/// its SACL.
pub fn inherit(
    parent: &SecurityDescriptor,
    creator: Option<&SecurityDescriptor>,
    token: &AccessToken,
    directory: bool,
) -> Result<SecurityDescriptor, NtStatus> {
    let owner = creator.and_then(|given| given.owner.clone()).unwrap_or_else(|| token.user.clone());
    if !valid_owner(token, &owner) {
        return Err(NtStatus::INVALID_OWNER);
    }
    let group = creator.and_then(|given| given.group.clone()).unwrap_or_else(|| token.primary_group.clone());
    let mut child = SecurityDescriptor { owner: Some(owner), group: Some(group), ..Default::default() };

    match creator.filter(|given| given.control.contains(Control::DACL_PRESENT)) {
        Some(given) => {
            child.dacl = given.dacl.clone().map(Acl::with_rights_of_files);
            child.control |= Control::DACL_PRESENT | given.control & Control::DACL_PROTECTED;
            if given.control.contains(Control::DACL_AUTO_INHERITED | Control::DACL_AUTO_INHERIT_REQUIRED) {
                child.control |= Control::DACL_AUTO_INHERITED;
            }
        }
        None => {
            let auto = parent.control.contains(Control::DACL_AUTO_INHERITED);
            let inherited = inherit_acl(parent.dacl.as_ref(), &child, directory, auto);
            child.control |= Control::DACL_PRESENT;
            if inherited.is_some() && auto {
                child.control |= Control::DACL_AUTO_INHERITED;
            }
            child.dacl = inherited.or_else(|| Some(default_acl(&child)));
        }
    }
    match given_sacl(creator, token)? {
        Some(given) => {
            child.sacl = given.sacl.clone();
            child.control |= Control::SACL_PRESENT | given.control & Control::SACL_PROTECTED;
        }
        None => {
            let auto = parent.control.contains(Control::SACL_AUTO_INHERITED);
            child.sacl = inherit_acl(parent.sacl.as_ref(), &child, directory, auto);
            if child.sacl.is_some() {
                child.control |= Control::SACL_PRESENT;
                child.control.set(Control::SACL_AUTO_INHERITED, auto);
            }
        }
    }
    Ok(child)
}

/// The fate of a child's own entries when its parent's are handed down again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnEntries {
    /// Own entries stay, and a child with a protected DACL stays unchanged.
    Kept,
    /// Own entries are removed, and protection with them: the child gets the entries of a new one here.
    Removed,
}

/// Hands the entries of `parent`'s DACL down to an existing child (MS-DTYP 2.5.3.4.1 with DACL
/// auto-inherit): computes the inherited ones anew, behind the child's own. `None`: nothing changes.
///
/// A present NULL DACL gives everybody everything. It is the file's own choice and counts as an entry
/// of its own.
pub fn hand_down(
    parent: &SecurityDescriptor,
    child: &SecurityDescriptor,
    directory: bool,
    own: OwnEntries,
) -> Option<SecurityDescriptor> {
    let mut changed = child.clone();
    changed.control |= Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED;
    let inherited = inherit_acl(parent.dacl.as_ref(), child, directory, true);
    match own {
        OwnEntries::Kept => {
            if child.control.contains(Control::DACL_PROTECTED) {
                return None;
            }
            let mut aces = child.dacl.clone()?.aces;
            aces.retain(|ace| !ace.flags.contains(AceFlags::INHERITED));
            aces.extend(inherited.unwrap_or_default().aces);
            changed.dacl = Some(Acl::new(aces));
        }
        OwnEntries::Removed => {
            changed.control -= Control::DACL_PROTECTED;
            changed.dacl = inherited.or_else(|| Some(default_acl(child)));
        }
    }
    let same = |one: &SecurityDescriptor, other: &SecurityDescriptor| {
        let entries = |of: &SecurityDescriptor| of.dacl.as_ref().map(|dacl| dacl.aces.clone());
        one.control == other.control && entries(one) == entries(other)
    };
    (!same(&changed, child)).then_some(changed)
}

/// Returns the creator's descriptor, if its SACL is to be used.
fn given_sacl<'a>(
    creator: Option<&'a SecurityDescriptor>,
    token: &AccessToken,
) -> Result<Option<&'a SecurityDescriptor>, NtStatus> {
    let Some(given) = creator.filter(|given| given.control.contains(Control::SACL_PRESENT)) else {
        return Ok(None);
    };
    if token.privileges.contains(Privileges::SECURITY) {
        return Ok(Some(given));
    }
    match &given.sacl {
        Some(sacl) if !sacl.aces.is_empty() => Err(NtStatus::PRIVILEGE_NOT_HELD),
        _ => Ok(None),
    }
}

/// Makes the descriptor of a file that has none: owned by the token's user, open to it and to the system only.
pub fn default_for(token: &AccessToken) -> SecurityDescriptor {
    let mut descriptor = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        owner: Some(token.user.clone()),
        group: Some(token.primary_group.clone()),
        ..Default::default()
    };
    descriptor.dacl = Some(default_acl(&descriptor));
    descriptor
}

/// Makes the descriptor of a new volume's root: administrators and the system get everything, creators
/// everything on what they make, authenticated users may read and change.
pub fn volume_root() -> SecurityDescriptor {
    let below = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    SecurityDescriptor {
        control: Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED,
        owner: Some(Sid::administrators()),
        group: Some(Sid::administrators()),
        dacl: Some(Acl::new(vec![
            Ace::allow(Sid::administrators(), rights::FILE_ALL, below),
            Ace::allow(Sid::local_system(), rights::FILE_ALL, below),
            Ace::allow(Sid::creator_owner(), rights::FILE_ALL, below | AceFlags::INHERIT_ONLY),
            Ace::allow(Sid::authenticated_users(), rights::FILE_MODIFY, below),
        ])),
        sacl: None,
    }
}

fn default_acl(of: &SecurityDescriptor) -> Acl {
    let owner = of.owner.clone().unwrap_or_else(Sid::local_system);
    Acl::new(vec![
        Ace::allow(owner, rights::FILE_ALL, AceFlags::empty()),
        Ace::allow(Sid::local_system(), rights::FILE_ALL, AceFlags::empty()),
    ])
}

/// Returns the ACEs inherited from `parent`; `None` if there are none.
fn inherit_acl(
    parent: Option<&Acl>,
    child: &SecurityDescriptor,
    directory: bool,
    auto_inherited: bool,
) -> Option<Acl> {
    let mut aces = Vec::new();
    for ace in &parent?.aces {
        inherit_ace(ace, child, directory, auto_inherited, &mut aces);
    }
    (!aces.is_empty()).then(|| Acl::new(aces))
}

fn inherit_ace(
    ace: &Ace,
    child: &SecurityDescriptor,
    directory: bool,
    auto_inherited: bool,
    out: &mut Vec<Ace>,
) {
    let propagation = AceFlags::OBJECT_INHERIT
        | AceFlags::CONTAINER_INHERIT
        | AceFlags::NO_PROPAGATE_INHERIT
        | AceFlags::INHERIT_ONLY;
    let to_files = ace.flags.contains(AceFlags::OBJECT_INHERIT);
    let to_directories = ace.flags.contains(AceFlags::CONTAINER_INHERIT);
    let further = !ace.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
    let mut flags = ace.flags - propagation - AceFlags::INHERITED;
    flags.set(AceFlags::INHERITED, auto_inherited);

    if !directory {
        if to_files {
            out.push(effective(ace, flags, child));
        }
        return;
    }
    let passed_on = ace.flags & (AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT);
    if to_directories {
        let here = effective(ace, flags, child);
        // If a SID or right is replaced here (creator, generic), the next level still needs the original:
        // then there are two ACEs.
        if here.sid == ace.sid && here.mask == ace.mask {
            let flags = if further { flags | passed_on } else { flags };
            out.push(Ace { flags, ..here });
        } else {
            out.push(here);
            if further {
                out.push(Ace { flags: flags | passed_on | AceFlags::INHERIT_ONLY, ..ace.clone() });
            }
        }
    } else if to_files && further {
        out.push(Ace { flags: flags | passed_on | AceFlags::INHERIT_ONLY, ..ace.clone() });
    }
}

/// Returns the ACE as it works on the child itself: creator SIDs and generic rights replaced.
fn effective(ace: &Ace, flags: AceFlags, child: &SecurityDescriptor) -> Ace {
    let replaced = if ace.sid == Sid::creator_owner() {
        child.owner.clone()
    } else if ace.sid == Sid::creator_group() {
        child.group.clone()
    } else {
        None
    };
    Ace {
        flags,
        mask: rights::map_generic(ace.mask),
        sid: replaced.unwrap_or_else(|| ace.sid.clone()),
        ..ace.clone()
    }
}
