//! Changes of a DACL by account, for administrators: grants, revocations, breaking and restoring
//! inheritance.

use super::descriptor::{Ace, AceFlags, AceKind, Acl, Control, SecurityDescriptor};
use super::inherit::{OwnEntries, hand_down};
use types::Sid;

/// Why a DACL is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The descriptor has no DACL, so that everyone may do everything.
    #[error("it has no entries, and everyone may do everything: grant one first")]
    NoDacl,
    /// Without its inherited entries the DACL would be empty.
    #[error(
        "all its entries are inherited, and nobody could open it without them: grant one first, or keep them"
    )]
    NothingLeft,
    /// All entries of the account are inherited.
    #[error(
        "it has inherited entries only: revoke them at the directory that they come from, or break inheritance here first \
         (`cenote acl protect SHARE PATH`), which makes them this one's own"
    )]
    OnlyInherited,
    /// The account has neither own nor inherited entries in the DACL.
    #[error("it has no entry here; nothing was changed")]
    NoEntry,
}

fn is_inherited(ace: &Ace) -> bool {
    ace.flags.contains(AceFlags::INHERITED)
}

/// Ends the inheritance of entries. The inherited ones become the file's own or are removed.
///
/// # Errors
/// `NoDacl`; `NothingLeft` if removing the inherited entries would leave none.
pub fn break_inheritance(of: &mut SecurityDescriptor, inherited: OwnEntries) -> Result<(), EditError> {
    let aces = &mut of.dacl.as_mut().ok_or(EditError::NoDacl)?.aces;
    match inherited {
        OwnEntries::Kept => aces.iter_mut().for_each(|ace| ace.flags -= AceFlags::INHERITED),
        OwnEntries::Removed if aces.iter().all(is_inherited) => return Err(EditError::NothingLeft),
        OwnEntries::Removed => aces.retain(|ace| !is_inherited(ace)),
    }
    of.control |= Control::DACL_PROTECTED;
    Ok(())
}

/// Restores the inheritance of entries. Removes own entries that equal an inherited one, so that this
/// undoes a break.
pub fn restore_inheritance(of: &mut SecurityDescriptor, parent: &SecurityDescriptor, directory: bool) {
    of.control -= Control::DACL_PROTECTED;
    of.dacl.get_or_insert_default();
    if let Some(restored) = hand_down(parent, of, directory, OwnEntries::Kept) {
        *of = restored;
    }
    let aces = &mut of.dacl.get_or_insert_default().aces;
    let from_above: Vec<Ace> = aces.iter().filter(|ace| is_inherited(ace)).cloned().collect();
    let equals_one =
        |ace: &Ace| from_above.contains(&Ace { flags: ace.flags | AceFlags::INHERITED, ..ace.clone() });
    aces.retain(|ace| is_inherited(ace) || !equals_one(ace));
}

/// Removes an account's own entries; whether it keeps inherited ones.
///
/// # Errors
/// `OnlyInherited`, `NoEntry`.
pub fn revoke(from: &mut Acl, account: &Sid) -> Result<bool, EditError> {
    let inherits = from.aces.iter().any(|ace| ace.sid == *account && is_inherited(ace));
    let before = from.aces.len();
    from.aces.retain(|ace| ace.sid != *account || is_inherited(ace));
    match (from.aces.len() < before, inherits) {
        (true, inherits) => Ok(inherits),
        (false, true) => Err(EditError::OnlyInherited),
        (false, false) => Err(EditError::NoEntry),
    }
}

/// Adds an entry, in place of the account's own one of the same kind.
pub fn grant(to: &mut Acl, entry: Ace) {
    to.aces.retain(|ace| ace.sid != entry.sid || ace.kind != entry.kind || is_inherited(ace));
    to.aces.push(entry);
}

/// Puts own entries before inherited ones, and of the own ones those that deny first (MS-DTYP 2.4.5). Inherited ones stay in the order in
/// which they came: those of the nearest directory first.
pub fn put_in_order(acl: &mut Acl) {
    acl.aces.sort_by_key(|ace| (is_inherited(ace), !is_inherited(ace) && ace.kind != AceKind::Deny));
}
