//! READ and WRITE whose payload goes by RDMA (MS-SMB2 3.3.5.12, 3.3.5.13): the transport moves it between the client's memory and
//! ours, in order with the messages.
//!
//! Only where neither a signature nor encryption protects the session: payload that goes by RDMA would escape both.

use crate::connection::{ConnectionId, Outgoing, Transport};
use crate::directory::Directory;
use crate::request::{Body, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    BufferDescriptorV1, CHANNEL_NONE, CHANNEL_RDMA_V1, CHANNEL_RDMA_V1_INVALIDATE, Command, Dialect,
    ReadRequest, WriteRequest,
};
use sys::{Buf, Payload};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, OpenId, Operation, Reply};

/// Most descriptors of one request.
const DESCRIPTORS_MAX: usize = 256;

/// Where a client's memory lies.
#[derive(Debug, Clone)]
pub(crate) struct RemoteMemory {
    pub descriptors: Vec<BufferDescriptorV1>,
}

/// The registration that ends with the answer to this request, whatever the answer says (MS-SMB2 3.3.5.12, 3.3.5.13). The client counts
/// it as ended then; where it is not, its device refuses to register that memory again and the connection dies of it.
pub(crate) fn registration_to_end(command: Command, dialect: Option<Dialect>, request: &[u8]) -> Option<u32> {
    let (channel, descriptors) = match command {
        Command::Read => {
            let request = ReadRequest::parse(request).ok()?;
            (request.channel.get(), request.channel_info().ok()?)
        }
        Command::Write => {
            let request = WriteRequest::parse(request).ok()?;
            (request.channel.get(), request.channel_info().ok()?)
        }
        _ => return None,
    };
    let ends = channel == CHANNEL_RDMA_V1_INVALIDATE && dialect >= Some(Dialect::Smb302);
    descriptors.first().filter(|_| ends).map(|one| one.token.get())
}

/// A WRITE whose payload is being fetched.
pub(crate) struct RemoteWriteWork {
    pub memory: RemoteMemory,
    pub volume: usize,
    pub open: OpenId,
    pub offset: u64,
    pub length: u32,
    pub write_through: bool,
    pub unbuffered: bool,
    pub data: Option<Buf>,
}

impl RemoteWriteWork {
    /// What the transport has to fetch: bytes, and where they lie.
    pub(crate) fn fetch(&self) -> (usize, Vec<BufferDescriptorV1>) {
        (self.length as usize, self.memory.descriptors.clone())
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// The memory that a request's channel names; `None`: its payload is in the message.
    pub(crate) fn remote_memory(
        &self,
        context: &Context,
        channel: u32,
        length: u32,
        descriptors: impl FnOnce() -> Result<Vec<BufferDescriptorV1>, NtStatus>,
    ) -> Result<Option<RemoteMemory>, NtStatus> {
        if channel == CHANNEL_NONE {
            return Ok(None);
        }
        let connection = self.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let dialect = self.dialect_of(context);
        let known = match channel {
            CHANNEL_RDMA_V1 => dialect >= Dialect::Smb300,
            CHANNEL_RDMA_V1_INVALIDATE => dialect >= Dialect::Smb302,
            _ => false,
        };
        let protected = context.sign || context.sealed_by != 0;
        if !known || protected || connection.info.transport != Transport::SmbDirect {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let descriptors = descriptors()?;
        let total: u64 = descriptors.iter().map(|one| u64::from(one.length.get())).sum();
        let wraps =
            |one: &BufferDescriptorV1| one.offset.get().checked_add(one.length.get().into()).is_none();
        if descriptors.is_empty()
            || descriptors.len() > DESCRIPTORS_MAX
            || total < u64::from(length)
            || descriptors.iter().any(wraps)
        {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Some(RemoteMemory { descriptors }))
    }

    /// What was read goes to the client's memory; the answer says how much that was.
    pub(crate) fn read_into_remote(
        &mut self,
        context: &mut Context,
        memory: RemoteMemory,
        data: Payload,
    ) -> Result<Step, NtStatus> {
        let count = u32::try_from(data.len()).map_err(|_| NtStatus::INTERNAL_ERROR)?;
        self.enqueue(
            context.connection,
            Outgoing::RemoteWrite { payload: data, descriptors: memory.descriptors },
        );
        Ok(Step::Reply(NtStatus::SUCCESS, Body::ReadRemote(count)))
    }

    /// The transport's answer to [`Outgoing::RemoteRead`]; `None`: the client's memory could not be read.
    pub fn remote_read(&mut self, connection: ConnectionId, token: u64, data: Option<Buf>, now: Monotonic) {
        let Some(request) = self.requests.get_mut(token) else { return };
        if request.context.connection != connection.0 {
            return;
        }
        let Work::WriteRemote(work) = &mut request.work else { return };
        let result = match data {
            Some(data) => {
                work.data = Some(data);
                Ok(Reply::Done)
            }
            None => Err(NtStatus::INVALID_PARAMETER),
        };
        self.complete(token, result, now);
    }

    /// The payload is here: the volume takes it.
    pub(crate) fn remote_fetched(work: RemoteWriteWork) -> Result<Step, NtStatus> {
        let data = work.data.ok_or(NtStatus::INTERNAL_ERROR)?;
        Ok(Step::Submit {
            volume: work.volume,
            operation: Operation::Write {
                open: work.open,
                offset: work.offset,
                data: Payload::from(data),
                write_through: work.write_through,
                unbuffered: work.unbuffered,
            },
            work: Work::Write { length: work.length },
        })
    }
}
