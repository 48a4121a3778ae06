//! Requests under way on the virtual disk, with their purposes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ::types::{Lba, Monotonic};
use space::api::{SpaceCompletion, SpaceReply, SpaceRequest, SpaceSize, VirtualDisk, WriteClass};
use sys::Payload;

use crate::planted::Planted;

use super::layout::{COPIES_MAX, Pointer};
use super::meta::BlockRun;
use super::types::FsError;

/// Returns the copy to read after this one failed: first any copy, as the virtual disk chooses, then
/// each by itself.
pub fn next_copy(copy: Option<u8>) -> Option<u8> {
    let next = copy.map_or(0, |copy| copy + 1);
    (next < COPIES_MAX).then_some(next)
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Part of opening or formatting; the number is the opening's own.
    Opening(u64),
    /// A journal batch.
    Journal { sequence: u64 },
    /// A tree page, from this copy if one is named.
    Page { pointer: Pointer, copy: Option<u8> },
    /// Pages, space map or superblock of a checkpoint.
    Checkpoint,
    /// Blocks for a read job.
    Read { job: u64, part: usize },
    /// Blocks of a write-back job.
    Write { job: u64 },
    /// The first write to a chunk: makes the virtual disk allocate its space.
    Probe { chunk: u32 },
    /// Places of pages are emptied: first page, number of pages.
    DiscardPages { first: Lba, count: u32 },
    /// Freed blocks are discarded before they are written again.
    Prepare { run: BlockRun },
    /// The answer is ignored.
    Nothing,
    /// A chunk is emptied before it carries metadata, or after it could not be proven.
    Release { chunk: u32 },
    /// A chunk is emptied after its use.
    GiveBack { chunk: u32 },
}

/// An answer.
pub type Answer = Result<Payload, FsError>;

/// Pause before a request that was refused for lack of copies or space is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Timeout of a probe for missing copies: the same as for others' data that cannot be stored.
const PROBE_PATIENCE: Duration = Duration::from_secs(30);

/// A request that must be carried out before anything else proceeds.
#[derive(Debug, Clone)]
enum Needed {
    Write { lba: Lba, class: WriteClass, data: Payload },
    Discard { lba: Lba, blocks: u64 },
}

impl Needed {
    fn request(self) -> SpaceRequest {
        match self {
            Self::Write { lba, class, data } => SpaceRequest::Write { lba, class, data },
            Self::Discard { lba, blocks } => SpaceRequest::Discard { lba, blocks },
        }
    }
}

/// Why needed requests are not carried out.
#[derive(Debug)]
struct Stalled {
    error: FsError,
    since: Monotonic,
    retry_at: Monotonic,
}

/// Probe of a chunk that lacks copies. Only that chunk waits for it, since other writes may have their
/// copies.
#[derive(Debug)]
struct LateProbe {
    since: Monotonic,
    /// Time of the next try, and the request; `None` while it is under way.
    again: Option<(Monotonic, Needed)>,
}

/// The virtual disk, with tokens of our own.
pub struct Requests {
    disk: Box<dyn VirtualDisk>,
    next: u64,
    under_way: HashMap<u64, (Purpose, Option<Needed>)>,
    completions: Vec<SpaceCompletion>,
    /// Needed requests that wait to be tried again.
    waiting: Vec<(Purpose, Needed)>,
    stalled: Option<Stalled>,
    /// By chunk.
    late_probes: BTreeMap<u32, LateProbe>,
}

impl Requests {
    pub fn new(disk: Box<dyn VirtualDisk>) -> Self {
        Self {
            disk,
            next: 1,
            under_way: HashMap::new(),
            completions: Vec::new(),
            waiting: Vec::new(),
            stalled: None,
            late_probes: BTreeMap::new(),
        }
    }

    pub fn size(&self) -> SpaceSize {
        self.disk.size()
    }

    pub fn submit(&mut self, purpose: Purpose, request: SpaceRequest) {
        self.submit_as(purpose, request, None);
    }

    /// Submits a write that must succeed: while copies or space are missing it is tried again, and not
    /// answered. A probe is answered if space is missing, and after [`PROBE_PATIENCE`] if copies are.
    pub fn write_needed(&mut self, purpose: Purpose, lba: Lba, class: WriteClass, data: Payload) {
        self.submit_needed(purpose, Needed::Write { lba, class, data });
    }

    /// Discards blocks, and retries as [`Requests::write_needed`] does.
    pub fn discard_needed(&mut self, purpose: Purpose, lba: Lba, blocks: u64) {
        self.submit_needed(purpose, Needed::Discard { lba, blocks });
    }

    fn submit_needed(&mut self, purpose: Purpose, needed: Needed) {
        self.submit_as(purpose, needed.clone().request(), Some(needed));
    }

    fn submit_as(&mut self, purpose: Purpose, request: SpaceRequest, needed: Option<Needed>) {
        let token = self.next;
        self.next += 1;
        self.under_way.insert(token, (purpose, needed));
        self.disk.submit(token, request);
    }

    /// Why needed requests are not carried out, and since when.
    pub fn stalled(&self) -> Option<(&FsError, Monotonic)> {
        self.stalled.as_ref().map(|stalled| (&stalled.error, stalled.since))
    }

    /// When needed requests are tried again.
    pub fn retry_at(&self) -> Option<Monotonic> {
        let needed = self.needed_retry_at().into_iter();
        needed.chain(self.late_probes.values().filter_map(|probe| Some(probe.again.as_ref()?.0))).min()
    }

    fn needed_retry_at(&self) -> Option<Monotonic> {
        self.stalled.as_ref().filter(|_| !self.waiting.is_empty()).map(|stalled| stalled.retry_at)
    }

    /// Since when the first of the probes waits for copies.
    pub fn probes_late_since(&self) -> Option<Monotonic> {
        self.late_probes.values().map(|probe| probe.since).min()
    }

    fn try_again(&mut self, now: Monotonic) {
        if self.needed_retry_at().is_some_and(|at| now >= at) {
            for (purpose, needed) in std::mem::take(&mut self.waiting) {
                self.submit_needed(purpose, needed);
            }
        }
        let due = |probe: &LateProbe| probe.again.as_ref().is_some_and(|(at, _)| now >= *at);
        let due: Vec<u32> =
            self.late_probes.iter().filter(|(_, probe)| due(probe)).map(|(chunk, _)| *chunk).collect();
        for chunk in due {
            if let Some((_, needed)) = self.late_probes.get_mut(&chunk).and_then(|probe| probe.again.take()) {
                self.submit_needed(Purpose::Probe { chunk }, needed);
            }
        }
    }

    /// Lets a probe wait for copies; false: it has timed out.
    fn put_off_probe(&mut self, chunk: u32, needed: Needed, now: Monotonic) -> bool {
        let probe = self.late_probes.entry(chunk).or_insert(LateProbe { since: now, again: None });
        let waits = now.since(probe.since) < PROBE_PATIENCE;
        if waits {
            probe.again = Some((now.after(RETRY_DELAY), needed));
        }
        waits
    }

    /// Moves answers into `out`.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<(Purpose, Answer)>) {
        self.try_again(now);
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.poll(&mut completions);
        for completion in completions.drain(..) {
            let Some((purpose, needed)) = self.under_way.remove(&completion.token) else { continue };
            let answer = match completion.result {
                Ok(SpaceReply::Data(data)) => Ok(data),
                Ok(SpaceReply::Done) => Ok(Payload::new()),
                Err(error) => Err(FsError::from_space(&error)),
            };
            let answer = match (answer, &needed, purpose) {
                (answer, Some(needed), Purpose::Probe { chunk }) => {
                    // A probe asks for space, and too few reachable copies do not answer that.
                    let is_late = matches!(answer, Err(FsError::Unavailable));
                    if is_late && self.put_off_probe(chunk, needed.clone(), now) {
                        continue;
                    }
                    self.late_probes.remove(&chunk);
                    out.push((purpose, answer));
                    continue;
                }
                (answer, ..) => answer,
            };
            match (answer, needed) {
                (Err(error @ (FsError::Unavailable | FsError::NoSpace)), Some(needed))
                    if !Planted::OutageFailsVolume.is_planted() =>
                {
                    let since = self.stalled.as_ref().map_or(now, |stalled| stalled.since);
                    self.stalled = Some(Stalled { error, since, retry_at: now.after(RETRY_DELAY) });
                    self.waiting.push((purpose, needed));
                }
                (answer, needed) => {
                    if needed.is_some() && self.waiting.is_empty() {
                        self.stalled = None;
                    }
                    out.push((purpose, answer));
                }
            }
        }
        self.completions = completions;
    }
}
