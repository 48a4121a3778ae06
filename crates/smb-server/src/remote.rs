//! READ and WRITE whose payload goes by RDMA (MS-SMB2 3.3.5.12, 3.3.5.13): the transport moves it between the client's memory and
//! ours, in order with the messages.
//!
//! Where a signature or encryption protects the request, its payload goes by RDMA only with the same protection, by an RDMA transform
//! that was negotiated (2.2.43); without one such requests are refused, as payload would escape their protection.

use crate::directory::Directory;
use crate::exchange::{Body, Context};
use crate::state::State;
use crate::state::connections::{Connections, Outgoing, RdmaTransforms, Transport};
use crate::state::proof::Verified;
use crate::state::sessions::Sessions;
use smallvec::SmallVec;
use smb::wire::{
    BufferDescriptorV1, CHANNEL_NONE, CHANNEL_RDMA_TRANSFORM, CHANNEL_RDMA_V1, CHANNEL_RDMA_V1_INVALIDATE,
    Command, Dialect, RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING, RdmaTransform, ReadRequest,
    WriteRequest,
};
use sys::{Buf, BufMut, Payload};
use types::NtStatus;
use volume::backend::Backend;

/// Most descriptors of one request.
const DESCRIPTORS_MAX: usize = 256;

/// A client's memory, and the protection of payload to and from it.
#[derive(Debug, Clone)]
pub(crate) struct RemoteMemory {
    pub descriptors: Vec<BufferDescriptorV1>,
    pub protection: Protection,
}

/// The protection of a payload that goes by RDMA.
#[derive(Debug, Clone)]
pub(crate) enum Protection {
    None,
    /// The server encrypts the data of a READ.
    Encrypt,
    /// The server signs the data of a READ.
    Sign(Verified),
    /// The client has encrypted the data of a WRITE.
    Encrypted {
        nonce: Vec<u8>,
        tag: Vec<u8>,
    },
    /// The client has signed the data of a WRITE.
    Signed {
        nonce: Vec<u8>,
        signature: Vec<u8>,
    },
}

/// Longest signature and nonce that a transform may have.
const TRANSFORM_FIELD_BYTES_MAX: usize = 64;

/// Returns the registration that ends with the answer to this request, good or bad (MS-SMB2 3.3.5.12,
/// 3.3.5.13). The client counts it as ended then. If it is not, the client's device refuses to register
/// that memory again and the connection fails.
pub(crate) fn registration_to_end(command: Command, dialect: Option<Dialect>, request: &[u8]) -> Option<u32> {
    let (channel, descriptors) = match command {
        Command::Read => {
            let request = ReadRequest::parse(request).ok()?;
            let channel = request.channel.get();
            // Most requests have no channel: nothing further is read.
            if channel == CHANNEL_NONE {
                return None;
            }
            (channel, request.channel_info().ok()?)
        }
        Command::Write => {
            let request = WriteRequest::parse(request).ok()?;
            if request.channel.get() == CHANNEL_RDMA_TRANSFORM {
                let transform = RdmaTransform::parse(request.channel_bytes().ok()?).ok()?;
                (transform.channel, transform.descriptors)
            } else {
                (request.channel.get(), request.channel_info().ok()?)
            }
        }
        _ => return None,
    };
    let ends = channel == CHANNEL_RDMA_V1_INVALIDATE && dialect >= Some(Dialect::Smb302);
    descriptors.first().filter(|_| ends).map(|one| one.token.get())
}

/// Reads which memory of the client a READ names.
pub(crate) fn memory_to_write(
    connections: &Connections,
    context: &Context,
    channel: u32,
    length: u32,
    request: &ReadRequest<'_>,
) -> Result<RemoteMemory, NtStatus> {
    let descriptors = request.channel_info()?;
    let transforms = check_channel(connections, context, channel, length, descriptors)?;
    let protection = if context.sealed_by.is_some() && transforms.encryption {
        Protection::Encrypt
    } else {
        match context.proof {
            _ if context.sealed_by.is_some() => return Err(NtStatus::INVALID_PARAMETER),
            Some(proof) if transforms.signing => Protection::Sign(proof),
            Some(_) => return Err(NtStatus::INVALID_PARAMETER),
            None => Protection::None,
        }
    };
    Ok(RemoteMemory { descriptors: descriptors.to_vec(), protection })
}

/// Reads which memory of the client a WRITE names.
pub(crate) fn memory_to_read(
    connections: &Connections,
    context: &Context,
    channel: u32,
    length: u32,
    request: &WriteRequest<'_>,
) -> Result<RemoteMemory, NtStatus> {
    if channel != CHANNEL_RDMA_TRANSFORM {
        let descriptors = request.channel_info()?;
        check_channel(connections, context, channel, length, descriptors)?;
        if context.proof.is_some() || context.sealed_by.is_some() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        return Ok(RemoteMemory { descriptors: descriptors.to_vec(), protection: Protection::None });
    }
    let transform = RdmaTransform::parse(request.channel_bytes()?)?;
    let transforms = check_channel(connections, context, transform.channel, length, transform.descriptors)?;
    let fields = [transform.signature, transform.nonce];
    if fields.iter().any(|field| field.len() > TRANSFORM_FIELD_BYTES_MAX) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let [signature, nonce] = fields.map(<[u8]>::to_vec);
    let protection = match transform.transform_type {
        RDMA_TRANSFORM_ENCRYPTION if context.sealed_by.is_some() && transforms.encryption => {
            Protection::Encrypted { nonce, tag: signature }
        }
        RDMA_TRANSFORM_SIGNING
            if context.sealed_by.is_none() && context.proof.is_some() && transforms.signing =>
        {
            Protection::Signed { nonce, signature }
        }
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    Ok(RemoteMemory { descriptors: transform.descriptors.to_vec(), protection })
}

/// Checks that the connection knows the channel and the memory is enough. Returns the connection's
/// transforms.
fn check_channel(
    connections: &Connections,
    context: &Context,
    channel: u32,
    length: u32,
    descriptors: &[BufferDescriptorV1],
) -> Result<RdmaTransforms, NtStatus> {
    let connection = connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let dialect = context.dialect(connections);
    let known = match channel {
        CHANNEL_RDMA_V1 => dialect >= Dialect::Smb300,
        CHANNEL_RDMA_V1_INVALIDATE => dialect >= Dialect::Smb302,
        _ => false,
    };
    let total: u64 = descriptors.iter().map(|one| u64::from(one.length.get())).sum();
    let wraps = |one: &BufferDescriptorV1| one.offset.get().checked_add(one.length.get().into()).is_none();
    if !known
        || connection.info.transport != Transport::SmbDirect
        || descriptors.is_empty()
        || descriptors.len() > DESCRIPTORS_MAX
        || total < u64::from(length)
        || descriptors.iter().any(wraps)
    {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(connection.rdma_transforms)
}

/// Writes the data of a READ into the client's memory. Returns the body with its length.
pub(crate) fn send<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    memory: RemoteMemory,
    data: Payload,
) -> Result<Body, NtStatus> {
    let count = u32::try_from(data.len()).map_err(|_| NtStatus::INTERNAL_ERROR)?;
    let (payload, body) = match memory.protection {
        Protection::Encrypt => {
            let sealing = context.session_mut(&mut state.sessions)?.sealing.as_mut();
            let parts: SmallVec<[&[u8]; 4]> = data.parts().iter().map(|part| &part[..]).collect();
            let mut sealed = BufMut::for_overwrite(data.len());
            let (nonce, tag) = sealing
                .ok_or(NtStatus::USER_SESSION_DELETED)?
                .seal_payload(&parts, &mut sealed)
                .map_err(|_| NtStatus::INTERNAL_ERROR)?;
            let transform = transform_of(RDMA_TRANSFORM_ENCRYPTION, &tag, nonce.as_bytes());
            (Payload::from(sealed.freeze()), Body::ReadTransformed(count, transform))
        }
        Protection::Sign(proof) => {
            let (nonce, signature) = proof
                .sign_payload(&state.sessions, &data, context.to.message_id)
                .ok_or(NtStatus::USER_SESSION_DELETED)?;
            let transform = transform_of(RDMA_TRANSFORM_SIGNING, &signature, nonce.as_bytes());
            (data, Body::ReadTransformed(count, transform))
        }
        Protection::None => (data, Body::ReadRemote(count)),
        Protection::Encrypted { .. } | Protection::Signed { .. } => return Err(NtStatus::INTERNAL_ERROR),
    };
    let outgoing = Outgoing::RemoteWrite { payload, descriptors: memory.descriptors };
    state.connections.enqueue(context.connection, outgoing, &mut state.memory);
    Ok(body)
}

/// Checks that a payload which was fetched is the one that the client protected, and decrypts it.
pub(crate) fn open(
    sessions: &Sessions,
    context: &Context,
    memory: &RemoteMemory,
    data: Buf,
) -> Result<Buf, NtStatus> {
    match &memory.protection {
        Protection::None => Ok(data),
        Protection::Encrypted { nonce, tag } => {
            let opening = context.session(sessions)?.opening.as_ref();
            let mut plain = BufMut::for_overwrite(data.len());
            opening
                .ok_or(NtStatus::USER_SESSION_DELETED)?
                .open_payload(nonce, tag, &data, &mut plain)
                .map_err(|_| NtStatus::AUTH_TAG_MISMATCH)?;
            Ok(plain.freeze())
        }
        Protection::Signed { nonce, signature } => {
            let session = context.session(sessions)?;
            let channel = session.channel(context.connection).ok_or(NtStatus::USER_SESSION_DELETED)?;
            channel
                .signing
                .verify_payload(&[&data], nonce, signature)
                .map_err(|_| NtStatus::INVALID_SIGNATURE)?;
            Ok(data)
        }
        Protection::Encrypt | Protection::Sign(_) => Err(NtStatus::INTERNAL_ERROR),
    }
}

/// Describes the transform of a READ's payload, for its answer.
fn transform_of(transform_type: u16, signature: &[u8], nonce: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (channel, descriptors) = (CHANNEL_NONE, &[][..]);
    RdmaTransform { channel, transform_type, signature, nonce, descriptors }.write(&mut out);
    out
}
