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
use codes::{GCM_NONCE_BYTES, GcmSealer};

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
    /// AES-128-CCM: the cipher of 3.0 and 3.0.2, and of 3.1.1 if negotiated.
    Aes128Ccm = 1,
    /// AES-128-GCM: 3.1.1 only.
    Aes128Gcm = 2,
    /// AES-256-CCM: 3.1.1 only.
    Aes256Ccm = 3,
    /// AES-256-GCM: 3.1.1 only.
    Aes256Gcm = 4,
}

impl CipherId {
    /// Returns the cipher with this identifier; `None` if MS-SMB2 has none.
    pub const fn from_wire(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::Aes128Ccm),
            2 => Some(Self::Aes128Gcm),
            3 => Some(Self::Aes256Ccm),
            4 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// Returns the identifier for SMB2_ENCRYPTION_CAPABILITIES.
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

enum CcmKey {
    Aes128(Box<Ccm128>),
    Aes256(Box<Ccm256>),
}

impl CcmKey {
    fn aes_128(key: &[u8]) -> Result<Self, CryptoError> {
        let key = Ccm128::new_from_slice(key).map_err(|_| CryptoError::KeyLength)?;
        Ok(Self::Aes128(Box::new(key)))
    }

    fn aes_256(key: &[u8]) -> Result<Self, CryptoError> {
        let key = Ccm256::new_from_slice(key).map_err(|_| CryptoError::KeyLength)?;
        Ok(Self::Aes256(Box::new(key)))
    }

    fn seal(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let nonce = ccm_nonce(nonce).into();
        let tag = match self {
            Self::Aes128(key) => key.encrypt_inout_detached(&nonce, authenticated, payload.into()),
            Self::Aes256(key) => key.encrypt_inout_detached(&nonce, authenticated, payload.into()),
        };
        tag.map(Into::into).map_err(|_| CryptoError::TooLarge)
    }

    fn open(
        &self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        tag: [u8; 16],
        payload: InOutBuf<'_, '_, u8>,
    ) -> Result<(), CryptoError> {
        let nonce = ccm_nonce(nonce).into();
        let opened = match self {
            Self::Aes128(key) => key.decrypt_inout_detached(&nonce, authenticated, payload, &tag.into()),
            Self::Aes256(key) => key.decrypt_inout_detached(&nonce, authenticated, payload, &tag.into()),
        };
        opened.map_err(|_| CryptoError::NotAuthentic)
    }
}

/// The half that seals. GCM takes the plain text in parts and from elsewhere; CCM as it lies.
enum Sealer {
    Gcm(GcmSealer),
    Ccm(CcmKey),
}

impl Sealer {
    fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        match cipher {
            CipherId::Aes128Ccm => CcmKey::aes_128(key).map(Self::Ccm),
            CipherId::Aes256Ccm => CcmKey::aes_256(key).map(Self::Ccm),
            CipherId::Aes128Gcm | CipherId::Aes256Gcm if key.len() != cipher.key_len() => {
                Err(CryptoError::KeyLength)
            }
            CipherId::Aes128Gcm | CipherId::Aes256Gcm => {
                GcmSealer::new(key).map(Self::Gcm).ok_or(CryptoError::KeyLength)
            }
        }
    }

    /// `out` has the length of all parts.
    fn seal(
        &mut self,
        nonce: &[u8; 16],
        authenticated: &[u8],
        parts: &[&[u8]],
        out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        match self {
            Self::Gcm(key) => {
                key.seal(gcm_nonce(nonce), authenticated, parts, out).ok_or(CryptoError::TooLarge)
            }
            Self::Ccm(key) => {
                let mut rest = &mut *out;
                for part in parts {
                    let (target, after) =
                        rest.split_at_mut_checked(part.len()).ok_or(CryptoError::CutShort)?;
                    target.copy_from_slice(part);
                    rest = after;
                }
                key.seal(nonce, authenticated, out)
            }
        }
    }
}

/// The half that opens.
enum Opener {
    Gcm(LessSafeKey),
    Ccm(CcmKey),
}

impl Opener {
    fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).map_err(|_| CryptoError::KeyLength)?;
            Ok(Self::Gcm(LessSafeKey::new(key)))
        };
        match cipher {
            CipherId::Aes128Gcm => gcm(&aead::AES_128_GCM),
            CipherId::Aes256Gcm => gcm(&aead::AES_256_GCM),
            CipherId::Aes128Ccm => CcmKey::aes_128(key).map(Self::Ccm),
            CipherId::Aes256Ccm => CcmKey::aes_256(key).map(Self::Ccm),
        }
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
                .open_in_place_separate_tag(nonce_of(nonce), Aad::from(authenticated), &tag, payload)
                .map(|_| ())
                .map_err(|_| CryptoError::NotAuthentic),
            Self::Ccm(key) => key.open(nonce, authenticated, tag, payload.into()),
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
                .open_separate_gather(nonce_of(nonce), Aad::from(authenticated), payload, &tag, plain)
                .map_err(|_| CryptoError::NotAuthentic),
            Self::Ccm(key) => {
                let both = InOutBuf::new(payload, plain).map_err(|_| CryptoError::CutShort)?;
                key.open(nonce, authenticated, tag, both)
            }
        }
    }
}

fn gcm_nonce(field: &[u8; 16]) -> [u8; GCM_NONCE_BYTES] {
    let mut nonce = [0; GCM_NONCE_BYTES];
    nonce.copy_from_slice(&field[..GCM_NONCE_BYTES]);
    nonce
}

fn nonce_of(field: &[u8; 16]) -> Nonce {
    Nonce::assume_unique_for_key(gcm_nonce(field))
}

fn ccm_nonce(field: &[u8; 16]) -> [u8; 11] {
    let mut nonce = [0; 11];
    nonce.copy_from_slice(&field[..11]);
    nonce
}

/// Fields of the transform header before decryption. None of them is authentic until a message opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformHeader {
    /// Session whose key opens the message.
    pub session_id: u64,
    /// Bytes that follow the header: the original message.
    pub original_len: usize,
}

impl TransformHeader {
    /// Reads the header at the front of `message`.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`] if there is no whole transform header, it is not marked as encrypted, or fewer bytes
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
    key: Sealer,
    next_nonce: u64,
    #[cfg(feature = "nonce-monitor")]
    name: super::monitor::KeyName,
}

impl SealingKey {
    /// # Errors
    /// [`CryptoError::KeyLength`].
    pub fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        Ok(Self {
            cipher,
            #[cfg(feature = "nonce-monitor")]
            name: super::monitor::KeyName::of(cipher.to_wire(), key),
            key: Sealer::new(cipher, key)?,
            next_nonce: 0,
        })
    }

    /// Returns the cipher that the session negotiated.
    pub fn cipher(&self) -> CipherId {
        self.cipher
    }

    /// Encrypts `parts`, one after the other, into `out` behind a transform header. `out` is [`TRANSFORM_HEADER_BYTES`] longer than
    /// all parts.
    ///
    /// # Errors
    /// [`CryptoError::CutShort`] if `out` has another length, [`CryptoError::NoncesExhausted`], [`CryptoError::TooLarge`] from
    /// 2 GiB on.
    pub fn seal_parts(
        &mut self,
        parts: &[&[u8]],
        out: &mut [u8],
        session_id: u64,
    ) -> Result<(), CryptoError> {
        let payload_len = out.len().checked_sub(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        check_length(parts, payload_len)?;
        let nonce = self.take_nonce()?;
        self.seal_with_nonce(parts, out, session_id, &nonce)
    }

    /// Encrypts a payload that goes beside the messages into `out`, which has the length of all `parts` (MS-SMB2 2.2.43.1).
    /// Answers its nonce and its tag.
    ///
    /// # Errors
    /// As [`Self::seal_parts`].
    pub fn seal_payload(
        &mut self,
        parts: &[&[u8]],
        out: &mut [u8],
    ) -> Result<(PayloadNonce, [u8; 16]), CryptoError> {
        check_length(parts, out.len())?;
        let nonce = self.take_nonce()?;
        #[cfg(feature = "nonce-monitor")]
        super::monitor::record(self.name, &nonce, parts);
        let tag = self.key.seal(&nonce, &[], parts, out)?;
        Ok((PayloadNonce { bytes: nonce, len: self.cipher.nonce_len() }, tag))
    }

    fn take_nonce(&mut self) -> Result<[u8; 16], CryptoError> {
        let counter = self.next_nonce;
        self.next_nonce = counter.checked_add(1).ok_or(CryptoError::NoncesExhausted)?;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        Ok(nonce)
    }

    /// `out` has the length of a header and all parts.
    pub(super) fn seal_with_nonce(
        &mut self,
        parts: &[&[u8]],
        out: &mut [u8],
        session_id: u64,
        nonce: &[u8; 16],
    ) -> Result<(), CryptoError> {
        let (header, payload) =
            out.split_at_mut_checked(TRANSFORM_HEADER_BYTES).ok_or(CryptoError::CutShort)?;
        let original_len = u32::try_from(payload.len()).map_err(|_| CryptoError::TooLarge)?;
        header.fill(0);
        header[..4].copy_from_slice(&TRANSFORM_PROTOCOL_ID);
        header[NONCE][..self.cipher.nonce_len()].copy_from_slice(&nonce[..self.cipher.nonce_len()]);
        header[36..40].copy_from_slice(&original_len.to_le_bytes());
        header[42..44].copy_from_slice(&ENCRYPTED.to_le_bytes());
        header[44..52].copy_from_slice(&session_id.to_le_bytes());
        #[cfg(feature = "nonce-monitor")]
        {
            let mut sealed = vec![&header[AUTHENTICATED]];
            sealed.extend_from_slice(parts);
            super::monitor::record(self.name, nonce, &sealed);
        }
        let tag = self.key.seal(nonce, &header[AUTHENTICATED], parts, payload)?;
        header[SIGNATURE].copy_from_slice(&tag);
        Ok(())
    }
}

/// Checks that the parts have this length together.
fn check_length(parts: &[&[u8]], len: usize) -> Result<(), CryptoError> {
    let found: usize = parts.iter().map(|part| part.len()).sum();
    if found == len { Ok(()) } else { Err(CryptoError::CutShort) }
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

    /// Returns the nonce for SMB2_RDMA_CRYPTO_TRANSFORM (MS-SMB2 2.2.43.1): 0, 11 or 12 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decrypts one direction of a session. Not printable.
pub struct OpeningKey {
    cipher: CipherId,
    key: Opener,
}

impl OpeningKey {
    /// # Errors
    /// [`CryptoError::KeyLength`].
    pub fn new(cipher: CipherId, key: &[u8]) -> Result<Self, CryptoError> {
        Ok(Self { cipher, key: Opener::new(cipher, key)? })
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
    /// As [`Self::open_in_place`]; [`CryptoError::CutShort`] also if `plain` has another length.
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
    /// [`CryptoError::NotAuthentic`], also if nonce or tag do not have the cipher's lengths; [`CryptoError::CutShort`] if `plain`
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
