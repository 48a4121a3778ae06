//! Faults, planned so that the volume should survive them, and their end.

use crate::narrate;
use crate::nodes::Medium;
use crate::world::{Event, MILLISECOND, VOLUME, World};
use space::fake_store::FakeFault;
use std::collections::BTreeSet;
use types::{Lba, Monotonic};

/// The end of one fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Healing {
    Restart(usize),
    Reconnect(usize, usize),
    Disk(usize),
    State,
    Scrub(usize, u64),
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Crash,
    CrashAll,
    Cut,
    CutState,
    StateDown,
    Takeover,
    Hang,
    Errors,
    WriteErrors,
    Corrupt,
    Retire,
    Slow,
    Add,
    AllAway,
}

impl World {
    /// One fault, and when the next comes.
    pub fn inject(&mut self) {
        if !self.faulting() {
            return self.heal(Healing::All);
        }
        let every = self.scenario.fault_every_ms;
        let next = self.random.between(every / 2 + 1, every * 2) * MILLISECOND;
        let left = self.faults_end.saturating_sub(self.now);
        self.after(next.min(left), Event::Fault);
        let mut kinds = Vec::new();
        let scenario = self.scenario.clone();
        if scenario.crashes {
            kinds.extend([Kind::Crash, Kind::Crash, Kind::Crash, Kind::CrashAll]);
        }
        if scenario.partitions {
            kinds.extend([Kind::Cut, Kind::Cut, Kind::CutState, Kind::StateDown]);
        }
        if scenario.takeovers {
            kinds.extend([Kind::Takeover, Kind::Takeover]);
        }
        if scenario.disk_faults {
            kinds.extend([Kind::Hang, Kind::Errors, Kind::WriteErrors]);
        }
        if scenario.corruption {
            kinds.extend([Kind::Corrupt; 3]);
        }
        if scenario.retirement {
            kinds.push(Kind::Retire);
        }
        if scenario.slow_disks {
            kinds.extend([Kind::Slow; 2]);
        }
        if scenario.addition {
            kinds.extend([Kind::Add; 2]);
        }
        if scenario.all_away {
            kinds.extend([Kind::AllAway; 2]);
        }
        if let Some(kind) = self.random.pick(&kinds) {
            self.strike(kind);
        }
    }

    fn strike(&mut self, kind: Kind) {
        let nodes = self.nodes.len() as u64;
        let node = self.random.below(nodes) as usize;
        let disk = self.random.below(self.disks.len() as u64) as usize;
        let lasting = self.random.between(20, 900) * MILLISECOND;
        narrate::fault(self.moment(), &kind, node, disk, lasting / MILLISECOND);
        match kind {
            Kind::Crash => self.crash(node, lasting),
            Kind::CrashAll => (0..self.nodes.len()).for_each(|node| self.crash(node, lasting)),
            Kind::Cut => {
                let other = (node + 1 + self.random.below(nodes - 1) as usize) % self.nodes.len();
                self.cut.push((node, other));
                self.after(lasting, Event::Heal(Healing::Reconnect(node, other)));
            }
            Kind::CutState => {
                let state = self.nodes.len();
                self.cut.push((node, state));
                self.after(lasting, Event::Heal(Healing::Reconnect(node, state)));
            }
            Kind::StateDown => {
                self.state_down = true;
                self.after(lasting, Event::Heal(Healing::State));
            }
            Kind::Takeover => {
                if self.nodes[node].up && self.nodes[node].coordinator.is_none() {
                    self.open_on(node);
                }
            }
            Kind::Hang => {
                self.disks[disk].hangs = true;
                self.after(lasting, Event::Heal(Healing::Disk(disk)));
            }
            Kind::Slow => {
                self.disks[disk].slow = true;
                self.after(lasting, Event::Heal(Healing::Disk(disk)));
            }
            Kind::Add => self.add_disk(),
            Kind::AllAway => self.send_all_away(lasting),
            Kind::Errors | Kind::WriteErrors => {
                let fault = if kind == Kind::Errors { FakeFault::Errors } else { FakeFault::WriteErrors };
                if let Some(store) = self.disks[disk].medium.fake() {
                    store.set_fault(fault);
                }
                self.after(lasting, Event::Heal(Healing::Disk(disk)));
            }
            Kind::Corrupt => self.corrupt(),
            Kind::Retire => {
                // The daemon refuses to retire a disk whose copies have no place on others.
                let id = self.disks[disk].id;
                let others = self.disks.iter().filter(|other| other.added && other.id != id);
                let domains: BTreeSet<usize> = others.map(|other| other.node).collect();
                let enough = domains.len() >= usize::from(self.scenario.resiliency.copies());
                if self.retired.is_none() && enough && self.disks[disk].added {
                    self.retired = Some(id);
                    for node in 0..self.nodes.len() {
                        if let Some(coordinator) = &mut self.nodes[node].coordinator {
                            coordinator.set_retired(id, true);
                        }
                        self.pump(node);
                    }
                }
            }
        }
    }

    /// Every disk hangs or fails; each comes back at a time of its own.
    fn send_all_away(&mut self, lasting: u64) {
        self.coverage.all_away += 1;
        for disk in 0..self.disks.len() {
            let fails = self.random.chance(500);
            match self.disks[disk].medium.fake() {
                Some(store) if fails => store.set_fault(FakeFault::Errors),
                _ => self.disks[disk].hangs = true,
            }
            let later = self.random.between(0, 300) * MILLISECOND;
            self.after(lasting + later, Event::Heal(Healing::Disk(disk)));
        }
    }

    /// The disk that was not part of the pool becomes so.
    fn add_disk(&mut self) {
        let Some(new) = self.disks.iter_mut().find(|disk| !disk.added) else { return };
        new.added = true;
        let id = new.id;
        self.coverage.added_disks += 1;
        let view = self.pool_view();
        for node in 0..self.nodes.len() {
            *self.nodes[node].pool.borrow_mut() = view.clone();
            if let Some(coordinator) = &mut self.nodes[node].coordinator {
                coordinator.add_disk(id);
                self.pump(node);
            }
        }
    }

    fn crash(&mut self, node: usize, down_for: u64) {
        if !self.nodes[node].up {
            return;
        }
        self.coverage.crashes += 1;
        self.drop_coordinator(node);
        self.nodes[node].up = false;
        self.nodes[node].incarnation += 1;
        for index in 0..self.disks.len() {
            if self.disks[index].node == node {
                self.disks[index].replica = None;
                let random = &mut self.random;
                match &self.disks[index].medium {
                    Medium::Fake(store) => store.crash(|| random.chance(500)),
                    Medium::Real(disk) => disk.crash(&disk.random_choice(random.below(u64::MAX))),
                }
            }
        }
        self.open_not_before = self.now + 30 * MILLISECOND;
        self.after(down_for, Event::Heal(Healing::Restart(node)));
    }

    /// Rots one written block, where all disks are in sync and another one has an intact copy. A scrub finds it soon.
    fn corrupt(&mut self) {
        let Some(record) = self.last_record().cloned() else { return };
        let calm = record.stale.is_empty() && record.building.is_empty() && self.retired.is_none();
        let lbas = self.registers_written();
        let Some(lba) = self.random.pick(&lbas) else { return };
        let stores =
            || self.disks.iter().enumerate().filter_map(|(at, disk)| Some((at, disk.medium.fake()?)));
        let holders: Vec<usize> = stores()
            .filter(|(at, store)| {
                record.in_sync.contains(&self.disks[*at].id) && store.peek(VOLUME, Lba(lba)).is_some()
            })
            .map(|(at, _)| at)
            .collect();
        let healthy = stores().all(|(_, store)| store.corrupt_blocks() == 0);
        let Some(disk) = self.random.pick(&holders) else { return };
        if calm
            && healthy
            && holders.len() > 1
            && let Some(store) = self.disks[disk].medium.fake()
        {
            store.corrupt(VOLUME, Lba(lba));
            let soon = self.random.between(1, 30) * MILLISECOND;
            self.after(soon, Event::Heal(Healing::Scrub(disk, lba)));
        }
    }

    pub fn heal(&mut self, healing: Healing) {
        match healing {
            Healing::Restart(node) => self.restart(node),
            Healing::Reconnect(node, other) => self.cut.retain(|pair| *pair != (node, other)),
            Healing::State => self.state_down = false,
            Healing::Disk(disk) => self.heal_disk(disk),
            Healing::Scrub(disk, lba) => self.scrub(disk, lba),
            Healing::All => {
                self.cut.clear();
                self.state_down = false;
                (0..self.nodes.len()).for_each(|node| self.restart(node));
                (0..self.disks.len()).for_each(|disk| self.heal_disk(disk));
            }
        }
    }

    fn heal_disk(&mut self, disk: usize) {
        self.disks[disk].hangs = false;
        self.disks[disk].slow = false;
        if let Some(store) = self.disks[disk].medium.fake() {
            store.set_fault(FakeFault::None);
            if !self.faulting() {
                // Rot that met the loss of the other copy is more than the volume has to survive.
                store.forget_corruption();
            }
        }
        self.schedule_poll(disk);
    }

    fn scrub(&mut self, disk: usize, lba: u64) {
        let (id, now) = (self.disks[disk].id, Monotonic(self.now));
        for node in 0..self.nodes.len() {
            if let Some(coordinator) = &mut self.nodes[node].coordinator {
                coordinator.repair(now, id, Lba(lba));
                self.pump(node);
            }
        }
    }

    fn restart(&mut self, node: usize) {
        if self.nodes[node].up {
            return;
        }
        self.nodes[node].up = true;
        for index in 0..self.disks.len() {
            if self.disks[index].node == node {
                self.start_replica(index);
            }
        }
    }
}
