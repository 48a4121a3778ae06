//! `-Sm`: operations that are copies from and to a mapping, done within the call.

use super::Content;
use crate::engine::random::Random;
use crate::engine::{Failure, Request};
use crate::profile::FlushMode;
use std::sync::Arc;
use sys::region::{Mapping, Region};

/// Parts of which a [`MappedTarget`] is made.
pub struct MappedSetup {
    /// The mapping of the whole target.
    pub mapping: Arc<Mapping>,
    /// Length of each operation.
    pub block_bytes: u32,
    /// With non-temporal stores (`-Smw`).
    pub around_cache: bool,
    /// Flush after each write; `None`: none.
    pub flush: Option<FlushMode>,
    /// Data of writes.
    pub content: Content,
    /// Memory that writes take their data from, unless each has new random bytes.
    pub source: Arc<Region>,
}

pub struct MappedTarget {
    setup: MappedSetup,
    buffer: Vec<u8>,
    at: usize,
}

impl MappedTarget {
    pub(super) fn new(setup: MappedSetup) -> Self {
        let buffer = vec![0; setup.block_bytes as usize];
        Self { setup, buffer, at: 0 }
    }

    /// Makes or chooses what is written, before the clock runs.
    pub(super) fn prepare(&mut self, request: &Request, random: &mut Random) {
        if !request.is_write {
            return;
        }
        match self.setup.content {
            Content::Random => random.fill(&mut self.buffer),
            Content::Source { step_bytes, steps, .. } => self.at = random.below(steps) as usize * step_bytes,
            Content::Slot => self.at = 0,
        }
    }

    pub(super) fn perform(&mut self, request: &Request) -> Result<u32, Failure> {
        let len = request.len_bytes as usize;
        let mapping = &self.setup.mapping;
        if !request.is_write {
            mapping.read(request.offset, self.buffer.get_mut(..len).unwrap_or_default());
            return Ok(request.len_bytes);
        }
        let bytes = match self.setup.content {
            Content::Random => &self.buffer[..],
            _ => self.setup.source.bytes().get(self.at..).unwrap_or_default(),
        };
        let bytes = bytes.get(..len).ok_or_else(|| Failure::Other("a write over its source".into()))?;
        mapping.write(request.offset, bytes, self.setup.around_cache);
        match self.setup.flush {
            None => {}
            Some(FlushMode::ViewOfFile) => mapping
                .sync(request.offset, len)
                .map_err(|error| Failure::Errno(error.raw_os_error().unwrap_or(0)))?,
            Some(FlushMode::NonVolatileMemory) => mapping.flush_lines(request.offset, len, true),
            Some(FlushMode::NonVolatileMemoryNoDrain) => mapping.flush_lines(request.offset, len, false),
        }
        Ok(request.len_bytes)
    }
}
