//! Payload that goes by RDMA beside the messages: as well protected as the message that asks for it (MS-SMB2 2.2.43), or not sent so.

use super::Connection;
use crate::operation::{Reply, Request};
use smb::wire::{
    BufferDescriptorV1, RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING, READ_RESPONSE_RDMA_TRANSFORM,
    RdmaTransform, ReadResponse,
};
use sys::{Buf, BufMut, Payload};
use types::NtStatus;

/// What payload by RDMA may be protected by on a connection (SMB2_RDMA_TRANSFORM_CAPABILITIES).
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

/// What tells the server how a payload was protected.
pub(crate) struct Seal {
    transform_type: u16,
    signature: [u8; 16],
    nonce: Vec<u8>,
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

    /// A payload as the server may fetch it; `None` where it cannot be protected any more.
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

    /// What the server placed for a READ that it says it did, checked and in the clear.
    ///
    /// # Errors
    /// The status in place of the answer's, where it is not protected as the request was.
    pub(crate) fn open_payload(
        &self,
        protection: Protection,
        reply: &Reply,
        room: Buf,
    ) -> Result<Buf, NtStatus> {
        let mismatch = match protection {
            Protection::Encrypted => NtStatus::AUTH_TAG_MISMATCH,
            _ => NtStatus::INVALID_SIGNATURE,
        };
        let response = ReadResponse::parse(reply.message()).map_err(|_| mismatch)?;
        let is_transformed = response.flags.get() & READ_RESPONSE_RDMA_TRANSFORM != 0;
        let len = response.data_remaining.get() as usize;
        if protection == Protection::Plain || len == 0 && !is_transformed {
            return Ok(room);
        }
        if !is_transformed || len > room.len() {
            return Err(mismatch);
        }
        let transform = response.data().and_then(RdmaTransform::parse).map_err(|_| mismatch)?;
        let placed = room.slice(..len);
        let session = self.session.as_ref().ok_or(mismatch)?;
        match (protection, transform.transform_type) {
            (Protection::Encrypted, RDMA_TRANSFORM_ENCRYPTION) => {
                let ciphers = session.ciphers.as_ref().ok_or(mismatch)?;
                let mut plain = BufMut::for_overwrite(len);
                let opened =
                    ciphers.open.open_payload(transform.nonce, transform.signature, &placed, &mut plain);
                opened.map(|()| plain.freeze()).map_err(|_| mismatch)
            }
            (Protection::Signed, RDMA_TRANSFORM_SIGNING) => {
                let key = session.signing.as_ref().ok_or(mismatch)?;
                let verified = key.verify_payload(&[&placed], transform.nonce, transform.signature);
                verified.map(|()| placed).map_err(|_| mismatch)
            }
            _ => Err(mismatch),
        }
    }
}

impl Request {
    /// The payload goes by RDMA from where a transform says that it lies.
    pub(crate) fn send_transformed(&mut self, info: &[u8]) {
        if let Some(transfer) = &self.transfer {
            transfer.write_transformed_body(&mut self.body, info);
            self.payload = Payload::new();
        }
    }
}
