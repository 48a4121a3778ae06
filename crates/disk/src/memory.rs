//! A disk in memory that never fails and never forgets while it lives: for tests of higher layers.
//!
//! Promises: every operation is answered by the next poll, in order. Never survives the process.

use crate::image::SparseImage;
use crate::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation, check_fit};
use sys::BufMut;

/// Memory by content: an empty disk of a terabyte costs nothing.
pub struct MemoryDisk {
    info: DiskInfo,
    image: SparseImage,
    answers: Vec<DiskCompletion>,
}

impl MemoryDisk {
    /// A disk of zeroes with logical blocks of 4096 bytes.
    pub fn new(size_bytes: u64) -> Self {
        Self::with_block_bytes(size_bytes, 4096)
    }

    /// A disk of zeroes with logical blocks of 512 or 4096 bytes.
    pub fn with_block_bytes(size_bytes: u64, block_bytes: u32) -> Self {
        let info = DiskInfo {
            path: "memory".to_owned(),
            size_bytes,
            block_bytes,
            rotational: false,
            discards: true,
            direct: true,
        };
        Self { info, image: SparseImage::default(), answers: Vec::new() }
    }

    fn perform(&mut self, operation: DiskOperation) -> Result<Option<BufMut>, DiskError> {
        check_fit(&self.info, &operation)?;
        match operation {
            DiskOperation::Read { offset, mut into } => {
                self.image.read(offset, &mut into);
                return Ok(Some(into));
            }
            DiskOperation::Write { mut offset, data, durable: _ } => {
                for part in data.parts() {
                    self.image.write(offset, part);
                    offset += part.len() as u64;
                }
            }
            DiskOperation::Flush => {}
            DiskOperation::Discard { offset, len_bytes } => self.image.zero(offset, len_bytes),
        }
        Ok(None)
    }
}

impl Disk for MemoryDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        let result = self.perform(operation);
        self.answers.push(DiskCompletion { token, result });
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        out.append(&mut self.answers);
    }
}
