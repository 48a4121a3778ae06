//! Tokens: each lets its holder join one server to the cluster, for an hour.
//!
//! Owns `join-token/` and a token's text. Promises: the state keeps a hash only; a token is valid once;
//! a truncated text is distinguished from a wrong one. A token also contains the authority's
//! fingerprint, which proves the cluster's servers, and their addresses, so that a joining server
//! trusts nothing on the network.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use records::hexadecimal::{hex, unhex};
use records::{Record, StateError, Stored, Transaction, Typed};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use trust::authority::Fingerprint;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Seconds for which a token is good.
pub const LIFE_S: u64 = 3600;
/// Seconds for which a used or expired token stays known, so that its next user learns which of them it
/// is.
const KEPT_S: u64 = 7 * 86_400;
/// Tokens known at a time: more are refused until old ones are forgotten.
const TOKENS_MAX: usize = 64;
/// Addresses in a token.
const ADDRESSES_MAX: usize = 16;

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 16;
const FINGERPRINT_BYTES: usize = 32;
const CHECK_BYTES: usize = 4;
const PREFIX: &str = "cenote1-";

/// The record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenRecord {
    /// The token's id in hexadecimal digits.
    pub id: String,
    /// SHA-256 of the secret part in hexadecimal digits: the records do not hold the secret.
    pub secret_sha256: String,
    /// Expiry of the token, as Unix time in seconds.
    pub expires_unix_s: u64,
    /// The name of the server that joined by it.
    #[serde(default)]
    pub used_by: Option<String>,
}

impl Record for JoinTokenRecord {
    const PREFIX: &'static str = "join-token/";
    fn id(&self) -> String {
        self.id.clone()
    }
}

/// A token in its holder's hands: the secret part wipes itself.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Public part, which names the token's record.
    pub id: TokenId,
    /// Secret part, known to the holder only.
    pub secret: TokenSecret,
    /// Fingerprint of the cluster's authority.
    pub authority: Fingerprint,
    /// Addresses at which the cluster may be joined.
    pub addresses: Vec<SocketAddr>,
}

/// Random name of a token: 8 bytes, shown in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenId(pub [u8; ID_BYTES]);

/// Random secret of a token: 16 bytes, wiped when dropped and not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct TokenSecret([u8; SECRET_BYTES]);

impl TokenSecret {
    /// Returns the secret in hexadecimal digits, as a joining server sends it.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    fn sha256(&self) -> String {
        hash_of(&self.0)
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(..)")
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("id", &self.id).field("addresses", &self.addresses).finish()
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn hash_of(secret: &[u8]) -> String {
    hex(digest(&SHA256, secret).as_ref())
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The text does not have the form of a token.
    #[error("this is no token for joining; `cenote cluster token`, on a server of the cluster, prints one")]
    NotOne,
    /// The text's check sum fails.
    #[error("the token was not copied whole, or was changed; copy it again")]
    Incomplete,
}

/// Why a token does not let its holder in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// No record has the token's id, or the secret is another one.
    #[error(
        "the token is not one of this cluster's; `cenote cluster token`, on one of its servers, prints one"
    )]
    Unknown,
    /// The token is older than [`LIFE_S`].
    #[error("the token has expired: it was good for an hour; `cenote cluster token` prints a new one")]
    Expired,
    /// The named server has joined by the token.
    #[error("the token was used already, by server {0}; `cenote cluster token` prints a new one for each")]
    Used(String),
}

/// Makes a token; also removes old ones.
///
/// # Errors
/// Those of the state; `Unknown` also without random numbers or with too many tokens.
pub fn create(
    state: &(impl Typed + ?Sized),
    authority: Fingerprint,
    addresses: &[SocketAddr],
    now_unix_s: u64,
) -> Result<JoinToken, StateError> {
    let mut known = state.list::<JoinTokenRecord>()?;
    let mut transaction = Transaction::default();
    let before = known.len();
    known.retain(|token| token.value.expires_unix_s.saturating_add(KEPT_S) > now_unix_s);
    if known.len() >= TOKENS_MAX {
        let spent = |token: &Stored<JoinTokenRecord>| {
            token.value.used_by.is_some() || token.value.expires_unix_s <= now_unix_s
        };
        known.retain(|token| !spent(token));
        if known.len() >= TOKENS_MAX {
            return Err(StateError::Unknown(format!(
                "there are {TOKENS_MAX} unused tokens already: use one of them, or wait until they expire"
            )));
        }
    }
    if known.len() < before {
        for old in state.list::<JoinTokenRecord>()? {
            if !known.iter().any(|kept| kept.value.id == old.value.id) {
                let key = old.value.key();
                transaction = transaction.when(key.clone(), old.revision).delete(key);
            }
        }
    }
    let mut bytes = [0; ID_BYTES + SECRET_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| StateError::Unknown(format!("no random numbers from the system: {error}")))?;
    let (id, secret) = bytes.split_at(ID_BYTES);
    let mut token = JoinToken {
        id: TokenId([0; ID_BYTES]),
        secret: TokenSecret([0; SECRET_BYTES]),
        authority,
        addresses: addresses.iter().copied().take(ADDRESSES_MAX).collect(),
    };
    token.id.0.copy_from_slice(id);
    token.secret.0.copy_from_slice(secret);
    bytes.zeroize();
    let record = JoinTokenRecord {
        id: token.id.to_string(),
        secret_sha256: token.secret.sha256(),
        expires_unix_s: now_unix_s.saturating_add(LIFE_S),
        used_by: None,
    };
    let key = record.key();
    state.commit(transaction.when(key.clone(), 0).put(key, record.encode()))?;
    Ok(token)
}

/// The record of a token that lets its holder in, to be marked as used in the transaction that lets it in.
///
/// # Errors
/// `Ok(Err(_))`: it does not let anybody in. `Err`: those of the state.
pub fn find(
    state: &(impl Typed + ?Sized),
    id: &str,
    secret: &str,
    now_unix_s: u64,
) -> Result<Result<Stored<JoinTokenRecord>, TokenRefused>, StateError> {
    // A stranger's text is no part of a key unless it has an id's form.
    let is_id = unhex(id).is_some_and(|bytes| bytes.len() == ID_BYTES);
    let found = if is_id { state.read::<JoinTokenRecord>(&id.to_ascii_lowercase())? } else { None };
    let Some(found) = found else { return Ok(Err(TokenRefused::Unknown)) };
    let given = unhex(secret).map(|secret| hash_of(&secret)).unwrap_or_default();
    if verify_slices_are_equal(given.as_bytes(), found.value.secret_sha256.as_bytes()).is_err() {
        return Ok(Err(TokenRefused::Unknown));
    }
    if let Some(name) = &found.value.used_by {
        return Ok(Err(TokenRefused::Used(name.clone())));
    }
    if found.value.expires_unix_s <= now_unix_s {
        return Ok(Err(TokenRefused::Expired));
    }
    Ok(Ok(found))
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend(self.id.0);
        bytes.extend(self.secret.0);
        bytes.extend(self.authority.0);
        for address in &self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend(ip.octets());
                }
            }
            bytes.extend(address.port().to_be_bytes());
        }
        let check = check_of(&bytes);
        bytes.extend(check);
        write!(f, "{PREFIX}{}", hex(&bytes))?;
        bytes.zeroize();
        Ok(())
    }
}

/// Distinguishes a truncated or changed text from an intact one; protects against nothing.
fn check_of(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..CHECK_BYTES]);
    check
}

impl FromStr for JoinToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(BadToken::NotOne)?;
        let bytes = unhex(digits).ok_or(BadToken::Incomplete)?;
        let (bytes, check) = bytes.split_last_chunk::<CHECK_BYTES>().ok_or(BadToken::Incomplete)?;
        if check_of(bytes) != *check {
            return Err(BadToken::Incomplete);
        }
        let (id, rest) = bytes.split_first_chunk::<ID_BYTES>().ok_or(BadToken::Incomplete)?;
        let (secret, rest) = rest.split_first_chunk::<SECRET_BYTES>().ok_or(BadToken::Incomplete)?;
        let (authority, rest) = rest.split_first_chunk::<FINGERPRINT_BYTES>().ok_or(BadToken::Incomplete)?;
        Ok(Self {
            id: TokenId(*id),
            secret: TokenSecret(*secret),
            authority: Fingerprint(*authority),
            addresses: addresses_in(rest).ok_or(BadToken::Incomplete)?,
        })
    }
}

fn addresses_in(mut bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    while let Some((&family, rest)) = bytes.split_first() {
        let ip: IpAddr;
        (ip, bytes) = match family {
            4 => rest.split_first_chunk::<4>().map(|(ip, rest)| ((*ip).into(), rest))?,
            6 => rest.split_first_chunk::<16>().map(|(ip, rest)| ((*ip).into(), rest))?,
            _ => return None,
        };
        let (port, rest) = bytes.split_first_chunk::<2>()?;
        bytes = rest;
        if addresses.len() == ADDRESSES_MAX {
            return None;
        }
        addresses.push(SocketAddr::new(ip, u16::from_be_bytes(*port)));
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::MemoryState;

    fn token(state: &MemoryState, now_unix_s: u64) -> JoinToken {
        let addresses = ["10.1.0.11:9447".parse().unwrap(), "[fd00::1]:9447".parse().unwrap()];
        create(state, Fingerprint([7; 32]), &addresses, now_unix_s).unwrap()
    }

    #[test]
    fn a_token_reads_back_as_it_was_printed() {
        let made = token(&MemoryState::new(), 1000);
        assert_eq!(format!("  {made}\n").parse(), Ok(made));
    }

    #[test]
    fn a_token_that_was_cut_or_changed_is_told_so() {
        let text = token(&MemoryState::new(), 1000).to_string();
        assert_eq!("secret".parse::<JoinToken>(), Err(BadToken::NotOne));
        for cut in PREFIX.len()..text.len() {
            assert_eq!(text[..cut].parse::<JoinToken>(), Err(BadToken::Incomplete), "{cut}");
        }
        let changed = text.replacen('0', "1", 1);
        assert!(changed == text || changed.parse::<JoinToken>().is_err());
    }

    #[test]
    fn a_token_is_found_by_its_secret_for_an_hour() {
        let state = MemoryState::new();
        let made = token(&state, 1000);
        let find = |secret: &str, now| find(&state, &made.id.to_string(), secret, now).unwrap();
        let secret = made.secret.to_hex();
        assert!(find(&secret, 1000).is_ok());
        assert_eq!(find(&secret, 1000 + LIFE_S).unwrap_err(), TokenRefused::Expired);
        assert_eq!(find("00", 1000).unwrap_err(), TokenRefused::Unknown);
        let stranger = super::find(&state, "../node/1", &secret, 1000).unwrap();
        assert_eq!(stranger.unwrap_err(), TokenRefused::Unknown);
    }

    #[test]
    fn the_state_does_not_hold_the_secret() {
        let state = MemoryState::new();
        let made = token(&state, 1000);
        let stored = state.list::<JoinTokenRecord>().unwrap();
        assert!(!String::from_utf8(stored[0].value.encode()).unwrap().contains(&made.secret.to_hex()));
    }

    #[test]
    fn old_tokens_are_forgotten_and_unused_ones_are_bounded() {
        let state = MemoryState::new();
        for _ in 0..TOKENS_MAX {
            token(&state, 1000);
        }
        assert!(create(&state, Fingerprint([7; 32]), &[], 1000).is_err());
        token(&state, 1000 + LIFE_S);
        assert_eq!(state.list::<JoinTokenRecord>().unwrap().len(), 1);
    }
}
