//! Named tokens of the management API: their roles, and until when they are good.
//!
//! Owns `api-token/` and the text of such a token. Promises: the state keeps a hash only, so that its reader cannot act by it; a name belongs to
//! one token at a time; a deleted or expired token admits nobody. Pools do not carry these records: an import brings no token.

use crate::account_error::{AccountError, check_name, folded};
use crate::hexadecimal::{hex, unhex};
use crate::names::NameRule;
use crate::{BlockingState, Record, StateError, Stored, Typed};
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// Tokens at a time: far more than people and programs administer a cluster, and all of them are in memory.
const TOKENS_MAX: usize = 256;
const SECRET_BYTES: usize = 32;
/// Begins every token's text, so that programs that look for leaked secrets know one.
const TEXT_PREFIX: &str = "cenote_api_";

/// Rights of a token's holder in the API. Each role may do all that the ones before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything but secrets.
    Reader,
    /// Does the daily work on disks, volumes, shares, sessions and jobs.
    Operator,
    /// Also changes accounts, tokens and the cluster, and deletes data.
    Administrator,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Administrator];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The SHA-256 of a token's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(text: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, text).as_ref());
        Self(hash)
    }
}

/// The record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token's text, in hexadecimal digits.
    pub sha256: String,
    pub created_unix_s: u64,
    /// `None`: it is good until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
}

impl ApiToken {
    pub fn is_expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|expires| expires <= now_unix_s)
    }

    /// `None`: the record's hash is none, and admits nobody.
    pub fn hash(&self) -> Option<TokenHash> {
        unhex(&self.sha256)?.try_into().ok().map(TokenHash)
    }
}

impl Record for ApiToken {
    const PREFIX: &'static str = "api-token/";
    fn id(&self) -> String {
        folded(&self.name)
    }
}

/// # Errors
/// Those of the state.
pub fn list(state: &impl BlockingState) -> Result<Vec<ApiToken>, StateError> {
    Ok(state.list::<ApiToken>()?.into_iter().map(|found| found.value).collect())
}

/// Makes a token. Returns its text, which nothing keeps.
///
/// # Errors
/// `BadName`, `Exists`, `Invalid` (it would be expired, or there are too many), or the state's.
pub fn create(
    state: &impl BlockingState,
    name: &str,
    role: Role,
    expires_unix_s: Option<u64>,
    now_unix_s: u64,
) -> Result<(ApiToken, Zeroizing<String>), AccountError> {
    check_name(NameRule::TOKEN, name)?;
    if expires_unix_s.is_some_and(|expires| expires <= now_unix_s) {
        return Err(AccountError::Invalid(format!("token '{name}' would have expired already")));
    }
    let known = list(state)?;
    if known.iter().any(|token| token.id() == folded(name)) {
        return Err(AccountError::Exists { kind: "token", name: name.into() });
    }
    if known.len() >= TOKENS_MAX {
        let why = format!("there are {TOKENS_MAX} tokens already: delete those that nobody uses");
        return Err(AccountError::Invalid(why));
    }
    let mut secret = Zeroizing::new([0; SECRET_BYTES]);
    getrandom::fill(secret.as_mut_slice())
        .map_err(|error| AccountError::Invalid(format!("no random numbers from the system: {error}")))?;
    let text = Zeroizing::new(format!("{TEXT_PREFIX}{}", hex(secret.as_slice())));
    let token = ApiToken {
        name: name.into(),
        role,
        sha256: hex(&TokenHash::of(text.as_bytes()).0),
        created_unix_s: now_unix_s,
        expires_unix_s,
    };
    state.write(&token, 0)?;
    Ok((token, text))
}

/// # Errors
/// `NotFound`, or the state's.
pub fn delete(state: &impl BlockingState, name: &str) -> Result<(), AccountError> {
    let found: Option<Stored<ApiToken>> = state.read(&folded(name))?;
    let found = found.ok_or_else(|| AccountError::NotFound { kind: "token", name: name.into() })?;
    Ok(state.remove::<ApiToken>(&found.value.id(), found.revision)?)
}

/// Deletes all tokens; answers how many there were.
///
/// # Errors
/// The state's.
pub fn delete_all(state: &impl BlockingState) -> Result<usize, StateError> {
    let found = state.list::<ApiToken>()?;
    found.iter().try_for_each(|token| state.remove::<ApiToken>(&token.value.id(), token.revision))?;
    Ok(found.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryState;

    #[test]
    fn the_state_keeps_a_hash_of_a_token_and_not_its_text() {
        let state = MemoryState::new();
        let (token, text) = create(&state, "Monitoring", Role::Reader, None, 5).unwrap();
        assert_eq!(token.hash(), Some(TokenHash::of(text.as_bytes())));
        let kept = String::from_utf8(list(&state).unwrap()[0].encode()).unwrap();
        assert!(!kept.contains(text.trim_start_matches(TEXT_PREFIX)), "{kept}");
    }

    #[test]
    fn a_name_belongs_to_one_token_until_that_is_deleted() {
        let state = MemoryState::new();
        create(&state, "Backup", Role::Operator, Some(50), 5).unwrap();
        let again = create(&state, "backup", Role::Reader, None, 60);
        assert!(matches!(again, Err(AccountError::Exists { .. })));
        delete(&state, "BACKUP").unwrap();
        create(&state, "backup", Role::Reader, None, 60).unwrap();
        assert!(matches!(delete(&state, "nobody"), Err(AccountError::NotFound { .. })));
    }

    #[test]
    fn tokens_are_bounded_and_none_is_made_that_has_expired() {
        let state = MemoryState::new();
        assert!(create(&state, "late", Role::Reader, Some(5), 5).is_err());
        for number in 0..TOKENS_MAX {
            create(&state, &format!("t{number}"), Role::Reader, None, 5).unwrap();
        }
        assert!(matches!(create(&state, "more", Role::Reader, None, 5), Err(AccountError::Invalid(_))));
        assert_eq!(delete_all(&state), Ok(TOKENS_MAX));
        assert_eq!((list(&state), delete_all(&state)), (Ok(Vec::new()), Ok(0)));
    }

    #[test]
    fn a_token_is_good_until_its_last_second() {
        let (token, _) = create(&MemoryState::new(), "short", Role::Reader, Some(9), 5).unwrap();
        assert!(!token.is_expired(8));
        assert!(token.is_expired(9));
    }
}
