//! Bugs that a test reintroduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes the checks for them.
//! With it, a test plants one at a time in the calling thread.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A disk serves a coordinator of an epoch below the promised one.
    AcceptOldEpochs,
    /// A replica performs a request a second time when the network repeats it.
    AcceptReplays,
    /// A write is acknowledged before the record without the failed copy is committed.
    AckBeforeCas,
    /// A write is acknowledged as soon as the first copy has it.
    AckFirstCopy,
    /// Of a block that proves itself, the copy on the lowest disk id counts.
    AppendByLowestId,
    /// After a crash, copies are trusted in order of disk ids alone.
    BelievedByLowestId,
    /// The disks of a dead node are expelled only when calls of theirs are late.
    DeadDisksWaitedFor,
    /// A disk that has a corrupt block is expelled.
    CorruptExpelsDisk,
    /// A disk promises any epoch that another node names.
    EpochsBelieved,
    /// A pool with disks away for a moment counts as full.
    FullWhenAway,
    /// A pool with disks being brought up to date counts as full.
    FullWhileReturning,
    /// A state change whose outcome is unknown counts as committed.
    GuessOnUnknown,
    /// A late read is sent to a copy in the making as well.
    HedgeStaleCopy,
    /// A disk whose machine is short of memory is expelled.
    HostExpelsDisk,
    /// A copy comes to be in sync while writes that do not reach it are still in flight, and they
    /// are not sent to it afterwards either: each safeguard alone would suffice.
    JoinBeforeDrain,
    /// An opening continues without disks that may have the last copy of a chunk.
    MinHoldersIgnored,
    /// A move copies from one copy and gives up another one.
    MoveFromOneCopy,
    /// A node answers although its lease is over.
    LeaseSkipped,
    /// An owner serves although its predecessor may still answer.
    PermissionSkipped,
    /// An opening ended by another node's claim counts as failed.
    FencedOpeningFails,
    /// A node whose opening failed rewrites the record although another one has since claimed the
    /// volume.
    PassesOnAnothers,
    /// A volume is passed on without a new epoch, although owners react only to a higher one.
    PassedOnAtTheSameEpoch,
    /// A node whose data reach no other node never counts as dispensable.
    NeverSpared,
    /// The node that tries next is no longer named among those that may still answer.
    NextForgotten,
    /// A node that learned that it should have a volume while it was still releasing it does not
    /// check again.
    WithdrawalUnfollowed,
    /// A volume is taken over from a node that has come back since it was declared dead.
    ClaimWithoutFence,
    /// Copies that differ after a crash are left as they are.
    NoReconcile,
    /// A disk that went back in time serves data that no other disk has, although nobody has
    /// accepted it.
    OlderImageServed,
    /// Chunks are given back while their region epochs are being fetched.
    ProbedChunksGivenBack,
    /// A disk that has promised less than required counts as it did before.
    PromisedLessAccepted,
    /// A copy that is not in-sync serves reads.
    ReadStaleCopy,
    /// Results found before another owner was noticed are returned after that.
    AnswerAfterFencing,
    /// A read that met a corrupt copy fails if that cannot be repaired.
    ReadFailsWithRepair,
    /// A new copy of a region is not complete before every block of it is.
    RebuildRetriesForEver,
    /// A repair that failed, since a disk was just away, is forgotten.
    RepairOnce,
    /// A block without an intact copy that counts is taken from a returning disk, whether or not
    /// that missed a write of it.
    RescueOfMissed,
    /// A chunk begins with fewer copies while a disk is being retired, as if that disk were out.
    RetiringCountsAsOut,
    /// A retiring disk is not brought up to date after it was away for a moment.
    RetiringStaysStale,
    /// A resync leaves a region out.
    ResyncSkipsRegion,
    /// A block that fails its checksum is returned.
    ServeCorrupt,
    /// A disk that opens a session gets a new timeout for its unanswered requests, and counts
    /// again.
    SessionProvesDisk,
    /// Possible differences between copies count as settled before they are compared.
    SettledEarly,
    /// A disk answers the opening of a session before its promise of the epoch is durable.
    SkipPromise,
    /// A copy's missed writes are counted from an epoch that is too late.
    StaleSinceTooLate,
    /// A surplus copy is given up without a check of the others.
    SurplusUnverified,
    /// A fresh write that lacked space on a copy fails, and stays on the others.
    UndoForgotten,
}

impl Planted {
    /// Bugs that the simulator of `space` alone finds.
    pub const ALL: [Self; 18] = [
        Self::AcceptOldEpochs,
        Self::AcceptReplays,
        Self::AckBeforeCas,
        Self::AckFirstCopy,
        Self::AnswerAfterFencing,
        Self::DeadDisksWaitedFor,
        Self::FencedOpeningFails,
        Self::GuessOnUnknown,
        Self::JoinBeforeDrain,
        Self::LeaseSkipped,
        Self::NoReconcile,
        Self::PassedOnAtTheSameEpoch,
        Self::ReadStaleCopy,
        Self::ResyncSkipsRegion,
        Self::ServeCorrupt,
        Self::SessionProvesDisk,
        Self::SkipPromise,
        Self::StaleSinceTooLate,
    ];

    /// Bugs that need the faults of a whole stack (unreadable blocks, lost writes, disks that go
    /// back in time, nodes that lie), or a moment that seeds rarely hit.
    pub const OF_DISKS: [Self; 28] = [
        Self::AppendByLowestId,
        Self::BelievedByLowestId,
        Self::ClaimWithoutFence,
        Self::CorruptExpelsDisk,
        Self::EpochsBelieved,
        Self::FullWhenAway,
        Self::FullWhileReturning,
        Self::HedgeStaleCopy,
        Self::HostExpelsDisk,
        Self::MinHoldersIgnored,
        Self::MoveFromOneCopy,
        Self::NeverSpared,
        Self::NextForgotten,
        Self::OlderImageServed,
        Self::PassesOnAnothers,
        Self::PermissionSkipped,
        Self::ProbedChunksGivenBack,
        Self::PromisedLessAccepted,
        Self::ReadFailsWithRepair,
        Self::RebuildRetriesForEver,
        Self::RepairOnce,
        Self::RescueOfMissed,
        Self::RetiringCountsAsOut,
        Self::RetiringStaysStale,
        Self::SettledEarly,
        Self::SurplusUnverified,
        Self::UndoForgotten,
        Self::WithdrawalUnfollowed,
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
