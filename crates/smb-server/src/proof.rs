//! Which key may sign an answer (MS-SMB2 3.3.4.1.1).
//!
//! Promises: nothing is signed with a key of a session unless the request was verified under that key, or ended a logon that led to it.
//! [`Verified`] is the proof of that, and only the functions here make one; an answer without it goes unsigned.

use crate::session::{Session, SessionTable};
use smallvec::SmallVec;
use smb::auth::Accepted;
use smb::crypto::{PayloadNonce, SigningAlgorithm, SigningKey};
use smb::wire::Header;
use sys::{BufMut, Payload};
use types::FileTime;

/// A request was verified under this key of this session: its answer may be signed with the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified {
    session: u64,
    connection: u64,
    key: ProvenKey,
}

#[derive(Debug, Clone, Copy)]
enum ProvenKey {
    /// Of the session's channel on the connection.
    Channel,
    /// The session's own, under which a further connection asked to become a channel; of [`Bindings`], if the algorithm needs those.
    Session { binding: Option<Binding> },
}

/// Names one verified request of a [`Bindings`].
#[derive(Debug, Clone, Copy)]
struct Binding(u16);

/// How a request to bind was verified.
pub(crate) struct VerifiedBinding {
    pub proof: Verified,
    /// The same bytes may have been verified before. A first leg may be the same on each connection; one that proves who logs on never
    /// is. Always false if the algorithm has no nonces.
    pub is_repeated: bool,
}

impl Verified {
    /// Checks a request's signature with the key of its channel. `None`: it is not genuine, or the connection is no channel.
    pub fn by_channel(
        name: u64,
        session: &Session,
        connection: u64,
        message: &[u8],
        message_id: u64,
    ) -> Option<Self> {
        let channel = session.channel(connection)?;
        channel.signing.verify(&[message], message_id, false, false).ok()?;
        Some(Self { session: name, connection, key: ProvenKey::Channel })
    }

    /// Checks with the session's own key that a request to bind the connection to it is genuine (MS-SMB2 3.3.5.5 step 4).
    pub fn by_session(
        name: u64,
        session: &mut Session,
        connection: u64,
        message: &[u8],
        message_id: u64,
    ) -> Option<VerifiedBinding> {
        let key = session.signing.as_ref()?;
        key.verify(&[message], message_id, false, false).ok()?;
        let (mut binding, mut is_repeated) = (None, false);
        if key.algorithm() == SigningAlgorithm::AesGmac {
            let signature = Header::parse(message).ok()?.signature;
            (binding, is_repeated) = session.bindings.verified(message_id, signature);
        }
        let key = ProvenKey::Session { binding };
        Some(VerifiedBinding { proof: Self { session: name, connection, key }, is_repeated })
    }

    /// The logon that this request ends led to the key of the connection's channel: the answer proves the key to the client (MS-SMB2
    /// 3.3.5.5.3).
    pub fn by_logon(name: u64, connection: u64, _logon: &Accepted) -> Self {
        Self { session: name, connection, key: ProvenKey::Channel }
    }

    /// Signs an answer in place. False: it stays unsigned, as its key is gone or must not sign it.
    pub fn sign(
        self,
        sessions: &mut SessionTable,
        head: &mut BufMut,
        payload: &Payload,
        message_id: u64,
    ) -> bool {
        let Some(session) = sessions.get_mut(self.session) else { return false };
        let signature = match self.key {
            ProvenKey::Channel => session
                .channel(self.connection)
                .map(|channel| sign(&channel.signing, head, payload, message_id)),
            ProvenKey::Session { binding } => {
                let Some(key) = &session.signing else { return false };
                if key.algorithm() == SigningAlgorithm::AesGmac {
                    session.bindings.sign(binding, key, head, payload, message_id)
                } else {
                    Some(sign(key, head, payload, message_id))
                }
            }
        };
        let Some(signature) = signature else { return false };
        write(head, signature);
        true
    }

    /// Signs a payload that goes by RDMA in answer to the request (MS-SMB2 2.2.43.1). `None`: the key is gone.
    pub fn sign_payload(
        self,
        sessions: &SessionTable,
        payload: &Payload,
        message_id: u64,
    ) -> Option<(PayloadNonce, [u8; 16])> {
        let channel = sessions.get(self.session)?.channel(self.connection)?;
        let parts: SmallVec<[&[u8]; 4]> = payload.parts().iter().map(|part| &part[..]).collect();
        Some(channel.signing.sign_payload(&parts, message_id, true))
    }
}

fn sign(key: &SigningKey, head: &[u8], payload: &Payload, message_id: u64) -> [u8; 16] {
    key.sign(&parts(head, payload), message_id, true, false)
}

fn parts<'a>(head: &'a [u8], payload: &'a Payload) -> SmallVec<[&'a [u8]; 4]> {
    let mut parts: SmallVec<[&[u8]; 4]> = SmallVec::new();
    parts.push(head);
    parts.extend(payload.parts().iter().map(|part| &part[..]));
    parts
}

fn write(head: &mut BufMut, signature: [u8; 16]) {
    if let Some(header) = Header::in_place(head) {
        header.signature = signature;
    }
}

/// Verified requests of a session that are remembered: 512 connections that came and went.
const BINDINGS_MAX: usize = 1024;
const _: () = assert!(BINDINGS_MAX <= u16::MAX as usize);

/// What was signed with a session's own AES-GMAC key for connections that asked to become channels.
///
/// AES-GMAC's nonce is the message identifier, and each such connection counts from zero: the protocol lets several of them use a nonce
/// of the session's key, and two different answers under one nonce give the key away. So this holds:
///
/// - Equal requests get equal answers. The first leg of a logon is the same bytes on each of a client's connections, and whoever saw it
///   can send it again, so what it is answered with has to be the same each time: they share one [`Challenge`].
/// - A request that was seen before does not finish a logon with that challenge: [`VerifiedBinding::is_repeated`].
/// - Apart from that a nonce is used again only if the client itself signed two requests under it. So no answer takes the nonce of the
///   first channel's first signature, whose request no key had signed, before the client used it twice.
#[derive(Default)]
pub(crate) struct Bindings {
    requests: Vec<BindingRequest>,
    challenge: Option<Challenge>,
    /// Message identifier of the answer that ended the first logon, whose request no key had signed yet.
    first_signed: u64,
}

/// What the challenge of a logon is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Challenge {
    pub bytes: [u8; CHALLENGE_BYTES],
    pub wall: FileTime,
}

/// Bytes of NTLM's server challenge (MS-NLMP 2.2.1.2).
pub(crate) const CHALLENGE_BYTES: usize = 8;

struct BindingRequest {
    message_id: u64,
    signature: [u8; 16],
    /// The signature of its answer, when that was signed with the session's key.
    answer: Option<[u8; 16]>,
}

impl Bindings {
    pub fn new(first_signed: u64) -> Self {
        Self { first_signed, ..Self::default() }
    }

    /// The challenge that all bindings of this session share. `None`: so many were made that their requests can no longer be
    /// remembered; each gets a challenge of its own then, and an unsigned answer.
    pub fn shared_challenge(
        &mut self,
        random: &mut dyn FnMut(&mut [u8]),
        wall: FileTime,
    ) -> Option<Challenge> {
        if self.requests.len() >= BINDINGS_MAX {
            return None;
        }
        Some(*self.challenge.get_or_insert_with(|| {
            let mut bytes = [0; CHALLENGE_BYTES];
            random(&mut bytes);
            Challenge { bytes, wall }
        }))
    }

    /// Remembers a request that was found genuine, if there is room. Whether it may have come before.
    fn verified(&mut self, message_id: u64, signature: [u8; 16]) -> (Option<Binding>, bool) {
        let known = self
            .requests
            .iter()
            .position(|request| request.message_id == message_id && request.signature == signature);
        if let Some(known) = known {
            return (Some(Binding(known as u16)), true);
        }
        if self.requests.len() >= BINDINGS_MAX {
            return (None, true);
        }
        let binding = Binding(self.requests.len() as u16);
        self.requests.push(BindingRequest { message_id, signature, answer: None });
        (Some(binding), false)
    }

    /// Whether the client itself signed two requests under this identifier.
    fn client_repeats(&self, message_id: u64) -> bool {
        self.requests.iter().filter(|request| request.message_id == message_id).nth(1).is_some()
    }

    fn sign(
        &mut self,
        binding: Option<Binding>,
        key: &SigningKey,
        head: &mut BufMut,
        payload: &Payload,
        message_id: u64,
    ) -> Option<[u8; 16]> {
        if message_id == self.first_signed && !self.client_repeats(message_id) {
            return None;
        }
        let request = self.requests.get_mut(usize::from(binding?.0))?;
        let Some(before) = request.answer else {
            return Some(*request.answer.insert(sign(key, head, payload, message_id)));
        };
        write(head, before);
        let is_same = key.verify(&parts(head, payload), message_id, true, false).is_ok();
        write(head, [0; 16]);
        is_same.then_some(before)
    }
}
