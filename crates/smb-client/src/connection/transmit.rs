//! From requests to messages: identifiers, credits, signatures, encryption.

use super::payload::{Protection, Seal};
use super::{Ciphers, Connection, Outgoing, Owner, Pending, Token, payload_bytes};
use crate::operation::Request;
use smb::crypto::{SigningKey, TRANSFORM_HEADER_BYTES};
use smb::wire::{
    Command, Dialect, HEADER_BYTES, Header, HeaderFlags, Put, RDMA_TRANSFORM_ENCRYPTION,
    RDMA_TRANSFORM_SIGNING, U16, U32, U64,
};
use smb_transport::framing::HEADER_BYTES as TCP_PREFIX_BYTES;
use std::ops::Range;
use sys::{BufMut, Payload};
use types::NtStatus;

/// Bytes that one credit pays for (MS-SMB2 3.1.5.2).
const CREDIT_BYTES: usize = 65536;

/// A message that is being put together.
struct Message {
    /// The prefix of TCP and the requests' own bytes.
    head: Vec<u8>,
    /// Payload of the only request, which lies behind the request's own bytes.
    payload: Payload,
    elements: Vec<Element>,
}

/// A request in a message: its bytes in the head.
struct Element {
    bytes: Range<usize>,
    message_id: u64,
    is_signed: bool,
}

impl Message {
    fn push(&mut self, header: &Header, request: &Request, index: usize, count: usize) {
        let start = self.head.len();
        self.head.put(header);
        self.head.extend_from_slice(&request.body);
        if count == 1 {
            self.payload = request.payload.clone();
        } else {
            // In a chain the next element follows: a payload is copied to its place.
            for part in request.payload.parts() {
                self.head.extend_from_slice(part);
            }
            if index + 1 < count {
                self.head.pad_from(TCP_PREFIX_BYTES, 8);
                let next = (self.head.len() - start) as u32;
                self.head.patch_u32(start + 20, next);
            }
        }
        let is_signed = header.flags().contains(HeaderFlags::SIGNED);
        let message_id = header.message_id.get();
        self.elements.push(Element { bytes: start..self.head.len(), message_id, is_signed });
    }

    fn sign(&mut self, key: &SigningKey) {
        for Element { bytes, message_id, .. } in self.elements.iter().filter(|element| element.is_signed) {
            let mut parts: Vec<&[u8]> = vec![&self.head[bytes.clone()]];
            parts.extend(self.payload.parts().iter().map(|part| &part[..]));
            let signature = key.sign(&parts, *message_id, false, false);
            self.head[bytes.start + 48..bytes.start + 64].copy_from_slice(&signature);
        }
    }

    /// The message encrypted; `None` when the key has no nonces left.
    fn seal(&self, ciphers: &Ciphers, session_id: u64) -> Option<Outgoing> {
        let mut parts: Vec<&[u8]> = vec![&self.head[TCP_PREFIX_BYTES..]];
        parts.extend(self.payload.parts().iter().map(|part| &part[..]));
        let len = TRANSFORM_HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut sealed = BufMut::for_overwrite(len);
        ciphers.seal.borrow_mut().seal_parts(&parts, &mut sealed, session_id).ok()?;
        Some(Outgoing { head: (len as u32).to_be_bytes().to_vec(), payload: sealed.freeze().into() })
    }

    fn plain(&mut self) -> Outgoing {
        let mut head = std::mem::take(&mut self.head);
        let len = head.len() - TCP_PREFIX_BYTES + self.payload.len();
        head[..TCP_PREFIX_BYTES].copy_from_slice(&(len as u32).to_be_bytes());
        Outgoing { head, payload: std::mem::take(&mut self.payload) }
    }
}

impl Connection {
    /// How the payload of such a request goes by RDMA; `None`: only in a message is it protected as it has to be.
    pub(crate) fn payload_protection(&self, must_encrypt: bool, must_sign: bool) -> Option<Protection> {
        let (session, negotiated) = (self.session.as_ref()?, self.negotiated.as_ref()?);
        let transforms = negotiated.transforms;
        if session.must_encrypt || must_encrypt {
            let can = transforms.encryption && session.ciphers.is_some();
            return can.then_some(Protection::Encrypted);
        }
        if session.must_sign || must_sign {
            let can = transforms.signing || session.signing.is_none();
            return can.then_some(match session.signing {
                Some(_) => Protection::Signed,
                None => Protection::Plain,
            });
        }
        Some(Protection::Plain)
    }

    /// Protects a payload that the server is to fetch by RDMA; `None` if the keys are gone or the cipher has used up its nonces.
    pub(crate) fn protect_payload(
        &mut self,
        protection: Protection,
        data: &Payload,
    ) -> Option<(Payload, Option<Seal>)> {
        match protection {
            Protection::Plain => Some((data.clone(), None)),
            Protection::Encrypted => {
                let ciphers = self.session.as_ref()?.ciphers.as_ref()?;
                let parts: Vec<&[u8]> = data.parts().iter().map(|part| &part[..]).collect();
                let mut sealed = BufMut::for_overwrite(data.len());
                let (nonce, signature) = ciphers.seal.borrow_mut().seal_payload(&parts, &mut sealed).ok()?;
                let nonce = nonce.as_bytes().to_vec();
                let seal = Seal { transform_type: RDMA_TRANSFORM_ENCRYPTION, signature, nonce };
                Some((sealed.freeze().into(), Some(seal)))
            }
            Protection::Signed => {
                // The key is of this channel alone, and so are its nonces.
                self.payloads_signed += 1;
                let key = self.session.as_ref()?.signing.as_ref()?;
                let parts: Vec<&[u8]> = data.parts().iter().map(|part| &part[..]).collect();
                let (nonce, signature) = key.sign_payload(&parts, self.payloads_signed, false);
                let nonce = nonce.as_bytes().to_vec();
                let seal = Seal { transform_type: RDMA_TRANSFORM_SIGNING, signature, nonce };
                Some((data.clone(), Some(seal)))
            }
        }
    }

    /// Credits that a request takes.
    fn charge(&self, request: &Request) -> u16 {
        request.charged_bytes().div_ceil(CREDIT_BYTES).clamp(1, usize::from(u16::MAX)) as u16
    }

    /// CreditRequest: the credits missing to the number wanted, and at least those of this request.
    fn credits_asked(&self, charge: u16) -> u16 {
        let have = self.credits + self.credits_spent;
        let missing = u32::from(self.options.credits).saturating_sub(have);
        u32::from(charge).max(missing).min(u32::from(u16::MAX)) as u16
    }

    fn spend(&mut self, charge: u16) -> u64 {
        let message_id = self.next_message_id;
        self.next_message_id += u64::from(charge);
        self.credits = self.credits.saturating_sub(u32::from(charge));
        self.credits_spent += u32::from(charge);
        message_id
    }

    /// Queues a message of the handshake, which is signed only to join a session, and returns it from its header on.
    pub(super) fn transmit_plain(
        &mut self,
        command: Command,
        session_id: u64,
        body: &[u8],
        proof: Option<&SigningKey>,
    ) -> Vec<u8> {
        let mut header = Header::new(command);
        let is_old = self.dialect().is_none_or(|dialect| dialect == Dialect::Smb202);
        header.credit_charge = U16::new(u16::from(!is_old));
        header.credits = U16::new(self.credits_asked(1));
        header.session_id = U64::new(session_id);
        let message_id = self.spend(1);
        header.message_id = U64::new(message_id);
        self.pending.insert(
            message_id,
            Pending {
                owner: Owner::Handshake,
                command,
                charge: 1,
                payload_bytes: 0,
                is_encrypted: false,
                is_signed: false,
                async_id: None,
                request: None,
            },
        );
        if proof.is_some() {
            header.flags = U32::new(HeaderFlags::SIGNED.bits());
        }
        let mut head = prefix(HEADER_BYTES + body.len());
        head.put(&header);
        head.extend_from_slice(body);
        if let (Some(key), Some(message)) = (proof, head.get_mut(TCP_PREFIX_BYTES..)) {
            // The header is whole, so there is space for the signature.
            let _ = key.sign_in_place(message, message_id, false, false);
        }
        let message = head.get(TCP_PREFIX_BYTES..).unwrap_or_default().to_vec();
        self.outgoing.push_back(Outgoing { head, payload: Payload::new() });
        message
    }

    /// Turns as many waiting chains into messages as there are credits for.
    pub(super) fn transmit_waiting(&mut self) {
        while self.is_ready()
            && let Some(chain) = self.waiting.front()
        {
            let charge: u32 = chain.iter().map(|(_, request)| u32::from(self.charge(request))).sum();
            if charge > self.credits {
                self.credit_stalls += u64::from(!std::mem::replace(&mut self.is_stalled, true));
                return;
            }
            self.is_stalled = false;
            let (payload_bytes, on_their_way) = (payload_bytes(chain), self.payload_bytes.1);
            if payload_bytes > 0 && on_their_way > 0 && on_their_way + payload_bytes > self.payload_window {
                return;
            }
            self.payload_bytes.0 = self.payload_bytes.0.saturating_sub(payload_bytes);
            self.payload_bytes.1 += payload_bytes;
            let Some(chain) = self.waiting.pop_front() else { return };
            self.transmit_chain(chain);
        }
    }

    fn transmit_chain(&mut self, chain: Vec<(Token, Request)>) {
        let Some(session) = &self.session else { return };
        let wants = session.must_encrypt || chain.iter().any(|(_, request)| request.must_encrypt);
        let is_encrypted = wants && session.ciphers.is_some();
        let mut message = self.assemble(chain, is_encrypted);
        let Some(session) = &self.session else { return };
        if let Some(key) = &session.signing {
            message.sign(key);
        }
        let outgoing = match &session.ciphers {
            Some(ciphers) if is_encrypted => message.seal(ciphers, session.id),
            _ => Some(message.plain()),
        };
        match outgoing {
            Some(outgoing) => self.outgoing.push_back(outgoing),
            // Nonces are used up: nothing can be sent any more, and nothing must be sent in the clear.
            None => message.elements.iter().for_each(|element| self.refuse(element.message_id)),
        }
    }

    /// Writes the requests one behind the other, and notes that they wait for answers.
    fn assemble(&mut self, chain: Vec<(Token, Request)>, is_encrypted: bool) -> Message {
        let count = chain.len();
        let mut message =
            Message { head: prefix(0), payload: Payload::new(), elements: Vec::with_capacity(count) };
        for (index, (token, request)) in chain.into_iter().enumerate() {
            let charge = self.charge(&request);
            let must_sign =
                request.must_sign || self.session.as_ref().is_some_and(|session| session.must_sign);
            let has_key = self.session.as_ref().is_some_and(|session| session.signing.is_some());
            let is_signed = !is_encrypted && has_key && must_sign;
            let mut header = self.header(&request, charge, is_signed);
            if index > 0 {
                let flags = header.flags() | HeaderFlags::RELATED_OPERATIONS;
                header.flags = U32::new(flags.bits());
            }
            let message_id = header.message_id.get();
            message.push(&header, &request, index, count);
            let pending = Pending {
                owner: Owner::Caller(token),
                command: request.command,
                charge,
                payload_bytes: request.payload.len(),
                is_encrypted,
                is_signed,
                async_id: None,
                request: (count == 1).then_some(request),
            };
            self.pending.insert(message_id, pending);
        }
        message
    }

    /// The header of a request, with the message identifiers that it spends.
    fn header(&mut self, request: &Request, charge: u16, is_signed: bool) -> Header {
        let dialect = self.dialect();
        let mut header = Header::new(request.command);
        let mut flags = HeaderFlags::empty();
        flags.set(HeaderFlags::SIGNED, is_signed);
        flags.set(HeaderFlags::REPLAY_OPERATION, request.is_replay);
        header.flags = U32::new(flags.bits());
        if dialect >= Some(Dialect::Smb300) {
            header.status = U32::new(u32::from(self.channel_sequence));
        }
        header.credit_charge = U16::new(if dialect == Some(Dialect::Smb202) { 0 } else { charge });
        header.credits = U16::new(self.credits_asked(charge));
        header.tree_id = U32::new(request.tree_id);
        header.session_id = U64::new(self.session.as_ref().map_or(0, |session| session.id));
        header.message_id = U64::new(self.spend(charge));
        header
    }

    /// Answers a request in the server's place.
    fn refuse(&mut self, message_id: u64) {
        let Some(pending) = self.pending.remove(&message_id) else { return };
        self.release_credits(&pending);
        if let Owner::Caller(token) = pending.owner {
            let reply = crate::operation::Reply::local(pending.command, NtStatus::CONNECTION_DISCONNECTED);
            self.events.push_back(super::Event::Completed { token, reply });
        }
    }

    /// CANCEL takes no credit and gets no answer (MS-SMB2 3.2.4.24).
    pub(super) fn transmit_cancel(&mut self, message_id: u64, async_id: Option<u64>) {
        let Some(session) = &mut self.session else { return };
        let mut header = Header::new(Command::Cancel);
        header.session_id = U64::new(session.id);
        header.message_id = U64::new(message_id);
        let mut flags = HeaderFlags::empty();
        let sign = session.must_sign && session.signing.is_some() && !session.must_encrypt;
        flags.set(HeaderFlags::SIGNED, sign);
        header.flags = U32::new(flags.bits());
        if let Some(async_id) = async_id {
            header.set_async_id(async_id);
        }
        let mut head = prefix(HEADER_BYTES + 4);
        head.put(&header);
        head.extend_from_slice(&[4, 0, 0, 0]);
        if session.must_encrypt
            && let Some(ciphers) = &session.ciphers
        {
            let mut seal = ciphers.seal.borrow_mut();
            let len = TRANSFORM_HEADER_BYTES + HEADER_BYTES + 4;
            let mut sealed = prefix(len);
            sealed.resize(TCP_PREFIX_BYTES + len, 0);
            let id = session.id;
            if seal.seal_parts(&[&head[TCP_PREFIX_BYTES..]], &mut sealed[TCP_PREFIX_BYTES..], id).is_ok() {
                self.outgoing.push_back(Outgoing { head: sealed, payload: Payload::new() });
            }
            return;
        }
        if sign && let Some(key) = &session.signing {
            // The header is whole, so there is space for the signature.
            let _ = key.sign_in_place(&mut head[TCP_PREFIX_BYTES..], message_id, false, true);
        }
        self.outgoing.push_back(Outgoing { head, payload: Payload::new() });
    }
}

/// The length prefix of TCP (MS-SMB2 2.1).
fn prefix(len: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(TCP_PREFIX_BYTES + len.max(256));
    head.extend_from_slice(&(len as u32).to_be_bytes());
    head
}
