//! Is the ruler straight: the engine against targets of known behaviour, in virtual time, with exact answers.

mod measuring;
mod offsets;

use super::control::{Control, Live};
use super::offsets::Offsets;
use super::pace::Pace;
use super::random::Random;
use super::{Done, Failure, Port, Request, ThreadTarget, Worker, WorkerSetup};
use crate::profile::{Target, TimeSpan};
use crate::statistics::TargetResult;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A simulated target's treatment of an operation: how long it takes, and how it ends.
type Behaviour = Box<dyn FnMut(&Request, u64) -> (u64, Result<u32, Failure>)>;

/// A target in virtual time: nothing takes any but the operations.
struct Simulated {
    now: u64,
    behaviour: Behaviour,
    in_flight: Vec<Done>,
    issued: Vec<(u64, Request)>,
    /// Stops the run at that time, as Ctrl-C would.
    interrupt: Option<(u64, Arc<Control>)>,
}

impl Simulated {
    fn new(behaviour: impl FnMut(&Request, u64) -> (u64, Result<u32, Failure>) + 'static) -> Self {
        Self {
            now: 0,
            behaviour: Box::new(behaviour),
            in_flight: Vec::new(),
            issued: Vec::new(),
            interrupt: None,
        }
    }

    /// Every operation takes this long.
    fn steady(delay_ns: u64) -> Self {
        Self::new(move |request, _| (delay_ns, Ok(request.len_bytes)))
    }
}

impl Port for Simulated {
    fn now_ns(&mut self) -> u64 {
        self.now
    }

    fn submit(&mut self, request: &Request, now_ns: u64) -> Result<u64, Failure> {
        let (delay, result) = (self.behaviour)(request, now_ns);
        self.issued.push((now_ns, *request));
        self.in_flight.push(Done { slot: request.slot, at_ns: now_ns + delay, result });
        Ok(now_ns)
    }

    fn wait(&mut self, until_ns: u64, done: &mut Vec<Done>) -> Result<(), Failure> {
        let first = self.in_flight.iter().map(|one| one.at_ns).min().unwrap_or(u64::MAX);
        self.now = self.now.max(first.min(until_ns));
        if let Some((at, control)) = &self.interrupt
            && self.now >= *at
        {
            control.stop(*at);
        }
        let now = self.now;
        done.extend(self.in_flight.extract_if(.., |one| one.at_ns <= now));
        done.sort_by_key(|one| (one.at_ns, one.slot));
        Ok(())
    }
}

/// Result of a run of one thread over simulated targets.
struct Ran {
    results: Vec<TargetResult>,
    issued: Vec<(u64, Request)>,
    outcome: Result<(), super::WorkerFailure>,
    control: Arc<Control>,
}

struct Scene {
    span: TimeSpan,
    size_bytes: u64,
    thread: u32,
    shared: Arc<AtomicU64>,
    interrupt_ns: Option<u64>,
}

impl Scene {
    /// 10 s after 5 s of warm-up, latency measured, on 1 GiB.
    fn new(targets: Vec<Target>) -> Self {
        let span = TimeSpan { measure_latency: true, iops_std_dev: true, targets, ..TimeSpan::default() };
        Self { span, size_bytes: 1 << 30, thread: 0, shared: Arc::default(), interrupt_ns: None }
    }

    fn run(&self, mut port: Simulated) -> Ran {
        let span = &self.span;
        let seconds = |seconds: u32| u64::from(seconds) * S;
        let control =
            Control::new(0, seconds(span.warm_up_s), seconds(span.duration_s), seconds(span.cool_down_s));
        port.interrupt = self.interrupt_ns.map(|at| (at, control.clone()));
        let targets = span.targets.iter().map(|target| ThreadTarget {
            path: target.path.clone(),
            file_bytes: self.size_bytes,
            block_bytes: target.block_bytes,
            write_percent: target.write_percent,
            slots: if span.request_count > 0 { 0 } else { target.request_count },
            weight: target.weight,
            offsets: Offsets::new(
                target,
                self.size_bytes,
                self.thread,
                target.request_count.max(span.request_count),
                &self.shared,
            )
            .expect("has room"),
            pace: Pace::new(target, 0),
        });
        let setup = WorkerSetup {
            thread: self.thread,
            random: Random::new(span.random_seed, self.thread),
            targets: targets.collect(),
            pool_slots: span.request_count,
            measure_latency: span.measure_latency,
            bucket_ms: span.iops_std_dev.then_some(span.bucket_ms),
            control: control.clone(),
            live: Arc::new(Live::default()),
        };
        let mut worker = Worker::new(setup, port);
        let outcome = worker.run();
        let (results, _, port) = worker.results();
        Ran { results, issued: port.issued, outcome, control }
    }
}

fn one(target: Target) -> Scene {
    Scene::new(vec![target])
}

fn depth(request_count: u32) -> Target {
    Target { block_bytes: 4096, request_count, ..Target::default() }
}
