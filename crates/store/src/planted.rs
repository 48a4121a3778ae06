//! Bugs that a test re-introduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes what asks for them. With it, one at a time is
//! planted in the thread that asks.

/// The fault that is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Replay accepts the last batch though its data is torn, and what was never acknowledged is damage.
    AcceptTornBatch,
    /// Journal batches are written without waiting until they are durable.
    AckBeforeDurable,
    /// A checkpoint's anchor does not wait until what it covers is durable in place.
    AnchorBeforeFlush,
    /// A fresh write goes in place while journaled blocks of the same place are being applied.
    ApplyOverFresh,
    /// Opening anchors what replay found before it is durable.
    ClaimWithoutFlush,
    /// Only the opening that finds a doubt at the end of the journal knows of it.
    DoubtNotKept,
    /// Fresh data counts as durable before it is.
    FreshBeforeFlush,
    /// A block that the medium does not give counts as the whole disk failing.
    MediumFailsDisk,
    /// A block that fails once is corrupt.
    NoSecondRead,
    /// A metadata page that is older than its version is taken for the newest.
    NoPageVersions,
    /// A checkpoint that was given up leaves its number to the next but one opening.
    NumberTwice,
    /// A scrub reads data and metadata alone.
    OwnNotScrubbed,
    /// Metadata pages that cannot be read once are damaged.
    PassingErrorMarksLost,
    /// A slab that was given back can be allocated before a checkpoint has passed its record.
    ReuseSlabAtOnce,
    /// A fresh write is answered when its data are durable, and its record may not be.
    PlacedWithoutRecord,
    /// Replay believes a record of fresh data without checking whether they are there.
    PlacedUnverified,
    /// A promise is answered before it is durable.
    PromiseInMemory,
    /// Append blocks are returned without checking that they prove themselves.
    SealNotVerified,
    /// Blocks are returned without checking their checksums.
    ServeCorrupt,
    /// Of two copies of a table the older one is believed.
    StaleTableCopy,
    /// A record whose data an opening did not find is not taken back.
    VoidNotWithdrawn,
    /// Page versions become durable before the pages.
    VersionsBeforePages,
    /// A batch that takes a record back says that the record's batch was durable.
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

/// Plants a bug in this thread, in place of the one that was.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}
