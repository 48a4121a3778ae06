//! Bugs that a test re-introduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes the checks for them.
//! With it, one at a time is planted in the calling thread.

/// A bug while it is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A disk serves a coordinator of an epoch below the promised one.
    AcceptOldEpochs,
    /// A replica performs a request a second time when the network repeats it.
    AcceptReplays,
    /// A write is acknowledged before the record without the failed copy is committed.
    AckBeforeCas,
    /// A write is acknowledged when the first copy has it.
    AckFirstCopy,
    /// Of copies of a block that proves itself the one of the lowest disk id counts.
    AppendByLowestId,
    /// After a crash copies are believed in order of disk ids alone.
    BelievedByLowestId,
    /// The disks of a dead node are expelled only when calls of theirs are late.
    DeadDisksWaitedFor,
    /// A disk that has a corrupt block is expelled.
    CorruptExpelsDisk,
    /// A disk promises any epoch that another node names.
    EpochsBelieved,
    /// A pool of which disks are away for a moment is taken for full.
    FullWhenAway,
    /// A pool of which disks are being brought up to date is taken for full.
    FullWhileReturning,
    /// A state change whose outcome is unknown counts as committed.
    GuessOnUnknown,
    /// A read that is late is asked of a copy in the making as well.
    HedgeStaleCopy,
    /// A disk whose machine is short of memory is expelled.
    HostExpelsDisk,
    /// A copy becomes in-sync while writes that do not reach it still run, and they are not sent to it afterwards either:
    /// each of the two alone is enough.
    JoinBeforeDrain,
    /// An opening continues without disks that may have the last copy of something.
    MinHoldersIgnored,
    /// A move copies from one copy and gives another one up.
    MoveFromOneCopy,
    /// A node answers although its lease is over.
    LeaseSkipped,
    /// An owner serves although the one before may still answer.
    PermissionSkipped,
    /// An opening that another node's claim ended counts as one that failed.
    FencedOpeningFails,
    /// A node whose opening failed rewrites the record although another one has claimed the volume since.
    PassesOnAnothers,
    /// A volume is passed on without a new epoch, and an owner takes notice of a higher one only.
    PassedOnAtTheSameEpoch,
    /// A node whose data reach nobody is never taken for one that the others could do without.
    NeverSpared,
    /// A node that is to try next is not named any more among those that may still answer.
    NextForgotten,
    /// A node that heard that it is to have a volume while it still let go of it does not hear so again.
    WithdrawalUnfollowed,
    /// A volume is taken over from a node although that has come back since it was taken for dead.
    ClaimWithoutFence,
    /// Copies that differ after a crash are left as they are.
    NoReconcile,
    /// A disk that went back in time serves what no other disk has, although nobody has accepted that.
    OlderImageServed,
    /// Chunks are given back while disks are asked for their region epochs.
    ProbedChunksGivenBack,
    /// A disk that has promised less than required counts as it did before.
    PromisedLessAccepted,
    /// A copy that is not in-sync serves reads.
    ReadStaleCopy,
    /// Results found before another owner was noticed are answered after that.
    AnswerAfterFencing,
    /// A read that met a corrupt copy fails if that cannot be repaired.
    ReadFailsWithRepair,
    /// A new copy of a region is not complete before every block of it is.
    RebuildRetriesForEver,
    /// A repair that failed, since a disk was just away, is forgotten.
    RepairOnce,
    /// A block that no copy that counts has intact is taken from a disk that returns, whether or not that missed a write of it.
    RescueOfMissed,
    /// A chunk begins with fewer copies while a disk is being retired, as if that were out.
    RetiringCountsAsOut,
    /// A disk that is being retired is not brought up to date when it was away for a moment.
    RetiringStaysStale,
    /// A resync leaves a region out.
    ResyncSkipsRegion,
    /// A block that fails its checksum is returned.
    ServeCorrupt,
    /// A disk that opens a session gets a new timeout for its unanswered requests, and is counted on.
    SessionProvesDisk,
    /// Possible differences between copies count as settled before they were compared.
    SettledEarly,
    /// A disk answers the opening of a session before its promise of the epoch is durable.
    SkipPromise,
    /// Writes that a copy missed are counted from an epoch too late.
    StaleSinceTooLate,
    /// A copy beyond the wanted number is given up without a check of the others.
    SurplusUnverified,
    /// A fresh write that a copy had no space for fails, and stays on the others.
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

    /// Bugs that need the faults of a whole stack (unreadable blocks, lost writes, disks that go back in
    /// time, nodes that lie), and bugs that need a moment which seeds rarely hit.
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

/// Plants a bug in this thread, in place of the one that was.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}
