//! Requests under way on the virtual disk, and what each is for.

use std::collections::HashMap;

use ::types::Lba;
use space::api::{SpaceCompletion, SpaceReply, SpaceRequest, SpaceSize, VirtualDisk};
use sys::Payload;

use super::types::FsError;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Part of opening or formatting; the number is the opening's own.
    Opening(u64),
    /// A journal batch.
    Journal { sequence: u64 },
    /// A tree page from this copy.
    Page { lba: Lba, copy: u8 },
    /// Pages, space map or superblock of a checkpoint.
    Checkpoint,
    /// Blocks for a read job.
    Read { job: u64, part: usize },
    /// Blocks of a write-back job.
    Write { job: u64 },
    /// The first write to a chunk: makes the virtual disk give it room.
    Probe { chunk: u32 },
    /// A chunk is emptied: before it carries metadata, or after its use.
    Release { chunk: u32 },
}

/// An answer.
pub type Answer = Result<Payload, FsError>;

/// The virtual disk, with tokens of our own.
pub struct Requests {
    disk: Box<dyn VirtualDisk>,
    next: u64,
    under_way: HashMap<u64, Purpose>,
    completions: Vec<SpaceCompletion>,
}

impl Requests {
    pub fn new(disk: Box<dyn VirtualDisk>) -> Self {
        Self { disk, next: 1, under_way: HashMap::new(), completions: Vec::new() }
    }

    pub fn size(&self) -> SpaceSize {
        self.disk.size()
    }

    pub fn submit(&mut self, purpose: Purpose, request: SpaceRequest) {
        let token = self.next;
        self.next += 1;
        self.under_way.insert(token, purpose);
        self.disk.submit(token, request);
    }

    /// Moves answers into `out`.
    pub fn poll(&mut self, out: &mut Vec<(Purpose, Answer)>) {
        self.disk.poll(&mut self.completions);
        for completion in self.completions.drain(..) {
            let Some(purpose) = self.under_way.remove(&completion.token) else { continue };
            let answer = match completion.result {
                Ok(SpaceReply::Data(data)) => Ok(data),
                Ok(SpaceReply::Done) => Ok(Payload::new()),
                Err(error) => Err(FsError::from_space(&error)),
            };
            out.push((purpose, answer));
        }
    }
}
