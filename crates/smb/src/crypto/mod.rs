//! Keys, signatures and ciphers of SMB 2 and 3 (MS-SMB2 3.1.4).
//!
//! Owns: key derivation, the preauthentication integrity hash, signing, and the encrypting transform. Promises: comparisons
//! of secrets take constant time, a nonce is used once per key, keys are wiped when dropped and never printed. Never
//! decides what has to be signed or encrypted: that is the policy of connection and session.

mod cipher;
mod keys;
#[cfg(feature = "nonce-monitor")]
mod monitor;
mod preauth;
mod signing;

pub use cipher::{
    CipherId, OpeningKey, PayloadNonce, SealingKey, TRANSFORM_HEADER_BYTES, TRANSFORM_PROTOCOL_ID,
    TransformHeader,
};
pub use keys::{KeySchedule, SessionKeys, derive_key};
#[cfg(feature = "nonce-monitor")]
pub use monitor::forget_nonces;
pub use preauth::PreauthHash;
pub use signing::{SIGNATURE_OFFSET, SigningAlgorithm, SigningKey};

/// Why a cryptographic operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The signature or authentication tag is not the one these bytes and this key have.
    #[error("the message is not authentic")]
    NotAuthentic,
    /// The message is shorter than its header says, or than any header.
    #[error("the message is cut short")]
    CutShort,
    /// The key's length is not the algorithm's.
    #[error("the key has the wrong length for the algorithm")]
    KeyLength,
    /// All nonces of the key are used: the session has to be set up anew.
    #[error("all nonces of the key are used up")]
    NoncesExhausted,
    /// The message is larger than the transform can describe.
    #[error("the message is too large to encrypt")]
    TooLarge,
}

#[cfg(test)]
mod tests;
