//! One thread of a time span: opens its targets, waits for the others, works, hands its results back.

use super::plan::{Plan, Prepared, PreparedKind};
use super::{Collected, RunError, ThreadResult, lock};
use crate::engine::control::{Control, Live};
use crate::engine::offsets::Offsets;
use crate::engine::pace::Pace;
use crate::engine::random::Random;
use crate::engine::{ThreadTarget, Worker, WorkerSetup};
use crate::port::{
    Content, LocalPort, LocalTarget, MappedSetup, RingTarget, SmbPort, SmbPortTarget, TICK, ThreadPort,
};
use crate::profile::{Priority, WriteContent, WriteThrough};
use crate::target::{TargetError, local, smb};
use ::smb::wire::Dialect;
use smb_client::{Client, Engine};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use sys::file_ring::{FileRing, FileRingSetup};
use sys::region::Region;

/// Streams of random numbers for contents, apart from those for offsets.
const CONTENT_STREAM: u32 = 1 << 30;

/// Where threads wait until all are ready.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum GateState {
    #[default]
    Closed,
    Open,
    Abandoned,
}

impl Gate {
    fn set(&self, to: GateState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.changed.notify_all();
    }

    pub(super) fn open(&self) {
        self.set(GateState::Open);
    }

    /// There will be no run.
    pub(super) fn abandon(&self) {
        self.set(GateState::Abandoned);
    }

    /// Whether there is a run.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while *state == GateState::Closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state == GateState::Open
    }
}

pub(super) fn run(
    plan: &Plan,
    number: u32,
    control: &Arc<Control>,
    live: Arc<Live>,
    ready: &Sender<Result<(), RunError>>,
    gate: &Gate,
    collected: &Mutex<Collected>,
) {
    let port = match open(plan, number) {
        Ok(port) => port,
        Err(error) => {
            // The watching thread is gone if another one failed before.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    if !gate.pass() {
        return;
    }
    let setup = setup(plan, number, control, live);
    let mut worker = Worker::new(setup, port);
    let outcome = worker.run();
    if let Err(failure) = outcome {
        control.fail(sys::monotonic_now().0);
        lock(collected).failures.push(failure);
        return;
    }
    let (results, waits, port) = worker.results();
    let sessions = match &port {
        ThreadPort::Local(_) => Vec::new(),
        ThreadPort::Smb(port) => port.sessions_used(),
    };
    lock(collected).results.push(ThreadResult { thread: number, targets: results, waits, sessions });
}

fn targets(plan: &Plan, number: u32) -> impl Iterator<Item = (&Prepared, u32, u32)> {
    let chosen = plan.threads.get(number as usize).map(|thread| &thread.targets[..]).unwrap_or_default();
    chosen
        .iter()
        .filter_map(|(target, relative, weight)| Some((plan.targets.get(*target)?, *relative, *weight)))
}

fn open(plan: &Plan, number: u32) -> Result<ThreadPort, RunError> {
    pin(plan, number)?;
    let smb_targets =
        targets(plan, number).filter(|(one, _, _)| matches!(one.kind, PreparedKind::Smb(_))).count();
    match smb_targets {
        0 => open_local(plan, number).map(|port| ThreadPort::Local(Box::new(port))),
        count if count == targets(plan, number).count() => open_smb(plan, number).map(ThreadPort::Smb),
        _ => Err(RunError::Setup(
            "ERROR: one thread cannot have files and SMB targets alike (-F): use -t, or separate runs".into(),
        )),
    }
}

fn pin(plan: &Plan, number: u32) -> Result<(), RunError> {
    if let Some(processor) = plan.threads.get(number as usize).and_then(|thread| thread.processor) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
            RunError::Setup(format!("ERROR: thread {number} cannot run on CPU {processor}: {error}"))
        })?;
    }
    Ok(())
}

fn slots(plan: &Plan, number: u32) -> u32 {
    match plan.pool_slots {
        0 => targets(plan, number).map(|(one, _, _)| one.target.request_count).sum(),
        slots => slots,
    }
}

/// Sessions of this thread's own: one for each server and user among its targets.
fn open_smb(plan: &Plan, number: u32) -> Result<SmbPort, RunError> {
    let engine = Engine::new().map_err(|error| RunError::Setup(format!("ERROR: no network: {error}")))?;
    let mut clients: Vec<Client> = Vec::new();
    let mut sessions: Vec<(String, Option<u16>, Option<String>)> = Vec::new();
    let mut ports = Vec::new();
    for (one, _, _) in targets(plan, number) {
        let (PreparedKind::Smb(path), Some(access)) = (&one.kind, &plan.smb) else { continue };
        let key = (path.server.clone(), path.port, path.user.clone());
        let session = match sessions.iter().position(|session| *session == key) {
            Some(session) => session,
            None => {
                clients.push(access.connect(&engine, path)?);
                sessions.push(key);
                clients.len() - 1
            }
        };
        let Some(client) = clients.get_mut(session) else { continue };
        let tree = smb::tree(client, &one.target, path)?;
        let file = smb::open(client, tree, &one.target, path)?;
        let newest_flags = client.dialect() >= Some(Dialect::Smb302);
        ports.push(SmbPortTarget::new(&one.target, session, file, newest_flags, one.smb_source.clone()));
    }
    let random = Random::new(plan.random_seed, CONTENT_STREAM | number);
    Ok(SmbPort::new(engine, clients, ports, random, slots(plan, number)))
}

fn open_local(plan: &Plan, number: u32) -> Result<LocalPort, RunError> {
    let mut files = Vec::new();
    let mut sources: Vec<Arc<Region>> = Vec::new();
    let mut ports = Vec::new();
    let slots = slots(plan, number);
    let (mut read_bytes, mut write_bytes) = (0, 0);
    for (one, _, _) in targets(plan, number) {
        let content = plan.content(one, sources.len());
        match &one.kind {
            PreparedKind::Smb(_) => {}
            PreparedKind::Mapped(mapping) => {
                let source = match &one.source {
                    Some(source) => source.clone(),
                    None => Arc::new(Region::new(1, false).map_err(|error| no_memory(&error))?),
                };
                ports.push(LocalTarget::mapped(MappedSetup {
                    mapping: mapping.clone(),
                    block_bytes: one.target.block_bytes,
                    around_cache: one.target.write_through == WriteThrough::On,
                    flush: one.target.flush_mode,
                    content,
                    source,
                }));
            }
            PreparedKind::File(path) => {
                let block = one.target.block_bytes as usize;
                if one.target.write_percent < 100 {
                    read_bytes = block.max(read_bytes);
                }
                if one.target.write_percent > 0 && !matches!(content, Content::Source { .. }) {
                    write_bytes = block.max(write_bytes);
                }
                if matches!(content, Content::Source { .. }) {
                    sources.extend(one.source.clone());
                }
                let file = local::open(&one.target, path)?;
                files.push(Arc::new(OwnedFd::from(file)));
                ports.push(LocalTarget::Ring(RingTarget {
                    file: files.len() as u32 - 1,
                    priority: priority(one.target.priority),
                    is_durable: one.target.write_through == WriteThrough::On,
                    content,
                }));
            }
        }
    }
    let ring = if files.is_empty() {
        None
    } else {
        let mut ring = FileRing::new(FileRingSetup {
            files,
            slots,
            read_bytes,
            write_bytes,
            sources,
            large_pages: plan.large_pages,
            tick: TICK,
        })
        .map_err(|error| {
            RunError::Setup(format!("ERROR: thread {number} could not set up its I/O (io_uring): {error}"))
        })?;
        fill_slots(plan, number, &mut ring);
        Some(ring)
    };
    let random = Random::new(plan.random_seed, CONTENT_STREAM | number);
    Ok(LocalPort::new(ring, ports, random, slots))
}

fn no_memory(error: &std::io::Error) -> RunError {
    TargetError::Other(format!("ERROR: could not allocate write buffers: {error}")).into()
}

/// Fills the slots' own buffers with each target's content. A pool has none of that.
fn fill_slots(plan: &Plan, number: u32, ring: &mut FileRing) {
    if plan.pool_slots > 0 {
        return;
    }
    let mut slot = 0;
    for (one, _, _) in targets(plan, number) {
        for _ in 0..one.target.request_count {
            let is_patterned = one.target.write_percent > 0 && one.target.content == WriteContent::Sequential;
            if is_patterned && one.source.is_none() {
                local::pattern(ring.write_buffer(slot));
            }
            slot += 1;
        }
    }
}

/// As in ioprio_set(2): very low is idle, low best effort 7; 0 is the thread's own, best effort 4.
fn priority(priority: Priority) -> u16 {
    const BEST_EFFORT: u16 = 2 << 13;
    const IDLE: u16 = 3 << 13;
    match priority {
        Priority::VeryLow => IDLE,
        Priority::Low => BEST_EFFORT | 7,
        Priority::Normal => 0,
    }
}

fn setup(plan: &Plan, number: u32, control: &Arc<Control>, live: Arc<Live>) -> WorkerSetup {
    let start_ns = sys::monotonic_now().0;
    let mut chosen = Vec::new();
    for (one, relative, weight) in targets(plan, number) {
        let slots = if plan.pool_slots > 0 { 0 } else { one.target.request_count };
        let offsets_of = if plan.pool_slots > 0 { plan.pool_slots } else { slots };
        // Checked when the plan was made.
        let Ok(offsets) = Offsets::new(&one.target, one.size_bytes, relative, offsets_of, &one.shared) else {
            continue;
        };
        chosen.push(ThreadTarget {
            path: one.target.path.clone(),
            file_bytes: one.size_bytes,
            block_bytes: one.target.block_bytes,
            write_percent: one.target.write_percent,
            slots,
            weight,
            offsets,
            pace: Pace::new(&one.target, start_ns),
        });
    }
    WorkerSetup {
        thread: number,
        random: Random::new(plan.random_seed, number),
        targets: chosen,
        pool_slots: plan.pool_slots,
        measure_latency: plan.measure_latency,
        bucket_ms: plan.bucket_ms,
        control: control.clone(),
        live,
    }
}
