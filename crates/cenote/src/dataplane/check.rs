//! `volume check`: the structures of a volume with each other and with what is allocated, and all copies of all its data.
//!
//! Promises: without repair nothing is written. With it, copies that are corrupt, or older than another, are written again from the
//! newest that is intact, and compared once more; structures are never changed. Works beside clients: a region is locked while it is
//! compared.

use super::commands::error;
use super::storage::PoolSpace;
use super::volumes::ServedVolume;
use super::{Plane, tasks};
use crate::control::{CommandError, CommandErrorKind};
use api::model::{JobKind, JobState};
use space::coordinator::{Comparison, Event};
use space::local::LocalEvent;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Lba, VolumeId};
use volume::fs::{Check, FsError};

/// Regions compared in one go, and how long the check rests after.
const STEP_REGIONS: usize = 8;
const STEP_REST: Duration = Duration::from_millis(10);
/// Keys of the structures that are looked at in one go, and how long it rests after.
const STEP_KEYS: usize = 200;
const KEYS_REST: Duration = Duration::from_millis(1);
/// A region that could not be looked at is tried again so often, and so much later: a disk may just be leaving.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What was found in all regions.
#[derive(Debug, Default)]
struct Found {
    differing: u64,
    corrupt: u64,
    lost: u64,
    repaired: u64,
    unseen: u64,
    /// Regions of which fewer copies were there than the volume keeps.
    few: u64,
    /// Disks whose copies are corrupt or older, and of how many blocks.
    wrong: BTreeMap<DiskId, u64>,
}

/// A comparison of one region: what was found, and on which disks.
struct Seen {
    found: Comparison,
    wrong: Vec<(DiskId, u64)>,
}

impl Found {
    fn words(&self, repair: bool) -> String {
        let mut words = Vec::new();
        if self.corrupt > 0 {
            words.push(format!("{} copies of blocks fail their checksum", self.corrupt));
        }
        if self.differing > 0 {
            words.push(format!("{} blocks differ between intact copies", self.differing));
        }
        if !self.wrong.is_empty() {
            let disks: Vec<String> =
                self.wrong.iter().map(|(disk, blocks)| format!("disk {disk} has {blocks}")).collect();
            words.push(format!("blocks that are corrupt or older than another copy: {}", disks.join(", ")));
        }
        if self.lost > 0 {
            words
                .push(format!("{} blocks have no intact copy: restore their files from a backup", self.lost));
        }
        if self.repaired > 0 {
            words.push(format!("{} regions of 1 MiB were made whole", self.repaired));
        }
        if self.few > 0 {
            words.push(format!(
                "{} regions have fewer copies in sync than they should: those that are there were compared",
                self.few
            ));
        }
        if self.unseen > 0 {
            words.push(format!("{} regions could not be looked at", self.unseen));
        }
        if words.is_empty() {
            return "all copies are intact and equal".to_owned();
        }
        if !repair && self.corrupt + self.differing > self.lost {
            words.push("`cenote volume check NAME --repair` writes them again from intact copies".to_owned());
        }
        words.join("; ")
    }
}

impl Plane {
    /// Begins a check; answers its job.
    pub(super) fn check_volume(self: &Rc<Self>, volume: VolumeId, repair: bool) -> Result<u64, CommandError> {
        let space = self.space_of(volume)?;
        let (served, name) = {
            let volumes = self.volumes.borrow();
            let entry = volumes.get(&volume);
            let name = entry.map(|entry| entry.record.name.clone()).unwrap_or_default();
            (entry.and_then(|entry| entry.served.clone()), name)
        };
        let served = served.ok_or_else(|| {
            error(CommandErrorKind::Unavailable, format!("volume {name} is not served: see `cenote health`"))
        })?;
        let running =
            |check: &super::jobs::Check| check.job.kind != JobKind::Scrub && check.job.target == name;
        if let Some(id) =
            self.jobs.borrow().checks.iter().find(|(_, check)| running(check)).map(|(id, _)| *id)
        {
            return Err(error(CommandErrorKind::Conflict, format!("job {id} checks volume {name} already")));
        }
        let kind = if repair { JobKind::Repair } else { JobKind::Check };
        let job = self.jobs.borrow_mut().begin_check(kind, name);
        let plane = self.clone();
        self.storage.tasks.spawn(async move {
            let structures = plane.check_structures(&served).await;
            let Some(found) = plane.check_copies(job, volume, &space, repair).await else { return };
            let whole = found.lost == 0
                && found.unseen == 0
                && (repair || (found.corrupt == 0 && found.differing == 0));
            let state = if whole && structures.is_ok() { JobState::Completed } else { JobState::Failed };
            let (Ok(structures) | Err(structures)) = structures;
            plane.jobs.borrow_mut().end_check(job, state, format!("{structures}; {}", found.words(repair)));
        });
        Ok(job)
    }

    /// What a check of the file layer's structures found, in words; the error says that they are damaged.
    async fn check_structures(&self, served: &ServedVolume) -> Result<String, String> {
        let mut check = served.with(|service| Check::new(service.file_system()));
        loop {
            let step = served.with_mut(|service| check.step(service.file_system_mut(), STEP_KEYS));
            match step {
                Ok(true) => break,
                Ok(false) | Err(FsError::Miss) => {}
                Err(why) => return Err(format!("the structures cannot be checked: {why}")),
            }
            self.rest(KEYS_REST).await;
        }
        let report = check.report();
        if report.problem_count == 0 {
            let allocation =
                if report.allocation_compared { "" } else { " (allocation changed meanwhile: not compared)" };
            return Ok(format!("{} files in {} extents are sound{allocation}", report.files, report.extents));
        }
        let first = report.problems.first().map_or("", String::as_str);
        Err(format!("{} problems in the structures, the first: {first}", report.problem_count))
    }

    pub(super) async fn rest(&self, time: Duration) {
        let rested = self.now().after(time);
        tasks::until(|| {
            self.storage.wake_at(rested);
            (self.now() >= rested).then_some(())
        })
        .await;
    }

    /// Compares all copies of everything the volume has; `None`: it was cancelled.
    async fn check_copies(
        &self,
        job: u64,
        volume: VolumeId,
        space: &PoolSpace,
        repair: bool,
    ) -> Option<Found> {
        let regions =
            space.with_volume(volume, |coordinator| coordinator.mapped_regions()).unwrap_or_default();
        let (mut found, mut done_bytes) = (Found::default(), 0);
        let total =
            |regions: usize| regions as u64 * (space::coordinator::REGION_BLOCKS * BLOCK_BYTES as u64);
        for step in regions.chunks(STEP_REGIONS) {
            if !self.check_goes_on(job, done_bytes, total(regions.len()), &found) {
                return None;
            }
            for &lba in step {
                self.check_region(volume, space, lba, repair, &mut found).await;
            }
            done_bytes += total(step.len());
            self.rest(STEP_REST).await;
        }
        self.check_goes_on(job, done_bytes, total(regions.len()), &found).then_some(found)
    }

    async fn check_region(
        &self,
        volume: VolumeId,
        space: &PoolSpace,
        lba: Lba,
        repair: bool,
        found: &mut Found,
    ) {
        let Some(seen) = self.compare(volume, space, lba).await else {
            // Freed since the check began, or nobody can look.
            let mapped = space.with_volume(volume, |coordinator| coordinator.is_mapped(lba)).unwrap_or(true);
            found.unseen += u64::from(mapped);
            return;
        };
        seen.wrong.iter().for_each(|(disk, blocks)| *found.wrong.entry(*disk).or_default() += blocks);
        let seen = seen.found;
        let wanted = space.with_volume(volume, |coordinator| coordinator.record().resiliency.copies());
        found.few += u64::from(wanted.is_some_and(|wanted| seen.copies < wanted));
        found.differing += seen.differing;
        found.corrupt += seen.corrupt;
        if !repair || (seen.differing == 0 && seen.corrupt == 0) {
            found.lost += seen.lost;
            return;
        }
        space.equalize(volume, lba);
        match self.compare(volume, space, lba).await {
            Some(Seen { found: after, .. }) => {
                found.lost += after.lost;
                found.repaired += u64::from(after.differing == 0 && after.corrupt < seen.corrupt.max(1));
            }
            None => found.unseen += 1,
        }
    }

    async fn compare(&self, volume: VolumeId, space: &PoolSpace, lba: Lba) -> Option<Seen> {
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.rest(TRY_AGAIN).await;
            }
            space.compare(volume, lba);
            let seen = tasks::until(|| self.compared(volume, lba)).await;
            if let Some(seen) = seen.filter(|seen| seen.found.copies > 0) {
                return Some(seen);
            }
            if space.with_volume(volume, |coordinator| coordinator.is_mapped(lba)) != Some(true) {
                return None;
            }
        }
        None
    }

    /// What a comparison saw, once it did; `None` inside: the volume is gone.
    fn compared(&self, volume: VolumeId, lba: Lba) -> Option<Option<Seen>> {
        let mut events = self.storage.events.borrow_mut();
        let at = events.iter().position(|(_, event)| match event {
            LocalEvent::Volume(id, Event::Compared { lba: seen, .. }) => *id == volume && *seen == lba,
            _ => false,
        });
        match at.and_then(|at| events.remove(at)) {
            Some((_, LocalEvent::Volume(_, Event::Compared { found, wrong, .. }))) => {
                Some(Some(Seen { found, wrong }))
            }
            _ => {
                self.volumes.borrow().get(&volume).is_none_or(|entry| entry.served.is_none()).then_some(None)
            }
        }
    }

    /// Notes how far a check is; `false`: it was cancelled.
    fn check_goes_on(&self, job: u64, done_bytes: u64, total_bytes: u64, found: &Found) -> bool {
        let mut jobs = self.jobs.borrow_mut();
        let Some(check) = jobs.checks.get_mut(&job) else { return false };
        check.job.done_bytes = done_bytes;
        check.job.total_bytes = total_bytes;
        if check.cancelled {
            jobs.end_check(job, JobState::Cancelled, format!("so far: {}", found.words(false)));
            return false;
        }
        true
    }
}
