//! Why a change of accounts and shares is refused, and the rule of their names.

use crate::StateError;
use crate::names::{NameFault, NameRule, UnfitName, UnfitText};
use crate::seal::SealError;
use types::Sid;

/// Names are compared without regard to case.
pub(crate) fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// Why a change of an account or share was not made; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No object of this `kind`, such as a user, has the `name`.
    #[error("there is no {kind} '{name}'; `cenote {kind} list` shows those there are")]
    NotFound { kind: &'static str, name: String },
    /// A name that may be either's.
    #[error(
        "there is no user or group '{0}'; `cenote user list` and `cenote group list` show those there are"
    )]
    NoAccount(String),
    /// Another object of this `kind`, such as a share, has the `name`.
    #[error("there is a {kind} '{name}' already; choose another name")]
    Exists { kind: &'static str, name: String },
    /// The name is against the rule of its kind.
    #[error(transparent)]
    BadName(#[from] UnfitName),
    /// The text beside the name is against its rule.
    #[error(transparent)]
    BadText(#[from] UnfitText),
    /// The password is against the policy; with the reason.
    #[error("the password is refused: {0}")]
    BadPassword(String),
    /// The group is one of Windows' own and cannot be deleted.
    #[error("group '{0}' is one of Windows' own groups and stays")]
    Builtin(String),
    /// Another reason, as a whole sentence.
    #[error("{0}")]
    Invalid(String),
    /// The cluster's state did not take the change, or did not answer.
    #[error(transparent)]
    State(#[from] StateError),
    /// A secret cannot be sealed, or does not open.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Whether a new user, group or token may have the name.
pub(crate) fn check_name(rule: NameRule, name: &str) -> Result<(), AccountError> {
    rule.check(name)?;
    if name.ends_with('.') || name.parse::<Sid>().is_ok() {
        return Err(rule.refuse(name, NameFault::Account).into());
    }
    Ok(())
}

/// Whether Windows uses a name, [`folded`], for somebody whom no account is.
pub(crate) fn is_reserved(id: &str) -> bool {
    ["everyone", "authenticated users", "system", "creator owner", "anonymous"].contains(&id)
}
