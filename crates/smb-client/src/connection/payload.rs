//! Payload that goes by RDMA beside the messages: as well protected as the message that asks for it (MS-SMB2 2.2.43), or not sent so.

use crate::operation::Request;
use smb::wire::{BufferDescriptorV1, RdmaTransform};
use sys::Payload;

/// Protection that payload by RDMA may have on a connection (SMB2_RDMA_TRANSFORM_CAPABILITIES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Transforms {
    pub encryption: bool,
    pub signing: bool,
}

/// How the payload of one request is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// As its messages: not at all.
    Plain,
    Encrypted,
    Signed,
}

/// Description for the server of a payload's protection.
pub(crate) struct Seal {
    pub(super) transform_type: u16,
    pub(super) signature: [u8; 16],
    pub(super) nonce: Vec<u8>,
}

impl Seal {
    /// SMB2_RDMA_TRANSFORM, for the request.
    pub fn describe(&self, channel: u32, descriptors: &[BufferDescriptorV1]) -> Vec<u8> {
        let Self { transform_type, signature, nonce } = self;
        let mut info = Vec::new();
        RdmaTransform { channel, transform_type: *transform_type, signature, nonce, descriptors }
            .write(&mut info);
        info
    }
}

impl Request {
    /// Makes the payload go by RDMA, from the place that a transform names.
    pub(crate) fn send_transformed(&mut self, info: &[u8]) {
        if let Some(transfer) = &self.transfer {
            transfer.write_transformed_body(&mut self.body, info);
            self.payload = Payload::new();
        }
    }
}
