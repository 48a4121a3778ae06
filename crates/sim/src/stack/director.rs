//! The plan of a run: calm, a fault, its end, until all copies are whole again; then the next
//! fault. At the end all data are read again, the last time with one disk away, and removed.

use super::care::short_of_whole;
use super::crowding::Crowding;
use super::disks::SimDisk;
use super::emptying::Emptying;
use super::faults::Striking;
use super::node::{Condition, Slot};
use super::scenario::{Kind, Work};
use super::world::StackWorld;
use std::time::Duration;
use types::{DiskId, Monotonic};

/// Time after the end of a fault within which all data must have their copies again, including the
/// replacement of a disk.
const WHOLE_WITHIN: Duration = Duration::from_secs(400);
/// Time after which a disk that cannot be opened is replaced.
const REPLACE_AFTER: Duration = Duration::from_secs(30);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Setup,
    Setting {
        until: Monotonic,
    },
    Calm {
        until: Monotonic,
    },
    Fault {
        until: Monotonic,
    },
    /// All disks and all copies must come back.
    Heal,
    Scrub,
    Repair,
    Verify,
    /// All copies were whole; a new process reads all data again.
    Reread,
    /// The same without this disk.
    Without {
        disk: usize,
    },
    /// Names are made until the volume takes no more.
    Crowding,
    /// All is removed, and nothing may be left.
    Emptying,
    Finished,
}

pub(crate) struct Director {
    stage: Stage,
    /// Time at which the present stage must be over.
    late_at: Monotonic,
    since: Monotonic,
    /// Number of faults so far.
    round: usize,
    striking: Option<Striking>,
    down_until: Option<Monotonic>,
    /// Time of the next restart, and whether the power is cut.
    restart: Option<(Monotonic, bool)>,
    work_at: Monotonic,
    replaced: Option<DiskId>,
    crowding: Crowding,
    emptying: Emptying,
}

impl Director {
    pub fn new(world: &StackWorld) -> Self {
        Self {
            stage: Stage::Setup,
            late_at: world.now.after(WHOLE_WITHIN),
            since: world.now,
            round: 0,
            striking: None,
            down_until: None,
            restart: None,
            work_at: world.now,
            replaced: None,
            crowding: Crowding::default(),
            emptying: Emptying::default(),
        }
    }

    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    pub fn doing(&self) -> String {
        format!("{:?} in round {}", self.stage, self.round)
    }

    fn enter(&mut self, world: &mut StackWorld, stage: Stage) {
        super::narrate::stage(world.now, world.step, &format!("{stage:?}"));
        world.asked_in_stage = 0;
        self.stage = stage;
        self.since = world.now;
        let chance = world.random.below(1000);
        let scenario = &world.scenario;
        let power = chance < scenario.power_cuts;
        let restarts = power || chance < scenario.power_cuts + scenario.kills;
        if restarts && matches!(stage, Stage::Fault { .. } | Stage::Heal | Stage::Scrub | Stage::Repair) {
            let soon = ms(world.random.between(1, 1500));
            self.restart = Some((world.now.after(soon), power));
        }
    }

    pub fn drive(&mut self, world: &mut StackWorld) {
        if let Some(until) = self.down_until {
            if world.now < until {
                return;
            }
            self.down_until = None;
            world.start(0, Vec::new());
            if let (Some(old), Some(node)) = (self.replaced, &world.nodes[0]) {
                node.space.set_retired(old, true);
            }
        }
        if let Some((at, power)) = self.restart
            && at <= world.now
        {
            self.restart = None;
            return self.stop(world, power);
        }
        self.work(world);
        self.advance(world);
        if world.now > self.late_at && !self.is_finished() {
            let node = world.nodes[0].as_ref();
            let why = match self.stage {
                Stage::Crowding => self.crowding.why.clone(),
                Stage::Emptying => self.emptying.why.clone(),
                _ => {
                    let short = node.and_then(|node| Some(short_of_whole(node)?.describe(node)));
                    short.unwrap_or_default()
                }
            };
            let fault = self.striking.as_ref().map(|striking| (striking.kind, striking.structure));
            world
                .violations
                .push(format!("liveness: {} goes on for ever after {fault:?}: {why}", self.doing()));
        }
    }

    fn stop(&mut self, world: &mut StackWorld, power: bool) {
        super::narrate::stage(world.now, world.step, if power { "power cut" } else { "kill" });
        world.stop(0, power);
        if let Some(striking) = &mut self.striking
            && let Some(image) = striking.old_image(world.now.since(self.since))
            && world.may_miss_a_disk()
            && let Some(disk) = world.disks.iter().find(|disk| disk.id == striking.disk)
        {
            disk.medium.roll_back(&image);
            super::narrate::stage(world.now, world.step, "a disk is rolled back");
        }
        let pause = ms(world.random.between(1, 800));
        self.down_until = Some(world.now.after(pause));
        if matches!(self.stage, Stage::Scrub | Stage::Repair | Stage::Verify) {
            self.stage = Stage::Heal;
        }
        self.late_at = world.now.after(WHOLE_WITHIN);
    }

    fn advance(&mut self, world: &mut StackWorld) {
        match self.stage {
            Stage::Setup if world.all_recovered() => {
                world.make_durable();
                let until = world.now.after(ms(1500));
                self.enter(world, Stage::Setting { until });
            }
            Stage::Setting { until } if until <= world.now => {
                world.acting = true;
                self.begin_calm(world);
            }
            Stage::Calm { until } if until <= world.now => self.begin_fault(world),
            Stage::Fault { until } if until <= world.now => {
                if self.striking.as_ref().is_some_and(|striking| striking.image.is_some()) {
                    // A disk goes back in time only while no process has it open.
                    return self.stop(world, true);
                }
                let silent = self.striking.as_ref().is_some_and(|striking| striking.kind.is_silent());
                self.end_fault(world);
                self.enter(world, Stage::Heal);
                if silent && world.random.chance(500) {
                    // All data are read before a scrub finds the fault.
                    self.restart = None;
                    self.stop(world, false);
                }
            }
            Stage::Heal if world.all_recovered() => {
                if self.made_whole(world)
                    && let Some(node) = &world.nodes[0]
                {
                    world.scrub.begin(node);
                    self.enter(world, Stage::Scrub);
                }
            }
            Stage::Scrub if world.scrub.is_done() => {
                world.coverage.scrubbed_corrupt += world.scrub.corrupt;
                if let Some(node) = &world.nodes[0] {
                    world.check.begin(node, true);
                }
                self.enter(world, Stage::Repair);
            }
            Stage::Repair if world.check.is_done() => {
                let found = world.check.found;
                world.coverage.left_by_scrub += found.differing + found.corrupt;
                self.judge_scrub(world);
                if let Some(node) = &world.nodes[0] {
                    world.check.begin(node, false);
                }
                self.enter(world, Stage::Verify);
            }
            Stage::Verify if world.check.is_done() => self.verified(world),
            // A loss from a disk's journal may show only now: then the disk is replaced before another one is
            // removed.
            Stage::Reread if world.all_recovered() => {
                if !self.made_whole(world) {
                    return;
                }
                let disk = world.random.below(world.disks.len() as u64) as usize;
                world.stop(0, false);
                world.disks[disk].control.gone.set(true);
                world.start(0, Vec::new());
                self.late_at = world.now.after(WHOLE_WITHIN);
                self.enter(world, Stage::Without { disk });
            }
            Stage::Without { .. } if world.all_recovered() => self.enter(world, Stage::Crowding),
            Stage::Crowding => self.crowd(world),
            Stage::Emptying => self.empty(world),
            _ => {}
        }
    }

    fn crowd(&mut self, world: &mut StackWorld) {
        let (now, crowd) = (world.now, world.scenario.crowd);
        let is_over = !crowd || world.nodes[0].as_mut().is_some_and(|node| self.crowding.drive(node, now));
        world.violations.extend(self.crowding.wrong.take());
        if is_over {
            self.late_at = world.now.after(WHOLE_WITHIN);
            self.enter(world, Stage::Emptying);
        }
    }

    fn empty(&mut self, world: &mut StackWorld) {
        let (thin, now) = (world.thin(), world.now);
        if let Some(node) = &mut world.nodes[0]
            && self.emptying.drive(node, &thin, now)
        {
            self.stage = Stage::Finished;
        }
    }

    fn begin_calm(&mut self, world: &mut StackWorld) {
        if self.round >= world.scenario.faults.len() {
            world.acting = false;
            world.stop(0, false);
            world.start(0, Vec::new());
            self.late_at = world.now.after(WHOLE_WITHIN);
            return self.enter(world, Stage::Reread);
        }
        let until = world.now.after(ms(world.random.between(50, 1500)));
        self.late_at = until.after(WHOLE_WITHIN);
        self.enter(world, Stage::Calm { until });
    }

    fn begin_fault(&mut self, world: &mut StackWorld) {
        let kind = world.scenario.faults[self.round];
        self.round += 1;
        let disk = world.random.below(world.disks.len() as u64) as usize;
        let node = world.nodes[0].as_ref();
        let (disks, state) = (&world.disks, &world.state);
        let mut striking = Striking::begin(kind, disk, disks, state, node, &mut world.random);
        if let Some(node) = node {
            world.told.look(node);
        }
        striking.medium_errors -= world.told.needless(disks[disk].id).min(striking.medium_errors);
        if kind.damages() {
            world.told.strike(world.disks[disk].id);
        }
        super::narrate::stage(
            world.now,
            world.step,
            &format!("{kind:?} on disk {disk}, {:?}", striking.structure),
        );
        let until = world.now.after(ms(striking.lasts_ms(&mut world.random)));
        if striking.refuses() {
            world.refusals_until = until.after(Duration::from_secs(45));
        }
        world.coverage.faults += 1;
        self.striking = Some(striking);
        self.late_at = until.after(WHOLE_WITHIN);
        self.enter(world, Stage::Fault { until });
    }

    fn end_fault(&mut self, world: &mut StackWorld) {
        if let Some(striking) = &self.striking {
            striking.end(&world.disks, &world.state);
        }
        if let Some(node) = &world.nodes[0] {
            world.disks.iter().for_each(|disk| node.space.set_retired(disk.id, false));
        }
        self.late_at = world.now.after(WHOLE_WITHIN);
    }

    /// Whether all disks are present with all copies. Replaces a disk that cannot be opened any
    /// more.
    fn made_whole(&mut self, world: &mut StackWorld) -> bool {
        let Some(node) = &mut world.nodes[0] else { return false };
        if let Some(old) = self.replaced {
            if node.space.is_free(old) && short_of_whole_without(node.slots.iter(), old) {
                node.remove(old);
                world.disks.retain(|disk| disk.id != old);
                self.replaced = None;
            }
            return false;
        }
        let Some(short) = short_of_whole(node) else { return true };
        let refused =
            |slot: &&Slot| matches!(slot.condition, Condition::Absent { .. }) && slot.refused.is_some();
        let dead = node.slots.iter().find(refused).map(|slot| slot.id);
        if world.now.since(self.since) > REPLACE_AFTER
            && let Some(dead) = dead
        {
            super::narrate::stage(world.now, world.step, &format!("replaced: {}", short.describe(node)));
            self.replace(world, dead);
        }
        false
    }

    /// Puts a new disk in the place of one that cannot be opened.
    fn replace(&mut self, world: &mut StackWorld, old: DiskId) {
        let slabs = u64::from(world.disks[0].layout.slab_count);
        let seed = world.random.below(u64::MAX);
        let new = SimDisk::format(world.next_disk, world.scenario.slab_bytes, slabs, seed);
        world.next_disk += 1;
        world.coverage.replaced += 1;
        new.control.now.set(world.now);
        let Some(node) = &mut world.nodes[0] else { return };
        node.slots.push(Slot::new(new.id, world.now));
        node.space.set_retired(old, true);
        world.disks.push(new);
        self.replaced = Some(old);
    }

    fn verified(&mut self, world: &mut StackWorld) {
        let found = world.check.found;
        if found.differing + found.corrupt + found.lost > 0 {
            let fault = self.striking.as_ref().map(|striking| (striking.kind, striking.structure));
            world.violations.push(format!(
                "copies are not whole and equal after a scrub and a check with repair, after {fault:?}: {found:?}, first {:?}",
                world.check.first
            ));
        }
        self.judge_told(world);
        self.begin_calm(world);
    }

    /// Checks that a scrub alone repaired unreadable blocks and wrong checksums on a disk.
    fn judge_scrub(&self, world: &mut StackWorld) {
        let found = world.check.found;
        let Some(striking) = self.striking.as_ref().filter(|striking| striking.kind.is_scrubbed()) else {
            return;
        };
        if found.differing + found.corrupt > 0 {
            world.violations.push(format!(
                "a scrub left what a check found after {:?} of {:?}: {found:?}, first {:?}",
                striking.kind, striking.structure, world.check.first
            ));
        }
    }

    /// Checks that a disk with lasting errors is named, and no disk without fault.
    fn judge_told(&self, world: &mut StackWorld) {
        let (Some(striking), Some(node)) = (&self.striking, &world.nodes[0]) else { return };
        world.told.look(node);
        if let Some((disk, count)) = world.told.accused(&node.slots) {
            world.violations.push(format!("{count} errors are told of disk {disk}, which did nothing wrong"));
        }
        // A disk that could not be opened was replaced, and that is reported.
        let disk = world.disks.iter().find(|disk| disk.id == striking.disk);
        let needed =
            |disk: &SimDisk| disk.control.medium_errors.get().saturating_sub(world.told.needless(disk.id));
        let failed = disk.filter(|disk| needed(disk) > striking.medium_errors);
        if striking.kind == Kind::Unreadable
            && let Some(disk) = failed
            && world.told.count(disk.id) == 0
            && !world.told.left(disk.id)
        {
            world
                .violations
                .push(format!("disk {} did not give {:?}, and nothing is told", disk.id, striking.structure));
        }
    }

    /// Starts background work concurrent with the clients.
    fn work(&mut self, world: &mut StackWorld) {
        if world.now < self.work_at || !matches!(self.stage, Stage::Calm { .. } | Stage::Fault { .. }) {
            return;
        }
        self.work_at = world.now.after(ms(world.random.between(20, 1500)));
        let Some(work) = world.random.pick(&world.scenario.background) else { return };
        let Some(node) = &world.nodes[0] else { return };
        match work {
            Work::Scrub if world.scrub.is_done() => world.scrub.begin(node),
            Work::Check if world.check.is_done() => {
                let repair = world.random.chance(500);
                world.check.begin(node, repair);
            }
            Work::Retire => {
                let chosen = world.random.below(world.disks.len() as u64) as usize;
                // The other disks have space for all data.
                let copies = world.scenario.volumes.iter().map(|volume| volume.copies()).max();
                let spare = copies.is_some_and(|copies| world.disks.len() > usize::from(copies));
                for (index, disk) in world.disks.iter().enumerate() {
                    node.space.set_retired(disk.id, spare && index == chosen);
                }
            }
            Work::Rebalance => {
                node.space.rebalance();
            }
            Work::Checkpoint => {
                node.slots
                    .iter()
                    .filter_map(Slot::store)
                    .for_each(super::disks::SimStore::request_checkpoint);
            }
            _ => {}
        }
    }
}

/// Whether all disks but this one are present.
fn short_of_whole_without<'a>(mut slots: impl Iterator<Item = &'a Slot>, old: DiskId) -> bool {
    slots.all(|slot| slot.id == old || slot.store().is_some())
}
