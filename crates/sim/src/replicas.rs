//! The processes' ends of the disks: replicas that start, are polled, and answer.

use crate::invariants::i3;
use crate::narrate;
use crate::nodes::WatchedStore;
use crate::world::{Event, MICROSECOND, MILLISECOND, VOLUME, World};
use space::replica::Replica;
use space::seam::BlockStore;

impl World {
    pub(crate) fn start_replica(&mut self, index: usize) {
        let findings = self.findings.clone();
        let disk = &mut self.disks[index];
        disk.hangs = false;
        let Some(store) = disk.medium.open() else { return };
        let store = WatchedStore::new(store, findings);
        let (id, seen, now) = (disk.id, disk.promised, store.promised(VOLUME));
        disk.replica = Some(Replica::new(disk.id, store));
        self.violate(i3::check(id, seen, now));
    }

    pub(crate) fn schedule_poll(&mut self, disk: usize) {
        if !self.disks[disk].poll_scheduled {
            self.disks[disk].poll_scheduled = true;
            let delay = match self.disks[disk].slow {
                true => self.random.between(2, 60) * MILLISECOND,
                false => self.random.between(5, 150) * MICROSECOND,
            };
            self.after(delay, Event::Poll { disk });
        }
    }

    pub(crate) fn poll_disk(&mut self, index: usize) {
        self.disks[index].poll_scheduled = false;
        if self.disks[index].hangs {
            return;
        }
        let node = self.disks[index].node;
        let mut responses = Vec::new();
        if let Some(replica) = &mut self.disks[index].replica {
            replica.poll(&mut responses);
            // Opens that waited for the work of another session may have begun.
            replica.poll(&mut responses);
            let promised = replica.store().promised(VOLUME);
            let busy = replica.store().is_busy();
            self.disks[index].promised = self.disks[index].promised.max(promised);
            if busy {
                self.schedule_poll(index);
            }
        }
        for response in responses {
            narrate::response(self.moment(), index, &response);
            let asked = self.disks[index].asked_promises.remove(&(response.session, response.id));
            if let (Some(epoch), Ok(_)) = (asked, &response.result) {
                let (disk, promised) = (self.disks[index].id, self.disks[index].promised);
                self.violate(i3::check_answer(disk, epoch, promised));
            }
            self.trace.note(&[3, self.now, index as u64, response.id.0]);
            let Some(to) = self.owner_of_session(response.session) else { continue };
            let incarnations = (self.nodes[node].incarnation, self.nodes[to].incarnation);
            let repeats =
                if self.faulting() && self.random.chance(self.scenario.message_repeat) { 2 } else { 1 };
            for _ in 0..repeats {
                if let Some(delay) = self.travel(node == to) {
                    let response = response.clone();
                    self.after(delay, Event::Response { to, from: node, incarnations, response });
                }
            }
        }
    }
}
