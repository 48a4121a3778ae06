//! What the allocator knows of one chunk.

use super::meta::ChunkUse;

/// How far a chunk is on its way into or out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// As its use says; nothing under way.
    Ready,
    /// Its use is recorded, but the virtual disk has not been made to give it room.
    Unproven,
    /// Being brought into use or out of use.
    Changing,
    /// Nothing is in it, and its room is being given back to the virtual disk: then nobody uses it.
    Leaving,
}

#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    pub chunk_use: ChunkUse,
    pub state: ChunkState,
}

impl Chunk {
    /// Whether nobody uses it, or soon nobody will.
    pub fn is_nobodys(&self) -> bool {
        self.chunk_use == ChunkUse::Free || self.state == ChunkState::Leaving
    }
}
