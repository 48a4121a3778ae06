//! The access check (MS-DTYP 2.5.3.2, MS-FSA 2.1.5.1.2.1).

use super::descriptor::{AceFlags, AceKind, SecurityDescriptor};
use super::rights;
use crate::backend::{AccessToken, Privileges};
use types::{NtStatus, Sid};

/// A question to a descriptor.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest {
    /// Rights wanted; generic ones and MAXIMUM_ALLOWED included.
    pub desired: u32,
    /// FILE_OPEN_FOR_BACKUP_INTENT: backup and restore privileges count.
    pub backup_intent: bool,
    /// Rights that the parent directory gives beside the descriptor (see [`parent_grants`]).
    pub from_parent: u32,
}

/// Whether the token is, or belongs to, `sid`.
pub fn holds_sid(token: &AccessToken, sid: &Sid) -> bool {
    token.user == *sid || token.primary_group == *sid || token.groups.contains(sid) || *sid == Sid::everyone()
}

/// Whether the token may make `owner` the owner of a file: itself, its administrators' group, or anyone with the restore
/// privilege.
pub fn valid_owner(token: &AccessToken, owner: &Sid) -> bool {
    token.user == *owner
        || token.privileges.contains(Privileges::RESTORE)
        || *owner == Sid::administrators() && holds_sid(token, owner)
}

/// Returns the rights on an entry that follow from those on its directory: DELETE from DELETE_CHILD,
/// READ_ATTRIBUTES from LIST_DIRECTORY.
pub fn parent_grants(parent_access: u32) -> u32 {
    let mut granted = 0;
    if parent_access & rights::DELETE_CHILD != 0 {
        granted |= rights::DELETE;
    }
    if parent_access & rights::LIST_DIRECTORY != 0 {
        granted |= rights::READ_ATTRIBUTES;
    }
    granted
}

/// Checks that `token` may have the rights wanted. Returns the rights granted, those of MAXIMUM_ALLOWED included.
///
/// # Errors
/// PRIVILEGE_NOT_HELD if ACCESS_SYSTEM_SECURITY is wanted without the privilege; ACCESS_DENIED.
pub fn access_check(
    descriptor: &SecurityDescriptor,
    token: &AccessToken,
    request: AccessRequest,
) -> Result<u32, NtStatus> {
    let desired = rights::map_generic(request.desired);
    let maximum = desired & rights::MAXIMUM_ALLOWED != 0;
    let wanted = desired & !rights::MAXIMUM_ALLOWED;
    let privileged = privilege_grants(token, request.backup_intent) | request.from_parent;
    if wanted & rights::ACCESS_SYSTEM_SECURITY & !privileged != 0 {
        return Err(NtStatus::PRIVILEGE_NOT_HELD);
    }
    if maximum {
        let granted = maximal_access(descriptor, token) | request.from_parent;
        let granted = granted | wanted & privileged;
        return if wanted & !granted == 0 && granted != 0 {
            Ok(granted)
        } else {
            Err(NtStatus::ACCESS_DENIED)
        };
    }
    let allowed = evaluate(descriptor, token, wanted & !privileged);
    if wanted & !privileged & !allowed == 0 { Ok(wanted) } else { Err(NtStatus::ACCESS_DENIED) }
}

/// Returns all rights from the descriptor and from ownership. Rights from privileges have to be
/// requested by name.
pub fn maximal_access(descriptor: &SecurityDescriptor, token: &AccessToken) -> u32 {
    evaluate(descriptor, token, rights::FILE_ALL)
}

/// Returns the rights that privileges give beside the descriptor.
fn privilege_grants(token: &AccessToken, backup_intent: bool) -> u32 {
    let mut granted = 0;
    if token.privileges.contains(Privileges::SECURITY) {
        granted |= rights::ACCESS_SYSTEM_SECURITY;
    }
    if token.privileges.contains(Privileges::TAKE_OWNERSHIP) {
        granted |= rights::WRITE_OWNER;
    }
    if backup_intent && token.privileges.contains(Privileges::BACKUP) {
        granted |= rights::READ_CONTROL
            | rights::ACCESS_SYSTEM_SECURITY
            | rights::FILE_GENERIC_READ
            | rights::TRAVERSE;
    }
    if backup_intent && token.privileges.contains(Privileges::RESTORE) {
        granted |= rights::WRITE_DAC
            | rights::WRITE_OWNER
            | rights::ACCESS_SYSTEM_SECURITY
            | rights::FILE_GENERIC_WRITE
            | rights::ADD_FILE
            | rights::ADD_SUBDIRECTORY
            | rights::DELETE;
    }
    granted
}

/// Returns the part of `wanted` that the descriptor gives: the first ACE that speaks of a right decides it.
fn evaluate(descriptor: &SecurityDescriptor, token: &AccessToken, wanted: u32) -> u32 {
    let Some(dacl) = &descriptor.dacl else { return wanted };
    let owner_rights = Sid::owner_rights();
    let is_owner = descriptor.owner.as_ref().is_some_and(|owner| holds_sid(token, owner));
    let effective = || dacl.aces.iter().filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY));
    let mut allowed = 0;
    // An ACE for OWNER RIGHTS takes the place of the owner's implied rights.
    if is_owner && !effective().any(|ace| ace.sid == owner_rights) {
        allowed |= wanted & (rights::READ_CONTROL | rights::WRITE_DAC);
    }
    let mut denied = 0;
    for ace in effective() {
        if allowed | denied == wanted {
            break;
        }
        if !(holds_sid(token, &ace.sid) || is_owner && ace.sid == owner_rights) {
            continue;
        }
        let mask = rights::map_generic(ace.mask) & wanted;
        match ace.kind {
            AceKind::Allow => allowed |= mask & !denied,
            AceKind::Deny => denied |= mask & !allowed,
            AceKind::Other(_) => {}
        }
    }
    allowed
}
