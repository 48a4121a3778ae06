//! `volume check`: compares the structures of a volume with each other and with the allocation, and all
//! copies of all its data.
//!
//! Promises: a check without repair writes nothing. A repair rewrites copies that are corrupt, or
//! older than another, from the newest intact one, and compares them once more; of the structures,
//! it only recounts wrong quotas. Clients continue: only the region being compared is locked.

use crate::error::{Done, Error, ErrorKind};
use crate::events::{Events, Seen};
use crate::jobs::{JobId, JobKind, JobState, Jobs};
use crate::pools::{PoolSpace, Pools};
use crate::served::ServedVolume;
use crate::tasks::{Tasks, until};
use crate::volumes::Volumes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Lba, VolumeId};
use volume::fs::{Check, FsError};

/// Regions compared at once, and the rest after.
const STEP_REGIONS: usize = 8;
const STEP_REST: Duration = Duration::from_millis(10);
/// Keys of the structures read at once, and the pause after.
const STEP_KEYS: usize = 200;
const KEYS_REST: Duration = Duration::from_millis(1);
/// Attempts to compare a region, and the pause between them: a disk may be about to leave.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Findings in all regions.
#[derive(Debug, Default)]
struct Found {
    differing: u64,
    corrupt: u64,
    lost: u64,
    repaired: u64,
    unseen: u64,
    /// Regions with fewer copies present than the volume keeps.
    few: u64,
    /// Disks with corrupt or older copies, and the number of their blocks.
    wrong: BTreeMap<DiskId, u64>,
}

impl Found {
    /// Describes the findings. `repairable`: the volume for a repair; `None`: this was one.
    fn in_words(&self, repairable: Option<&str>) -> String {
        let mut words = Vec::new();
        let mut say = |count: u64, what: &dyn Fn() -> String| {
            if count > 0 {
                words.push(what());
            }
        };
        say(self.corrupt, &|| format!("{} copies of blocks fail their checksum", self.corrupt));
        say(self.differing, &|| format!("{} blocks differ between intact copies", self.differing));
        say(self.wrong.len() as u64, &|| {
            let disks: Vec<String> =
                self.wrong.iter().map(|(disk, blocks)| format!("disk {disk} has {blocks}")).collect();
            format!("blocks that are corrupt or older than another copy: {}", disks.join(", "))
        });
        say(self.lost, &|| {
            format!("{} blocks have no intact copy: restore their files from a backup", self.lost)
        });
        say(self.repaired, &|| format!("{} regions of 1 MiB were made whole", self.repaired));
        say(self.few, &|| {
            format!(
                "{} regions have fewer copies in sync than they should: those that are there were compared",
                self.few
            )
        });
        say(self.unseen, &|| format!("{} regions could not be looked at", self.unseen));
        if words.is_empty() {
            return "all copies are intact and equal".to_owned();
        }
        if let Some(volume) = repairable.filter(|_| self.corrupt + self.differing > self.lost) {
            words.push(format!(
                "`cenote volume check '{volume}' --repair` writes them again from intact copies"
            ));
        }
        words.join("; ")
    }
}

/// Begins checks.
#[derive(Clone)]
pub struct Checks {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) events: Rc<Events>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) jobs: Rc<RefCell<Jobs>>,
}

impl Checks {
    /// Begins a check. Returns its job.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the volume is not served; `Conflict` if a check of it runs.
    pub fn begin(&self, volume: VolumeId, repair: bool) -> Done<JobId> {
        let served = self.volumes.served_for(volume)?;
        let space = self.volumes.pool_of(volume).and_then(|pool| self.pools.space_for(pool))?;
        let (name, unix_s) = (self.volumes.name(volume), self.tasks.unix_seconds());
        let mut jobs = self.jobs.borrow_mut();
        if let Some(id) = jobs.check_of(&name) {
            let why = format!("job {id} checks volume {name} already");
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let kind = if repair { JobKind::Repair } else { JobKind::Check };
        let job = jobs.begin_check(kind, name, unix_s);
        let run = Run { parts: self.clone(), job, volume, space, repair, found: Found::default() };
        self.tasks.spawn(async move { run.run(served).await });
        Ok(job)
    }
}

/// A running check.
struct Run {
    parts: Checks,
    job: JobId,
    volume: VolumeId,
    space: PoolSpace,
    repair: bool,
    found: Found,
}

impl Run {
    async fn run(mut self, served: ServedVolume) {
        let structures = self.check_structures(&served).await;
        // While a task holds it, a stopped volume cannot be opened again.
        drop(served);
        if !self.check_copies().await {
            return;
        }
        let found = &self.found;
        let is_whole = found.lost == 0
            && found.unseen == 0
            && (self.repair || (found.corrupt == 0 && found.differing == 0));
        let state = if is_whole && structures.is_ok() { JobState::Completed } else { JobState::Failed };
        let (Ok(structures) | Err(structures)) = structures;
        let name = (!self.repair).then(|| self.parts.volumes.name(self.volume));
        self.end(state, format!("{structures}; {}", found.in_words(name.as_deref())));
    }

    fn end(&self, state: JobState, message: String) {
        let unix_s = self.parts.tasks.unix_seconds();
        self.parts.jobs.borrow_mut().end_check(self.job, state, message, unix_s);
    }

    /// Returns the reason to stop the check of the structures, if any.
    fn gives_up(&self) -> Option<&'static str> {
        if self.parts.jobs.borrow().is_cancelled(self.job) {
            return Some("cancelled");
        }
        (!self.parts.volumes.is_served(self.volume)).then_some("the volume is not served any more")
    }

    /// Checks the file layer's structures, and for a repair recounts quotas. Returns a description;
    /// the error says that the structures are damaged, or that the check did not reach their end.
    async fn check_structures(&self, served: &ServedVolume) -> Result<String, String> {
        let check = check_structures(served, &self.parts.tasks, || self.gives_up()).await?;
        let report = check.report();
        let recounted = self.repair && report.wrong_quotas > 0;
        if recounted {
            self.recount_quotas(served).await?;
        }
        if report.problem_count == report.wrong_quotas && recounted {
            return Ok(format!("the space of {} users was counted anew", report.wrong_quotas));
        }
        if report.problem_count == 0 {
            let allocation =
                if report.allocation_compared { "" } else { " (allocation changed meanwhile: not compared)" };
            let references = match report.references_compared {
                true => "",
                false => " (clones changed meanwhile: their references were not all compared)",
            };
            let unsummed = match report.files_not_summed {
                0 => String::new(),
                count => format!(" ({count} files have too many extents to be summed up)"),
            };
            let whole =
                format!("{} files and directories in {} extents are sound", report.files, report.extents);
            return Ok(format!("{whole}{allocation}{references}{unsummed}"));
        }
        let first = report.problems.first().map_or("", String::as_str);
        let recount = match report.wrong_quotas {
            0 => String::new(),
            _ if self.repair => String::new(),
            _ => format!(
                "; `cenote volume check '{}' --repair` counts the space of users anew",
                self.parts.volumes.name(self.volume)
            ),
        };
        Err(format!("{} problems in the structures, the first: {first}{recount}", report.problem_count))
    }

    /// Recounts quotas, and waits for the end of that.
    async fn recount_quotas(&self, served: &ServedVolume) -> Result<(), String> {
        let failed = |why: String| format!("the space that users have cannot be counted: {why}");
        loop {
            match served.with_mut(|service| service.file_system_mut().recount_quotas()) {
                Ok(()) => break,
                Err(FsError::Miss) => self.parts.tasks.rest(KEYS_REST).await,
                Err(why) => return Err(failed(why.to_string())),
            }
        }
        while served.with(|service| service.file_system().quota_settings().1) {
            if !self.parts.volumes.is_served(self.volume) {
                return Err(failed("the volume is not served any more".to_owned()));
            }
            self.parts.tasks.rest(KEYS_REST).await;
        }
        Ok(())
    }

    /// Compares all copies of all the volume's data; `false`: the job was cancelled.
    async fn check_copies(&mut self) -> bool {
        let regions = self.space.with_volume(self.volume, |coordinator| coordinator.mapped_regions());
        let regions = regions.unwrap_or_default();
        let bytes =
            |regions: usize| regions as u64 * (space::coordinator::REGION_BLOCKS * BLOCK_BYTES as u64);
        let (mut done_bytes, total_bytes) = (0, bytes(regions.len()));
        for step in regions.chunks(STEP_REGIONS) {
            if !self.goes_on(done_bytes, total_bytes) {
                return false;
            }
            for &lba in step {
                self.check_region(lba).await;
            }
            done_bytes += bytes(step.len());
            self.parts.tasks.rest(STEP_REST).await;
        }
        self.goes_on(done_bytes, total_bytes)
    }

    async fn check_region(&mut self, lba: Lba) {
        let Some(seen) = self.compare(lba).await else {
            // Freed since the check began, or there is no coordinator.
            let mapped = self.space.with_volume(self.volume, |coordinator| coordinator.is_mapped(lba));
            self.found.unseen += u64::from(mapped.unwrap_or(true));
            return;
        };
        for (disk, blocks) in &seen.wrong {
            *self.found.wrong.entry(*disk).or_default() += blocks;
        }
        let seen = seen.found;
        let wanted =
            self.space.with_volume(self.volume, |coordinator| coordinator.record().resiliency.copies());
        self.found.few += u64::from(wanted.is_some_and(|wanted| seen.copies < wanted));
        self.found.differing += seen.differing;
        self.found.corrupt += seen.corrupt;
        if !self.repair || (seen.differing == 0 && seen.corrupt == 0) {
            self.found.lost += seen.lost;
            return;
        }
        self.space.equalize(self.volume, lba);
        match self.compare(lba).await {
            Some(Seen { found: after, .. }) => {
                self.found.lost += after.lost;
                let is_better = after.differing == 0 && after.corrupt < seen.corrupt.max(1);
                self.found.repaired += u64::from(is_better);
            }
            None => self.found.unseen += 1,
        }
    }

    async fn compare(&self, lba: Lba) -> Option<Seen> {
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.parts.tasks.rest(TRY_AGAIN).await;
            }
            self.space.compare(self.volume, lba);
            let seen = until(|| self.compared(lba)).await;
            if let Some(seen) = seen.filter(|seen| seen.found.copies > 0) {
                return Some(seen);
            }
            if self.space.with_volume(self.volume, |coordinator| coordinator.is_mapped(lba)) != Some(true) {
                return None;
            }
        }
        None
    }

    /// Returns the result of a comparison, once there is one; `None` inside: the volume is gone.
    fn compared(&self, lba: Lba) -> Option<Option<Seen>> {
        let seen = self.parts.events.take_compared(self.volume, lba);
        seen.map(Some).or_else(|| (!self.parts.volumes.is_served(self.volume)).then_some(None))
    }

    /// Notes the progress of the check; `false`: the job was cancelled.
    fn goes_on(&self, done_bytes: u64, total_bytes: u64) -> bool {
        let is_cancelled = {
            let mut jobs = self.parts.jobs.borrow_mut();
            jobs.note_progress(self.job, done_bytes, total_bytes);
            jobs.is_cancelled(self.job)
        };
        if is_cancelled {
            let name = self.parts.volumes.name(self.volume);
            self.end(JobState::Cancelled, format!("so far: {}", self.found.in_words(Some(&name))));
        }
        !is_cancelled
    }
}

/// Reads the file layer's structures to the end. The error has the reason if that failed.
/// `gives_up` may return one: a volume that was deleted or has stopped gets no missing pages.
async fn check_structures(
    served: &ServedVolume,
    tasks: &Tasks,
    gives_up: impl Fn() -> Option<&'static str>,
) -> Result<Check, String> {
    let mut check = served.with(|service| Check::new(service.file_system()));
    loop {
        let step = served.with_mut(|service| check.step(service.file_system_mut(), STEP_KEYS));
        match step {
            Ok(true) => break,
            Ok(false) | Err(FsError::Miss) => {}
            Err(why) => return Err(format!("the structures cannot be checked: {why}")),
        }
        if let Some(why) = gives_up() {
            return Err(format!("the structures were not checked to the end: {why}"));
        }
        tasks.rest(KEYS_REST).await;
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::tests::unpolled;
    use std::cell::Cell;
    use sys::driver::{Driver, DriverChoice};
    use types::{FileTime, Monotonic};

    #[test]
    fn a_repair_is_advised_by_the_volumes_name_and_only_where_it_helps() {
        let damaged = Found { corrupt: 2, lost: 1, ..Found::default() };
        let advice = damaged.in_words(Some("my plans"));
        assert!(advice.contains("`cenote volume check 'my plans' --repair`"), "{advice}");
        assert!(!damaged.in_words(None).contains("--repair"));
        let lost = Found { corrupt: 1, lost: 1, ..Found::default() };
        assert!(!lost.in_words(Some("plans")).contains("--repair"));
    }

    #[test]
    fn a_check_ends_when_nobody_brings_what_is_missing_to_its_volume() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Rc::new(Tasks::new(driver.waker(), Monotonic(1), FileTime::from_unix_nanos(0)));
        let (volume, is_served) = (unpolled(), Rc::new(Cell::new(true)));
        let found: Rc<RefCell<Option<Option<String>>>> = Rc::default();
        let (known, result, of_check) = (is_served.clone(), found.clone(), tasks.clone());
        tasks.spawn(async move {
            let gives_up = || (!known.get()).then_some("it went");
            let checked = check_structures(&volume, &of_check, gives_up).await;
            *result.borrow_mut() = Some(checked.err());
        });
        for turn in 0..100 {
            is_served.set(turn < 50);
            assert!(turn > 50 || found.borrow().is_none(), "it ended in turn {turn}");
            tasks.tell_time(Monotonic(1).after(KEYS_REST * (turn + 1)));
            tasks.poll();
        }
        let why = found.take().expect("it ended").expect("it saw nothing");
        assert!(why.contains("it went") && tasks.is_empty(), "{why}");
    }
}
