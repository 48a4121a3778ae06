//! The search of the core workload measurement (`Start-FleetResultRun -CpuSweep`): the choice of the
//! next load by the results so far.
//!
//! A run is named by its limit, in operations a second of one worker; 0 is no limit. The search goes through three parts:
//!
//! 1. **Anchor.** A profile without limits runs wide open. One with a limit is measured as it is (the baseline), and then without its
//!    limit if it has one target.
//! 2. **Anchor search**, for limited profiles of several targets (SQL, VDI), whose ratio would be lost without a limit: the load grows
//!    five times until a cutoff, and then halves the gap below the cutoff until it is within 2 %.
//! 3. **Infill.** The anchor is halved; then, between results that are neighbours by IOPS, the pair whose CPU use differs most is split,
//!    or the least load is halved if that gap is larger. It ends within 8 %, at a limit measured already, or at 0.
//!
//! Nothing above the first cutoff is split. A surge, more than was allowed, is a fault of the tool and ends the search.

#[cfg(test)]
mod tests;

use std::fmt;

/// Infill ends if its pair is closer than this.
const INFILL_WINDOW_PERCENT: f64 = 8.0;
/// The anchor search ends if its pair is closer than this.
const ANCHOR_WINDOW_PERCENT: f64 = 2.0;
/// Deviation from the requested load from which a result is a surge or a failure to scale.
const SCALE_WINDOW_PERCENT: f64 = 1.5;
/// Growth of the anchor search's next request over the last result.
const ANCHOR_STEP: f64 = 5.0;
/// Runs beyond which results only repeat themselves; a search of VMFleet's takes 8 to 20.
const RUNS_MAX: usize = 64;

/// Reason why the search may not build on a result, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cutoff {
    #[default]
    No,
    /// Faster than its limit: the measurement is at fault.
    Surge,
    /// Slower than its limit.
    Scale,
    Cpu,
    ReadLatency,
    WriteLatency,
}

/// Which part of the search a run belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunType {
    #[default]
    Default,
    Baseline,
    AnchorSearch,
}

/// VMFleet's words in result.tsv.
const CUTOFFS: [(Cutoff, &str); 6] = [
    (Cutoff::No, "No"),
    (Cutoff::Surge, "Surge"),
    (Cutoff::Scale, "Scale"),
    (Cutoff::Cpu, "CPU"),
    (Cutoff::ReadLatency, "ReadLatency"),
    (Cutoff::WriteLatency, "WriteLatency"),
];
const RUN_TYPES: [(RunType, &str); 3] =
    [(RunType::Default, "Default"), (RunType::Baseline, "Baseline"), (RunType::AnchorSearch, "AnchorSearch")];

impl Cutoff {
    pub fn parse(text: &str) -> Option<Self> {
        CUTOFFS.iter().find(|(_, word)| *word == text).map(|(one, _)| *one)
    }
}

impl fmt::Display for Cutoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CUTOFFS.iter().find(|(one, _)| one == self).map_or("", |(_, word)| word))
    }
}

impl RunType {
    pub fn parse(text: &str) -> Option<Self> {
        RUN_TYPES.iter().find(|(_, word)| *word == text).map(|(one, _)| *one)
    }
}

impl fmt::Display for RunType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RUN_TYPES.iter().find(|(one, _)| one == self).map_or("", |(_, word)| word))
    }
}

/// Bounds of a good result; `None`: no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    pub cpu_percent: Option<f64>,
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
}

/// The part of a result that the search uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    pub run_type: RunType,
    pub cutoff: Cutoff,
    /// The limit of one worker; 0: none was set by the search.
    pub qos: u64,
    /// IOPS of all workers together.
    pub iops: f64,
    pub cpu_percent: f64,
}

/// Figures of a run that cutoffs judge; latencies are `None` if there was no such operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    pub iops: f64,
    pub cpu_percent: f64,
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
}

/// A run to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    pub run_type: RunType,
    /// The limit of one worker; 0: none.
    pub qos: u64,
    /// The system is warm already: a short warm-up is enough.
    pub is_search: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Run(Trial),
    /// Nothing more is to be measured; the reason in words.
    Done(String),
}

/// The shape of a profile, as far as the search goes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub is_limited: bool,
    pub targets: usize,
}

pub struct Search {
    shape: Shape,
    /// Without a sweep one run is all.
    is_sweep: bool,
    workers: u64,
    limits: Limits,
    results: Vec<Measured>,
    is_anchor_search: bool,
    /// Whether the last run closes the gap that it splits, with any result.
    closes: bool,
    is_closed: bool,
}

impl Search {
    /// `results`: of an earlier search of the same keys, in its order.
    pub fn new(shape: Shape, is_sweep: bool, workers: u64, limits: Limits, results: Vec<Measured>) -> Self {
        assert!(workers > 0, "a fleet has workers");
        let has_infill = results.iter().any(|result| result.run_type == RunType::Default);
        let is_anchor_search = is_sweep && shape.is_limited && shape.targets > 1 && !has_infill;
        Self { shape, is_sweep, workers, limits, results, is_anchor_search, closes: false, is_closed: false }
    }

    pub fn results(&self) -> &[Measured] {
        &self.results
    }

    /// Takes a run's figures, and returns the cutoff that they exceed.
    pub fn record(&mut self, trial: Trial, figures: Figures) -> Cutoff {
        self.is_closed = self.closes;
        let cutoff = judge(trial.qos, self.workers, figures, self.limits);
        self.results.push(Measured {
            run_type: trial.run_type,
            cutoff,
            qos: trial.qos,
            iops: figures.iops,
            cpu_percent: figures.cpu_percent,
        });
        cutoff
    }

    /// The run to make next; the same again until there is a result.
    pub fn next_step(&mut self) -> Step {
        let has_baseline = self.results.iter().any(|result| result.run_type == RunType::Baseline);
        let has_anchor =
            self.results.iter().any(|result| result.run_type != RunType::Baseline && result.qos == 0);
        if self.shape.is_limited && !has_baseline {
            return Step::Run(Trial { run_type: RunType::Baseline, qos: 0, is_search: false });
        }
        let wants_anchor = !self.shape.is_limited || (self.is_sweep && self.shape.targets == 1);
        if wants_anchor && !has_anchor {
            let is_search = self.shape.is_limited;
            return Step::Run(Trial { run_type: RunType::Default, qos: 0, is_search });
        }
        if !self.is_sweep {
            return done("a single run");
        }
        if self.results.iter().any(|result| result.cutoff == Cutoff::Surge) {
            return done("a surge: more than was allowed was measured, which is a fault of the measurement");
        }
        if self.is_closed {
            return done("the last gap was split");
        }
        if self.results.len() >= RUNS_MAX {
            return done("too many runs: results scatter more than the search can use");
        }
        if self.is_anchor_search {
            match self.anchor_search() {
                Some(qos) if self.is_new(qos) => {
                    return Step::Run(Trial { run_type: RunType::AnchorSearch, qos, is_search: true });
                }
                _ => self.is_anchor_search = false,
            }
        }
        match self.infill() {
            Err(why) => done(why),
            Ok(0) => done("the limit came down to 0"),
            Ok(qos) if !self.is_new(qos) => done(&format!("limit {qos} was measured already")),
            Ok(qos) => Step::Run(Trial { run_type: RunType::Default, qos, is_search: true }),
        }
    }

    fn is_new(&self, qos: u64) -> bool {
        qos > 0 && self.results.iter().all(|result| result.qos != qos)
    }

    fn qos_of(&self, iops: f64) -> u64 {
        (iops / self.workers as f64).round_ties_even() as u64
    }

    /// Results by IOPS, the least first.
    fn ordered(&self) -> Vec<Measured> {
        let mut ordered = self.results.clone();
        ordered.sort_by(|a, b| a.iops.total_cmp(&b.iops));
        ordered
    }

    /// The next limit of the anchor search; `None`: it has ended.
    fn anchor_search(&self) -> Option<u64> {
        let ordered = self.ordered();
        let at = ordered.iter().position(|result| result.cutoff != Cutoff::No);
        let upper = ordered.get(at.unwrap_or(ordered.len().checked_sub(1)?))?;
        if at.is_none() {
            return Some(self.qos_of(ANCHOR_STEP * upper.iops));
        }
        let lower = at.and_then(|at| at.checked_sub(1)).and_then(|at| ordered.get(at));
        let lower_iops = lower.map_or(0.0, |lower| lower.iops.round_ties_even());
        if lower_iops > 0.0 && is_within(lower_iops, upper.iops, ANCHOR_WINDOW_PERCENT) {
            return None;
        }
        let target = ((upper.iops + lower_iops) / 2.0).round_ties_even();
        (target != lower_iops && !is_within(target, upper.iops, ANCHOR_WINDOW_PERCENT))
            .then(|| self.qos_of(target))
    }

    /// The next limit of the infill.
    ///
    /// # Errors
    /// Why it has ended.
    fn infill(&mut self) -> Result<u64, &'static str> {
        let ordered = self.ordered();
        let [first, ..] = ordered.as_slice() else { return Err("nothing was measured") };
        if ordered.len() == 1 {
            return Ok(self.qos_of(first.iops / 2.0));
        }
        let (lower, upper) = widest_gap(&ordered);
        let lower_iops = lower.map_or(0.0, |lower| lower.iops.round_ties_even());
        if lower.is_some() && first.iops >= upper.iops - lower_iops {
            return Ok(self.qos_of(first.iops / 2.0));
        }
        if is_within(upper.iops, lower_iops, INFILL_WINDOW_PERCENT) {
            return Err("the widest gap is within 8 %");
        }
        let target = ((upper.iops + lower_iops) / 2.0).round_ties_even();
        if target == lower_iops {
            return Err("the widest gap cannot be split");
        }
        self.closes = is_within(target, upper.iops, INFILL_WINDOW_PERCENT);
        Ok(self.qos_of(target))
    }
}

fn done(why: &str) -> Step {
    Step::Done(why.to_owned())
}

/// The neighbours whose CPU use differs most. The upper one may be beyond a cutoff, the lower one not; alone, the least of all.
fn widest_gap(ordered: &[Measured]) -> (Option<Measured>, Measured) {
    let mut widest = (None, ordered[0]);
    let mut width = 0.0;
    for pair in ordered.windows(2) {
        let [lower, upper] = pair else { continue };
        if lower.cutoff != Cutoff::No {
            break;
        }
        let gap = (upper.cpu_percent - lower.cpu_percent).abs();
        if gap > width {
            (widest, width) = ((Some(*lower), *upper), gap);
        }
    }
    widest
}

fn is_within(base: f64, other: f64, percent: f64) -> bool {
    base != 0.0 && (other / base - 1.0).abs() <= percent / 100.0
}

/// Which cutoff a result meets, the first in VMFleet's order.
pub fn judge(qos: u64, workers: u64, figures: Figures, limits: Limits) -> Cutoff {
    let asked = qos as f64 * workers as f64;
    let window = SCALE_WINDOW_PERCENT / 100.0;
    let over =
        |bound: Option<f64>, value: Option<f64>| bound.zip(value).is_some_and(|(bound, value)| value > bound);
    let reasons = [
        (qos > 0 && figures.iops / asked - 1.0 > window, Cutoff::Surge),
        (qos > 0 && figures.iops / asked - 1.0 < -window, Cutoff::Scale),
        (over(limits.cpu_percent, Some(figures.cpu_percent)), Cutoff::Cpu),
        (over(limits.read_ms, figures.read_ms), Cutoff::ReadLatency),
        (over(limits.write_ms, figures.write_ms), Cutoff::WriteLatency),
    ];
    reasons.into_iter().find(|(applies, _)| *applies).map_or(Cutoff::No, |(_, cutoff)| cutoff)
}
