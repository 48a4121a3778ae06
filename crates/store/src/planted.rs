//! Bugs that a test reintroduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes the checks for them.
//! With it, a test plants one at a time in the calling thread.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Replay accepts the last batch although its data are torn, so that unacknowledged data count
    /// as damage.
    AcceptTornBatch,
    /// Journal batches are written without waiting until they are durable.
    AckBeforeDurable,
    /// A checkpoint's anchor does not wait until the data that it covers are durable in place.
    AnchorBeforeFlush,
    /// A fresh write goes in place while journaled blocks of the same place are being applied.
    ApplyOverFresh,
    /// Opening writes an anchor for replayed batches before they are durable.
    ClaimWithoutFlush,
    /// Only the opening that finds a doubt at the end of the journal remembers it.
    DoubtNotKept,
    /// Fresh data count as durable before they are.
    FreshBeforeFlush,
    /// A block that the medium fails to read counts as a failure of the whole disk.
    MediumFailsDisk,
    /// A block that fails once is corrupt.
    NoSecondRead,
    /// A metadata page older than its version counts as the newest.
    NoPageVersions,
    /// A checkpoint that was given up leaves its number to the next but one opening.
    NumberTwice,
    /// A scrub skips the store's own structures.
    OwnNotScrubbed,
    /// Metadata pages that fail a single read count as damaged.
    PassingErrorMarksLost,
    /// A freed slab can be allocated before a checkpoint has passed its record.
    ReuseSlabAtOnce,
    /// A fresh write is answered when its data are durable, although its record may not be.
    PlacedWithoutRecord,
    /// Replay believes a record of fresh data without checking the data.
    PlacedUnverified,
    /// A promise is answered before it is durable.
    PromiseInMemory,
    /// Append blocks are returned without checking that they prove themselves.
    SealNotVerified,
    /// Blocks are returned without checking their checksums.
    ServeCorrupt,
    /// The older one of two copies of a table counts.
    StaleTableCopy,
    /// A record whose data an opening did not find is not withdrawn.
    VoidNotWithdrawn,
    /// Page versions become durable before the pages.
    VersionsBeforePages,
    /// A batch that withdraws a record says that the record's batch was durable.
    WithdrawalProves,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::AcceptTornBatch,
        Self::AckBeforeDurable,
        Self::AnchorBeforeFlush,
        Self::ApplyOverFresh,
        Self::ClaimWithoutFlush,
        Self::DoubtNotKept,
        Self::FreshBeforeFlush,
        Self::MediumFailsDisk,
        Self::NoSecondRead,
        Self::NoPageVersions,
        Self::NumberTwice,
        Self::OwnNotScrubbed,
        Self::PassingErrorMarksLost,
        Self::ReuseSlabAtOnce,
        Self::PlacedWithoutRecord,
        Self::PlacedUnverified,
        Self::PromiseInMemory,
        Self::SealNotVerified,
        Self::ServeCorrupt,
        Self::StaleTableCopy,
        Self::VoidNotWithdrawn,
        Self::VersionsBeforePages,
        Self::WithdrawalProves,
    ];

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, in place of any other.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}
