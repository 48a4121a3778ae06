//! Signatures of SMB2 messages (MS-SMB2 3.1.4.1, 3.1.5.1).

use super::{CryptoError, PayloadNonce};
use aws_lc_rs::{cmac, hmac};
use codes::{GCM_NONCE_BYTES, GcmSealer};
use std::cell::RefCell;
use subtle::ConstantTimeEq;

/// Where the 16 bytes of the signature lie in the SMB2 header.
pub const SIGNATURE_OFFSET: usize = 48;
const SIGNATURE_END: usize = 64;

/// Signing algorithms by their identifiers on the wire (MS-SMB2 2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum SigningAlgorithm {
    /// 2.0.2 and 2.1, and 3.1.1 if negotiated.
    HmacSha256 = 0,
    /// 3.0 and 3.0.2, and 3.1.1 if nothing else was negotiated.
    AesCmac = 1,
    /// 3.1.1 if negotiated.
    AesGmac = 2,
}

impl SigningAlgorithm {
    pub const fn from_wire(id: u16) -> Option<Self> {
        match id {
            0 => Some(Self::HmacSha256),
            1 => Some(Self::AesCmac),
            2 => Some(Self::AesGmac),
            _ => None,
        }
    }

    pub const fn to_wire(self) -> u16 {
        self as u16
    }
}

enum Key {
    HmacSha256(Box<hmac::Key>),
    AesCmac(cmac::Key),
    /// Of one thread at a time: it keeps the state of a message while that is authenticated.
    AesGmac(RefCell<GcmSealer>),
}

/// In the last byte of AES-GMAC's nonce of a payload.
const PAYLOAD_NONCE_BIT: u8 = 0x80;

/// A key that signs and verifies whole SMB2 messages, and payload beside them. Not printable.
pub struct SigningKey {
    key: Key,
    #[cfg(feature = "nonce-monitor")]
    name: super::monitor::KeyName,
}

impl SigningKey {
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> Self {
        #[cfg(feature = "nonce-monitor")]
        let name = super::monitor::KeyName::of(algorithm.to_wire(), key);
        // The lengths of all three keys are fixed by the parameter's type.
        let key = match algorithm {
            SigningAlgorithm::HmacSha256 => Key::HmacSha256(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key))),
            SigningAlgorithm::AesCmac => {
                Key::AesCmac(cmac::Key::new(cmac::AES_128, key).expect("16 bytes are an AES-128 key"))
            }
            SigningAlgorithm::AesGmac => {
                Key::AesGmac(RefCell::new(GcmSealer::new(key).expect("16 bytes are an AES-128 key")))
            }
        };
        Self {
            key,
            #[cfg(feature = "nonce-monitor")]
            name,
        }
    }

    pub fn algorithm(&self) -> SigningAlgorithm {
        match self.key {
            Key::HmacSha256(_) => SigningAlgorithm::HmacSha256,
            Key::AesCmac(_) => SigningAlgorithm::AesCmac,
            Key::AesGmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// The signature of one message (one element of a compound, with its padding) that lies in `parts`, in order.
    ///
    /// The signature field counts as zeros. `is_server`: the server is the sender. `is_cancel`: the message
    /// is a CANCEL request. Both, and `message_id`, matter to AES-GMAC only.
    pub fn sign(&self, parts: &[&[u8]], message_id: u64, is_server: bool, is_cancel: bool) -> [u8; 16] {
        #[cfg(feature = "nonce-monitor")]
        if is_server && matches!(self.key, Key::AesGmac(_)) {
            let mut signed = Vec::new();
            without_signature(parts, |bytes| signed.extend_from_slice(bytes));
            super::monitor::record(self.name, &message_nonce(message_id, true, is_cancel), &[&signed]);
        }
        self.signature(parts, message_id, is_server, is_cancel)
    }

    /// As [`Self::sign`], for a signature that is compared and not sent.
    fn signature(&self, parts: &[&[u8]], message_id: u64, is_server: bool, is_cancel: bool) -> [u8; 16] {
        match &self.key {
            Key::HmacSha256(key) => {
                let mut context = hmac::Context::with_key(key);
                without_signature(parts, |bytes| context.update(bytes));
                first_16(context.sign().as_ref())
            }
            Key::AesCmac(key) => {
                let mut context = cmac::Context::with_key(key);
                let mut failed = false;
                without_signature(parts, |bytes| failed |= context.update(bytes).is_err());
                let tag = context.sign().expect("AES-CMAC of bytes in memory cannot fail");
                assert!(!failed, "AES-CMAC of bytes in memory cannot fail");
                first_16(tag.as_ref())
            }
            Key::AesGmac(key) => {
                let nonce = message_nonce(message_id, is_server, is_cancel);
                gmac(key, nonce, |each| without_signature(parts, each))
            }
        }
    }

    /// Puts the signature into the header of one message that lies in one slice.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`] if it is shorter than a header.
    pub fn sign_in_place(
        &self,
        message: &mut [u8],
        message_id: u64,
        is_server: bool,
        is_cancel: bool,
    ) -> Result<(), CryptoError> {
        let field = message.get_mut(SIGNATURE_OFFSET..SIGNATURE_END).ok_or(CryptoError::CutShort)?;
        field.fill(0);
        let signature = self.sign(&[message], message_id, is_server, is_cancel);
        message[SIGNATURE_OFFSET..SIGNATURE_END].copy_from_slice(&signature);
        Ok(())
    }

    /// Whether the signature in the header of this message is right, in constant time. The message may lie in parts.
    ///
    /// # Errors
    /// [`CryptoError::NotAuthentic`] if it is not; [`CryptoError::CutShort`] if there is no whole header.
    pub fn verify(
        &self,
        parts: &[&[u8]],
        message_id: u64,
        is_server: bool,
        is_cancel: bool,
    ) -> Result<(), CryptoError> {
        let mut claimed = [0; 16];
        let mut found = 0;
        let mut at = 0;
        for part in parts {
            let from = SIGNATURE_OFFSET.saturating_sub(at).min(part.len());
            let to = SIGNATURE_END.saturating_sub(at).min(part.len());
            claimed[found..found + to - from].copy_from_slice(&part[from..to]);
            found += to - from;
            at += part.len();
        }
        if found < claimed.len() {
            return Err(CryptoError::CutShort);
        }
        let right: bool = self.signature(parts, message_id, is_server, is_cancel).ct_eq(&claimed).into();
        if right { Ok(()) } else { Err(CryptoError::NotAuthentic) }
    }
}

impl SigningKey {
    /// The signature of a payload that goes beside the messages (MS-SMB2 2.2.43.1), and its nonce if the algorithm has one.
    /// `message_id`: of the message that describes it; no other payload of the same direction has it.
    pub fn sign_payload(
        &self,
        parts: &[&[u8]],
        message_id: u64,
        is_server: bool,
    ) -> (PayloadNonce, [u8; 16]) {
        let mut nonce = [0; GCM_NONCE_BYTES];
        nonce[..8].copy_from_slice(&message_id.to_le_bytes());
        nonce[8] = u8::from(is_server);
        // The message itself is signed with the same key: its nonce has this bit clear.
        nonce[11] = PAYLOAD_NONCE_BIT;
        #[cfg(feature = "nonce-monitor")]
        if is_server && matches!(self.key, Key::AesGmac(_)) {
            super::monitor::record(self.name, &nonce, parts);
        }
        let signature = self.payload_signature(parts, nonce);
        let nonce = match self.key {
            Key::AesGmac(_) => PayloadNonce::of_12(nonce),
            _ => PayloadNonce::NONE,
        };
        (nonce, signature)
    }

    /// Whether a payload has this signature, in constant time.
    ///
    /// # Errors
    /// [`CryptoError::NotAuthentic`], also if nonce or signature do not have the algorithm's lengths.
    pub fn verify_payload(&self, parts: &[&[u8]], nonce: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let nonce = match self.key {
            Key::AesGmac(_) => nonce.try_into().map_err(|_| CryptoError::NotAuthentic)?,
            _ => [0; GCM_NONCE_BYTES],
        };
        let right: bool = self.payload_signature(parts, nonce).as_slice().ct_eq(signature).into();
        if right { Ok(()) } else { Err(CryptoError::NotAuthentic) }
    }

    fn payload_signature(&self, parts: &[&[u8]], nonce: [u8; GCM_NONCE_BYTES]) -> [u8; 16] {
        match &self.key {
            Key::HmacSha256(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                first_16(context.sign().as_ref())
            }
            Key::AesCmac(key) => {
                let mut context = cmac::Context::with_key(key);
                let failed = parts.iter().any(|part| context.update(part).is_err());
                assert!(!failed, "AES-CMAC of bytes in memory cannot fail");
                first_16(context.sign().expect("AES-CMAC of bytes in memory cannot fail").as_ref())
            }
            Key::AesGmac(key) => gmac(key, nonce, |each| parts.iter().for_each(|part| each(part))),
        }
    }
}

/// Hands out the bytes of `parts` in order, with zeros in place of the signature.
fn without_signature(parts: &[&[u8]], mut each: impl FnMut(&[u8])) {
    let mut at = 0;
    for part in parts {
        let from = SIGNATURE_OFFSET.saturating_sub(at).min(part.len());
        let to = SIGNATURE_END.saturating_sub(at).min(part.len());
        if from > 0 {
            each(&part[..from]);
        }
        if to > from {
            each(&[0; 16][..to - from]);
        }
        if to < part.len() {
            each(&part[to..]);
        }
        at += part.len();
    }
}

/// AES-GMAC's nonce of a message (MS-SMB2 3.1.4.1): its identifier, and who sends it.
fn message_nonce(message_id: u64, is_server: bool, is_cancel: bool) -> [u8; GCM_NONCE_BYTES] {
    let mut nonce = [0; GCM_NONCE_BYTES];
    nonce[..8].copy_from_slice(&message_id.to_le_bytes());
    nonce[8] = u8::from(is_server) | u8::from(is_cancel) << 1;
    nonce
}

/// AES-128-GMAC: GCM's tag over the message as additional data and no payload. The nonce is the message identifier and a
/// role; a connection never uses an identifier twice in one direction.
fn gmac(
    key: &RefCell<GcmSealer>,
    nonce: [u8; GCM_NONCE_BYTES],
    visit: impl FnOnce(&mut dyn FnMut(&[u8])),
) -> [u8; 16] {
    key.borrow_mut().authenticate_pieces(nonce, visit).expect("AES-GMAC of bytes in memory cannot fail")
}

fn first_16(bytes: &[u8]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&bytes[..16]);
    first
}
