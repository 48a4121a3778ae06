//! Share modes: the rule by which opens may be side by side (MS-FSA 2.1.5.1.2.2).

use crate::security::rights;

pub const SHARE_READ: u32 = 1;
pub const SHARE_WRITE: u32 = 2;
pub const SHARE_DELETE: u32 = 4;

/// Rights that take part in share modes, and the bit that another open must share for each.
const TABLE: [(u32, u32); 3] = [
    (rights::READ_DATA | rights::EXECUTE, SHARE_READ),
    (rights::WRITE_DATA | rights::APPEND_DATA, SHARE_WRITE),
    (rights::DELETE, SHARE_DELETE),
];

/// Access of one open, and the access that it allows others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareMode {
    pub access: u32,
    pub share: u32,
    /// Index of the stream in its file.
    pub stream: u32,
}

impl ShareMode {
    /// Whether the open takes part at all: opens for attributes or security alone do not.
    pub const fn counts(self) -> bool {
        self.access
            & (rights::READ_DATA
                | rights::EXECUTE
                | rights::WRITE_DATA
                | rights::APPEND_DATA
                | rights::DELETE)
            != 0
    }

    /// Whether the two modes are compatible.
    pub fn agrees_with(self, other: Self) -> bool {
        if !self.counts() || !other.counts() {
            return true;
        }
        TABLE.iter().all(|&(access, share)| {
            // Streams are apart except for deletion: deleting the file deletes them all.
            let together = self.stream == other.stream
                || share == SHARE_DELETE && (self.stream == 0 || other.stream == 0);
            let refused = |doer: Self, sharer: Self| {
                doer.access & access != 0
                    && sharer.share & share == 0
                    && (self.stream == other.stream || doer.stream == 0)
            };
            !together || !refused(self, other) && !refused(other, self)
        })
    }
}
