//! One thread of a run.

use super::control::{Control, Live, Totals};
use super::offsets::Offsets;
use super::pace::Pace;
use super::random::Random;
use super::{Done, Failure, Port, Request};
use crate::statistics::{Direction, Intervals, TargetResult, WaitStatistics};
use std::sync::Arc;

/// One target as a thread uses it.
#[derive(Debug)]
pub struct ThreadTarget {
    pub path: String,
    pub file_bytes: u64,
    pub block_bytes: u32,
    pub write_percent: u32,
    /// Slots of its own; 0 in a pool, if slots choose among targets by weight.
    pub slots: u32,
    pub weight: u32,
    pub offsets: Offsets,
    pub pace: Pace,
}

pub struct WorkerSetup {
    /// Counted over all threads.
    pub thread: u32,
    pub random: Random,
    pub targets: Vec<ThreadTarget>,
    /// Slots that choose their target anew each time (`-O`).
    pub pool_slots: u32,
    pub measure_latency: bool,
    /// Length of the intervals in which completions are counted.
    pub bucket_ms: Option<u32>,
    pub control: Arc<Control>,
    pub live: Arc<Live>,
}

/// The reason why a thread ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFailure {
    pub thread: u32,
    /// Which target, and whether by a write; `None` if the port itself failed.
    pub operation: Option<(u32, bool)>,
    pub failure: Failure,
}

struct Slot {
    target: u32,
    /// Counted among the target's slots.
    number: u32,
    is_write: bool,
    started_ns: u64,
}

pub struct Worker<P> {
    port: P,
    thread: u32,
    random: Random,
    targets: Vec<ThreadTarget>,
    results: Vec<TargetResult>,
    slots: Vec<Slot>,
    /// Slots of each target that wait for its pace.
    held: Vec<Vec<u32>>,
    held_count: usize,
    is_pool: bool,
    weights: u64,
    in_flight: u32,
    measure_latency: bool,
    measures_intervals: bool,
    control: Arc<Control>,
    live: Arc<Live>,
    totals: Totals,
    waits: WaitStatistics,
    short_transfer_told: bool,
}

impl<P: Port> Worker<P> {
    pub fn new(setup: WorkerSetup, port: P) -> Self {
        let duration_ms = setup.control.measured_ns() / 1_000_000;
        let direction = || Direction {
            intervals: setup
                .bucket_ms
                .map_or_else(Intervals::default, |ms| Intervals::new(ms, duration_ms, setup.measure_latency)),
            ..Direction::default()
        };
        let results = setup.targets.iter().map(|target| TargetResult {
            path: target.path.clone(),
            file_bytes: target.file_bytes,
            distribution: target.offsets.ranges(),
            read: direction(),
            write: direction(),
        });
        let results = results.collect();
        let slot = |target: usize, number: u32| Slot {
            target: target as u32,
            number,
            is_write: false,
            started_ns: 0,
        };
        let is_pool = setup.pool_slots > 0;
        let slots: Vec<Slot> = if is_pool {
            (0..setup.pool_slots).map(|number| slot(0, number)).collect()
        } else {
            let targets = setup.targets.iter().enumerate();
            targets.flat_map(|(at, target)| (0..target.slots).map(move |number| slot(at, number))).collect()
        };
        Self {
            port,
            thread: setup.thread,
            random: setup.random,
            weights: setup.targets.iter().map(|target| u64::from(target.weight)).sum(),
            held: setup.targets.iter().map(|_| Vec::with_capacity(slots.len())).collect(),
            held_count: 0,
            targets: setup.targets,
            results,
            slots,
            is_pool,
            in_flight: 0,
            measure_latency: setup.measure_latency,
            measures_intervals: setup.bucket_ms.is_some(),
            control: setup.control,
            live: setup.live,
            totals: Totals::default(),
            waits: WaitStatistics::default(),
            short_transfer_told: false,
        }
    }

    /// Works until the run ends.
    ///
    /// # Errors
    /// The first operation that failed; the others in flight are given up.
    pub fn run(&mut self) -> Result<(), WorkerFailure> {
        let mut done = Vec::with_capacity(self.slots.len());
        let mut now = self.port.now_ns();
        for slot in 0..self.slots.len() as u32 {
            self.start(slot, now)?;
        }
        while now < self.control.end_ns() {
            let until = self.release(now)?;
            self.wait(now, until, &mut done)?;
            now = match done.last() {
                Some(last) => last.at_ns,
                None => self.port.now_ns(),
            };
            for one in done.drain(..) {
                self.account(&one)?;
                if one.at_ns < self.control.end_ns() {
                    self.start(one.slot, one.at_ns)?;
                }
            }
            self.live.publish(self.totals);
        }
        self.drain(done)
    }

    pub fn results(self) -> (Vec<TargetResult>, WaitStatistics, P) {
        (self.results, self.waits, self.port)
    }

    /// Starts the held slots whose time has come; gives when the next one's does, or the run ends.
    fn release(&mut self, now: u64) -> Result<u64, WorkerFailure> {
        let mut until = self.control.end_ns();
        if self.held_count == 0 {
            return Ok(until);
        }
        for target in 0..self.targets.len() {
            while let Some(&slot) = self.held.get(target).and_then(|held| held.last()) {
                let ready = self.targets.get(target).map_or(0, |target| target.pace.ready_at_ns());
                if ready > now {
                    until = until.min(ready);
                    break;
                }
                if let Some(held) = self.held.get_mut(target) {
                    held.pop();
                    self.held_count -= 1;
                }
                self.issue(slot, now)?;
            }
        }
        Ok(until)
    }

    fn wait(&mut self, now: u64, until: u64, done: &mut Vec<Done>) -> Result<(), WorkerFailure> {
        if self.held_count > 0 {
            self.waits.throttle_waits += 1;
            self.waits.throttle_sleeps += u64::from(until.saturating_sub(now) > 1_000_000);
        } else {
            self.waits.completion_waits += 1;
        }
        self.port.wait(until, done).map_err(|failure| self.port_failed(failure))?;
        self.waits.batched_completions += done.len().saturating_sub(1) as u64;
        Ok(())
    }

    /// Starts an idle slot, or holds it until its target's pace lets it go.
    fn start(&mut self, slot: u32, now: u64) -> Result<(), WorkerFailure> {
        if self.is_pool {
            let target = self.choose();
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.target = target;
            }
            return self.issue(slot, now);
        }
        let target = self.slots.get(slot as usize).map_or(0, |slot| slot.target) as usize;
        let free = self
            .targets
            .get(target)
            .is_some_and(|target| target.pace.is_free() || target.pace.ready_at_ns() <= now);
        if free {
            return self.issue(slot, now);
        }
        if let Some(held) = self.held.get_mut(target) {
            held.push(slot);
            self.held_count += 1;
        }
        Ok(())
    }

    /// A target of the pool, by weight.
    fn choose(&mut self) -> u32 {
        if self.targets.len() == 1 {
            return 0;
        }
        let mut draw = self.random.below(self.weights);
        for (at, target) in self.targets.iter().enumerate() {
            let weight = u64::from(target.weight);
            if draw < weight {
                return at as u32;
            }
            draw -= weight;
        }
        0
    }

    fn issue(&mut self, slot: u32, now: u64) -> Result<(), WorkerFailure> {
        let Some(state) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        let Some(target) = self.targets.get_mut(state.target as usize) else { return Ok(()) };
        state.is_write = self.random.percent(target.write_percent);
        let request = Request {
            slot,
            target: state.target,
            is_write: state.is_write,
            offset: target.offsets.next(state.number, &mut self.random),
            len_bytes: target.block_bytes,
        };
        if !target.pace.is_free() {
            target.pace.issued(now, target.block_bytes);
        }
        match self.port.submit(&request, now) {
            Ok(started) => {
                state.started_ns = started;
                self.in_flight += 1;
                Ok(())
            }
            Err(failure) => Err(self.operation_failed(request.target, request.is_write, failure)),
        }
    }

    fn account(&mut self, done: &Done) -> Result<(), WorkerFailure> {
        let Some(slot) = self.slots.get(done.slot as usize) else { return Ok(()) };
        self.in_flight = self.in_flight.saturating_sub(1);
        let bytes = match &done.result {
            Ok(bytes) => *bytes,
            Err(failure) => {
                return Err(self.operation_failed(slot.target, slot.is_write, failure.clone()));
            }
        };
        let latency_ns = done.at_ns.saturating_sub(slot.started_ns);
        self.totals.operations += 1;
        self.totals.bytes += u64::from(bytes);
        self.totals.latency_ns += latency_ns;
        let wanted = self.targets.get(slot.target as usize).map_or(0, |target| target.block_bytes);
        if bytes != wanted && !self.short_transfer_told {
            self.short_transfer_told = true;
            eprintln!("Warning: thread {} transferred {bytes} bytes instead of {wanted} bytes", self.thread);
        }
        let from = self.control.measure_from_ns();
        if done.at_ns < from || done.at_ns >= self.control.measure_to_ns() {
            return Ok(());
        }
        let Some(result) = self.results.get_mut(slot.target as usize) else { return Ok(()) };
        let direction = if slot.is_write { &mut result.write } else { &mut result.read };
        direction.operations += 1;
        direction.bytes += u64::from(bytes);
        if self.measure_latency {
            direction.latency.record(latency_ns);
        }
        if self.measures_intervals {
            direction.intervals.record(done.at_ns - from, latency_ns);
        }
        Ok(())
    }

    /// Waits for operations still in flight, some seconds at most; those that the kernel keeps longer are
    /// left to the port.
    fn drain(&mut self, mut done: Vec<Done>) -> Result<(), WorkerFailure> {
        const PATIENCE_NS: u64 = 3_000_000_000;
        let deadline = self.port.now_ns().saturating_add(PATIENCE_NS);
        while self.in_flight > 0 && self.port.now_ns() < deadline && !self.control.is_failed() {
            self.port.wait(deadline, &mut done).map_err(|failure| self.port_failed(failure))?;
            for one in done.drain(..) {
                self.account(&one)?;
            }
        }
        self.live.publish(self.totals);
        Ok(())
    }

    fn port_failed(&self, failure: Failure) -> WorkerFailure {
        WorkerFailure { thread: self.thread, operation: None, failure }
    }

    fn operation_failed(&self, target: u32, is_write: bool, failure: Failure) -> WorkerFailure {
        WorkerFailure { thread: self.thread, operation: Some((target, is_write)), failure }
    }
}
