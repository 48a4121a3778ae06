//! The encrypting transform of SMB 3 (MS-SMB2 2.2.41, 3.1.4.3).

use super::CryptoError;
use aes::{Aes128, Aes256};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::{
    Ccm,
    consts::{U11, U16},
};

/// Bytes of SMB2 TRANSFORM_HEADER.
pub const TRANSFORM_HEADER_BYTES: usize = 52;
/// The first four bytes of an encrypted message.
pub const TRANSFORM_PROTOCOL_ID: [u8; 4] = [0xFD, b'S', b'M', b'B'];

const SIGNATURE: std::ops::Range<usize> = 4..20;
const NONCE: std::ops::Range<usize> = 20..36;
/// Everything from the nonce on is authenticated.
const AUTHENTICATED: std::ops::Range<usize> = 20..TRANSFORM_HEADER_BYTES;
/// `Flags` / `EncryptionAlgorithm`: the message is encrypted.
const ENCRYPTED: u16 = 1;

/// Ciphers by their identifiers on the wire (MS-SMB2 2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum CipherId {
    Aes128Ccm = 1,
    Aes128Gcm = 2,
    Aes256Ccm = 3,
    Aes256Gcm = 4,
}

impl CipherId {
    pub const fn from_wire(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::Aes128Ccm),
            2 => Some(Self::Aes128Gcm),
            3 => Some(Self::Aes256Ccm),
            4 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    pub const fn to_wire(self) -> u16 {
        self as u16
    }

    /// Bytes of its key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// Bytes of the nonce field that it uses.
    const fn nonce_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes256Ccm => 11,
            Self::Aes128Gcm | Self::Aes256Gcm => 12,
        }
    }
}

type Ccm128 = Ccm<Aes128, U16, U11>;
type Ccm256 = Ccm<Aes256, U16, U11>;

enum Key {
    Gcm(LessSafeKey),
    Ccm128(Box<Ccm128>),
    Ccm256(Box<Ccm256>),
}

impl Key {
    fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        let gcm = |algorithm| UnboundKey::new(algorithm, key).map(|key| Self::Gcm(LessSafeKey::new(key)));
        match cipher {
            CipherId::Aes128Gcm => gcm(&aead::AES_128_GCM).map_err(|_| CryptoError::KeyLength),
            CipherId::Aes256Gcm => gcm(&aead::AES_256_GCM).map_err(|_| CryptoError::KeyLength),
            CipherId::Aes128Ccm => Ccm128::new_from_slice(key)
                .map(|key| Self::Ccm128(Box::new(key)))
                .map_err(|_| CryptoError::KeyLength),
            CipherId::Aes256Ccm => Ccm256::new_from_slice(key)
                .map(|key| Self::Ccm256(Box::new(key)))
                .map_err(|_| CryptoError::KeyLength),
        }
    }

    fn seal(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let mut tag = [0; 16];
        match self {
            Self::Gcm(key) => tag.copy_from_slice(
                key.seal_in_place_separate_tag(gcm_nonce(nonce), Aad::from(authenticated), payload)
                    .map_err(|_| CryptoError::TooLarge)?
                    .as_ref(),
            ),
            Self::Ccm128(key) => tag.copy_from_slice(
                &key.encrypt_inout_detached(&ccm_nonce(nonce).into(), authenticated, payload.into())
                    .map_err(|_| CryptoError::TooLarge)?,
            ),
            Self::Ccm256(key) => tag.copy_from_slice(
                &key.encrypt_inout_detached(&ccm_nonce(nonce).into(), authenticated, payload.into())
                    .map_err(|_| CryptoError::TooLarge)?,
            ),
        }
        Ok(tag)
    }

    fn open_in_place(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        tag: [u8; 16],
        payload: &mut [u8],
    ) -> Result<(), CryptoError> {
        match self {
            Self::Gcm(key) => key
                .open_in_place_separate_tag(gcm_nonce(nonce), Aad::from(authenticated), &tag, payload)
                .map(|_| ())
                .map_err(|_| CryptoError::NotAuthentic),
            _ => self.open_ccm(nonce, authenticated, tag, payload.into()),
        }
    }

    fn open_into(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        tag: [u8; 16],
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), CryptoError> {
        match self {
            Self::Gcm(key) => key
                .open_separate_gather(gcm_nonce(nonce), Aad::from(authenticated), payload, &tag, plain)
                .map_err(|_| CryptoError::NotAuthentic),
            _ => {
                let both = InOutBuf::new(payload, plain).map_err(|_| CryptoError::CutShort)?;
                self.open_ccm(nonce, authenticated, tag, both)
            }
        }
    }

    fn open_ccm(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        tag: [u8; 16],
        payload: InOutBuf<'_, '_, u8>,
    ) -> Result<(), CryptoError> {
        let nonce = ccm_nonce(nonce).into();
        let opened = match self {
            Self::Ccm128(key) => key.decrypt_inout_detached(&nonce, authenticated, payload, &tag.into()),
            Self::Ccm256(key) => key.decrypt_inout_detached(&nonce, authenticated, payload, &tag.into()),
            Self::Gcm(_) => return Err(CryptoError::NotAuthentic),
        };
        opened.map_err(|_| CryptoError::NotAuthentic)
    }
}

fn gcm_nonce(field: &[u8; 16]) -> Nonce {
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&field[..12]);
    Nonce::assume_unique_for_key(nonce)
}

fn ccm_nonce(field: &[u8; 16]) -> [u8; 11] {
    let mut nonce = [0; 11];
    nonce.copy_from_slice(&field[..11]);
    nonce
}

/// What the transform header says before anything is decrypted. None of it is authentic until a message opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformHeader {
    pub session_id: u64,
    /// Bytes that follow the header: the original message.
    pub original_len: usize,
}

impl TransformHeader {
    /// Reads the header at the front of `message`.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`] where there is no whole transform header, it is not marked as encrypted, or fewer bytes
    /// follow than it says.
    pub fn parse(message: &[u8]) -> Result<Self, CryptoError> {
        let (header, rest) = message.split_at_checked(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        let (header, session_id) = header.split_last_chunk().ok_or(CryptoError::CutShort)?;
        let (header, flags) = header.split_last_chunk().ok_or(CryptoError::CutShort)?;
        let original_len =
            header.get(36..).and_then(|tail| tail.first_chunk()).ok_or(CryptoError::CutShort)?;
        let original_len = u32::from_le_bytes(*original_len) as usize;
        if !header.starts_with(&TRANSFORM_PROTOCOL_ID)
            || u16::from_le_bytes(*flags) != ENCRYPTED
            || rest.len() < original_len
        {
            return Err(CryptoError::CutShort);
        }
        Ok(Self { session_id: u64::from_le_bytes(*session_id), original_len })
    }
}

/// Encrypts one direction of a session, over all its channels. Not printable, and not cloneable: the counter that makes
/// nonces unique belongs to the key.
pub struct SealingKey {
    cipher: CipherId,
    key: Key,
    next_nonce: u64,
}

impl SealingKey {
    /// # Errors
    /// [`CryptoError::KeyLength`].
    pub fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        Ok(Self { cipher, key: Key::new(cipher, key)?, next_nonce: 0 })
    }

    pub fn cipher(&self) -> CipherId {
        self.cipher
    }

    /// Encrypts `message[TRANSFORM_HEADER_BYTES..]` where it lies and writes the transform header before it.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`] where there is no room for the header, [`CryptoError::NoncesExhausted`],
    /// [`CryptoError::TooLarge`] over 4 GiB.
    pub fn seal_in_place(&mut self, message: &mut [u8], session_id: u64) -> Result<(), CryptoError> {
        let counter = self.next_nonce;
        self.next_nonce = counter.checked_add(1).ok_or(CryptoError::NoncesExhausted)?;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        self.seal_with_nonce(message, session_id, &nonce)
    }

    /// Puts `parts` together behind a transform header in `out`, and encrypts them there. `out` is
    /// [`TRANSFORM_HEADER_BYTES`] longer than all parts.
    ///
    /// # Errors
    /// As [`Self::seal_in_place`]; [`CryptoError::CutShort`] where `out` has another length.
    pub fn seal_parts(
        &mut self,
        parts: &[&[u8]],
        out: &mut [u8],
        session_id: u64,
    ) -> Result<(), CryptoError> {
        let mut rest = out.get_mut(TRANSFORM_HEADER_BYTES..).ok_or(CryptoError::CutShort)?;
        for part in parts {
            let (target, after) = rest.split_at_mut_checked(part.len()).ok_or(CryptoError::CutShort)?;
            target.copy_from_slice(part);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(CryptoError::CutShort);
        }
        self.seal_in_place(out, session_id)
    }

    /// Encrypts a payload that goes beside the messages, where it lies (MS-SMB2 2.2.43.1). Answers its nonce and its tag.
    ///
    /// # Errors
    /// As [`Self::seal_in_place`].
    pub fn seal_payload(&mut self, payload: &mut [u8]) -> Result<(PayloadNonce, [u8; 16]), CryptoError> {
        let counter = self.next_nonce;
        self.next_nonce = counter.checked_add(1).ok_or(CryptoError::NoncesExhausted)?;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        let tag = self.key.seal(&nonce, &[], payload)?;
        Ok((PayloadNonce { bytes: nonce, len: self.cipher.nonce_len() }, tag))
    }

    pub(super) fn seal_with_nonce(
        &self,
        message: &mut [u8],
        session_id: u64,
        nonce: &[u8; 16],
    ) -> Result<(), CryptoError> {
        let (header, payload) =
            message.split_at_mut_checked(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        let original_len = u32::try_from(payload.len()).map_err(|_| CryptoError::TooLarge)?;
        header.fill(0);
        header[..4].copy_from_slice(&TRANSFORM_PROTOCOL_ID);
        header[NONCE][..self.cipher.nonce_len()].copy_from_slice(&nonce[..self.cipher.nonce_len()]);
        header[36..40].copy_from_slice(&original_len.to_le_bytes());
        header[42..44].copy_from_slice(&ENCRYPTED.to_le_bytes());
        header[44..52].copy_from_slice(&session_id.to_le_bytes());
        let tag = self.key.seal(nonce, &header[AUTHENTICATED], payload)?;
        header[SIGNATURE].copy_from_slice(&tag);
        Ok(())
    }
}

/// The nonce of a payload, as long as its cipher or signature needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadNonce {
    bytes: [u8; 16],
    len: usize,
}

impl PayloadNonce {
    pub(super) const NONE: Self = Self { bytes: [0; 16], len: 0 };

    pub(super) fn of_12(nonce: [u8; 12]) -> Self {
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(&nonce);
        Self { bytes, len: 12 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decrypts one direction of a session. Not printable.
pub struct OpeningKey {
    cipher: CipherId,
    key: Key,
}

impl OpeningKey {
    /// # Errors
    /// [`CryptoError::KeyLength`].
    pub fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        Ok(Self { cipher, key: Key::new(cipher, key)? })
    }

    /// Checks and decrypts a message, transform header first, where it lies. Returns the original message.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`], [`CryptoError::NotAuthentic`]; the bytes are then of no use.
    pub fn open_in_place<'m>(&self, message: &'m mut [u8]) -> Result<&'m mut [u8], CryptoError> {
        let parsed = TransformHeader::parse(message)?;
        let (header, rest) =
            message.split_at_mut_checked(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        let payload = rest.get_mut(..parsed.original_len).ok_or(CryptoError::CutShort)?;
        let (nonce, tag) = nonce_and_tag(header)?;
        self.key.open_in_place(&nonce, &header[AUTHENTICATED], tag, payload)?;
        Ok(payload)
    }

    /// Checks a message and decrypts it into `plain`, which has exactly the original length: the one copy that brings a
    /// payload to its alignment.
    ///
    /// # Errors
    /// As [`Self::open_in_place`]; [`CryptoError::CutShort`] also where `plain` has another length.
    pub fn open_into(&self, message: &[u8], plain: &mut [u8]) -> Result<(), CryptoError> {
        let parsed = TransformHeader::parse(message)?;
        let (header, rest) = message.split_at_checked(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        let payload = rest.get(..parsed.original_len).ok_or(CryptoError::CutShort)?;
        if plain.len() != payload.len() {
            return Err(CryptoError::CutShort);
        }
        let (nonce, tag) = nonce_and_tag(header)?;
        self.key.open_into(&nonce, &header[AUTHENTICATED], tag, payload, plain)
    }
}

impl OpeningKey {
    /// Checks a payload that went beside the messages, and decrypts it into `plain`, which has its length.
    ///
    /// # Errors
    /// [`CryptoError::NotAuthentic`], also where nonce or tag do not have the cipher's lengths; [`CryptoError::CutShort`] where `plain`
    /// has another length.
    pub fn open_payload(
        &self,
        nonce: &[u8],
        tag: &[u8],
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), CryptoError> {
        if nonce.len() != self.cipher.nonce_len() {
            return Err(CryptoError::NotAuthentic);
        }
        if plain.len() != payload.len() {
            return Err(CryptoError::CutShort);
        }
        let tag: [u8; 16] = tag.try_into().map_err(|_| CryptoError::NotAuthentic)?;
        let mut field = [0; 16];
        field[..nonce.len()].copy_from_slice(nonce);
        self.key.open_into(&field, &[], tag, payload, plain)
    }
}

fn nonce_and_tag(header: &[u8]) -> Result<([u8; 16], [u8; 16]), CryptoError> {
    let field = |range| {
        header.get(range).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).ok_or(CryptoError::CutShort)
    };
    Ok((field(NONCE)?, field(SIGNATURE)?))
}
