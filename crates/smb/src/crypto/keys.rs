//! Key derivation: SP800-108 in counter mode with HMAC-SHA256 (MS-SMB2 3.1.4.2).

use super::{CipherId, CryptoError, OpeningKey, PreauthHash, SealingKey, SigningAlgorithm, SigningKey};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// How keys come from the authenticated session key: by dialect.
#[derive(Clone, Copy, Debug)]
pub enum KeySchedule<'a> {
    /// 2.0.2 and 2.1: the session key signs; there is no encryption.
    Smb2,
    /// 3.0 and 3.0.2: fixed labels and contexts.
    Smb30,
    /// 3.1.1: the session's preauthentication integrity hash is the context of every key.
    Smb311(&'a PreauthHash),
}

type KeyBytes = Zeroizing<Vec<u8>>;

/// Label and context of one derived key.
struct Purpose<'a> {
    label: &'a [u8],
    context: &'a [u8],
}

/// The keys of one session (or of one further channel of it).
///
/// Built from the key that the security mechanism agreed on. Holds secrets: not printable, wiped when dropped.
pub struct SessionKeys<'a> {
    schedule: KeySchedule<'a>,
    /// Session.SessionKey: the first 16 bytes of the full key, padded with zeros.
    session_key: Zeroizing<[u8; 16]>,
    /// Session.FullSessionKey.
    full_key: Zeroizing<Vec<u8>>,
}

impl<'a> SessionKeys<'a> {
    /// `full_key` is the mechanism's whole key: 16 bytes for NTLM, 16 or 32 for Kerberos.
    pub fn new(schedule: KeySchedule<'a>, full_key: &[u8]) -> Self {
        let mut session_key = Zeroizing::new([0; 16]);
        let kept = full_key.len().min(16);
        session_key[..kept].copy_from_slice(&full_key[..kept]);
        Self { schedule, session_key, full_key: Zeroizing::new(full_key.to_vec()) }
    }

    /// Returns the key that signs in both directions. 2.0.2 and 2.1 ignore `algorithm` and sign with
    /// HMAC-SHA256.
    pub fn signing_key(&self, algorithm: SigningAlgorithm) -> SigningKey {
        match self.purpose((b"SMB2AESCMAC\0", b"SmbSign\0"), b"SMBSigningKey\0") {
            None => SigningKey::new(SigningAlgorithm::HmacSha256, &self.session_key),
            Some(purpose) => SigningKey::new(algorithm, &self.derive_128(&purpose)),
        }
    }

    /// The key a caller of the pipe or file may ask for (Session.ApplicationKey).
    pub fn application_key(&self) -> Zeroizing<[u8; 16]> {
        match self.purpose((b"SMB2APP\0", b"SmbRpc\0"), b"SMBAppKey\0") {
            None => self.session_key.clone(),
            Some(purpose) => self.derive_128(&purpose),
        }
    }

    /// The key by which further channels of a node's session are proven: apart from the keys of channels, and of an algorithm without nonces.
    /// Each channel counts its messages from zero, so that by AES-GMAC several of them would use one nonce of one key.
    pub fn node_binding_key(&self) -> SigningKey {
        SigningKey::new(SigningAlgorithm::AesCmac, &self.application_key())
    }

    /// The server's pair: seals towards the client, opens what the client sealed.
    ///
    /// # Errors
    /// [`CryptoError::KeyLength`] before 3.0, which has no encryption.
    pub fn server_ciphers(&self, cipher: CipherId) -> Result<(SealingKey, OpeningKey), CryptoError> {
        let (to_server, to_client) = self.cipher_keys(cipher)?;
        Ok((SealingKey::new(cipher, &to_client)?, OpeningKey::new(cipher, &to_server)?))
    }

    /// The client's pair: seals towards the server, opens what the server sealed.
    ///
    /// # Errors
    /// As [`Self::server_ciphers`].
    pub fn client_ciphers(&self, cipher: CipherId) -> Result<(SealingKey, OpeningKey), CryptoError> {
        let (to_server, to_client) = self.cipher_keys(cipher)?;
        Ok((SealingKey::new(cipher, &to_server)?, OpeningKey::new(cipher, &to_client)?))
    }

    /// Keys of the two directions: client to server, server to client.
    fn cipher_keys(&self, cipher: CipherId) -> Result<(KeyBytes, KeyBytes), CryptoError> {
        let to_server = self.purpose((b"SMB2AESCCM\0", b"ServerIn \0"), b"SMBC2SCipherKey\0");
        let to_client = self.purpose((b"SMB2AESCCM\0", b"ServerOut\0"), b"SMBS2CCipherKey\0");
        let (Some(to_server), Some(to_client)) = (to_server, to_client) else {
            return Err(CryptoError::KeyLength);
        };
        // MS-SMB2 3.3.5.5.3: the 256-bit ciphers derive from the full key, everything else from its first 16 bytes.
        let source: &[u8] = if cipher.key_len() == 32 { &self.full_key } else { &*self.session_key };
        let derive = |purpose: Purpose<'_>| {
            let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
            derive_key(source, purpose.label, purpose.context, &mut key);
            key
        };
        Ok((derive(to_server), derive(to_client)))
    }

    fn purpose(&self, smb30: (&'static [u8], &'static [u8]), smb311: &'static [u8]) -> Option<Purpose<'a>> {
        match self.schedule {
            KeySchedule::Smb2 => None,
            KeySchedule::Smb30 => Some(Purpose { label: smb30.0, context: smb30.1 }),
            KeySchedule::Smb311(hash) => Some(Purpose { label: smb311, context: hash.value() }),
        }
    }

    fn derive_128(&self, purpose: &Purpose<'_>) -> Zeroizing<[u8; 16]> {
        let mut key = Zeroizing::new([0; 16]);
        derive_key(&*self.session_key, purpose.label, purpose.context, &mut *key);
        key
    }
}

/// SP800-108 KDF in counter mode, PRF HMAC-SHA256, 32-bit counter before `label`, a zero byte, `context` and the length of
/// `output` in bits.
pub fn derive_key(secret: &[u8], label: &[u8], context: &[u8], output: &mut [u8]) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let bits = (output.len() as u32).wrapping_mul(8).to_be_bytes();
    for (counter, block) in (1_u32..).zip(output.chunks_mut(32)) {
        let mut prf = hmac::Context::with_key(&key);
        prf.update(&counter.to_be_bytes());
        prf.update(label);
        prf.update(&[0]);
        prf.update(context);
        prf.update(&bits);
        block.copy_from_slice(&prf.sign().as_ref()[..block.len()]);
    }
}
