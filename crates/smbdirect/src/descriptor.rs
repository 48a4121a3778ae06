//! Buffer descriptors (MS-SMBD 2.2.3.1) as SMB2 READ and WRITE carry them, and the budget of RDMA Reads that serve them.

/// Bytes of one descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Most descriptors of one request: enough for 8 MiB in pages of a megabyte and for fragmented client memory.
pub const DESCRIPTORS_MAX: usize = 256;

/// SMB_DIRECT_BUFFER_DESCRIPTOR_V1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferDescriptor {
    /// Address of the first byte, as the peer registered it.
    pub offset: u64,
    /// STag or R_Key.
    pub token: u32,
    /// Bytes from `offset` on that may be read or written.
    pub len_bytes: u32,
}

/// Reason for which an array of descriptors is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Array that is empty or ends within a descriptor.
    #[error("the descriptor array is empty or not a multiple of 16 bytes")]
    Length,
    /// Array above [`DESCRIPTORS_MAX`].
    #[error("more than 256 descriptors")]
    TooMany,
    /// Offset and length whose sum exceeds 64 bits.
    #[error("a descriptor's offset and length wrap around")]
    Wrap,
}

impl BufferDescriptor {
    /// Returns the descriptor as channel information holds it, little-endian.
    pub fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut out = [0; DESCRIPTOR_BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.token.to_le_bytes());
        out[12..].copy_from_slice(&self.len_bytes.to_le_bytes());
        out
    }
}

/// Reads the array that a READ's or WRITE's channel information holds.
pub fn parse_descriptors(bytes: &[u8]) -> Result<Vec<BufferDescriptor>, DescriptorError> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(DESCRIPTOR_BYTES) {
        return Err(DescriptorError::Length);
    }
    if bytes.len() / DESCRIPTOR_BYTES > DESCRIPTORS_MAX {
        return Err(DescriptorError::TooMany);
    }
    bytes
        .chunks_exact(DESCRIPTOR_BYTES)
        .map(|one| {
            let mut offset = [0; 8];
            offset.copy_from_slice(&one[..8]);
            let descriptor = BufferDescriptor {
                offset: u64::from_le_bytes(offset),
                token: u32::from_le_bytes([one[8], one[9], one[10], one[11]]),
                len_bytes: u32::from_le_bytes([one[12], one[13], one[14], one[15]]),
            };
            match descriptor.offset.checked_add(u64::from(descriptor.len_bytes)) {
                Some(_) => Ok(descriptor),
                None => Err(DescriptorError::Wrap),
            }
        })
        .collect()
}

/// RDMA Reads that may be outstanding. A request is served descriptor by descriptor as reads come free: it never waits for more than
/// one, so a budget of one is enough for any array.
#[derive(Debug, Clone, Copy)]
pub struct ReadBudget {
    depth: u16,
    outstanding: u16,
}

impl ReadBudget {
    /// `depth`: the outbound read depth of the connection. `None` if the peer serves no reads: writes come inline only.
    pub fn new(depth: u16) -> Option<Self> {
        (depth > 0).then_some(Self { depth, outstanding: 0 })
    }

    /// Takes one read, if one is free.
    pub fn take(&mut self) -> bool {
        let free = self.outstanding < self.depth;
        self.outstanding += u16::from(free);
        free
    }

    /// One read is answered.
    pub fn give_back(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Returns the reads that are not answered.
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }
}
