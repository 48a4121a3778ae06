//! Security descriptors as people read and change them.
//!
//! Promises: everything that a change does not name stays. Never decides about access.

use api::requests::{AclEntry, AclView, Below, Inheritance, SetAcl};
use api::{ApiError, ErrorKind};
use node::Described;
use types::Sid;
use volume::security::edit::{self, EditError};
use volume::security::rights::{access_mask, access_word};
use volume::security::{Ace, AceFlags, AceKind, Control, OwnEntries, SecurityDescriptor};

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message)
}

/// Reads a self-relative descriptor.
///
/// # Errors
/// `Corrupt` if it does not parse.
pub fn view(descriptor: &[u8], name_of: impl Fn(&Sid) -> String) -> Result<AclView, ApiError> {
    let descriptor = parse(descriptor)?;
    let name = |sid: &Option<Sid>| sid.as_ref().map(&name_of).unwrap_or_default();
    let entries = descriptor
        .dacl
        .as_ref()
        .map(|dacl| dacl.aces.iter().filter_map(|ace| entry(ace, &name_of)).collect());
    Ok(AclView {
        owner: name(&descriptor.owner),
        group: name(&descriptor.group),
        entries,
        protected: descriptor.control.contains(Control::DACL_PROTECTED),
    })
}

fn entry(ace: &Ace, name_of: impl Fn(&Sid) -> String) -> Option<AclEntry> {
    Some(AclEntry {
        who: name_of(&ace.sid),
        allow: match ace.kind {
            AceKind::Allow => true,
            AceKind::Deny => false,
            AceKind::Other(_) => return None,
        },
        access: access_word(ace.mask),
        object_inherit: ace.flags.contains(AceFlags::OBJECT_INHERIT),
        container_inherit: ace.flags.contains(AceFlags::CONTAINER_INHERIT),
        inherit_only: ace.flags.contains(AceFlags::INHERIT_ONLY),
        inherited: ace.flags.contains(AceFlags::INHERITED),
    })
}

/// A changed descriptor.
#[derive(Debug)]
pub struct Change {
    /// Owner and DACL only, self-relative.
    pub descriptor: Vec<u8>,
    /// Accounts, in the request's spelling, whose own entries were removed and whose inherited ones stay.
    pub still_inherited: Vec<String>,
}

/// Applies the change in `request` to a descriptor. `parent`: that of its directory, if any.
///
/// # Errors
/// `Invalid` for a word that is no access mask, `NotFound` for a name unknown to `sid_of` or without an
/// entry, `Conflict` for inherited entries, `Corrupt`.
pub fn change(
    file: &Described,
    parent: Option<&Described>,
    request: &SetAcl,
    sid_of: impl Fn(&str) -> Result<Sid, ApiError>,
) -> Result<Change, ApiError> {
    let mut changed = parse(&file.descriptor)?;
    if let Some(wish) = request.inheritance {
        let parent = parent.ok_or_else(|| invalid("the volume's root inherits nothing".to_owned()))?;
        let broken = |inherited, changed: &mut _| edit::break_inheritance(changed, inherited);
        match wish {
            Inheritance::BreakAndKeep => broken(OwnEntries::Kept, &mut changed),
            Inheritance::BreakAndDrop => broken(OwnEntries::Removed, &mut changed),
            Inheritance::Restore => {
                edit::restore_inheritance(&mut changed, &parse(&parent.descriptor)?, file.directory);
                Ok(())
            }
        }
        .map_err(|why| ApiError::new(ErrorKind::Conflict, why.to_string()))?;
    }
    let had_dacl = changed.dacl.is_some();
    let mut dacl = changed.dacl.take().unwrap_or_default();
    let mut still_inherited = Vec::new();
    for who in &request.revoke {
        if edit::revoke(&mut dacl, &sid_of(who)?).map_err(|why| not_revoked(who, why))? {
            still_inherited.push(who.clone());
        }
    }
    for entry in &request.grant {
        edit::grant(&mut dacl, ace(entry, sid_of(&entry.who)?)?);
    }
    edit::put_in_order(&mut dacl);
    // Both bits together say that the writer computed the inheritance (MS-DTYP 2.4.6): then entries made
    // below are marked as inherited.
    let control = Control::SELF_RELATIVE
        | Control::DACL_PRESENT
        | Control::DACL_AUTO_INHERITED
        | Control::DACL_AUTO_INHERIT_REQUIRED
        | changed.control & Control::DACL_PROTECTED;
    let owner = request.owner.as_deref().map(sid_of).transpose()?;
    // A file without a DACL is open to everyone, and with an empty one to nobody: it keeps none until
    // something is granted.
    let dacl = (had_dacl || !dacl.aces.is_empty()).then_some(dacl);
    let changed = SecurityDescriptor { control, owner, group: None, dacl, sacl: None };
    let descriptor = changed.build().map_err(|status| {
        invalid(format!("the descriptor would be too large ({status}); remove entries first"))
    })?;
    Ok(Change { descriptor, still_inherited })
}

fn not_revoked(who: &str, why: EditError) -> ApiError {
    let kind = if why == EditError::NoEntry { ErrorKind::NotFound } else { ErrorKind::Conflict };
    ApiError::new(kind, format!("'{who}': {why}"))
}

fn ace(entry: &AclEntry, sid: Sid) -> Result<Ace, ApiError> {
    let kind = if entry.allow { AceKind::Allow } else { AceKind::Deny };
    let mut flags = AceFlags::empty();
    flags.set(AceFlags::OBJECT_INHERIT, entry.object_inherit);
    flags.set(AceFlags::CONTAINER_INHERIT, entry.container_inherit);
    flags.set(AceFlags::INHERIT_ONLY, entry.inherit_only);
    Ok(Ace::new(kind, flags, access_mask(&entry.access).map_err(invalid)?, sid))
}

/// Returns the fate of the files' own entries below.
pub fn own_entries(below: Below) -> OwnEntries {
    match below {
        Below::Follow => OwnEntries::Kept,
        Below::Replace => OwnEntries::Removed,
    }
}

fn parse(descriptor: &[u8]) -> Result<SecurityDescriptor, ApiError> {
    SecurityDescriptor::parse(descriptor).map_err(|status| {
        ApiError::new(ErrorKind::Corrupt, format!("the stored security descriptor does not parse ({status})"))
    })
}

#[cfg(test)]
mod tests;
