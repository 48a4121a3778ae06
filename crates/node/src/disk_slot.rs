//! A disk that belongs to a pool: its record, whether it can be used, and the reason if not.

use crate::backoff::Backoff;
use crate::disk_store::DiskStore;
use crate::host_files::{HostFile, HostFull};
use crate::metered_disk::Counters;
use crate::pace::{Pace, Slow};
use disk::partition::TableState;
use disk::{FileState, FileWatch};
use records::{DiskRecord, DiskState};
use std::rc::Rc;
use std::time::Duration;
use types::Monotonic;

/// Pauses before a disk that could not be opened is tried again: the first, the longest, and the
/// time in use that resets them.
const OPENINGS: Backoff =
    Backoff::new(Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(10));
/// The same pauses for recording the disk's state.
const RECORDINGS: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(60));
/// Shortest absence that is worth a change of the disk's record.
const ABSENCE_MIN_S: u64 = 5;
/// Seconds without a change after which a journal is applied.
const IDLE_S: u32 = 10;
/// Seconds without an operation after which a disk gets a probe: with the probe's timeout, a pulled
/// disk is noticed within some ten seconds.
const QUIET_S: u32 = 3;

/// Whether a recorded disk can be used.
pub enum Condition {
    /// The disk's store is open.
    Present(DiskStore),
    /// A task is opening the disk.
    Opening {
        since: Monotonic,
        /// Whether its file is open, so that every operation now has its timeout.
        has_answered: bool,
    },
    /// The disk is absent until the next attempt to open it.
    Absent { retry_at: Monotonic },
}

/// A disk that belongs to a pool.
///
/// Invariant: `why` is empty while the disk is present, and has the reason once an attempt has
/// failed.
pub struct DiskSlot {
    /// Record of the disk, as last read or changed here.
    pub record: DiskRecord,
    /// Counters of the disk's operations; kept while the disk comes and goes.
    pub counters: Rc<Counters>,
    /// Whether the disk can be used now.
    pub condition: Condition,
    /// Reason of the absence; empty if the disk is present, or before the first attempt has ended.
    pub why: String,
    /// Time since which the condition holds, in Unix seconds.
    pub since_unix_s: u64,
    /// State to record while the disk is absent: its last failure.
    pub fault: DiskState,
    /// Whether the disk is present but its contents contradict each other: see `Refusal` of the
    /// opening.
    pub is_damaged: bool,
    /// Whether the disk's records are newer than this server's, so that none of the pool's disks
    /// can be trusted as the newest.
    pub is_ahead: bool,
    /// State and path in the cluster state.
    pub recorded: (DiskState, String),
    /// Whether a task is changing the disk's record.
    pub busy: bool,
    /// Whether the disk was in use since this process began, so that its records are this server's.
    pub was_here: bool,
    /// Faults of the disk's partition table, as of the last opening.
    pub table: TableState,
    /// Checks of its file while it is present.
    pub(crate) watch: Option<FileWatch>,
    /// State of the disk's file, and the time since which it is known (Unix seconds).
    pub file: (FileState, u64),
    /// Reason why the disk's state cannot be recorded, and since when (Unix seconds).
    pub unrecorded: Option<(String, u64)>,
    /// Space that the file system beneath the disk's file reserves.
    pub(crate) host: HostFile,
    /// Comparison with its peers.
    pub(crate) pace: Pace,
    /// Pauses between attempts to record the disk's state.
    pub recordings: Backoff,
    pub(crate) openings: Backoff,
    /// Writes so far, and the seconds without another one.
    idle: (u64, u32),
    /// Operations so far, and the seconds without another one and without a probe.
    quiet: (u64, u32),
}

impl DiskSlot {
    /// Begins as absent, and due at once.
    pub fn new(record: DiskRecord, unix_s: u64) -> Self {
        Self {
            recorded: (record.state, record.path.clone()),
            record,
            counters: Rc::default(),
            condition: Condition::Absent { retry_at: Monotonic(0) },
            why: String::new(),
            since_unix_s: unix_s,
            fault: DiskState::Missing,
            is_damaged: false,
            is_ahead: false,
            busy: false,
            was_here: false,
            table: TableState::default(),
            watch: None,
            file: Default::default(),
            unrecorded: None,
            host: HostFile::default(),
            pace: Pace::default(),
            recordings: RECORDINGS,
            openings: OPENINGS,
            idle: (0, 0),
            quiet: (0, 0),
        }
    }

    /// Returns the disk's store, if it is present.
    pub fn store(&self) -> Option<&DiskStore> {
        match &self.condition {
            Condition::Present(store) => Some(store),
            _ => None,
        }
    }

    /// Whether the disk is present, and not about to leave its pool.
    pub fn is_usable(&self) -> bool {
        self.store().is_some() && self.record.state != DiskState::Retired
    }

    /// Whether an attempt to open it has ended.
    pub(crate) fn was_tried(&self) -> bool {
        self.store().is_some() || !self.why.is_empty()
    }

    /// Returns the duration so far of its first opening; `None`: that has ended, or the disk does
    /// not answer.
    pub fn first_opening(&self, now: Monotonic) -> Option<Duration> {
        match self.condition {
            _ if self.was_tried() => None,
            Condition::Opening { since, .. } => Some(now.since(since)),
            // Due at once.
            Condition::Absent { .. } | Condition::Present(_) => Some(Duration::ZERO),
        }
    }

    /// Returns the file system beneath its file, if that is full.
    pub fn host_full(&self) -> Option<&HostFull> {
        self.store().and(self.host.full.as_ref())
    }

    /// Returns its slowness, if it is much slower than its peers.
    pub fn slow(&self) -> Option<&Slow> {
        self.pace.slow()
    }

    /// Notes that its state was recorded, or the reason why not: the log tells that once, then
    /// health does.
    pub(crate) fn note_recorded(&mut self, written: Result<(DiskState, String), String>, unix_s: u64) {
        match written {
            Ok(recorded) => {
                self.recorded = recorded;
                self.unrecorded = None;
                self.recordings = RECORDINGS;
            }
            Err(why) => {
                if self.unrecorded.is_none() {
                    tracing::warn!(disk = %self.record.id, why, "a disk's state cannot be recorded");
                }
                let since_unix_s = self.unrecorded.as_ref().map_or(unix_s, |(_, since_unix_s)| *since_unix_s);
                self.unrecorded = Some((why, since_unix_s));
            }
        }
    }

    /// Notes the state of the disk's file. A truncated file stays reported until it is opened anew:
    /// it may have its old length again, but the data that were cut off are lost.
    pub(crate) fn note_file(&mut self, state: FileState, unix_s: u64) {
        let was_cut = matches!(self.file.0, FileState::Truncated(_));
        let is_told = std::mem::discriminant(&self.file.0) == std::mem::discriminant(&state);
        if is_told || was_cut && state != FileState::Removed {
            return;
        }
        if state != FileState::Whole {
            tracing::error!(disk = %self.record.id, path = self.record.path, ?state, "the file of a disk was changed under the server");
        }
        self.file = (state, unix_s);
    }

    pub(crate) fn change(&mut self, condition: Condition, unix_s: u64) {
        self.condition = condition;
        self.since_unix_s = unix_s;
    }

    /// Returns the state to record for the disk.
    pub(crate) fn found_state(&self, now_unix_s: u64) -> DiskState {
        // The clock may have been set back.
        let is_short = now_unix_s.saturating_sub(self.since_unix_s) < ABSENCE_MIN_S;
        match self.record.state {
            DiskState::Retired => DiskState::Retired,
            _ if self.store().is_some() => DiskState::Healthy,
            known if self.why.is_empty() || is_short => known,
            _ => self.fault,
        }
    }

    /// Applies the journal if it has not grown for a while. Call once a second.
    pub(crate) fn checkpoint_if_idle(&mut self) {
        let writes = self.counters.writes.get();
        let Some(store) = self.store() else { return };
        let used = store.with(|store| store.health().journal_used_bytes);
        let idle_s = if writes == self.idle.0 { self.idle.1.saturating_add(1) } else { 0 };
        if idle_s == IDLE_S && used > 0 {
            store.request_checkpoint();
        }
        self.idle = (writes, idle_s);
    }

    /// Makes the disk read a block if it had no operation for a while. Call once a second.
    pub(crate) fn probe_if_quiet(&mut self) {
        let operations = self.counters.operations();
        let mut quiet_s = if operations == self.quiet.0 { self.quiet.1 + 1 } else { 0 };
        if quiet_s >= QUIET_S {
            if self.store().is_some() {
                self.counters.probes.ask();
            }
            quiet_s = 0;
        }
        self.quiet = (operations, quiet_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metered_disk::MeteredDisk;
    use disk::DiskError;
    use disk::crash::{CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget};
    use records::FaultDomain;
    use space::block_store::BlockStore;
    use store::{FormatParameters, Store, format};
    use types::{DiskId, PoolId};

    fn slot(state: DiskState) -> DiskSlot {
        let record = DiskRecord {
            id: DiskId::from_bytes([1; 16]),
            pool: PoolId::from_bytes([2; 16]),
            node: None,
            path: "/dev/sdq1".to_owned(),
            size_bytes: 1 << 30,
            slab_bytes: 1 << 20,
            fault_domain: FaultDomain::default(),
            state,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        };
        DiskSlot::new(record, 100)
    }

    #[test]
    fn an_absence_is_recorded_only_after_a_failed_try_and_some_seconds() {
        let mut slot = slot(DiskState::Healthy);
        assert_eq!(slot.found_state(200), DiskState::Healthy);
        slot.why = "it does not answer".to_owned();
        assert_eq!(slot.found_state(104), DiskState::Healthy);
        assert_eq!(slot.found_state(105), DiskState::Missing);
        slot.fault = DiskState::Failed;
        assert_eq!(slot.found_state(105), DiskState::Failed);
    }

    #[test]
    fn a_disk_is_awaited_until_its_first_opening_has_ended() {
        let mut slot = slot(DiskState::Healthy);
        let seconds = |seconds| Monotonic(0).after(Duration::from_secs(seconds));
        assert_eq!(slot.first_opening(seconds(5)), Some(Duration::ZERO), "recorded, and due at once");
        for has_answered in [false, true] {
            slot.condition = Condition::Opening { since: seconds(5), has_answered };
            assert_eq!(slot.first_opening(seconds(7)), Some(Duration::from_secs(2)));
        }
        slot.why = "it does not answer".to_owned();
        assert_eq!(slot.first_opening(seconds(7)), None);
        slot.condition = Condition::Absent { retry_at: seconds(9) };
        assert_eq!(slot.first_opening(seconds(7)), None, "a try has failed");
    }

    #[test]
    fn a_retired_disk_stays_retired_whether_it_is_there_or_not() {
        let mut slot = slot(DiskState::Retired);
        slot.why = "it does not answer".to_owned();
        assert_eq!(slot.found_state(1000), DiskState::Retired);
    }

    #[test]
    fn a_file_that_was_cut_is_told_of_until_it_is_opened_anew() {
        let mut slot = slot(DiskState::Healthy);
        slot.note_file(FileState::Renamed(None), 7);
        slot.note_file(FileState::Whole, 8);
        assert_eq!(slot.file, (FileState::Whole, 8));
        slot.note_file(FileState::Truncated(5), 9);
        slot.note_file(FileState::Whole, 10);
        assert_eq!(slot.file, (FileState::Truncated(5), 9));
        slot.note_file(FileState::Removed, 11);
        assert_eq!(slot.file, (FileState::Removed, 11));
    }

    #[test]
    fn the_time_since_which_a_state_cannot_be_recorded_is_that_of_the_first_failure() {
        let mut slot = slot(DiskState::Healthy);
        slot.note_recorded(Err("no room".to_owned()), 7);
        slot.note_recorded(Err("no room".to_owned()), 9);
        assert_eq!(slot.unrecorded, Some(("no room".to_owned(), 7)));
        slot.note_recorded(Ok((DiskState::Missing, "/dev/sdq1".to_owned())), 11);
        assert_eq!((slot.unrecorded, slot.recorded.0), (None, DiskState::Missing));
    }

    #[test]
    fn a_disk_that_nobody_asks_for_anything_is_read_after_a_while_and_found_gone() {
        let mut slot = slot(DiskState::Healthy);
        let parameters = FormatParameters::new(slot.record.id, slot.record.pool);
        let disk = format(CrashDisk::new(CrashOptions::new(160 << 20)), parameters).expect("a blank disk");
        let counted = MeteredDisk::new(Box::new(disk.clone()), slot.counters.clone());
        let mut store = DiskStore::new(Store::open(counted).expect("a formatted disk"));
        store.poll(&mut Vec::new());
        slot.condition = Condition::Present(store.clone());
        let mut look_after = |seconds: u32, reads: u64| {
            for _ in 0..seconds {
                slot.counters.reads.set(slot.counters.reads.get() + reads);
                slot.probe_if_quiet();
                store.poll(&mut Vec::new());
            }
            slot.counters.lost.get()
        };
        assert!(!look_after(2 * QUIET_S + 1, 0), "probes are answered");
        disk.inject(Fault::every(FaultTarget::Read, FaultAction::Fail(DiskError::Gone)));
        assert!(!look_after(10 * QUIET_S, 1), "a disk that is in use is not asked");
        assert!(look_after(QUIET_S + 1, 0));
    }
}
