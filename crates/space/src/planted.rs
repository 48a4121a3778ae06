//! Bugs that a test re-introduces to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` there are none, and the compiler removes what asks for them. With it, one at a time is
//! planted in the thread that asks.

/// What is done wrong while it is planted.
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
    /// A state change whose outcome is unknown counts as committed.
    GuessOnUnknown,
    /// A copy becomes in-sync while writes that do not reach it still run, and they are not sent to it afterwards either:
    /// each of the two alone is enough.
    JoinBeforeDrain,
    /// Copies that differ after a crash are left as they are.
    NoReconcile,
    /// A copy that is not in-sync serves reads.
    ReadStaleCopy,
    /// A resync leaves a region out.
    ResyncSkipsRegion,
    /// A block that fails its checksum is returned.
    ServeCorrupt,
    /// A disk answers the opening of a session before its promise of the epoch is durable.
    SkipPromise,
    /// What a copy missed is counted from an epoch too late.
    StaleSinceTooLate,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::AcceptOldEpochs,
        Self::AcceptReplays,
        Self::AckBeforeCas,
        Self::AckFirstCopy,
        Self::GuessOnUnknown,
        Self::JoinBeforeDrain,
        Self::NoReconcile,
        Self::ReadStaleCopy,
        Self::ResyncSkipsRegion,
        Self::ServeCorrupt,
        Self::SkipPromise,
        Self::StaleSinceTooLate,
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
