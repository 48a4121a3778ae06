//! Describes how a payload that goes by RDMA is encrypted or signed (MS-SMB2 2.2.3.1.6, 2.2.43).

use super::{BufferDescriptorV1, Put, U16, U32, WireError, range, view_at};
use zerocopy::{FromBytes, IntoBytes};

/// Transforms of SMB2_RDMA_TRANSFORM_CAPABILITIES; those of a payload have the same numbers.
pub const RDMA_TRANSFORM_NONE: u16 = 0;
/// SMB2_RDMA_TRANSFORM_ENCRYPTION: the payload is encrypted by the session's cipher.
pub const RDMA_TRANSFORM_ENCRYPTION: u16 = 1;
/// SMB2_RDMA_TRANSFORM_SIGNING: the payload is signed.
pub const RDMA_TRANSFORM_SIGNING: u16 = 2;

/// Flag of a READ response: its data is an SMB2_RDMA_TRANSFORM.
pub const READ_RESPONSE_RDMA_TRANSFORM: u32 = 1;

wire_struct! {
    /// MS-SMB2 2.2.43.
    RdmaTransformHead {
        /// Offset of the descriptors from this head, a multiple of 8.
        descriptor_offset: U16,
        /// Bytes of the descriptors.
        descriptor_length: U16,
        /// `CHANNEL_` constant that gives the descriptors a meaning.
        channel: U32,
        /// Transforms behind the head: 1.
        transform_count: U16,
        /// Reserved: sent as 0 and ignored.
        reserved1: U16,
        /// Reserved: sent as 0 and ignored.
        reserved2: U32,
    }
}

wire_struct! {
    /// MS-SMB2 2.2.43.1, before signature and nonce.
    CryptoTransformHead { transform_type: U16, signature_length: U16, nonce_length: U16, reserved: U16, }
}

/// MS-SMB2 2.2.43 with the one transform that it has, and where the peer's memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaTransform<'a> {
    /// As of READ and WRITE.
    pub channel: u32,
    /// Encryption or signing, by its `RDMA_TRANSFORM_` constant.
    pub transform_type: u16,
    /// Tag of the cipher or signature over the payload, at most 16 bytes.
    pub signature: &'a [u8],
    /// Nonce of the cipher or of AES-GMAC; empty for other signatures.
    pub nonce: &'a [u8],
    /// Memory of the peer that the payload goes to or comes from.
    pub descriptors: &'a [BufferDescriptorV1],
}

impl<'a> RdmaTransform<'a> {
    /// # Errors
    /// [`WireError`] if it is cut short, does not have exactly one transform, or its descriptors do not begin at a multiple of
    /// eight behind that.
    pub fn parse(info: &'a [u8]) -> Result<Self, WireError> {
        let head: &RdmaTransformHead = view_at(info, 0)?;
        // One of each kind at most, and not both kinds (MS-SMB2 3.3.5.13).
        if head.transform_count.get() != 1 {
            return Err(WireError::Value);
        }
        let at = size_of::<RdmaTransformHead>();
        let crypto: &CryptoTransformHead = view_at(info, at)?;
        let signature_at = at + size_of::<CryptoTransformHead>();
        let nonce_at = signature_at + usize::from(crypto.signature_length.get());
        let end = nonce_at + usize::from(crypto.nonce_length.get());
        let signature = range(info, signature_at, crypto.signature_length.get().into())?;
        let nonce = range(info, nonce_at, crypto.nonce_length.get().into())?;
        let (offset, length) = (usize::from(head.descriptor_offset.get()), head.descriptor_length.get());
        let descriptors: &[BufferDescriptorV1] = if length == 0 {
            &[]
        } else if offset % 8 != 0 || offset < end {
            return Err(WireError::OutOfBounds);
        } else {
            <[BufferDescriptorV1]>::ref_from_bytes(range(info, offset, length.into())?)
                .map_err(|_| WireError::Value)?
        };
        let channel = head.channel.get();
        Ok(Self { channel, transform_type: crypto.transform_type.get(), signature, nonce, descriptors })
    }

    /// Appends it, each part at a multiple of eight from where it begins.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let crypto_len = size_of::<CryptoTransformHead>() + self.signature.len() + self.nonce.len();
        let descriptors_at = (size_of::<RdmaTransformHead>() + crypto_len).next_multiple_of(8);
        let descriptor_length = size_of_val(self.descriptors) as u16;
        let descriptor_offset = if descriptor_length == 0 { 0 } else { descriptors_at as u16 };
        out.put(&RdmaTransformHead {
            descriptor_offset: descriptor_offset.into(),
            descriptor_length: descriptor_length.into(),
            channel: self.channel.into(),
            transform_count: 1.into(),
            ..Default::default()
        });
        out.put(&CryptoTransformHead {
            transform_type: self.transform_type.into(),
            signature_length: (self.signature.len() as u16).into(),
            nonce_length: (self.nonce.len() as u16).into(),
            ..Default::default()
        });
        out.extend_from_slice(self.signature);
        out.extend_from_slice(self.nonce);
        out.resize(start + descriptors_at, 0);
        out.extend_from_slice(self.descriptors.as_bytes());
    }
}

/// The identifiers of SMB2_RDMA_TRANSFORM_CAPABILITIES.
///
/// # Errors
/// [`WireError`] if there are none, or fewer than it says.
pub fn rdma_transform_ids(data: &[u8]) -> Result<impl Iterator<Item = u16> + Clone + '_, WireError> {
    let count = view_at::<U16>(data, 0)?.get();
    if count == 0 {
        return Err(WireError::Value);
    }
    // Six reserved bytes lie between.
    let ids =
        <[U16]>::ref_from_bytes(range(data, 8, usize::from(count) * 2)?).map_err(|_| WireError::Value)?;
    Ok(ids.iter().map(|id| id.get()))
}

/// The data of SMB2_RDMA_TRANSFORM_CAPABILITIES.
pub fn put_rdma_transform_ids(ids: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + ids.len() * 2);
    out.put(&U16::new(ids.len() as u16));
    out.resize(8, 0);
    out.put_wide(ids);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CHANNEL_RDMA_V1;

    fn descriptors() -> [BufferDescriptorV1; 2] {
        [1, 2].map(|token: u32| BufferDescriptorV1 {
            token: token.into(),
            length: 4096.into(),
            ..Default::default()
        })
    }

    fn written(transform: &RdmaTransform<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        transform.write(&mut out);
        out
    }

    #[test]
    fn a_transform_reads_back_and_has_the_sizes_that_others_expect() {
        let memory = descriptors();
        for (nonce, head_bytes) in [(&[7; 12][..], 56), (&[7; 11], 56), (&[], 40)] {
            let transform = RdmaTransform {
                channel: CHANNEL_RDMA_V1,
                transform_type: RDMA_TRANSFORM_ENCRYPTION,
                signature: &[9; 16],
                nonce,
                descriptors: &memory,
            };
            assert_eq!(written(&transform).len(), head_bytes + 32);
            assert_eq!(RdmaTransform::parse(&written(&transform)), Ok(transform));
            let bare = RdmaTransform { descriptors: &[], ..transform };
            assert_eq!(written(&bare).len(), head_bytes);
            assert_eq!(RdmaTransform::parse(&written(&bare)), Ok(bare));
        }
    }

    #[test]
    fn none_two_misplaced_and_cut_transforms_are_refused() {
        let memory = descriptors();
        let transform = RdmaTransform {
            channel: CHANNEL_RDMA_V1,
            transform_type: RDMA_TRANSFORM_SIGNING,
            signature: &[9; 16],
            nonce: &[],
            descriptors: &memory,
        };
        let good = written(&transform);
        for (at, value) in [(8, 0), (8, 2), (0, 44), (0, 32), (0, 200), (2, 15), (18, 200), (20, 200)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(RdmaTransform::parse(&bytes).is_err(), "byte {at} = {value}");
        }
        for len in 0..good.len() {
            assert!(RdmaTransform::parse(&good[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn capabilities_read_back() {
        let data = put_rdma_transform_ids(&[RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING]);
        assert_eq!(data.len(), 12);
        assert!(rdma_transform_ids(&data).unwrap().eq([1, 2]));
        assert!(rdma_transform_ids(&put_rdma_transform_ids(&[])).is_err());
        assert!(rdma_transform_ids(&data[..11]).is_err());
    }
}
