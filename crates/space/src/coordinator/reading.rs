//! Choice of the copy for a read, and of a second copy when the first is late.
//!
//! If disks of other nodes are among the copies, a read that takes longer than nearly all others is
//! *late*: the coordinator asks another in-sync copy too, the first good answer wins, and the other
//! answer is dropped. A disk that is late several times in a row rests for a while if there are other
//! copies, so that a disk that stays slow makes a read late now and then, and not half of them.
//!
//! | | |
//! |---|---|
//! | late | after the 99th percentile of the last seconds' reads of the chunk's quickest copy, and 5 ms at least; counted from when the request left for the disk, since a wait before that says nothing about the disk. A request that has not left after 100 ms is late too, and no disk is blamed |
//! | asked twice | at most one read in 50, and 5 more at once: a cluster that is slow as a whole must not get twice the load |
//! | at rest | when three reads in a row were late, each sent after the one before was late: for 1 s, and for twice as long each time that the next read is late again, up to 32 s |
//!
//! # Why the second answer is as good as the first
//!
//! A read holds the shared lock of its blocks from before it asks the first copy until it ends. So no
//! write, discard or sync of copies begins on these blocks meanwhile, and none was in progress when the
//! lock was granted: every in-sync copy had answered every acknowledged write of them (I1). The gate
//! passed the region as one whose copies agree, and no region becomes doubtful while the volume is
//! served. So any copy that is in sync from its request to its answer holds the same as the first one
//! (I10), and load alone decides which of them is read. A copy that leaves ends its calls, so its
//! answer is dropped. The coordinator checks that the copy counts and that the region is not in doubt
//! when it sends the request, and that the copy still counts when the answer comes. A copy in the
//! making never counts. Blocks that prove themselves are read from all copies anyway, and a read of one
//! particular copy belongs to that copy alone: neither is asked twice.
//!
//! Writes go to all copies: there is no other one to ask.
//!
//! Nobody waits for the losing answer ([`Owner::Nobody`]), but a disk that never sends it fails as with
//! any call, and if it reports a bad block the region is repaired as if that answer had won
//! ([`super::syncing::Syncing::lost_answered`]).

use super::calls::Owner;
use super::keys::OperationKey;
use super::running::choose_by_load;
use super::shared::Shared;
use crate::message::Waiting;
use crate::planted::Planted;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::Duration;
use types::{ChunkIndex, DiskId, LatencyHistogram, Monotonic};

/// Least latency of a late read: a few times that of a healthy disk with a queue, over a network.
const LATE_LEAST: Duration = Duration::from_millis(5);
/// Least latency of a late read before enough reads were measured: ten times that of a spinning
/// disk.
const LATE_UNMEASURED: Duration = Duration::from_millis(100);
/// Time after which a read that has not left for its disk is late: longer than a connection of 10
/// Gbit/s takes to carry all bytes in flight to one node.
const LATE_WAITING: Duration = Duration::from_millis(100);
/// Reads of a disk that suffice for a percentile.
const MEASURED_LEAST: u64 = 20;
/// Length of a measuring period. A percentile covers between one and two periods.
const MEASURED_FOR: Duration = Duration::from_secs(4);
/// Time for which a computed percentile is reused, since each read needs one.
const RECKONED_FOR: Duration = Duration::from_millis(100);
/// Credit that a second request costs. Each read returns one unit.
const HEDGE_COST: u32 = 50;
const SPENT_MAX: u32 = 5 * HEDGE_COST;
/// Late reads in a row after which a disk rests: one read in 100 is late by definition.
const LATE_IN_A_ROW: u32 = 3;
/// Time for which a disk rests, at first and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));

/// Counts of late reads that one disk was asked for first, since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LateReads {
    /// Reads that took longer than nearly all others.
    pub late: u64,
    /// Late reads for which another copy was asked as well.
    pub hedged: u64,
    /// Hedged reads of which the other copy's answer was the first good one.
    pub won: u64,
}

impl AddAssign for LateReads {
    fn add_assign(&mut self, Self { late, hedged, won }: Self) {
        self.late += late;
        self.hedged += hedged;
        self.won += won;
    }
}

/// Latency profile of a disk's reads.
#[derive(Default)]
struct Manner {
    /// Latencies in the present measuring period, and in the one before.
    times: (LatencyHistogram, LatencyHistogram),
    stretch_until: Monotonic,
    /// The 99th percentile as last computed, in use until `usual_until`.
    usual: Option<Duration>,
    usual_until: Monotonic,
    /// Late reads since the last prompt one, each sent after the one before was late; the last of them at
    /// `late_at`.
    late_in_a_row: u32,
    late_at: Monotonic,
    /// End of the present rest, and its length.
    rests_until: Monotonic,
    rest: Duration,
    counts: LateReads,
}

impl Manner {
    /// Begins another measuring period if this one is over.
    fn advance(&mut self, now: Monotonic) {
        if now < self.stretch_until {
            return;
        }
        let is_next = now < self.stretch_until.after(MEASURED_FOR);
        let before = if is_next { self.times.0 } else { LatencyHistogram::default() };
        self.times = (LatencyHistogram::default(), before);
        self.stretch_until = now.after(MEASURED_FOR);
    }

    fn record(&mut self, taken: Duration, now: Monotonic) {
        self.advance(now);
        self.times.0.record(taken);
    }

    /// Returns the 99th percentile of read latencies.
    fn usual(&mut self, now: Monotonic) -> Option<Duration> {
        if now >= self.usual_until {
            self.advance(now);
            (self.usual, self.usual_until) = (self.reckon(), now.after(RECKONED_FOR));
        }
        self.usual
    }

    fn reckon(&self) -> Option<Duration> {
        let count = self.times.0.count() + self.times.1.count();
        if count < MEASURED_LEAST {
            return None;
        }
        let mut below = 0;
        let buckets = self.times.0.buckets().zip(self.times.1.buckets());
        let mut counted = buckets.map(|((bound, one), (_, other))| {
            below += one + other;
            (bound, below)
        });
        counted.find(|(_, below)| *below * 100 >= count * 99)?.0
    }

    /// Notes that a read was late.
    fn note_late(&mut self, asked_at: Monotonic, now: Monotonic) {
        self.counts.late += 1;
        self.record(now.since(asked_at), now);
        // Reads in flight together are late together: they count once.
        if asked_at < self.late_at || self.rests_until > now {
            return;
        }
        self.late_at = now;
        self.late_in_a_row += 1;
        if self.late_in_a_row >= LATE_IN_A_ROW {
            self.rest = (self.rest * 2).clamp(REST.0, REST.1);
            self.rests_until = now.after(self.rest);
        }
    }

    /// Notes that a read was answered in time.
    fn note_prompt(&mut self) {
        (self.late_in_a_row, self.rest) = (0, Duration::ZERO);
    }
}

/// A read in progress at a copy.
struct Watch {
    chunk: ChunkIndex,
    first: DiskId,
    /// Time at which the request left for `first`, if known.
    asked_at: Monotonic,
    /// Whether the request still waits behind others on this node.
    waits: bool,
    /// Time at the disk after which the read is late.
    late_after: Duration,
    /// Time at which the read becomes late. `None`: it is late, and was counted.
    late_at: Option<Monotonic>,
    second: Option<(DiskId, Monotonic)>,
}

/// Reads of chunks with a copy on another node, and the latencies of disks.
///
/// Invariant: `due` has each watched read that is not late, by the time at which it becomes late.
#[derive(Default)]
pub(super) struct Hedges {
    watched: BTreeMap<OperationKey, Watch>,
    due: BTreeSet<(Monotonic, OperationKey)>,
    disks: BTreeMap<DiskId, Manner>,
    /// Credit that hedged reads have spent and later reads have not returned.
    spent: u32,
}

impl Hedges {
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns counts of late reads, by the disk that was asked first.
    pub fn counts(&self) -> impl Iterator<Item = (DiskId, LateReads)> + '_ {
        self.disks.iter().map(|(disk, manner)| (*disk, manner.counts))
    }

    /// Whether the disk rests after late reads.
    fn rests(&self, disk: DiskId, now: Monotonic) -> bool {
        self.disks.get(&disk).is_some_and(|manner| manner.rests_until > now)
    }

    /// Watches a read that went to a copy of the coordinator's choice.
    pub fn begin(&mut self, key: OperationKey, chunk: ChunkIndex, first: DiskId, shared: &Shared) {
        if !shared.context.pool.borrow().has_remote() {
            return;
        }
        let holders = shared.holders_of(chunk);
        if holders.len() < 2 || !holders.iter().any(|disk| shared.context.is_far(*disk)) {
            return;
        }
        let now = shared.context.now;
        self.spent = self.spent.saturating_sub(1);
        let usual = holders.iter().filter_map(|disk| self.disks.entry(*disk).or_default().usual(now)).min();
        let late_after = usual.unwrap_or(LATE_UNMEASURED).max(LATE_LEAST);
        let late_at = now.after(late_after);
        self.due.insert((late_at, key));
        let late_at = Some(late_at);
        let watch = Watch { chunk, first, asked_at: now, waits: false, late_after, late_at, second: None };
        self.watched.insert(key, watch);
    }

    /// Notes that the request to the first or second copy waits behind others, or leaves after a
    /// wait. The disk's time begins when the request leaves.
    pub fn note_waiting(&mut self, key: OperationKey, waiting: &Waiting, now: Monotonic) {
        let Some(watch) = self.watched.get_mut(&key) else { return };
        if let Some((second, asked_at)) = &mut watch.second
            && *second == waiting.disk
        {
            *asked_at = now;
            return;
        }
        if waiting.disk != watch.first || !waiting.has_left && watch.waits {
            return;
        }
        (watch.waits, watch.asked_at) = (!waiting.has_left, now);
        if let Some(late_at) = &mut watch.late_at {
            self.due.remove(&(*late_at, key));
            *late_at = now.after(if watch.waits { LATE_WAITING } else { watch.late_after });
            self.due.insert((*late_at, key));
        }
    }

    /// Takes a read that has become late by now.
    pub fn take_late(&mut self, now: Monotonic) -> Option<OperationKey> {
        let &(at, key) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, key));
        if let Some(watch) = self.watched.get_mut(&key) {
            watch.late_at = None;
            let manner = self.disks.entry(watch.first).or_default();
            if watch.waits {
                manner.counts.late += 1;
            } else {
                manner.note_late(watch.asked_at, now);
            }
        }
        Some(key)
    }

    /// Chooses a second copy for a late read, if the credit allows one.
    pub fn choose_second(&mut self, key: OperationKey, shared: &Shared) -> Option<DiskId> {
        let now = shared.context.now;
        let watch = self.watched.get(&key).filter(|watch| watch.second.is_none())?;
        if self.spent + HEDGE_COST > SPENT_MAX {
            return None;
        }
        let holders = shared.holders_of(watch.chunk);
        let mut others: SmallVec<[DiskId; 3]> =
            holders.into_iter().filter(|disk| *disk != watch.first && shared.calls.is_open(*disk)).collect();
        if Planted::HedgeStaleCopy.is_planted()
            && let Some(chunk) = shared.chunks.get(watch.chunk)
            && !chunk.mirrors.is_empty()
        {
            others = chunk.mirrors.iter().copied().collect();
        }
        let second = others.into_iter().min_by_key(|disk| {
            (self.rests(*disk, now), shared.context.is_far(*disk), shared.calls.load(*disk))
        })?;
        self.spent += HEDGE_COST;
        let watch = self.watched.get_mut(&key)?;
        watch.second = Some((second, now));
        self.disks.entry(watch.first).or_default().counts.hedged += 1;
        Some(second)
    }

    /// Whether the disk's answer may be used. That of a second copy may be only if the copy still
    /// counts.
    pub fn may_answer(&self, key: OperationKey, disk: DiskId, shared: &Shared) -> bool {
        let Some(watch) = self.watched.get(&key) else { return true };
        let is_second = watch.second.is_some_and(|(second, _)| second == disk);
        !is_second || Planted::HedgeStaleCopy.is_planted() || shared.holders_of(watch.chunk).contains(&disk)
    }

    /// Notes that this disk answered the read.
    pub fn answered(&mut self, key: OperationKey, disk: DiskId, now: Monotonic) {
        let Some(watch) = self.watched.get(&key) else { return };
        let asked_at = match watch.second {
            Some((second, asked_at)) if second == disk => {
                self.disks.entry(watch.first).or_default().counts.won += 1;
                asked_at
            }
            _ => watch.asked_at,
        };
        let manner = self.disks.entry(disk).or_default();
        manner.record(now.since(asked_at), now);
        if watch.late_at.is_some() && manner.rests_until <= now {
            manner.note_prompt();
        }
    }

    /// Stops watching a read that has ended or begins again, and drops the answers still to come.
    pub fn end(&mut self, key: OperationKey, pending: &[DiskId], shared: &mut Shared) {
        for disk in pending {
            shared.calls.disown(Owner::Operation(key), *disk);
        }
        let late_at = self.watched.remove(&key).and_then(|watch| watch.late_at);
        if let Some(at) = late_at {
            self.due.remove(&(at, key));
        }
    }

    pub fn clear(&mut self) {
        self.watched.clear();
        self.due.clear();
    }
}

/// Tells whether a single copy may lack the last write, and there are others.
pub(super) fn wants_newest(index: ChunkIndex, shared: &Shared) -> bool {
    let open = |disk: &&DiskId| shared.calls.is_open(**disk);
    shared.chunks.is_append(index) && shared.holders_of(index).iter().filter(open).count() > 1
}

/// Chooses a reachable in-sync copy. `copy`: the place of the only eligible one.
pub(super) fn choose_copy(
    index: ChunkIndex,
    lba: u64,
    copy: Option<u8>,
    hedges: &Hedges,
    shared: &Shared,
) -> Option<DiskId> {
    let holders = shared.holders_of(index);
    if let Some(copy) = copy {
        return holders.get(usize::from(copy)).copied().filter(|disk| shared.calls.is_open(*disk));
    }
    let chunk = shared.chunks.get(index)?;
    if Planted::ReadStaleCopy.is_planted()
        && let Some(&mirror) = chunk.mirrors.first()
    {
        return Some(mirror);
    }
    let now = shared.context.now;
    let mut copies = holders;
    copies.retain(|disk| shared.calls.is_open(*disk));
    prefer(&mut copies, |disk| !hedges.rests(disk, now));
    // A copy of this node is read without the network.
    prefer(&mut copies, |disk| !shared.context.is_far(disk));
    choose_by_load(lba, copies.iter().map(|disk| (*disk, shared.calls.load(*disk))))
}

/// Keeps only the better disks, if there are any.
fn prefer(disks: &mut SmallVec<[DiskId; 3]>, is_better: impl Fn(DiskId) -> bool) {
    let better: SmallVec<[DiskId; 3]> = disks.iter().copied().filter(|disk| is_better(*disk)).collect();
    if !better.is_empty() {
        *disks = better;
    }
}
