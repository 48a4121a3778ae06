//! The rebalance of a pool by this server: one job over the moves of all volumes that it serves.
//!
//! Promises: the job ends when the moves of all these volumes have ended. It names a volume that
//! left this server meanwhile, since its moves are incomplete. Never moves data: the spaces do.

use crate::error::Done;
use crate::job_control::JobControl;
use crate::jobs::{JobId, JobKind, JobState, SpaceJob};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{PoolId, VolumeId};

/// Interval between two checks of the moves.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Checks in a row without a volume's moves after which they have ended: between two moves a volume
/// may show none for a moment.
const ABSENT_LOOKS: u32 = 3;

/// Progress of the moves of one volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moves {
    done_bytes: u64,
    total_bytes: u64,
    absent_looks: u32,
    /// Whether another server has the volume now, so that this one plans no moves of it.
    has_left: bool,
}

/// Progress of the moves of all volumes.
#[derive(Debug, Default)]
struct Progress {
    volumes: BTreeMap<VolumeId, Moves>,
}

impl Progress {
    /// Notes the present moves: bytes done and in all.
    fn look(&mut self, moving: &[(VolumeId, u64, u64)], is_served: impl Fn(VolumeId) -> bool) {
        for (volume, moves) in &mut self.volumes {
            moves.absent_looks += 1;
            moves.has_left = !is_served(*volume);
        }
        for (volume, done_bytes, total_bytes) in moving {
            let moves = Moves { done_bytes: *done_bytes, total_bytes: *total_bytes, ..Moves::default() };
            self.volumes.insert(*volume, moves);
        }
    }

    fn has_ended(&self) -> bool {
        self.volumes.values().all(|moves| moves.has_left || moves.absent_looks >= ABSENT_LOOKS)
    }

    /// Returns bytes done and in all. For a volume whose moves have ended, all are done.
    fn bytes(&self) -> (u64, u64) {
        let of_one = |moves: &Moves| match moves.absent_looks >= ABSENT_LOOKS && !moves.has_left {
            true => (moves.total_bytes, moves.total_bytes),
            false => (moves.done_bytes, moves.total_bytes),
        };
        self.volumes.values().map(of_one).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn left(&self) -> Vec<VolumeId> {
        self.volumes.iter().filter(|(_, moves)| moves.has_left).map(|(volume, _)| *volume).collect()
    }
}

/// Begins to even out the fill of the pool's disks with the volumes that this server serves.
/// Returns the job; if one runs already, that one.
///
/// # Errors
/// `NotFound`.
pub(crate) fn begin(control: &JobControl, pool: PoolId) -> Done<JobId> {
    let space = control.pools.space_for(pool)?;
    let target = match control.peers.own() {
        Some(own) => format!("{} at {}", control.pools.name(pool), control.peers.name(own)),
        None => control.pools.name(pool),
    };
    if let Some(running) = control.jobs.borrow().running(JobKind::Rebalance, &target) {
        return Ok(running);
    }
    let planned = space.rebalance();
    if planned == 0 {
        return Ok(control.jobs.borrow_mut().nothing_to_do(
            JobKind::Rebalance,
            target,
            control.tasks.unix_seconds(),
        ));
    }
    let job = control.jobs.borrow_mut().begin_check(JobKind::Rebalance, target, control.tasks.unix_seconds());
    let run = Run { control: control.clone(), pool, job, planned };
    control.tasks.spawn(run.follow());
    Ok(job)
}

/// A rebalance that runs.
struct Run {
    control: JobControl,
    pool: PoolId,
    job: JobId,
    planned: usize,
}

impl Run {
    async fn follow(self) {
        let mut progress = Progress::default();
        let mut looks = 0;
        loop {
            if self.control.jobs.borrow().is_cancelled(self.job) {
                self.stop_moves();
                return self.end(JobState::Cancelled, "what was moved until then stays so".to_owned());
            }
            progress.look(&self.moving(), |volume| self.control.volumes.is_served(volume));
            let (done_bytes, total_bytes) = progress.bytes();
            self.control.jobs.borrow_mut().note_progress(self.job, done_bytes, total_bytes);
            // The first moves begin after a moment.
            looks += 1;
            if looks > ABSENT_LOOKS && progress.has_ended() {
                break;
            }
            self.control.tasks.rest(LOOK_EVERY).await;
        }
        let name = |volume: VolumeId| self.control.volumes.name(volume);
        let left: Vec<String> = progress.left().into_iter().map(name).collect();
        if left.is_empty() {
            let of: Vec<String> = progress.volumes.keys().map(|volume| name(*volume)).collect();
            let message = format!("{} moves were planned, of {}", self.planned, of.join(", "));
            return self.end(JobState::Completed, message);
        }
        let message = format!(
            "not all was moved: another server serves {} by now; `cenote pool rebalance {}` begins again",
            left.join(", "),
            self.control.pools.name(self.pool)
        );
        self.end(JobState::Failed, message);
    }

    fn moving(&self) -> Vec<(VolumeId, u64, u64)> {
        let moves = |status: &space::coordinator::JobStatus| status.kind == records::JobKind::Rebalance;
        let own = self.control.volumes.of_pool(self.pool);
        let jobs = self.control.pools.jobs().into_iter();
        jobs.filter(|(volume, status)| moves(status) && own.contains(volume))
            .map(|(volume, status)| (volume, status.done_bytes, status.total_bytes))
            .collect()
    }

    fn stop_moves(&self) {
        let volumes = self.control.volumes.of_pool(self.pool);
        self.control.update();
        let next = || self.control.jobs.borrow().find(SpaceJob::Rebalance, &volumes);
        while let Some(job) = next() {
            if self.control.cancel(job).is_err() {
                return;
            }
        }
    }

    fn end(&self, state: JobState, message: String) {
        let unix_s = self.control.tasks.unix_seconds();
        self.control.jobs.borrow_mut().end_check(self.job, state, message, unix_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(number: u8) -> VolumeId {
        VolumeId::from_bytes([number; 16])
    }

    #[test]
    fn a_rebalance_is_over_when_the_moves_of_every_volume_are() {
        let mut progress = Progress::default();
        let (one, two) = (volume(1), volume(2));
        progress.look(&[(one, 10, 100), (two, 0, 50)], |_| true);
        assert_eq!((progress.bytes(), progress.has_ended()), ((10, 150), false));
        for _ in 0..ABSENT_LOOKS {
            assert!(!progress.has_ended());
            progress.look(&[(two, 20, 50)], |_| true);
        }
        assert_eq!(progress.bytes(), (120, 150), "all of the first volume are done");
        assert!(!progress.has_ended(), "the second one's are not");
        // Between two moves the volume shows none.
        progress.look(&[], |_| true);
        assert!(!progress.has_ended());
        progress.look(&[(two, 40, 50)], |_| true);
        (0..ABSENT_LOOKS).for_each(|_| progress.look(&[], |_| true));
        assert_eq!((progress.bytes(), progress.has_ended()), ((150, 150), true));
    }

    #[test]
    fn the_moves_of_a_volume_that_left_are_not_counted_as_done() {
        let mut progress = Progress::default();
        progress.look(&[(volume(1), 10, 100)], |_| true);
        (0..ABSENT_LOOKS).for_each(|_| progress.look(&[], |_| false));
        assert_eq!((progress.bytes(), progress.has_ended()), ((10, 100), true));
        assert_eq!(progress.left(), [volume(1)]);
    }
}
