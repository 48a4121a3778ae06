//! Posted receives, and when they take memory: a receive that was posted without any takes it when its message begins to arrive, as much as
//! that needs.

use super::{Shape, WorkId};
use sys::BufMut;

/// Payload of at least this length begins at a page, if that is asked for.
pub(super) const ALIGNED_BYTES_LEAST: usize = 16 * 1024;

/// A posted receive, or several alike that have no memory yet.
pub(super) struct Posted {
    pub id: WorkId,
    pub len_bytes: usize,
    pub room: Room,
    /// Length of the message that fills it, as announced by its first bytes; zero: not known.
    pub told_bytes: usize,
    pub count: usize,
}

pub(super) enum Room {
    Buffer(BufMut),
    /// Allocated when a message begins to arrive: a connection that waits costs next to nothing.
    Later,
    /// The kernel fills this many bytes ([`Connection::plan_receive`]).
    Lent(usize),
}

impl Posted {
    /// Makes a buffer for the first `end` bytes of a message; `None` if it is longer than the receive, or
    /// than `bytes_max`. `whole_bytes`: the message's length, if its first segment is the last; `shape`:
    /// what its first bytes say.
    pub fn make_room(
        &mut self,
        end: usize,
        whole_bytes: Option<usize>,
        bytes_max: usize,
        shape: impl FnOnce() -> Option<Shape>,
    ) -> Option<()> {
        let len_bytes = self.len_bytes.min(bytes_max);
        match &self.room {
            Room::Buffer(buffer) if end <= buffer.len() => return Some(()),
            Room::Lent(_) => return None,
            _ if end > len_bytes => return None,
            Room::Later => {
                let told = shape();
                self.told_bytes = told.map_or(0, |shape| shape.len_bytes.min(len_bytes));
                let shape = told.unwrap_or(Shape { len_bytes, aligned_at: 0 });
                let needed_bytes = whole_bytes.unwrap_or(shape.len_bytes).clamp(end, len_bytes);
                // Up to a page more is the price: of a short payload that is much, and copying it elsewhere is little.
                let pays = needed_bytes >= shape.aligned_at + ALIGNED_BYTES_LEAST;
                let aligned_at = if pays { shape.aligned_at } else { 0 };
                self.room = Room::Buffer(BufMut::with_aligned(needed_bytes, aligned_at));
            }
            // The message is longer than its first bytes announced.
            Room::Buffer(short) => {
                // Planned bytes lie behind those that are filled.
                let mut whole = BufMut::for_overwrite(len_bytes);
                whole[..short.len()].copy_from_slice(short);
                self.room = Room::Buffer(whole);
            }
        }
        Some(())
    }
}

impl Room {
    pub fn into_buffer(self) -> Option<BufMut> {
        match self {
            Self::Buffer(buffer) => Some(buffer),
            Self::Later | Self::Lent(_) => None,
        }
    }

    /// Memory of it, in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Later => 0,
            Self::Lent(len_bytes) => *len_bytes,
        }
    }
}
