//! A real disk made to fail on demand, for tests of the running daemon.
//!
//! The disk goes to the data plane's thread, the [`FaultHandle`] to the owner of the control socket. A fault takes
//! effect at the disk's next submit or poll; a caller that sets one must therefore wake the loop.

use crate::crash::{Fault, FaultAction};
use crate::random::Random;
use crate::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation, check_fit};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::BufMut;

#[derive(Default)]
struct Told {
    faults: Vec<Fault>,
    hang: bool,
    no_space: bool,
    rot: VecDeque<(u64, u64)>,
}

/// Says how the disk fails. Any thread may hold one.
#[derive(Clone, Default)]
pub struct FaultHandle(Arc<Mutex<Told>>);

impl FaultHandle {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule of the kind that [`crate::crash::CrashDisk`] knows.
    pub fn inject(&self, fault: Fault) {
        self.told().faults.push(fault);
    }

    /// Nothing is performed while this is on; what was submitted then is performed when it is off again, or answered as timed
    /// out when the disk's time bound is over. As with a [`crate::FileDisk`], a disk that timed out has to be opened again.
    pub fn set_hang(&self, hang: bool) {
        self.told().hang = hang;
    }

    /// Writes fail with `NoSpace` while this is on.
    pub fn set_no_space(&self, no_space: bool) {
        self.told().no_space = no_space;
    }

    /// Flips one bit in each 512 bytes of the range, on the medium.
    pub fn rot(&self, offset: u64, len_bytes: u64) {
        self.told().rot.push_back((offset, len_bytes));
    }

    /// Ends all of it.
    pub fn clear(&self) {
        let mut told = self.told();
        told.faults.clear();
        told.hang = false;
        told.no_space = false;
    }
}

enum Purpose {
    Caller { token: u64 },
    ReadToRot { offset: u64 },
    WriteRot,
}

/// A disk that fails as its [`FaultHandle`] says.
pub struct FaultDisk<D> {
    disk: D,
    handle: FaultHandle,
    random: Random,
    /// Submitted while the disk hangs.
    held: Vec<(Instant, u64, DiskOperation)>,
    time_bound: Duration,
    /// An operation timed out.
    hung: bool,
    /// Purpose of each operation of the disk below, by its token there.
    purposes: HashMap<u64, Purpose>,
    next_token: u64,
    answers: Vec<DiskCompletion>,
    completions: Vec<DiskCompletion>,
}

impl<D: Disk> FaultDisk<D> {
    /// Wraps a disk. An operation that hangs longer than `time_bound` is answered as timed out.
    pub fn new(disk: D, handle: FaultHandle, time_bound: Duration) -> Self {
        Self {
            disk,
            handle,
            random: Random::new(1),
            held: Vec::new(),
            time_bound,
            hung: false,
            purposes: HashMap::new(),
            next_token: 0,
            answers: Vec::new(),
            completions: Vec::new(),
        }
    }

    /// Answers what hangs for too long.
    fn time_out(&mut self) {
        let (now, bound) = (Instant::now(), self.time_bound);
        while self.held.first().is_some_and(|(since, ..)| now.duration_since(*since) >= bound) {
            let (_, token, _) = self.held.remove(0);
            self.hung = true;
            self.answers.push(DiskCompletion { token, result: Err(DiskError::TimedOut) });
        }
    }

    fn pass_on(&mut self, purpose: Purpose, operation: DiskOperation) {
        self.purposes.insert(self.next_token, purpose);
        self.disk.submit(self.next_token, operation);
        self.next_token += 1;
    }

    fn start_rot(&mut self) {
        loop {
            let Some((offset, len_bytes)) = self.handle.told().rot.pop_front() else { return };
            let block = u64::from(self.disk.info().block_bytes);
            let start = offset - offset % block;
            let end =
                offset.saturating_add(len_bytes).next_multiple_of(block).min(self.disk.info().size_bytes);
            let mut at = start;
            while at < end {
                let len = (end - at).min(1 << 20);
                let operation = DiskOperation::Read { offset: at, into: BufMut::for_overwrite(len as usize) };
                self.pass_on(Purpose::ReadToRot { offset: at }, operation);
                at += len;
            }
        }
    }

    fn continue_rot(&mut self, offset: u64, read: Result<Option<BufMut>, DiskError>) {
        let Ok(Some(mut bytes)) = read else { return };
        for sector in bytes.chunks_mut(512) {
            let bit = self.random.below(sector.len() as u64 * 8);
            if let Some(byte) = sector.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
        let data = bytes.freeze().into();
        self.pass_on(Purpose::WriteRot, DiskOperation::Write { offset, data, durable: true });
    }
}

impl<D: Disk> Disk for FaultDisk<D> {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        let refused = match check_fit(self.disk.info(), &operation) {
            Err(error) => Some(error),
            Ok(()) => self.hung.then_some(DiskError::TimedOut),
        };
        if let Some(error) = refused {
            self.answers.push(DiskCompletion { token, result: Err(error) });
            return;
        }
        let mut told = self.handle.told();
        if told.hang {
            drop(told);
            self.held.push((Instant::now(), token, operation));
            return;
        }
        let full = told.no_space && matches!(operation, DiskOperation::Write { .. });
        let action = if full {
            Some(FaultAction::Fail(DiskError::NoSpace))
        } else {
            told.faults.iter_mut().find_map(|fault| fault.strike(&operation))
        };
        drop(told);
        match (action, operation) {
            (Some(FaultAction::Fail(error)), _) => {
                self.answers.push(DiskCompletion { token, result: Err(error) });
            }
            (Some(FaultAction::Hang), _) => {}
            (Some(FaultAction::LoseWrite), DiskOperation::Write { .. }) => {
                self.answers.push(DiskCompletion { token, result: Ok(None) });
            }
            (Some(FaultAction::MisdirectWrite { to_offset }), DiskOperation::Write { data, durable, .. }) => {
                let operation = DiskOperation::Write { offset: to_offset, data, durable };
                self.pass_on(Purpose::Caller { token }, operation);
            }
            (_, operation) => self.pass_on(Purpose::Caller { token }, operation),
        }
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let hang = self.handle.told().hang;
        if hang {
            self.time_out();
        } else {
            for (_, token, operation) in std::mem::take(&mut self.held) {
                self.pass_on(Purpose::Caller { token }, operation);
            }
        }
        self.start_rot();
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.poll(&mut completions);
        for completion in completions.drain(..) {
            match self.purposes.remove(&completion.token) {
                Some(Purpose::Caller { token }) => {
                    self.answers.push(DiskCompletion { token, result: completion.result });
                }
                Some(Purpose::ReadToRot { offset }) => self.continue_rot(offset, completion.result),
                Some(Purpose::WriteRot) | None => {}
            }
        }
        self.completions = completions;
        out.append(&mut self.answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{CrashDisk, CrashOptions, FaultTarget};
    use sys::Buf;

    fn disk() -> (FaultDisk<CrashDisk>, FaultHandle, CrashDisk) {
        let inner = CrashDisk::new(CrashOptions::new(1 << 20));
        let handle = FaultHandle::default();
        (FaultDisk::new(inner.clone(), handle.clone(), Duration::from_secs(3600)), handle, inner)
    }

    fn write(disk: &mut impl Disk, token: u64) {
        let data = Buf::from(&[7; 4096][..]).into();
        disk.submit(token, DiskOperation::Write { offset: 0, data, durable: true });
    }

    fn answers(disk: &mut impl Disk) -> Vec<DiskCompletion> {
        let mut out = Vec::new();
        for _ in 0..3 {
            disk.poll(&mut out);
        }
        out
    }

    #[test]
    fn a_hanging_disk_answers_when_it_no_longer_hangs() {
        let (mut disk, handle, inner) = disk();
        handle.set_hang(true);
        write(&mut disk, 1);
        assert!(answers(&mut disk).is_empty());
        handle.set_hang(false);
        assert_eq!(answers(&mut disk).len(), 1);
        assert_eq!(inner.peek(0, 1), [7]);
    }

    #[test]
    fn a_full_disk_refuses_writes_until_cleared() {
        let (mut disk, handle, _) = disk();
        handle.set_no_space(true);
        write(&mut disk, 1);
        assert!(matches!(answers(&mut disk)[0].result, Err(DiskError::NoSpace)));
        handle.clear();
        write(&mut disk, 2);
        assert!(answers(&mut disk)[0].result.is_ok());
    }

    #[test]
    fn rot_changes_the_medium_under_the_reader() {
        let (mut disk, handle, inner) = disk();
        handle.rot(4096, 8192);
        answers(&mut disk);
        let bytes = inner.peek(0, 4 * 4096);
        assert!(bytes[..4096].iter().chain(&bytes[3 * 4096..]).all(|&byte| byte == 0));
        assert!(bytes[4096..3 * 4096].chunks(512).all(|sector| sector.iter().any(|&byte| byte != 0)));
    }

    #[test]
    fn a_disk_that_hangs_too_long_times_out_and_has_to_be_opened_again() {
        let (_, handle, inner) = disk();
        let mut disk = FaultDisk::new(inner.clone(), handle.clone(), Duration::ZERO);
        handle.set_hang(true);
        write(&mut disk, 1);
        assert!(matches!(answers(&mut disk)[0].result, Err(DiskError::TimedOut)));
        handle.set_hang(false);
        write(&mut disk, 2);
        assert!(matches!(answers(&mut disk)[0].result, Err(DiskError::TimedOut)));
        let mut disk = FaultDisk::new(inner.clone(), handle, Duration::ZERO);
        write(&mut disk, 3);
        assert!(answers(&mut disk)[0].result.is_ok());
    }

    #[test]
    fn a_rule_fails_the_operation_it_names() {
        let (mut disk, handle, _) = disk();
        handle.inject(Fault::nth(FaultTarget::Write, 1, FaultAction::Fail(DiskError::Medium(5))));
        write(&mut disk, 1);
        write(&mut disk, 2);
        let failed: Vec<u64> = answers(&mut disk)
            .iter()
            .filter(|answer| answer.result.is_err())
            .map(|answer| answer.token)
            .collect();
        assert_eq!(failed, [2]);
    }
}
