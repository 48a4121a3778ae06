//! Data that goes before something else: what was written to a file is stored and published before the file takes another name.
//!
//! A rename is in the journal a second later at the latest, data only after some more. If the rename were first, a crash between the two would leave
//! the name to a file without its data, and what had the name before would be gone. A plain write orders nothing.

use super::super::FileSystem;
use super::super::types::{FileId, FsError};
use super::Stream;
use smallvec::SmallVec;
use std::time::Duration;

/// Who needs data to be stored waits so long while write-back fails; then the failure is the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A change that waits for a file's data.
#[derive(Debug, Clone)]
pub struct Settling {
    /// Writes numbered up to this one, and jobs below that.
    sequence: u64,
    jobs: u64,
    /// Where the file's streams ended, by their place. What is written behind later must not keep these ends from being published.
    ends: SmallVec<[(usize, u64); 1]>,
    /// It was asked about at this retry; a change that asks no more has been given up.
    asked: u64,
}

impl FileSystem {
    /// Has everything that was written to a file stored and published, so that no later change is durable before.
    ///
    /// # Errors
    /// `Miss` until it is. Why it cannot be written, if that has gone on for [`PATIENCE`].
    pub fn settle_data(&mut self, file: FileId) -> Result<(), FsError> {
        self.ready()?;
        let slots = self.data.by_file.get(&file).cloned().unwrap_or_default();
        let unsettled = |fs: &mut Self, settling: Option<&Settling>| {
            slots
                .iter()
                .copied()
                .find(|&slot| fs.data.stream(slot).is_some_and(|stream| !stream.is_settled(slot, settling)))
        };
        if unsettled(self, None).is_none() {
            self.data.settling.remove(&file);
            return Ok(());
        }
        let known = self.data.settling.get(&file).filter(|known| self.retries - known.asked <= 2).cloned();
        let mut settling = known.unwrap_or_else(|| self.begin_settling(&slots));
        settling.asked = self.retries;
        while let Some(slot) = unsettled(self, Some(&settling)) {
            let Some(stream) = self.data.stream(slot) else { break };
            if stream.segments.has_dirty_until(0, u64::MAX, settling.sequence) {
                self.may_store()?;
                self.start_jobs(slot, 0, u64::MAX, u64::MAX);
                settling.jobs = self.data.next_job;
            } else if !stream.is_in_jobs(&settling) {
                // Nothing of that time is left to be stored but the end.
                self.publish_end(slot, settling.end(slot))?;
                if self.data.stream(slot).is_some_and(|stream| !stream.is_settled(slot, Some(&settling))) {
                    break;
                }
                continue;
            }
            self.data.settling.insert(file, settling);
            self.pump_again = true;
            return Err(FsError::Miss);
        }
        self.data.settling.remove(&file);
        Ok(())
    }

    fn begin_settling(&mut self, slots: &[usize]) -> Settling {
        let ends =
            slots.iter().filter_map(|&slot| Some((slot, self.data.stream(slot)?.end_of_file))).collect();
        Settling { sequence: self.data.sequence, jobs: self.data.next_job, ends, asked: 0 }
    }

    /// Whether data may be written because somebody needs it to be: while writes fail, write-back tries again by itself.
    ///
    /// # Errors
    /// `Miss` while writes fail, the failure after [`PATIENCE`]; `ReadOnly` at once: that seldom passes.
    pub(super) fn may_store(&self) -> Result<(), FsError> {
        if let Some((damage, _)) = self.read_only() {
            return Err(damage);
        }
        match self.write_back_failure() {
            None => Ok(()),
            Some((error, since)) if self.now.since(since) >= PATIENCE => Err(error.clone()),
            Some(_) => Err(FsError::Miss),
        }
    }
}

impl Settling {
    /// Where the stream ended.
    fn end(&self, slot: usize) -> u64 {
        self.ends.iter().find(|(place, _)| *place == slot).map_or(0, |(_, end)| *end)
    }
}

impl Stream {
    /// Whether all that was written, or what was written before something waited for it, is stored and published.
    fn is_settled(&self, slot: usize, settling: Option<&Settling>) -> bool {
        if self.reclaimed {
            return true;
        }
        match settling {
            None => {
                !self.segments.has_dirty() && self.jobs.is_empty() && self.end_of_file == self.published_end
            }
            Some(settling) => {
                let dirty = self.segments.has_dirty_until(0, u64::MAX, settling.sequence);
                let end = settling.end(slot).min(self.end_of_file);
                !self.is_in_jobs(settling) && !dirty && self.published_end >= end
            }
        }
    }

    /// Whether jobs of that time are under way.
    fn is_in_jobs(&self, settling: &Settling) -> bool {
        self.jobs.ranges.values().any(|(_, job)| *job < settling.jobs)
    }
}
