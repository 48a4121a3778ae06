//! From requests to messages: identifiers, credits, signatures, encryption.

use super::{Connection, Outgoing, Owner, Pending, Token, payload_bytes};
use crate::operation::Request;
use smb::crypto::{SigningKey, TRANSFORM_HEADER_BYTES};
use smb::wire::{Command, Dialect, HEADER_BYTES, Header, HeaderFlags, Put, TCP_PREFIX_BYTES, U16, U32, U64};
use sys::{BufMut, Payload};
use types::NtStatus;

/// Bytes that one credit pays for (MS-SMB2 3.1.5.2).
const CREDIT_BYTES: usize = 65536;

impl Connection {
    /// Credits that a request takes.
    fn charge(&self, request: &Request) -> u16 {
        request.charged_bytes().div_ceil(CREDIT_BYTES).clamp(1, usize::from(u16::MAX)) as u16
    }

    /// CreditRequest: what is missing to the number wanted, and what this request takes at least.
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
            // The header is whole, so there is room for the signature.
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
        let (session_id, has_key, has_cipher) =
            (session.id, session.signing.is_some(), session.ciphers.is_some());
        let encrypt =
            has_cipher && (session.must_encrypt || chain.iter().any(|(_, request)| request.must_encrypt));
        let must_sign = session.must_sign;
        let is_old = self.dialect() == Some(Dialect::Smb202);
        let count = chain.len();

        // Where each element starts and its payload, which lies behind the element's own bytes.
        let mut head = prefix(0);
        let mut elements = Vec::with_capacity(count);
        let mut payload = Payload::new();
        let channel_sequence =
            if self.dialect() >= Some(Dialect::Smb300) { u32::from(self.channel_sequence) } else { 0 };
        for (index, (token, request)) in chain.into_iter().enumerate() {
            let charge = self.charge(&request);
            let sign = !encrypt && has_key && (must_sign || request.must_sign);
            let mut header = Header::new(request.command);
            let mut flags = HeaderFlags::empty();
            flags.set(HeaderFlags::RELATED_OPERATIONS, index > 0);
            flags.set(HeaderFlags::SIGNED, sign);
            flags.set(HeaderFlags::REPLAY_OPERATION, request.is_replay);
            header.flags = U32::new(flags.bits());
            header.status = U32::new(channel_sequence);
            header.credit_charge = U16::new(if is_old { 0 } else { charge });
            header.credits = U16::new(self.credits_asked(charge));
            header.tree_id = U32::new(request.tree_id);
            header.session_id = U64::new(session_id);
            let message_id = self.spend(charge);
            header.message_id = U64::new(message_id);
            let start = head.len();
            head.put(&header);
            head.extend_from_slice(&request.body);
            if count == 1 {
                payload = request.payload.clone();
            } else {
                // In a chain the next element follows: a payload is copied to its place.
                for part in request.payload.parts() {
                    head.extend_from_slice(part);
                }
                if index + 1 < count {
                    head.pad_from(TCP_PREFIX_BYTES, 8);
                    let next = (head.len() - start) as u32;
                    head.patch_u32(start + 20, next);
                }
            }
            elements.push((start, head.len(), message_id, sign));
            let pending = Pending {
                owner: Owner::Caller(token),
                command: request.command,
                charge,
                payload_bytes: request.payload.len(),
                is_encrypted: encrypt,
                is_signed: sign,
                async_id: None,
                request: (count == 1).then_some(request),
            };
            self.pending.insert(message_id, pending);
        }

        let Some(session) = &mut self.session else { return };
        if let Some(key) = &session.signing {
            for &(start, end, message_id, _) in elements.iter().filter(|element| element.3) {
                let mut parts: Vec<&[u8]> = vec![&head[start..end]];
                parts.extend(payload.parts().iter().map(|part| &part[..]));
                let signature = key.sign(&parts, message_id, false, false);
                head[start + 48..start + 64].copy_from_slice(&signature);
            }
        }
        if encrypt && let Some(ciphers) = &session.ciphers {
            let mut parts: Vec<&[u8]> = vec![&head[TCP_PREFIX_BYTES..]];
            parts.extend(payload.parts().iter().map(|part| &part[..]));
            let len = TRANSFORM_HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
            let mut sealed = BufMut::for_overwrite(len);
            let done = ciphers.seal.borrow_mut().seal_parts(&parts, &mut sealed, session_id);
            if done.is_err() {
                // Nonces are used up: nothing can be sent any more, and nothing must be sent in the clear.
                for (_, _, message_id, _) in elements {
                    self.refuse(message_id);
                }
                return;
            }
            let head = (len as u32).to_be_bytes().to_vec();
            self.outgoing.push_back(Outgoing { head, payload: sealed.freeze().into() });
            return;
        }
        let len = head.len() - TCP_PREFIX_BYTES + payload.len();
        head[..TCP_PREFIX_BYTES].copy_from_slice(&(len as u32).to_be_bytes());
        self.outgoing.push_back(Outgoing { head, payload });
    }

    /// Answers a request in the server's place.
    fn refuse(&mut self, message_id: u64) {
        let Some(pending) = self.pending.remove(&message_id) else { return };
        self.settle(&pending);
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
            // The header is whole, so there is room for the signature.
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
