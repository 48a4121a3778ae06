//! State of one chunk in the allocator.

use super::meta::ChunkUse;

/// Progress of a chunk into or out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// In the state that its use says; nothing under way.
    Ready,
    /// Use recorded, but the virtual disk has not yet proven that it has space for the chunk.
    Unproven,
    /// Being brought into use or out of use.
    Changing,
    /// Empty, and its space is being returned to the virtual disk: nobody uses it meanwhile.
    Leaving,
}

#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    pub chunk_use: ChunkUse,
    pub state: ChunkState,
}

impl Chunk {
    /// Whether it is unused, or soon will be.
    pub fn is_nobodys(&self) -> bool {
        self.chunk_use == ChunkUse::Free || self.state == ChunkState::Leaving
    }
}
