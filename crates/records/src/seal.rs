//! Sealing of secrets in the cluster state with a key that is not in it.
//!
//! Owns the key file. Promises: sealed values are useless without the key file; a sealed value moved to
//! another record does not
//! open. Never writes a secret in the clear, never replaces a key file that is there.

use crate::hexadecimal::{hex, unhex};
use crate::replacing::replace_private;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
/// Bits of the mode that a key file of our own must not have.
const PRIVATE: u32 = 0o077;

/// Why a key file or a sealed value cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("key file {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("key file {path} has mode {mode:03o}, so others can read it: chmod 600 {path}")]
    TooOpen { path: String, mode: u32 },
    #[error(
        "key file {path} is not {KEY_BYTES} bytes long: it is damaged or not a key file; restore it from a backup"
    )]
    WrongSize { path: String },
    #[error(
        "the sealed password of {of} does not open with this key file: it belongs to another server or is damaged"
    )]
    DoesNotOpen { of: String },
    #[error("no random numbers from the system")]
    Random,
}

/// The key that seals secrets.
pub struct SealKey {
    cipher: LessSafeKey,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl SealKey {
    /// Reads the key file, or makes one of mode 0600 if there is none.
    ///
    /// # Errors
    /// [`SealError`] if it cannot be read or made, is readable by others, or is no key.
    pub fn open_or_create(path: &Path) -> Result<Self, SealError> {
        let io = |source| SealError::Io { path: path.display().to_string(), source };
        match File::open(path) {
            Ok(file) => Self::read(path, file, PRIVATE),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut key = Zeroizing::new([0; KEY_BYTES]);
                getrandom::fill(key.as_mut_slice()).map_err(|_| SealError::Random)?;
                let key = Self::from_bytes(key)?;
                key.write_new(path)?;
                Ok(key)
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Writes the key into a file of mode 0600, in place of the one that is there.
    ///
    /// # Errors
    /// [`SealError::Io`].
    pub fn write_new(&self, path: &Path) -> Result<(), SealError> {
        let io = |source| SealError::Io { path: path.display().to_string(), source };
        // Whole or not there at all: a crash must not leave half a key.
        replace_private(path, self.bytes.as_slice()).map_err(io)
    }

    /// The key in hexadecimal digits, for a server that joins the cluster.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(self.bytes.as_slice()))
    }

    /// The key of the cluster that was joined.
    ///
    /// # Errors
    /// [`SealError::DoesNotOpen`] if the digits are no key.
    pub fn from_hex(digits: &str) -> Result<Self, SealError> {
        let bytes = unhex(digits).map(Zeroizing::new);
        let bytes = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok());
        let bytes = bytes.ok_or_else(|| SealError::DoesNotOpen { of: "a cluster's key".into() })?;
        Self::from_bytes(Zeroizing::new(bytes))
    }

    /// Reads a key file that must be there.
    ///
    /// # Errors
    /// As [`SealKey::open_or_create`].
    pub fn open_existing(path: &Path) -> Result<Self, SealError> {
        let file =
            File::open(path).map_err(|source| SealError::Io { path: path.display().to_string(), source })?;
        Self::read(path, file, PRIVATE)
    }

    /// Reads a key that the service manager hands over. It grants the server's user access by a list, which shows as bits of the group.
    ///
    /// # Errors
    /// As [`SealKey::open_or_create`].
    pub fn open_credential(path: &Path) -> Result<Self, SealError> {
        let file =
            File::open(path).map_err(|source| SealError::Io { path: path.display().to_string(), source })?;
        Self::read(path, file, 0o007)
    }

    /// `forbidden`: bits of the mode that let others read the key.
    fn read(path: &Path, mut file: File, forbidden: u32) -> Result<Self, SealError> {
        let name = || path.display().to_string();
        let io = |source| SealError::Io { path: name(), source };
        let metadata = file.metadata().map_err(io)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & forbidden != 0 {
            return Err(SealError::TooOpen { path: name(), mode });
        }
        if metadata.len() != KEY_BYTES as u64 {
            return Err(SealError::WrongSize { path: name() });
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        file.read_exact(key.as_mut_slice()).map_err(io)?;
        Self::from_bytes(key)
    }

    fn from_bytes(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, bytes.as_slice()).map_err(|_| SealError::Random)?;
        Ok(Self { cipher: LessSafeKey::new(key), bytes })
    }

    /// Nonce, ciphertext and tag as hexadecimal text; opens only for the same `of`.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn seal(&self, of: &str, secret: &[u8]) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut sealed = secret.to_vec();
        self.cipher
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(of.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| SealError::Random)?;
        Ok(hex(&nonce) + &hex(&sealed))
    }

    /// # Errors
    /// [`SealError::DoesNotOpen`].
    pub fn open(&self, of: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let refused = || SealError::DoesNotOpen { of: of.to_owned() };
        let bytes = unhex(sealed).ok_or_else(refused)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN).ok_or_else(refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| refused())?;
        let mut secret = Zeroizing::new(sealed.to_vec());
        let len = self
            .cipher
            .open_in_place(nonce, Aad::from(of.as_bytes()), &mut secret)
            .map_err(|_| refused())?
            .len();
        secret.truncate(len);
        Ok(secret)
    }
}
