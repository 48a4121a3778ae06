//! From answers to messages: compounding, padding, signatures, encryption (MS-SMB2 3.3.4.1).

use super::chain::{Chain, Hashed, Response};
use crate::directory::Directory;
use crate::exchange::Body;
use crate::state::State;
use crate::state::connections::{ConnectionId, Outgoing};
use crate::state::keys::SessionKey;
use crate::state::proof::Verified;
use crate::state::setups::SetupId;
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
#[inline]
fn build(response: &mut Response, is_compound: bool, is_last: bool) -> Built {
    let payload = if let Body::Read(payload) = &response.body { payload.clone() } else { Payload::new() };
    let body_len = response.body.len_bytes() - payload.len();
    let len = HEADER_BYTES + body_len + payload.len();
    let padded = if is_compound { len.next_multiple_of(8) } else { len };
    if !is_last {
        response.header.next_command = U32::new(padded as u32);
    }
    // Padding is in the head if no payload follows.
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

/// Sends the answers as one message, encrypted if the requests came encrypted, by the session `sealed_by`.
pub(super) fn send<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    responses: &mut [Response],
    sealed_by: Option<SessionKey>,
) {
    if responses.is_empty() || !state.connections.contains(connection) {
        return end_logged_off(state, responses);
    }
    let mut out = Payload::new();
    let count = responses.len();
    let invalidate = responses.iter().find_map(|response| response.invalidate);
    for (position, response) in responses.iter_mut().enumerate() {
        let proof = response.proof.filter(|_| sealed_by.is_none());
        if proof.is_some() {
            let flags = response.header.flags() | HeaderFlags::SIGNED;
            response.header.flags = U32::new(flags.bits());
        }
        let mut built = build(response, count > 1, position + 1 == count);
        if let Some(proof) = proof {
            sign(state, proof, &response.header, &mut built);
        }
        hash(state, connection, response.hashed, &built);
        out.push(built.head.freeze());
        out.append(built.payload);
    }
    if let Some(session) = sealed_by {
        match seal(state, session, &out) {
            Some(sealed) => out = Payload::from(sealed),
            // Without its key the answer must not be sent in the clear.
            None => {
                state.connections.close(connection);
                return end_logged_off(state, responses);
            }
        }
    }
    state.counters.messages_sent += 1;
    state.counters.bytes_sent += out.len() as u64;
    let outgoing = Outgoing::Message { payload: out, invalidate };
    state.connections.enqueue(connection, outgoing, &mut state.memory);
    end_logged_off(state, responses);
}

/// Sends the answers that a chain holds.
#[inline]
pub(super) fn flush<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    chain: &mut Chain,
) {
    chain.held_bytes = 0;
    send(state, connection, &mut chain.responses, chain.sealed_by);
    chain.responses.clear();
}

/// Adds an answer to its chain. If their message would become too long, the earlier answers are sent
/// first, in their own: a server need not compound its answers (MS-SMB2 3.3.4.1.3).
#[inline]
pub(super) fn hold<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    chain: &mut Chain,
    response: Response,
) {
    let bytes = (HEADER_BYTES + response.body.len_bytes()).next_multiple_of(8);
    if chain.held_bytes + bytes > state.config.limits.answer_bytes_max() && !chain.responses.is_empty() {
        flush(state, connection, chain);
    }
    chain.held_bytes += bytes;
    chain.answered_bytes += bytes;
    chain.responses.push(response);
}

/// Ends the sessions whose LOGOFF these answer: the answers have been sent, or never will be.
pub(super) fn end_logged_off<B: Backend, D: Directory>(state: &mut State<B, D>, responses: &[Response]) {
    for session in responses.iter().filter_map(|response| response.ends_session) {
        state.end_session(session);
    }
}

fn sign<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    proof: Verified,
    header: &Header,
    built: &mut Built,
) {
    let message_id = header.message_id.get();
    let is_signed = proof.sign(&mut state.sessions, &mut built.head, &built.payload, message_id);
    // The flag alone shows a client that a refusal belongs to its signed request; on any other unsigned
    // answer it would be false.
    if !is_signed
        && !header.status().is_error()
        && let Some(header) = Header::in_place(&mut built.head)
    {
        header.flags = U32::new(header.flags().difference(HeaderFlags::SIGNED).bits());
    }
}

fn hash<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    hashed: Hashed,
    built: &Built,
) {
    match hashed {
        Hashed::No => {}
        Hashed::Connection => {
            if let Some(found) = state.connections.get_mut(connection) {
                found.preauth.update(&built.head);
            }
        }
        Hashed::Setup(session) => {
            if let Some(setup) = state.setups.get_mut(SetupId { connection, session }) {
                setup.preauth.update(&built.head);
            }
        }
    }
}

fn seal<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    session: SessionKey,
    plain: &Payload,
) -> Option<Buf> {
    let sealing = state.sessions.get_mut(session)?.sealing.as_mut()?;
    let mut out = BufMut::for_overwrite(TRANSFORM_HEADER_BYTES + plain.len());
    let parts: SmallVec<[&[u8]; 4]> = plain.parts().iter().map(|part| &part[..]).collect();
    sealing.seal_parts(&parts, &mut out, session.get()).ok()?;
    Some(out.freeze())
}
