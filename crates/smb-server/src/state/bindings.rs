//! Signatures by a session's own key for connections that asked to become its channels.

use smallvec::SmallVec;
use smb::crypto::SigningKey;
use smb::wire::Header;
use sys::{BufMut, Payload};
use types::FileTime;

/// Names one verified request of a [`Bindings`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding(u16);

/// Verified requests of a session that are remembered: 512 connections that came and went.
const BINDINGS_MAX: usize = 1024;
const _: () = assert!(BINDINGS_MAX <= u16::MAX as usize);

/// Requests signed with a session's own AES-GMAC key for connections that want to become channels.
///
/// AES-GMAC's nonce is the message identifier, and each such connection counts from zero: the protocol lets several of them use a nonce
/// of the session's key, and two different answers under one nonce give the key away. So this holds:
///
/// - Equal requests get equal answers. The first leg of a logon is the same bytes on each of a client's
///   connections, and anyone who recorded it can repeat it. Its answer has to be the same each time, so
///   all share one [`Challenge`].
/// - A repeated request does not finish a logon with that challenge:
///   [`super::proof::VerifiedBinding::is_repeated`].
/// - Apart from that a nonce is reused only if the client itself signed two requests under it. So no
///   answer takes the nonce of the first channel's first signature, whose request no key had signed,
///   before the client used it twice.
#[derive(Default)]
pub(crate) struct Bindings {
    requests: Vec<BindingRequest>,
    challenge: Option<Challenge>,
    /// Message identifier of the answer that ended the first logon, whose request no key had signed yet.
    first_signed: u64,
}

/// Ingredients of a logon's challenge.
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

    /// Returns the challenge of all bindings of this session. `None`: there were too many requests to
    /// remember; each then gets its own challenge and an unsigned answer.
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

    /// The number of requests that are remembered.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Remembers a genuine request, if there is space and the session's user may use more (`may_grow`).
    /// Returns whether it may be a repeated one.
    pub(super) fn verified(
        &mut self,
        message_id: u64,
        signature: [u8; 16],
        may_grow: bool,
    ) -> (Option<Binding>, bool) {
        let known = self
            .requests
            .iter()
            .position(|request| request.message_id == message_id && request.signature == signature);
        if let Some(known) = known {
            return (Some(Binding(known as u16)), true);
        }
        if !may_grow || self.requests.len() >= BINDINGS_MAX {
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

    pub(super) fn sign(
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

pub(super) fn sign(key: &SigningKey, head: &[u8], payload: &Payload, message_id: u64) -> [u8; 16] {
    key.sign(&parts(head, payload), message_id, true, false)
}

pub(super) fn parts<'a>(head: &'a [u8], payload: &'a Payload) -> SmallVec<[&'a [u8]; 4]> {
    let mut parts: SmallVec<[&[u8]; 4]> = SmallVec::new();
    parts.push(head);
    parts.extend(payload.parts().iter().map(|part| &part[..]));
    parts
}

pub(super) fn write(head: &mut BufMut, signature: [u8; 16]) {
    if let Some(header) = Header::in_place(head) {
        header.signature = signature;
    }
}
