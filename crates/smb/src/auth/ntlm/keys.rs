//! Hashes, proofs and keys of NTLMv2 (MS-NLMP 3.3.2, 3.4). Secrets are wiped when dropped and never printed.

use super::Flags;
use hmac::{Hmac, KeyInit, Mac};
use md4::{Digest, Md4};
use md5::Md5;
use rc4::{Rc4, StreamCipher};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The NT hash of a password: what a server stores, and enough to log on. As secret as the password.
#[derive(Clone, PartialEq, Eq)]
pub struct NtHash(Zeroizing<[u8; 16]>);

impl NtHash {
    /// MD4 over the password in UTF-16LE (MS-NLMP 3.3.1, NTOWFv1).
    pub fn from_password(password: &str) -> Self {
        let mut digest = Md4::new();
        for unit in password.encode_utf16() {
            digest.update(unit.to_le_bytes());
        }
        Self(Zeroizing::new(digest.finalize().into()))
    }

    /// From the 16 bytes that were stored.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The 16 bytes to store, sealed.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(secret)")
    }
}

/// HMAC-MD5 over `parts` in order.
pub(super) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 16]> {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    Zeroizing::new(mac.finalize().into_bytes().into())
}

fn md5(parts: &[&[u8]]) -> Zeroizing<[u8; 16]> {
    let mut digest = Md5::new();
    parts.iter().for_each(|part| digest.update(part));
    Zeroizing::new(digest.finalize().into())
}

pub(super) fn rc4(key: &[u8], bytes: &mut [u8]) {
    cipher(key).apply_keystream(bytes);
}

fn cipher(key: &[u8]) -> Rc4 {
    <Rc4 as rc4::KeyInit>::new_from_slice(key).expect("keys here have 5 to 16 bytes")
}

/// NTOWFv2: the user in capitals and the domain as the client wrote them, both in UTF-16.
pub(super) fn ntowf_v2(hash: &NtHash, user: &[u16], domain: &[u16]) -> Zeroizing<[u8; 16]> {
    let mut bytes = Vec::with_capacity(2 * (user.len() + domain.len()));
    for unit in user.iter().map(|&unit| upper(unit)).chain(domain.iter().copied()) {
        bytes.extend_from_slice(&unit.to_le_bytes());
    }
    hmac_md5(hash.as_bytes(), &[&bytes])
}

/// The capital of one UTF-16 code unit, if it is one unit too.
fn upper(unit: u16) -> u16 {
    let Some(small) = char::from_u32(u32::from(unit)) else { return unit };
    let mut capitals = small.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => u16::try_from(u32::from(capital)).unwrap_or(unit),
        _ => unit,
    }
}

/// NTProofStr of a client's blob for one server challenge (MS-NLMP 3.3.2).
pub(super) fn nt_proof(
    response_key: &[u8; 16],
    server_challenge: &[u8; 8],
    blob: &[u8],
) -> Zeroizing<[u8; 16]> {
    hmac_md5(response_key, &[server_challenge, blob])
}

pub(super) fn equal(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::auth) enum Direction {
    ClientToServer,
    ServerToClient,
}

/// The exported session key, and the keys that sign mechListMIC with it (MS-NLMP 3.4.4, 3.4.5).
pub(in crate::auth) struct SecurityContext {
    exported_session_key: Zeroizing<[u8; 16]>,
    flags: Flags,
}

impl SecurityContext {
    pub(super) fn new(exported_session_key: Zeroizing<[u8; 16]>, flags: Flags) -> Self {
        Self { exported_session_key, flags }
    }

    pub(in crate::auth) fn session_key(&self) -> &Zeroizing<[u8; 16]> {
        &self.exported_session_key
    }

    /// The signature of the first message in a direction: version 1, checksum, sequence number 0.
    pub(in crate::auth) fn sign_first(&self, direction: Direction, message: &[u8]) -> [u8; 16] {
        let (signing, sealing): (&[u8], &[u8]) = match direction {
            Direction::ClientToServer => (
                b"session key to client-to-server signing key magic constant\0",
                b"session key to client-to-server sealing key magic constant\0",
            ),
            Direction::ServerToClient => (
                b"session key to server-to-client signing key magic constant\0",
                b"session key to server-to-client sealing key magic constant\0",
            ),
        };
        let signing_key = md5(&[&*self.exported_session_key, signing]);
        let sequence = [0; 4];
        let mut checksum = [0; 8];
        checksum.copy_from_slice(&hmac_md5(&*signing_key, &[&sequence, message])[..8]);
        if self.flags.contains(Flags::KEY_EXCHANGE) {
            let strength = if self.flags.contains(Flags::KEY_128) {
                16
            } else if self.flags.contains(Flags::KEY_56) {
                7
            } else {
                5
            };
            let sealing_key = md5(&[&self.exported_session_key[..strength], sealing]);
            rc4(&*sealing_key, &mut checksum);
        }
        let mut signature = [0; 16];
        signature[0] = 1;
        signature[4..12].copy_from_slice(&checksum);
        checksum.zeroize();
        signature
    }

    /// Whether `signature` is that of the first message in a direction, in constant time.
    pub(in crate::auth) fn verify_first(
        &self,
        direction: Direction,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        equal(&self.sign_first(direction, message), signature)
    }
}
