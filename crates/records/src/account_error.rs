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
    #[error("there is no {kind} '{name}'; `cenote {kind} list` shows those there are")]
    NotFound { kind: &'static str, name: String },
    /// A name that may be either's.
    #[error(
        "there is no user or group '{0}'; `cenote user list` and `cenote group list` show those there are"
    )]
    NoAccount(String),
    #[error("there is a {kind} '{name}' already; choose another name")]
    Exists { kind: &'static str, name: String },
    #[error(transparent)]
    BadName(#[from] UnfitName),
    #[error(transparent)]
    BadText(#[from] UnfitText),
    #[error("the password is refused: {0}")]
    BadPassword(String),
    #[error("group '{0}' is one of Windows' own groups and stays")]
    Builtin(String),
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    State(#[from] StateError),
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
