//! Security descriptors as people read and change them.
//!
//! Owns the words for access masks, and the order of entries. Promises: what is not named in a change stays as it is. Never
//! decides about access.

use api::requests::{AclEntry, AclView, SetAcl};
use api::{ApiError, ErrorKind};
use types::Sid;
use volume::security::rights::{
    FILE_ALL, FILE_GENERIC_EXECUTE, FILE_GENERIC_READ, FILE_GENERIC_WRITE, FILE_MODIFY,
};
use volume::security::{Ace, AceFlags, AceKind, Acl, Control, SecurityDescriptor};

/// Windows' own words for the usual masks.
const WORDS: [(&str, u32); 5] = [
    ("full", FILE_ALL),
    ("modify", FILE_MODIFY),
    ("read_execute", FILE_GENERIC_READ | FILE_GENERIC_EXECUTE),
    ("read", FILE_GENERIC_READ),
    ("write", FILE_GENERIC_WRITE),
];

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message)
}

fn mask_of(word: &str) -> Result<u32, ApiError> {
    if let Some((_, mask)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(*mask);
    }
    word.strip_prefix("0x")
        .and_then(|hex| u32::from_str_radix(hex, 16).ok())
        .filter(|mask| *mask != 0)
        .ok_or_else(|| {
            invalid(format!(
                "'{word}' is no access: full, modify, read_execute, read, write, or a mask such as 0x1200a9"
            ))
        })
}

fn word_of(mask: u32) -> String {
    WORDS
        .iter()
        .find(|(_, known)| *known == mask)
        .map_or_else(|| format!("{mask:#x}"), |(word, _)| (*word).to_owned())
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
        access: word_of(ace.mask),
        object_inherit: ace.flags.contains(AceFlags::OBJECT_INHERIT),
        container_inherit: ace.flags.contains(AceFlags::CONTAINER_INHERIT),
        inherit_only: ace.flags.contains(AceFlags::INHERIT_ONLY),
        inherited: ace.flags.contains(AceFlags::INHERITED),
    })
}

/// The descriptor (owner and DACL only) that `request` makes of `descriptor`.
///
/// # Errors
/// `Invalid` for a word that is no access, `NotFound` for a name that `sid_of` does not know, `Corrupt`.
pub fn change(
    descriptor: &[u8],
    request: &SetAcl,
    sid_of: impl Fn(&str) -> Result<Sid, ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let old = parse(descriptor)?;
    let mut aces = old.dacl.unwrap_or_default().aces;
    for who in &request.revoke {
        let sid = sid_of(who)?;
        aces.retain(|ace| ace.sid != sid || ace.flags.contains(AceFlags::INHERITED));
    }
    for entry in &request.grant {
        let sid = sid_of(&entry.who)?;
        let mask = mask_of(&entry.access)?;
        let kind = if entry.allow { AceKind::Allow } else { AceKind::Deny };
        let mut flags = AceFlags::empty();
        flags.set(AceFlags::OBJECT_INHERIT, entry.object_inherit);
        flags.set(AceFlags::CONTAINER_INHERIT, entry.container_inherit);
        flags.set(AceFlags::INHERIT_ONLY, entry.inherit_only);
        aces.retain(|ace| ace.sid != sid || ace.kind != kind || ace.flags.contains(AceFlags::INHERITED));
        aces.push(Ace::new(kind, flags, mask, sid));
    }
    // Canonical order (MS-DTYP 2.4.5): own entries before inherited ones, denying before allowing.
    aces.sort_by_key(|ace| (ace.flags.contains(AceFlags::INHERITED), ace.kind != AceKind::Deny));
    let owner = request.owner.as_deref().map(sid_of).transpose()?;
    let mut control = Control::SELF_RELATIVE | Control::DACL_PRESENT;
    control |= old.control & (Control::DACL_PROTECTED | Control::DACL_AUTO_INHERITED);
    let changed = SecurityDescriptor { control, owner, group: None, dacl: Some(Acl::new(aces)), sacl: None };
    changed.build().map_err(|status| {
        invalid(format!("the descriptor would be too large ({status}); remove entries first"))
    })
}

fn parse(descriptor: &[u8]) -> Result<SecurityDescriptor, ApiError> {
    SecurityDescriptor::parse(descriptor).map_err(|status| {
        ApiError::new(ErrorKind::Corrupt, format!("the stored security descriptor does not parse ({status})"))
    })
}

#[cfg(test)]
mod tests;
