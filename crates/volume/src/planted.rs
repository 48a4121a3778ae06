//! Bugs that a test re-introduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes the checks. With it, one
//! at a time is planted in the calling thread.

/// Planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A freed block is reused before the transaction that freed it is durable.
    AllocatorReuseEarly,
    /// A checkpoint begins without enough space, and growing changes do not wait for it.
    CheckpointReserveOff,
    /// Freed blocks return one empty chunk, however many there are.
    ChunksGivenBackOnce,
    /// A close does not wait for a flush under way.
    CloseBeforeFlush,
    /// A close that removed a name is answered before that is durable.
    DeletionNotDurable,
    /// A security descriptor stays when the last file that had it goes.
    DescriptorsKept,
    /// The place of a page is discarded before the superblock without it is durable.
    DiscardBeforeSuperblock,
    /// Growth and zeroed edges are answered on a durable share before they are durable.
    GrowthNotDurable,
    /// Blocks that checkpoints made superfluous are overwritten before the superblock that says so is
    /// durable.
    JournalTailEarly,
    /// A change of many pieces examines them all, and starts over when a page of the tree is not in memory.
    MissStartsOver,
    /// Names are charged to nobody.
    NamesUncharged,
    /// A volume without space for metadata reports the space that it has for data.
    NoRoomUntold,
    /// A write that fails for lack of copies or space fails the volume.
    OutageFailsVolume,
    /// Operations that cut extents in parts take pages for them that a checkpoint may need.
    PartsWithoutReserve,
    /// An intact page is believed even if its pointer names another one.
    PointerUnchecked,
    /// A create that is refused after it has made its file leaves that there.
    RefusedCreateStays,
    /// A file takes another's name before its data is stored.
    RenameBeforeData,
    /// Replay takes a batch with a change of an unknown kind for the end of the journal.
    ReplayStopsAtUnknown,
    /// Blocks of the journal are sealed with the batch's number alone, which is reused after a crash.
    SealOrderNotRaised,
    /// The superblock is written before the pages that it points to are durable.
    SuperblockBeforePages,
    /// A change of many pieces is one transaction, even one longer than the journal's reader accepts.
    TransactionUnbounded,
    /// A deletion that is due is not recorded.
    DeletionRecordLost,
    /// A lease is not recorded.
    LeaseRecordLost,
    /// A byte-range lock is not recorded.
    LockRecordLost,
    /// An open that is to outlive the server is not recorded.
    OpenRecordLost,
    /// A repeated create opens the file once more.
    ReplayedCreateAppliedTwice,
    /// A repeated lock request locks once more.
    ReplayedLockAppliedTwice,
}

impl Planted {
    /// Bugs of opens that outlive the server, which the simulator's clients find.
    pub const OF_OPENS: [Self; 6] = [
        Self::DeletionRecordLost,
        Self::LeaseRecordLost,
        Self::LockRecordLost,
        Self::OpenRecordLost,
        Self::ReplayedCreateAppliedTwice,
        Self::ReplayedLockAppliedTwice,
    ];

    /// All others, each of which a test of this crate finds.
    pub const ALL: [Self; 21] = [
        Self::AllocatorReuseEarly,
        Self::CheckpointReserveOff,
        Self::ChunksGivenBackOnce,
        Self::CloseBeforeFlush,
        Self::DeletionNotDurable,
        Self::DescriptorsKept,
        Self::DiscardBeforeSuperblock,
        Self::GrowthNotDurable,
        Self::JournalTailEarly,
        Self::MissStartsOver,
        Self::NamesUncharged,
        Self::NoRoomUntold,
        Self::OutageFailsVolume,
        Self::PartsWithoutReserve,
        Self::PointerUnchecked,
        Self::RefusedCreateStays,
        Self::RenameBeforeData,
        Self::ReplayStopsAtUnknown,
        Self::SealOrderNotRaised,
        Self::SuperblockBeforePages,
        Self::TransactionUnbounded,
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

#[cfg(all(test, feature = "planted-bugs"))]
mod tests;
