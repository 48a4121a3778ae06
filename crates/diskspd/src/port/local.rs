//! Files and mappings of one thread: a ring, and copies.

use super::mapped::{MappedSetup, MappedTarget};
use super::{Content, TICK, no_target, now_ns};
use crate::engine::random::Random;
use crate::engine::{Done, Failure, Port, Request};
use std::time::Duration;
use sys::file_ring::{FileOperation, FileRing, WriteFrom};

/// How a file of the ring is used.
#[derive(Debug, Clone)]
pub struct RingTarget {
    /// Place of the file among the ring's files.
    pub file: u32,
    pub priority: u16,
    pub is_durable: bool,
    pub content: Content,
}

/// One of the thread's targets.
pub enum LocalTarget {
    Ring(RingTarget),
    Mapped(MappedTarget),
}

impl LocalTarget {
    pub fn mapped(setup: MappedSetup) -> Self {
        Self::Mapped(MappedTarget::new(setup))
    }
}

/// The port of one thread.
pub struct LocalPort {
    ring: Option<FileRing>,
    targets: Vec<LocalTarget>,
    /// For the content of writes.
    random: Random,
    /// Operations that ended within `submit`.
    ended: Vec<Done>,
}

impl LocalPort {
    pub fn new(ring: Option<FileRing>, targets: Vec<LocalTarget>, random: Random, slots: u32) -> Self {
        Self { ring, targets, random, ended: Vec::with_capacity(slots as usize) }
    }
}

impl Port for LocalPort {
    fn now_ns(&mut self) -> u64 {
        now_ns()
    }

    fn submit(&mut self, request: &Request, now: u64) -> Result<u64, Failure> {
        match self.targets.get_mut(request.target as usize) {
            Some(LocalTarget::Ring(target)) => {
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
            Some(LocalTarget::Mapped(target)) => {
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
