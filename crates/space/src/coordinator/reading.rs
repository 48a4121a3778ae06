//! Which copy a read goes to, and when another one is asked as well.
//!
//! If disks of other nodes are among the copies, a read that takes longer than nearly all do is *late*: another copy in sync is asked too, the
//! first good answer wins, and the other one is thrown away when it comes. A disk that is late again and again is left alone for a while, as long as
//! there are other copies, so that one that is slow for long costs a late read now and then, and not half of them.
//!
//! | | |
//! |---|---|
//! | late | after as long as 99 of 100 reads of the quickest of the chunk's copies took in the last seconds, and 5 ms at least; counted from when the request left for the disk, since what it waited for before says nothing of that. One that has not left after 100 ms is late, too, and no disk is blamed |
//! | asked twice | at most one read in 50, and 5 more at once: a cluster that is slow as a whole must not be given twice the load |
//! | left alone | when three in a row were late, each asked after the one before was: for a second, and for twice as long each time that the next read is late again, up to 32 s |
//!
//! # Why the second answer is as good as the first
//!
//! A read holds the shared lock of its blocks from before the first copy is asked until it ends. So no write, discard or step that makes copies equal
//! begins on these blocks meanwhile, and none was under way when the lock was granted: every acknowledged write of them had been answered by every
//! copy in sync (I1). The region was passed at the gate as one whose copies agree, and none becomes doubtful while the volume is served. So any copy
//! that is in sync from when it is asked until it answers holds what the first one holds (I10); which of them is read was always a question of load.
//! A copy that leaves ends its calls, so that its answer is taken by nobody. That the copy counts and that the region is not in doubt
//! is looked at when it is asked, and that it still counts when it answers. A copy in the making never counts. Blocks that prove themselves are read from all
//! copies anyway, and a read of one certain copy is that copy's alone. Neither is asked twice.
//!
//! Writes go to all copies: there is no other one to ask.
//!
//! The answer that lost is awaited by nobody ([`Owner::Nobody`]), but a disk that never gives it fails as with any call, and if it tells of a bad block
//! the region is repaired as if it had won ([`super::syncing::Syncing::lost_answered`]).

use super::calls::Owner;
use super::ground::Ground;
use super::keys::OperationKey;
use super::running::choose_by_load;
use crate::message::Waiting;
use crate::planted::Planted;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::Duration;
use types::{ChunkIndex, DiskId, LatencyHistogram, Monotonic};

/// The least time after which a read is late: a few times what a disk in good order takes behind a queue, over a network.
const LATE_LEAST: Duration = Duration::from_millis(5);
/// That time before enough reads were measured: ten times what a spinning disk takes.
const LATE_UNMEASURED: Duration = Duration::from_millis(100);
/// A read that has not left for its disk is late after so long: longer than what is under way to one peer takes over a line of 10 Gbit/s.
const LATE_WAITING: Duration = Duration::from_millis(100);
/// Reads of a disk that make a measure.
const MEASURED_LEAST: u64 = 20;
/// A measure is of between one and two of these.
const MEASURED_FOR: Duration = Duration::from_secs(4);
/// What 99 of 100 reads took is reckoned so often: each read asks for it.
const RECKONED_FOR: Duration = Duration::from_millis(100);
/// A read that is asked twice spends so much, of which each read gives one back.
const HEDGE_COST: u32 = 50;
const SPENT_MAX: u32 = 5 * HEDGE_COST;
/// A disk is left alone when it was late so many times in a row: one in 100 is late by what the word means.
const LATE_IN_A_ROW: u32 = 3;
/// How long a disk is left alone, at first and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));

/// What became of reads that one disk was the first to be asked for, since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LateReads {
    /// It took longer than nearly all reads do.
    pub late: u64,
    /// Of these: another copy was asked as well.
    pub hedged: u64,
    /// Of these: the other copy's answer was the first good one.
    pub won: u64,
}

impl AddAssign for LateReads {
    fn add_assign(&mut self, Self { late, hedged, won }: Self) {
        self.late += late;
        self.hedged += hedged;
        self.won += won;
    }
}

/// How a disk answers reads.
#[derive(Default)]
struct Manner {
    /// Times of the present stretch, and of the one before.
    times: (LatencyHistogram, LatencyHistogram),
    stretch_until: Monotonic,
    /// A time within which 99 of 100 of these were answered, as it was reckoned last, and until when that is good enough.
    usual: Option<Duration>,
    usual_until: Monotonic,
    /// Reads that were late since the last one that was not, each asked after the one before was late; and when the last was.
    late_in_a_row: u32,
    late_at: Monotonic,
    /// Left alone until then, and for how long.
    rests_until: Monotonic,
    rest: Duration,
    counts: LateReads,
}

impl Manner {
    /// Begins another stretch if this one is over.
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

    /// A time within which 99 of 100 reads were answered.
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

    /// A read was not answered in time.
    fn note_late(&mut self, asked_at: Monotonic, now: Monotonic) {
        self.counts.late += 1;
        self.record(now.since(asked_at), now);
        // Reads that were under way together are late together: that is one time.
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

    /// A read was answered in time.
    fn note_prompt(&mut self) {
        (self.late_in_a_row, self.rest) = (0, Duration::ZERO);
    }
}

/// A read that is with a copy.
struct Watch {
    chunk: ChunkIndex,
    first: DiskId,
    /// When it left for the first, as far as is known.
    asked_at: Monotonic,
    /// It waits on this side, behind others, and has not left.
    waits: bool,
    /// After that time at the disk it is late.
    late_after: Duration,
    /// None: it is late, and was counted so.
    late_at: Option<Monotonic>,
    second: Option<(DiskId, Monotonic)>,
}

/// Reads with copies of which one is another node's, and how disks answer them.
///
/// Invariant: `due` has each watched read that is not late, at the time when it will be.
#[derive(Default)]
pub(super) struct Hedges {
    watched: BTreeMap<OperationKey, Watch>,
    due: BTreeSet<(Monotonic, OperationKey)>,
    disks: BTreeMap<DiskId, Manner>,
    /// What reads that were asked twice have spent and others have not given back.
    spent: u32,
}

impl Hedges {
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns what became of reads, by the disk that was asked first.
    pub fn counts(&self) -> impl Iterator<Item = (DiskId, LateReads)> + '_ {
        self.disks.iter().map(|(disk, manner)| (*disk, manner.counts))
    }

    /// Whether the disk was late, and is better left alone.
    fn rests(&self, disk: DiskId, now: Monotonic) -> bool {
        self.disks.get(&disk).is_some_and(|manner| manner.rests_until > now)
    }

    /// A read was sent to a copy that it was not bound to.
    pub fn begin(&mut self, key: OperationKey, chunk: ChunkIndex, first: DiskId, ground: &Ground) {
        if !ground.setting.pool.borrow().has_remote() {
            return;
        }
        let holders = ground.holders_of(chunk);
        if holders.len() < 2 || !holders.iter().any(|disk| ground.setting.is_far(*disk)) {
            return;
        }
        let now = ground.setting.now;
        self.spent = self.spent.saturating_sub(1);
        let usual = holders.iter().filter_map(|disk| self.disks.entry(*disk).or_default().usual(now)).min();
        let late_after = usual.unwrap_or(LATE_UNMEASURED).max(LATE_LEAST);
        let late_at = now.after(late_after);
        self.due.insert((late_at, key));
        let late_at = Some(late_at);
        let watch = Watch { chunk, first, asked_at: now, waits: false, late_after, late_at, second: None };
        self.watched.insert(key, watch);
    }

    /// The request to the first copy, or the second, waits for its turn, or leaves after it has waited: its disk's time begins then.
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

    /// Takes a read that is late from now on.
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

    /// Chooses the copy that a late read is asked of as well, if one may be.
    pub fn choose_second(&mut self, key: OperationKey, ground: &Ground) -> Option<DiskId> {
        let now = ground.setting.now;
        let watch = self.watched.get(&key).filter(|watch| watch.second.is_none())?;
        if self.spent + HEDGE_COST > SPENT_MAX {
            return None;
        }
        let holders = ground.holders_of(watch.chunk);
        let mut others: SmallVec<[DiskId; 3]> =
            holders.into_iter().filter(|disk| *disk != watch.first && ground.calls.is_open(*disk)).collect();
        if Planted::HedgeStaleCopy.is_planted()
            && let Some(chunk) = ground.chunks.get(watch.chunk)
            && !chunk.mirrors.is_empty()
        {
            others = chunk.mirrors.iter().copied().collect();
        }
        let second = others.into_iter().min_by_key(|disk| {
            (self.rests(*disk, now), ground.setting.is_far(*disk), ground.calls.load(*disk))
        })?;
        self.spent += HEDGE_COST;
        let watch = self.watched.get_mut(&key)?;
        watch.second = Some((second, now));
        self.disks.entry(watch.first).or_default().counts.hedged += 1;
        Some(second)
    }

    /// Whether the disk's answer may be taken: that of a second copy only if it still counts.
    pub fn may_answer(&self, key: OperationKey, disk: DiskId, ground: &Ground) -> bool {
        let Some(watch) = self.watched.get(&key) else { return true };
        let is_second = watch.second.is_some_and(|(second, _)| second == disk);
        !is_second || Planted::HedgeStaleCopy.is_planted() || ground.holders_of(watch.chunk).contains(&disk)
    }

    /// The read was answered by this disk.
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

    /// The read is over, or begins again: what copies still answer that have not is thrown away.
    pub fn end(&mut self, key: OperationKey, pending: &[DiskId], ground: &mut Ground) {
        for disk in pending {
            ground.calls.disown(Owner::Operation(key), *disk);
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

/// Tells whether one copy alone cannot be trusted to have the last that was written, and there are others.
pub(super) fn wants_newest(index: ChunkIndex, ground: &Ground) -> bool {
    let open = |disk: &&DiskId| ground.calls.is_open(**disk);
    ground.chunks.is_append(index) && ground.holders_of(index).iter().filter(open).count() > 1
}

/// Chooses a reachable in-sync copy. `copy`: the one that it has to be.
pub(super) fn choose_copy(
    index: ChunkIndex,
    lba: u64,
    copy: Option<u8>,
    hedges: &Hedges,
    ground: &Ground,
) -> Option<DiskId> {
    let holders = ground.holders_of(index);
    if let Some(copy) = copy {
        return holders.get(usize::from(copy)).copied().filter(|disk| ground.calls.is_open(*disk));
    }
    let chunk = ground.chunks.get(index)?;
    if Planted::ReadStaleCopy.is_planted()
        && let Some(&mirror) = chunk.mirrors.first()
    {
        return Some(mirror);
    }
    let now = ground.setting.now;
    let mut copies = holders;
    copies.retain(|disk| ground.calls.is_open(*disk));
    prefer(&mut copies, |disk| !hedges.rests(disk, now));
    // A copy of this node is read without the network.
    prefer(&mut copies, |disk| !ground.setting.is_far(disk));
    choose_by_load(lba, copies.iter().map(|disk| (*disk, ground.calls.load(*disk))))
}

/// Leaves only the better ones, if there are any.
fn prefer(disks: &mut SmallVec<[DiskId; 3]>, is_better: impl Fn(DiskId) -> bool) {
    let better: SmallVec<[DiskId; 3]> = disks.iter().copied().filter(|disk| is_better(*disk)).collect();
    if !better.is_empty() {
        *disks = better;
    }
}
