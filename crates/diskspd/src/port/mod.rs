//! One thread's way to its targets: a ring for files and mappings, behind one [`Port`].

mod mapped;

use crate::engine::random::Random;
use crate::engine::{Done, Failure, Port, Request};
use mapped::MappedTarget;
use std::time::Duration;
use sys::file_ring::{FileOperation, FileRing, WriteFrom};

pub use mapped::MappedSetup;

/// How often a thread that waits looks whether the run was stopped.
pub const TICK: Duration = Duration::from_millis(100);

/// How a file of the ring is used.
#[derive(Debug, Clone)]
pub struct RingTarget {
    /// Its place among the ring's files.
    pub file: u32,
    pub priority: u16,
    pub is_durable: bool,
    pub content: Content,
}

/// Where the bytes of a write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The slot's buffer, filled once.
    Slot,
    /// The slot's buffer, filled with new random bytes each time.
    Random,
    /// A piece of a source: at random multiples of `step_bytes`, of which there are `steps`.
    Source { index: usize, step_bytes: usize, steps: u64 },
}

impl Content {
    /// Pieces of `block_bytes` of a source of `len_bytes`, at page boundaries where it has more than a page.
    pub fn source(index: usize, len_bytes: usize, block_bytes: u32) -> Self {
        let spare = len_bytes.saturating_sub(block_bytes as usize);
        let step_bytes = if spare >= sys::ALIGN_BYTES { sys::ALIGN_BYTES } else { 512 };
        Self::Source { index, step_bytes, steps: (spare / step_bytes) as u64 + 1 }
    }
}

/// One of the thread's targets.
pub enum PortTarget {
    Ring(RingTarget),
    Mapped(MappedTarget),
}

impl PortTarget {
    pub fn mapped(setup: MappedSetup) -> Self {
        Self::Mapped(MappedTarget::new(setup))
    }
}

/// The port of one thread.
pub struct ThreadPort {
    ring: Option<FileRing>,
    targets: Vec<PortTarget>,
    /// For the content of writes.
    random: Random,
    /// What ended within `submit`.
    ended: Vec<Done>,
}

impl ThreadPort {
    pub fn new(ring: Option<FileRing>, targets: Vec<PortTarget>, random: Random, slots: u32) -> Self {
        Self { ring, targets, random, ended: Vec::with_capacity(slots as usize) }
    }
}

fn now_ns() -> u64 {
    sys::monotonic_now().0
}

impl Port for ThreadPort {
    fn now_ns(&mut self) -> u64 {
        now_ns()
    }

    fn submit(&mut self, request: &Request, now: u64) -> Result<u64, Failure> {
        match self.targets.get_mut(request.target as usize) {
            Some(PortTarget::Ring(target)) => {
                let Some(ring) = &mut self.ring else { return Err(no_target()) };
                let operation = FileOperation {
                    slot: request.slot,
                    file: target.file,
                    offset: request.offset,
                    len_bytes: request.len_bytes,
                    priority: target.priority,
                    is_durable: target.is_durable && request.is_write,
                };
                if !request.is_write {
                    ring.read(&operation);
                    return Ok(now);
                }
                match target.content {
                    Content::Slot => ring.write(&operation, WriteFrom::Slot),
                    Content::Random => {
                        let buffer = ring.write_buffer(request.slot);
                        let len = buffer.len().min(request.len_bytes as usize);
                        self.random.fill(buffer.get_mut(..len).unwrap_or_default());
                        ring.write(&operation, WriteFrom::Slot);
                        return Ok(now_ns());
                    }
                    Content::Source { index, step_bytes, steps } => {
                        let at = self.random.below(steps) as usize * step_bytes;
                        ring.write(&operation, WriteFrom::Source { index, at });
                    }
                }
                Ok(now)
            }
            Some(PortTarget::Mapped(target)) => {
                target.prepare(request, &mut self.random);
                let began = now_ns();
                let result = target.perform(request);
                self.ended.push(Done { slot: request.slot, at_ns: now_ns(), result });
                Ok(began)
            }
            None => Err(no_target()),
        }
    }

    fn wait(&mut self, until_ns: u64, done: &mut Vec<Done>) -> Result<(), Failure> {
        let left_ns = if self.ended.is_empty() { until_ns.saturating_sub(now_ns()) } else { 0 };
        done.append(&mut self.ended);
        let Some(ring) = &mut self.ring else {
            if done.is_empty() {
                std::thread::sleep(Duration::from_nanos(left_ns).min(TICK));
            }
            return Ok(());
        };
        if done.is_empty() || ring.in_flight() > 0 {
            // The ring's own tick bounds longer waits.
            let timeout = (left_ns < TICK.as_nanos() as u64).then(|| Duration::from_nanos(left_ns));
            ring.wait(timeout).map_err(|error| Failure::Other(format!("io_uring: {error}")))?;
        }
        ring.completions(|slot, result| {
            done.push(Done { slot, at_ns: now_ns(), result: result.map_err(Failure::Errno) });
        });
        Ok(())
    }
}

fn no_target() -> Failure {
    Failure::Other("a target that this thread does not have".into())
}
