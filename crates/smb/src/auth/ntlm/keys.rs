//! Hashes, proofs and keys of NTLMv2 (MS-NLMP 3.3.2, 3.4). Secrets are wiped when dropped and never printed.

use super::Flags;
use hmac::{Hmac, KeyInit, Mac};
use md4::{Digest, Md4};
use md5::Md5;
use rc4::{Rc4, StreamCipher};
use std::fmt;
use std::ops::Range;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The NT hash of a password: a server stores it, and it is enough to log on. As secret as the
/// password.
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
        Way::new(self, direction).sign(message)
    }

    /// The accepting side's keys for messages; `None` if the two did not agree on keys of 128 bits. `is_list_signed`: each side has signed the
    /// list of mechanisms before, which counts as its first message, while its cipher begins anew (MS-SPNG 3.3.5.1).
    pub(in crate::auth) fn message_security(&self, is_list_signed: bool) -> Option<MessageSecurity> {
        let way = |direction| Way { sequence: u32::from(is_list_signed), ..Way::new(self, direction) };
        self.flags.contains(Flags::KEY_128).then(|| MessageSecurity {
            from_client: way(Direction::ClientToServer),
            to_client: way(Direction::ServerToClient),
        })
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

/// Keys and places of one direction of messages (MS-NLMP 3.4.4.2, 3.4.5).
struct Way {
    signing_key: Zeroizing<[u8; 16]>,
    sealing: Rc4,
    /// Whether checksums are encrypted as well: the two have exchanged a key.
    seals_checksums: bool,
    sequence: u32,
}

impl Way {
    fn new(context: &SecurityContext, direction: Direction) -> Self {
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
        let strength = if context.flags.contains(Flags::KEY_128) {
            16
        } else if context.flags.contains(Flags::KEY_56) {
            7
        } else {
            5
        };
        let sealing_key = md5(&[&context.exported_session_key[..strength], sealing]);
        Self {
            signing_key: md5(&[&*context.exported_session_key, signing]),
            sealing: cipher(&*sealing_key),
            seals_checksums: context.flags.contains(Flags::KEY_EXCHANGE),
            sequence: 0,
        }
    }

    fn checksum(&self, message: &[u8]) -> [u8; 8] {
        let mut checksum = [0; 8];
        checksum
            .copy_from_slice(&hmac_md5(&*self.signing_key, &[&self.sequence.to_le_bytes(), message])[..8]);
        checksum
    }

    /// Completes a signature, and advances to the next message.
    fn signature(&mut self, mut checksum: [u8; 8]) -> [u8; 16] {
        if self.seals_checksums {
            self.sealing.apply_keystream(&mut checksum);
        }
        let mut signature = [0; 16];
        signature[0] = 1;
        signature[4..12].copy_from_slice(&checksum);
        signature[12..].copy_from_slice(&self.sequence.to_le_bytes());
        checksum.zeroize();
        self.sequence = self.sequence.wrapping_add(1);
        signature
    }

    fn sign(&mut self, message: &[u8]) -> [u8; 16] {
        let checksum = self.checksum(message);
        self.signature(checksum)
    }
}

/// Signs and seals messages of a logon's two sides, each direction in its own order (MS-NLMP 3.4.3, 3.4.4).
pub struct MessageSecurity {
    from_client: Way,
    to_client: Way,
}

impl MessageSecurity {
    /// Bytes of a signature.
    pub const SIGNATURE_BYTES: usize = 16;

    /// Signs `signed` of the server's next message, and encrypts `sealed` of it.
    pub fn protect(
        &mut self,
        message: &mut [u8],
        signed: Range<usize>,
        sealed: Option<Range<usize>>,
    ) -> [u8; 16] {
        let way = &mut self.to_client;
        // The signature is of the plain bytes.
        let checksum = way.checksum(&message[signed]);
        if let Some(sealed) = sealed {
            way.sealing.apply_keystream(&mut message[sealed]);
        }
        way.signature(checksum)
    }

    /// Decrypts `sealed` of the client's next message, and says whether its signature is right, in constant time.
    pub fn verify(
        &mut self,
        message: &mut [u8],
        signed: Range<usize>,
        sealed: Option<Range<usize>>,
        signature: &[u8],
    ) -> bool {
        let way = &mut self.from_client;
        if let Some(sealed) = sealed {
            way.sealing.apply_keystream(&mut message[sealed]);
        }
        equal(&way.sign(&message[signed]), signature)
    }

    /// The same keys seen from the client's side, for tests.
    #[cfg(test)]
    pub(crate) fn reversed(self) -> Self {
        Self { from_client: self.to_client, to_client: self.from_client }
    }
}

impl fmt::Debug for MessageSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageSecurity(secret)")
    }
}
