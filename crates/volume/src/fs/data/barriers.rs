//! Order of data before renames: writes to a file are stored and published before the file takes
//! another name.
//!
//! A rename is in the journal a second later at the latest, data only after some more. If the rename
//! were first, a crash between the two would leave the name to a file without its data, and the file
//! that had the name before would be gone. A plain write orders nothing.

use std::collections::HashMap;
use std::time::Duration;

use smallvec::SmallVec;

use super::streams::{Stream, Streams};
use super::writeback::Writeback;
use crate::fs::base::Base;
use crate::fs::types::{FileId, FsError};

/// Longest wait for data to be stored while write-back fails; then the failure is the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A change that waits for a file's data.
#[derive(Debug, Clone)]
struct Barrier {
    /// Number of the last write that counts. A later write over one that is not yet stored counts for it.
    sequence: u64,
    /// Ends of the file's streams, by their place. Later writes behind these ends must not keep them from
    /// being published.
    ends: SmallVec<[(usize, u64); 1]>,
    /// Number of the retry that last asked for it; a change that stops asking has been abandoned.
    asked: u64,
}

/// Files whose data a change waits for.
///
/// An entry remembers the last write before the wait began, so that a writer who continues does not
/// make it endless.
#[derive(Debug, Default)]
pub struct Barriers {
    files: HashMap<FileId, Barrier>,
}

impl Barriers {
    /// Has everything that was written to a file stored and published, so that no later change is durable before.
    ///
    /// # Errors
    /// `Miss` until it is. Why it cannot be written, if that has gone on for [`PATIENCE`].
    pub fn publish_file(
        &mut self,
        file: FileId,
        streams: &mut Streams,
        writeback: &mut Writeback,
        base: &mut Base,
    ) -> Result<(), FsError> {
        let slots = streams.of_file(file);
        let unpublished = |streams: &Streams, writeback: &Writeback, barrier: Option<&Barrier>| {
            let is = |slot: usize| {
                streams.get(slot).is_some_and(|one| !is_published(one, slot, writeback, barrier))
            };
            slots.iter().copied().find(|&slot| is(slot))
        };
        if unpublished(streams, writeback, None).is_none() {
            self.files.remove(&file);
            return Ok(());
        }
        let retries = base.agenda.retries();
        let known = self.files.get(&file).filter(|known| retries - known.asked <= 2).cloned();
        let mut barrier = known.unwrap_or_else(|| Barrier::begin(&slots, streams));
        barrier.asked = retries;
        while let Some(slot) = unpublished(streams, writeback, Some(&barrier)) {
            let Some(stream) = streams.get(slot) else { break };
            if stream.segments.has_dirty_until(0, u64::MAX, barrier.sequence) {
                may_store(slot, streams, writeback, base)?;
                writeback.start_jobs(slot, (0, u64::MAX), u64::MAX, streams, base);
            } else if !writeback.is_storing_until(stream, barrier.sequence) {
                // Of the writes before the wait, only the end is unpublished.
                streams.publish_end(slot, barrier.end(slot), base)?;
                let is_left = |stream| !is_published(stream, slot, writeback, Some(&barrier));
                if streams.get(slot).is_some_and(is_left) {
                    break;
                }
                continue;
            }
            self.files.insert(file, barrier);
            base.agenda.again = true;
            return Err(FsError::Miss);
        }
        self.files.remove(&file);
        Ok(())
    }
}

/// Checks that a waiter may start write-back of a stream: while writes fail, write-back retries without
/// it. A stream that is not set aside does not wait for the space that others lack.
///
/// # Errors
/// `Miss` while writes fail, the failure after [`PATIENCE`]; `ReadOnly` immediately, since it seldom
/// passes.
pub fn may_store(slot: usize, streams: &Streams, writeback: &Writeback, base: &Base) -> Result<(), FsError> {
    if let Some((damage, _)) = base.checkpointer.read_only() {
        return Err(damage);
    }
    let is_others = writeback.lacks_space() && !streams.due.is_held(slot);
    match writeback.failure().filter(|_| !is_others).or_else(|| base.trouble()) {
        None => Ok(()),
        Some((error, since)) if base.agenda.now.since(since) >= PATIENCE => Err(error.clone()),
        Some(_) => Err(FsError::Miss),
    }
}

impl Barrier {
    fn begin(slots: &[usize], streams: &Streams) -> Self {
        let ends = slots.iter().filter_map(|&slot| Some((slot, streams.get(slot)?.end_of_file))).collect();
        Self { sequence: streams.sequence, ends, asked: 0 }
    }

    /// The stream's end at that time.
    fn end(&self, slot: usize) -> u64 {
        self.ends.iter().find(|(place, _)| *place == slot).map_or(0, |(_, end)| *end)
    }
}

/// Whether all writes, or all before the barrier, are stored and published.
fn is_published(stream: &Stream, slot: usize, writeback: &Writeback, barrier: Option<&Barrier>) -> bool {
    if stream.reclaimed {
        return true;
    }
    match barrier {
        None => {
            !stream.segments.has_dirty()
                && stream.jobs.is_empty()
                && stream.end_of_file == stream.published_end
        }
        Some(barrier) => {
            let dirty = stream.segments.has_dirty_until(0, u64::MAX, barrier.sequence);
            let end = barrier.end(slot).min(stream.end_of_file);
            !writeback.is_storing_until(stream, barrier.sequence) && !dirty && stream.published_end >= end
        }
    }
}
