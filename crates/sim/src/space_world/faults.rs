//! Faults, planned so that the volume should survive them.

use super::course::{Course, MILLISECOND};
use super::scenario::Scenario;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Crash,
    CrashAll,
    Cut,
    CutState,
    StateDown,
    Silence,
    Freeze,
    Isolate,
    Hang,
    Errors,
    WriteErrors,
    Corrupt,
    Retire,
    Slow,
    Add,
    AllAway,
    /// A link loses large messages.
    LoseLarge,
    /// Only small messages get through between a node and all others.
    LoseLargeOfNode,
    /// A server names an epoch that no record gave.
    Lie,
    /// The disk being retired is away for a moment.
    RetiringAway,
    /// Disks go back to earlier contents.
    GoBack,
}

/// A fault that is about to strike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strike {
    pub kind: Kind,
    pub node: usize,
    pub disk: usize,
    /// Virtual nanoseconds until its end.
    pub lasting: u64,
}

impl Strike {
    /// Chooses one of the scenario's faults, if there is any.
    pub fn choose(course: &mut Course, nodes: usize, disks: usize) -> Option<Self> {
        let kind = course.random.pick(&kinds(&course.scenario))?;
        let node = course.random.below(nodes as u64) as usize;
        let disk = course.random.below(disks as u64) as usize;
        let lasting = match kind {
            Kind::LoseLarge => course.random.between(900, 2_500) * MILLISECOND,
            Kind::LoseLargeOfNode => course.random.between(2_500, 4_500) * MILLISECOND,
            _ => course.random.between(20, 900) * MILLISECOND,
        };
        Some(Self { kind, node, disk, lasting })
    }
}

/// Chooses the time until the next fault.
pub(crate) fn pause(course: &mut Course) -> u64 {
    let every = course.scenario.fault_every_ms;
    let next = course.random.between(every / 2 + 1, every * 2) * MILLISECOND;
    next.min(course.faults_end.saturating_sub(course.now))
}

/// Lists the kinds of faults of a scenario, each as often as it should be likely.
fn kinds(scenario: &Scenario) -> Vec<Kind> {
    let parts: [(bool, &[Kind]); 15] = [
        (scenario.crashes, &[Kind::Crash, Kind::Crash, Kind::Crash, Kind::CrashAll]),
        (scenario.partitions, &[Kind::Cut, Kind::Cut, Kind::CutState, Kind::StateDown, Kind::Isolate]),
        (scenario.takeovers, &[Kind::Silence, Kind::Silence]),
        (scenario.freezes, &[Kind::Freeze; 3]),
        (scenario.disk_faults, &[Kind::Hang, Kind::Errors, Kind::WriteErrors]),
        (scenario.corruption, &[Kind::Corrupt; 3]),
        (scenario.retirement, &[Kind::Retire]),
        (scenario.slow_disks, &[Kind::Slow; 2]),
        (scenario.addition, &[Kind::Add; 2]),
        (scenario.all_away, &[Kind::AllAway; 2]),
        (scenario.large_loss, &[Kind::LoseLarge]),
        (scenario.large_loss_of_node, &[Kind::LoseLargeOfNode]),
        (scenario.strange_epochs, &[Kind::Lie; 2]),
        (scenario.retiring_away, &[Kind::RetiringAway; 3]),
        (scenario.older_images_of_all || scenario.older_images_of_one, &[Kind::GoBack; 4]),
    ];
    parts.iter().filter(|(has, _)| *has).flat_map(|(_, kinds)| kinds.iter().copied()).collect()
}
