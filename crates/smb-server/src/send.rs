//! From answers to messages: compounding, padding, signatures, encryption (MS-SMB2 3.3.4.1).

use crate::connection::{ConnectionId, Outgoing};
use crate::directory::Directory;
use crate::proof::Verified;
use crate::request::{Body, Hashed, Response};
use crate::server::Server;
use crate::setups::SetupId;
use smallvec::SmallVec;
use smb::wire::{
    HEADER_BYTES, Header, HeaderFlags, READ_RESPONSE_DATA_OFFSET, READ_RESPONSE_RDMA_TRANSFORM,
    ReadResponseBody, TRANSFORM_HEADER_BYTES, U32, WriteResponseBody, write_error,
};
use sys::{Buf, BufMut, Payload};
use volume::backend::Backend;
use zerocopy::IntoBytes;

/// An answer's bytes: its head, and payload that is not copied.
struct Built {
    head: BufMut,
    payload: Payload,
}

/// Builds header and body. All elements of a compound end at a multiple of eight, the last one too.
fn build(response: &mut Response, is_compound: bool, is_last: bool) -> Built {
    let payload = if let Body::Read(payload) = &response.body { payload.clone() } else { Payload::new() };
    let body_len = response.body.len_bytes() - payload.len();
    let len = HEADER_BYTES + body_len + payload.len();
    let padded = if is_compound { len.next_multiple_of(8) } else { len };
    if !is_last {
        response.header.next_command = U32::new(padded as u32);
    }
    // Padding lies in the head where there is no payload behind it.
    let head_len = if payload.is_empty() { padded } else { HEADER_BYTES + body_len };
    let mut head = BufMut::for_overwrite(head_len);
    let (header, body) = head.split_at_mut(HEADER_BYTES);
    header.copy_from_slice(response.header.as_bytes());
    match &response.body {
        Body::Read(payload) => {
            let fixed = ReadResponseBody {
                data_offset: READ_RESPONSE_DATA_OFFSET as u8,
                data_length: U32::new(payload.len() as u32),
                ..Default::default()
            };
            body[..body_len].copy_from_slice(fixed.as_bytes());
        }
        Body::ReadRemote(count) => {
            let fixed = ReadResponseBody {
                data_offset: READ_RESPONSE_DATA_OFFSET as u8,
                data_remaining: U32::new(*count),
                ..Default::default()
            };
            body[..body_len].copy_from_slice(fixed.as_bytes());
        }
        Body::ReadTransformed(count, transform) => {
            let fixed = ReadResponseBody {
                data_offset: READ_RESPONSE_DATA_OFFSET as u8,
                data_length: U32::new(transform.len() as u32),
                data_remaining: U32::new(*count),
                flags: U32::new(READ_RESPONSE_RDMA_TRANSFORM),
                ..Default::default()
            };
            let (head, tail) = body[..body_len].split_at_mut(size_of::<ReadResponseBody>());
            head.copy_from_slice(fixed.as_bytes());
            tail.copy_from_slice(transform);
        }
        Body::Written(count) => {
            let fixed = WriteResponseBody { count: U32::new(*count), ..Default::default() };
            body[..body_len].copy_from_slice(fixed.as_bytes());
        }
        Body::Bytes(bytes) => body[..body_len].copy_from_slice(bytes),
        Body::Error(contexts, data) => {
            let mut bytes = Vec::with_capacity(body_len);
            write_error(&mut bytes, *contexts, data);
            body[..body_len].copy_from_slice(&bytes);
        }
    }
    if body.len() > body_len {
        body[body_len..].fill(0);
    }
    let mut payload = payload;
    let total = head_len + payload.len();
    if padded > total {
        payload.push(BufMut::zeroed(padded - total).freeze());
    }
    Built { head, payload }
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// Sends the answers as one message. `sealed_by`: the session that encrypts it, or zero.
    pub(crate) fn send(&mut self, connection: u64, mut responses: SmallVec<[Response; 1]>, sealed_by: u64) {
        if responses.is_empty() || self.connections.get(connection).is_none() {
            return self.end_logged_off(&responses);
        }
        let mut out = Payload::new();
        let count = responses.len();
        let invalidate = responses.iter().find_map(|response| response.invalidate);
        for (position, response) in responses.iter_mut().enumerate() {
            let proof = response.proof.filter(|_| sealed_by == 0);
            if proof.is_some() {
                let flags = response.header.flags() | HeaderFlags::SIGNED;
                response.header.flags = U32::new(flags.bits());
            }
            let mut built = build(response, count > 1, position + 1 == count);
            if let Some(proof) = proof {
                self.sign(proof, &response.header, &mut built);
            }
            self.hash(connection, response.hashed, &built);
            out.push(built.head.freeze());
            out.append(built.payload);
        }
        if sealed_by != 0 {
            match self.seal(sealed_by, &out) {
                Some(sealed) => out = Payload::from(sealed),
                // Without its key nothing may be said in the clear.
                None => {
                    self.close_connection(connection);
                    return self.end_logged_off(&responses);
                }
            }
        }
        self.queue(connection, out, invalidate);
        self.end_logged_off(&responses);
    }

    /// Ends the sessions whose LOGOFF these answer: the answers have been sent, or never will be.
    pub(crate) fn end_logged_off(&mut self, responses: &[Response]) {
        for response in responses.iter().filter(|response| response.ends_session != 0) {
            self.end_session(response.ends_session, true);
        }
    }

    fn sign(&mut self, proof: Verified, header: &Header, built: &mut Built) {
        let message_id = header.message_id.get();
        let is_signed = proof.sign(&mut self.sessions, &mut built.head, &built.payload, message_id);
        // The flag alone tells a client that a refusal belongs to what it signed; any other answer has to be what it says.
        if !is_signed
            && !header.status().is_error()
            && let Some(header) = Header::in_place(&mut built.head)
        {
            header.flags = U32::new(header.flags().difference(HeaderFlags::SIGNED).bits());
        }
    }

    fn hash(&mut self, connection: u64, hashed: Hashed, built: &Built) {
        match hashed {
            Hashed::No => {}
            Hashed::Connection => {
                if let Some(found) = self.connections.get_mut(connection) {
                    found.preauth.update(&built.head);
                }
            }
            Hashed::Setup(session) => {
                if let Some(setup) = self.setups.get_mut(SetupId { connection, session }) {
                    setup.preauth.update(&built.head);
                }
            }
        }
    }

    fn seal(&mut self, session: u64, plain: &Payload) -> Option<Buf> {
        let sealing = self.sessions.get_mut(session)?.sealing.as_mut()?;
        let mut out = BufMut::for_overwrite(TRANSFORM_HEADER_BYTES + plain.len());
        let parts: SmallVec<[&[u8]; 4]> = plain.parts().iter().map(|part| &part[..]).collect();
        sealing.seal_parts(&parts, &mut out, session).ok()?;
        Some(out.freeze())
    }

    fn queue(&mut self, connection: u64, payload: Payload, invalidate: Option<u32>) {
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += payload.len() as u64;
        self.enqueue(connection, Outgoing::Message { payload, invalidate });
    }

    /// Queues a message, or what the transport moves by RDMA.
    pub(crate) fn enqueue(&mut self, connection: u64, outgoing: Outgoing) {
        let Some(found) = self.connections.get_mut(connection) else { return };
        found.transmit_bytes += outgoing.len_bytes();
        self.memory.in_work.take(found.holder, outgoing.len_bytes());
        if found.transmit.is_empty() {
            self.to_transmit.push(ConnectionId(connection));
        }
        found.transmit.push_back(outgoing);
    }
}
