//! The proof that a key may sign an answer (MS-SMB2 3.3.4.1.1).
//!
//! Promises: nothing is signed with a key of a session unless the request was verified under that key, or ended a logon that led to it.
//! [`Verified`] is the proof of that, and only the functions here make one; an answer without it goes unsigned.

use super::bindings::{Binding, sign, write};
use super::connections::ConnectionId;
use super::keys::SessionKey;
use super::sessions::{BINDING_BYTES, Session, Sessions};
use smallvec::SmallVec;
use smb::auth::Accepted;
use smb::crypto::{PayloadNonce, SigningAlgorithm};
use smb::wire::Header;
use sys::{BufMut, Payload};

/// A request was verified under this key of this session: its answer may be signed with the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified {
    session: SessionKey,
    connection: ConnectionId,
    key: ProvenKey,
}

#[derive(Debug, Clone, Copy)]
enum ProvenKey {
    /// Of the session's channel on the connection.
    Channel,
    /// The session's own, under which a further connection asked to become a channel; of [`super::bindings::Bindings`], if the algorithm needs those.
    Session { binding: Option<Binding> },
}

/// How a request to bind was verified.
pub(crate) struct VerifiedBinding {
    pub proof: Verified,
    /// The same bytes may have been verified before. A first leg may be the same on each connection; a leg
    /// with the proof of the user never is. Always false if the algorithm has no nonces.
    pub is_repeated: bool,
}

impl Verified {
    /// Checks a request's signature with the key of its channel. `None`: it is not genuine, or the connection is no channel.
    pub fn by_channel(
        name: SessionKey,
        session: &Session,
        connection: ConnectionId,
        message: &[u8],
        message_id: u64,
    ) -> Option<Self> {
        let channel = session.channel(connection)?;
        channel.signing.verify(&[message], message_id, false, false).ok()?;
        Some(Self { session: name, connection, key: ProvenKey::Channel })
    }

    /// Checks with the session's own key that a request to bind the connection to it is genuine (MS-SMB2 3.3.5.5 step 4).
    pub fn by_session(
        name: SessionKey,
        sessions: &mut Sessions,
        connection: ConnectionId,
        message: &[u8],
        message_id: u64,
    ) -> Option<VerifiedBinding> {
        let may_grow = sessions.has_room(name, BINDING_BYTES);
        let verified =
            Self::by_key_of(name, sessions.get_mut(name)?, connection, message, message_id, may_grow);
        sessions.recount(name);
        verified
    }

    fn by_key_of(
        name: SessionKey,
        session: &mut Session,
        connection: ConnectionId,
        message: &[u8],
        message_id: u64,
        may_grow: bool,
    ) -> Option<VerifiedBinding> {
        let key = session.signing.as_ref()?;
        key.verify(&[message], message_id, false, false).ok()?;
        let (mut binding, mut is_repeated) = (None, false);
        if key.algorithm() == SigningAlgorithm::AesGmac {
            let signature = Header::parse(message).ok()?.signature;
            (binding, is_repeated) = session.bindings.verified(message_id, signature, may_grow);
        }
        let key = ProvenKey::Session { binding };
        Some(VerifiedBinding { proof: Self { session: name, connection, key }, is_repeated })
    }

    /// The logon that this request ends led to the key of the connection's channel: the answer proves the key to the client (MS-SMB2
    /// 3.3.5.5.3).
    pub fn by_logon(name: SessionKey, connection: ConnectionId, _logon: &Accepted) -> Self {
        Self { session: name, connection, key: ProvenKey::Channel }
    }

    /// Signs an answer in place. False: no signature, as its key is gone or must not sign it.
    pub fn sign(
        self,
        sessions: &mut Sessions,
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

    /// Signs an RDMA payload in answer to the request (MS-SMB2 2.2.43.1). `None`: the key is gone.
    pub fn sign_payload(
        self,
        sessions: &Sessions,
        payload: &Payload,
        message_id: u64,
    ) -> Option<(PayloadNonce, [u8; 16])> {
        let channel = sessions.get(self.session)?.channel(self.connection)?;
        let parts: SmallVec<[&[u8]; 4]> = payload.parts().iter().map(|part| &part[..]).collect();
        Some(channel.signing.sign_payload(&parts, message_id, true))
    }
}
