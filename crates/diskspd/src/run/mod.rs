//! One run: every time span of a profile, from its targets' opening to its results.
//!
//! Promises: an error ends the run and leaves no results; an interruption leaves the results up to
//! then.

mod plan;
mod thread;

use crate::cli::{Events, SmbOptions};
use crate::engine::WorkerFailure;
use crate::engine::control::{Control, Live, Totals};
use crate::events;
use crate::profile::{Profile, TimeSpan};
use crate::progress::{Phase, Progress};
use crate::statistics::{Intervals, SmbUse, SpanResult, TargetResult, WaitStatistics};
use crate::system;
use crate::target::TargetError;
use plan::Plan;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause of the watching thread between two polls.
const LOOK: Duration = Duration::from_millis(50);

/// Options of a run beside its profile.
pub struct RunOptions<'a> {
    pub overwrite: &'a [String],
    pub smb: &'a SmbOptions,
    pub events: &'a Events,
    /// Measure latency even if the profile does not ask for it (`--histogram`).
    pub latency: bool,
    /// A file to keep [`crate::progress::ProgressLine`] in.
    pub progress_file: Option<&'a str>,
    /// Show a line of progress on stderr.
    pub is_terminal: bool,
    /// Whether somebody asked for an end; Ctrl-C as a rule.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// Reason why a run has no results, as printed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Target(#[from] TargetError),
    /// An operation, or a thread, failed.
    #[error("{0}")]
    Threads(String),
    /// The command line asks for something that this machine does not have.
    #[error("{0}")]
    Setup(String),
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One for each time span that began.
    pub spans: Vec<SpanResult>,
    pub is_interrupted: bool,
}

/// Does all of a profile.
///
/// # Errors
/// [`RunError`]; nothing was measured that could be shown.
pub fn run(profile: &Profile, options: &RunOptions<'_>) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let precreated = plan::precreate(profile, options)?;
    for span in &profile.time_spans {
        let mut span = span.clone();
        for target in &mut span.targets {
            if precreated.contains(&target.path) {
                target.create_bytes = None;
            }
        }
        let span = &span;
        let mut progress = Progress::new(options.is_terminal, profile.progress);
        if let Some(path) = options.progress_file {
            progress.keep_in(path).map_err(|error| {
                RunError::Setup(format!("ERROR: progress file '{path}' could not be made: {error}"))
            })?;
        }
        let result = one_span(profile, span, options, &mut progress);
        progress.finish();
        let (result, is_interrupted) = result?;
        outcome.spans.push(result);
        if is_interrupted {
            outcome.is_interrupted = true;
            break;
        }
    }
    Ok(outcome)
}

/// Result of one thread.
struct ThreadResult {
    thread: u32,
    targets: Vec<TargetResult>,
    waits: WaitStatistics,
    sessions: Vec<SmbUse>,
}

/// Results of a span's threads.
#[derive(Default)]
struct Collected {
    results: Vec<ThreadResult>,
    failures: Vec<WorkerFailure>,
}

fn lock(collected: &Mutex<Collected>) -> MutexGuard<'_, Collected> {
    // The results that a thread had collected before it panicked are good.
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    sys::monotonic_now().0
}

fn ns(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000
}

/// Sleeps until the time of `--start-at`, in pieces, so that an end is noticed.
fn await_start(unix_ms: u64, is_stopped: &dyn Fn() -> bool) {
    let left = || {
        let start = UNIX_EPOCH + Duration::from_millis(unix_ms);
        start.duration_since(SystemTime::now())
    };
    if let Err(late) = left() {
        eprintln!("WARNING: this run begins {} ms after its time (--start-at)", late.duration().as_millis());
    }
    while let (Ok(left), false) = (left(), is_stopped()) {
        std::thread::sleep(left.min(LOOK));
    }
}

fn one_span(
    profile: &Profile,
    span: &TimeSpan,
    options: &RunOptions<'_>,
    progress: &mut Progress,
) -> Result<(SpanResult, bool), RunError> {
    let is_stopped =
        || (options.is_interrupted)() || options.events.stop.as_deref().is_some_and(events::is_set);
    progress.update(now_ns(), Phase::Opening, Totals::default(), 0);
    let plan = Arc::new(Plan::new(profile, span, options, &is_stopped)?);
    let control = Control::new(now_ns(), ns(span.warm_up_s), ns(span.duration_s), ns(span.cool_down_s));
    let live: Vec<Arc<Live>> = plan.threads.iter().map(|_| Arc::new(Live::default())).collect();
    let collected = Mutex::new(Collected::default());
    let gate = thread::Gate::default();
    let (ready, readiness) = mpsc::channel();
    let mut watch = Watch::default();
    let outcome = std::thread::scope(|scope| {
        for (number, live) in live.iter().enumerate() {
            let (plan, control, live) = (plan.clone(), control.clone(), live.clone());
            let (ready, gate, collected) = (ready.clone(), &gate, &collected);
            let started = std::thread::Builder::new()
                .name(format!("diskspd-{number}"))
                .spawn_scoped(scope, move || {
                    thread::run(&plan, number as u32, &control, live, &ready, gate, collected)
                });
            if let Err(error) = started {
                gate.abandon();
                return Err(RunError::Setup(format!("ERROR: thread {number} could not be started: {error}")));
            }
        }
        drop(ready);
        let mut problems = Vec::new();
        for result in readiness.iter().take(live.len()) {
            if let Err(error) = result {
                problems.push(error);
            }
        }
        if let Some(problem) = problems.into_iter().next() {
            gate.abandon();
            return Err(problem);
        }
        for name in [&options.events.wait_start, &options.events.stop].into_iter().flatten() {
            events::check(name).map_err(|error| {
                gate.abandon();
                RunError::Setup(format!("ERROR: event '{name}' cannot be waited for: {error}"))
            })?;
        }
        if let Some(name) = &options.events.wait_start {
            while !events::is_set(name) && !is_stopped() {
                std::thread::sleep(events::LOOK);
            }
        }
        if let Some(unix_ms) = options.events.start_unix_ms {
            progress.update(now_ns(), Phase::Ready, Totals::default(), 0);
            await_start(unix_ms, &is_stopped);
        }
        if let Some(name) = &options.events.signal_start {
            events::set(name).map_err(|error| {
                gate.abandon();
                RunError::Setup(format!("ERROR: setting event '{name}' failed: {error}"))
            })?;
        }
        control.set(now_ns(), ns(span.warm_up_s), ns(span.duration_s), ns(span.cool_down_s));
        gate.open();
        watch.follow(&control, &live, progress, &is_stopped);
        Ok(())
    });
    outcome?;
    let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
    if control.is_failed() {
        let lines: Vec<String> = collected.failures.iter().map(plan::failure_text).collect();
        return Err(RunError::Threads(lines.join("\n")));
    }
    Ok((plan.result(collected, &control, &watch), watch.is_interrupted))
}

/// The watching thread's part of a span.
#[derive(Default)]
struct Watch {
    before: Option<(Vec<system::ProcessorTimes>, u64)>,
    after: Option<(Vec<system::ProcessorTimes>, u64)>,
    is_interrupted: bool,
}

impl Watch {
    fn look() -> (Vec<system::ProcessorTimes>, u64) {
        (system::processor_times(), system::process_cpu_ns())
    }

    /// Until the span's end: measures the processors, shows progress, passes an interruption on.
    fn follow(
        &mut self,
        control: &Control,
        live: &[Arc<Live>],
        progress: &mut Progress,
        is_stopped: &dyn Fn() -> bool,
    ) {
        loop {
            let now = now_ns();
            if self.before.is_none() && now >= control.measure_from_ns() {
                self.before = Some(Self::look());
            }
            if !self.is_interrupted && is_stopped() {
                self.is_interrupted = true;
                control.stop(now);
            }
            if self.after.is_none() && now >= control.measure_to_ns() {
                self.after = Some(Self::look());
            }
            if now >= control.end_ns() {
                return;
            }
            let mut totals = Totals::default();
            live.iter().for_each(|live| live.add_to(&mut totals));
            let phase = if now < control.measure_from_ns() {
                Phase::WarmUp
            } else if now < control.measure_to_ns() {
                Phase::Measuring
            } else {
                Phase::CoolDown
            };
            progress.update(now, phase, totals, control.end_ns().saturating_sub(now));
            let next = [control.measure_from_ns(), control.measure_to_ns(), control.end_ns()];
            let next = next.into_iter().filter(|at| *at > now).min().unwrap_or(now);
            std::thread::sleep(Duration::from_nanos(next - now).min(LOOK));
        }
    }
}

impl Plan {
    fn result(&self, mut collected: Collected, control: &Control, watch: &Watch) -> SpanResult {
        collected.results.sort_by_key(|result| result.thread);
        let seconds = control.measured_ns() as f64 / 1e9;
        let duration_ms = control.measured_ns().div_ceil(1_000_000);
        let cut = |intervals: &mut Intervals| {
            if intervals.bucket_ms > 0 {
                let whole = duration_ms.div_ceil(u64::from(intervals.bucket_ms)) as usize;
                intervals.truncate(whole);
            }
        };
        let mut waits = Vec::new();
        let mut threads = Vec::new();
        let mut sessions = Vec::new();
        for mut result in collected.results {
            for target in &mut result.targets {
                cut(&mut target.read.intervals);
                cut(&mut target.write.intervals);
            }
            threads.push(result.targets);
            waits.push(result.waits);
            sessions.extend(result.sessions);
        }
        let (processors, process_cpu_ns) = match (&watch.before, &watch.after) {
            (Some((before, cpu_before)), Some((after, cpu_after))) => {
                (system::processor_use(before, after), cpu_after.saturating_sub(*cpu_before))
            }
            _ => (Vec::new(), 0),
        };
        SpanResult {
            seconds,
            thread_count: self.threads.len() as u32,
            request_count: self.pool_slots,
            processors,
            threads,
            waits,
            process_cpu_ns,
            smb_sessions: sessions,
        }
    }
}
