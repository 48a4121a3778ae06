//! Why a change of accounts and shares is refused, and the rule of their names.

use crate::StateError;
use crate::seal::SealError;
use types::Sid;

/// Longest name of a user or group, in characters.
pub const NAME_CHARS_MAX: usize = 64;

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
    #[error("'{name}' is not a name for a {kind}: {why}")]
    BadName { kind: &'static str, name: String, why: &'static str },
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

pub(crate) fn check_name(kind: &'static str, name: &str) -> Result<(), AccountError> {
    let bad = |why| Err(AccountError::BadName { kind, name: name.into(), why });
    if name.trim().is_empty() || name != name.trim() {
        return bad("it is empty, or begins or ends with a space");
    }
    if name.chars().count() > NAME_CHARS_MAX {
        return bad("it is longer than 64 characters");
    }
    if name.chars().any(|c| c.is_control() || r#""/\[]:;|=,+*?<>@%"#.contains(c)) {
        return bad(r#"it holds a control character or one of "/\[]:;|=,+*?<>@%"#);
    }
    if name.ends_with('.') || name.parse::<Sid>().is_ok() {
        return bad("it ends with a dot or reads as a SID");
    }
    Ok(())
}

/// Whether Windows uses a name, [`folded`], for somebody whom no account is.
pub(crate) fn is_reserved(id: &str) -> bool {
    ["everyone", "authenticated users", "system", "creator owner", "anonymous"].contains(&id)
}
