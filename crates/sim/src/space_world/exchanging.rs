//! Replacement of disks by older images of themselves while their servers are down.
//!
//! Only images that have promised less than the record says, since younger ones cannot be
//! recognized (docs/PROTOCOL.md, "Limits"). If all disks are replaced, the volume must not be
//! served until the right ones are back. If one disk, or all of a node, are replaced, the images
//! stay: other disks have all their data.

use super::course::MILLISECOND;
use super::event::{Event, Healing};
use super::images::{Held, Images};
use super::nodes::Node;
use super::world::SpaceWorld;
use records::VolumeRecord;
use space::coordinator::Phase;

impl SpaceWorld {
    /// Puts the images taken earlier in the places of all disks, of one, or of all of its node.
    /// Takes images if there are none that are old enough.
    pub(super) fn go_back(&mut self, disk: usize, lasting: u64) {
        let Self { course, servers, judge, images, .. } = self;
        let all = course.scenario.older_images_of_all;
        let whole = |record: &&VolumeRecord| {
            let is_mirrored = record.min_holders == record.resiliency.copies();
            record.stale.is_empty() && record.building.is_empty() && (all || is_mirrored)
        };
        let is_over = images.may_expel_until <= course.now;
        let is_calm = is_over && images.right.is_empty() && servers.nodes.iter().all(|node| node.up);
        let Some(record) = judge.record().filter(whole).filter(|_| is_calm) else { return };
        if Images::is_any_in_place(record, &servers.disks) {
            return;
        }
        let node = servers.disks[disk].node;
        let of_node = course.random.chance(500) && record.min_homes == record.resiliency.copies();
        let is_chosen = |index: usize| all || index == disk || of_node && servers.disks[index].node == node;
        let chosen: Vec<usize> = (0..servers.disks.len()).filter(|index| is_chosen(*index)).collect();
        if !chosen.iter().all(|index| images.is_older(record, &servers.disks, *index)) {
            images.taken = servers.disks.iter().map(Held::of).collect();
            return;
        }
        course.coverage.gone_back += 1;
        let nodes = servers.nodes.len();
        if !all {
            self.crash(node, lasting);
            for index in chosen {
                self.images.taken[index].put(&mut self.servers.disks[index]);
            }
            return;
        }
        for node in 0..nodes {
            let down_for = self.course.random.between(1, 100) * MILLISECOND;
            self.crash(node, down_for);
        }
        let Self { course, servers, judge, images, .. } = self;
        images.right = servers.disks.iter().map(Held::of).collect();
        images.taken.iter().zip(&mut servers.disks).for_each(|(held, disk)| held.put(disk));
        judge.is_blind = true;
        course.after(lasting + 500 * MILLISECOND, Event::Heal(Healing::Images));
    }

    /// Puts the right disks back in the places of older images.
    pub(super) fn bring_right_disks(&mut self) {
        let right = std::mem::take(&mut self.images.right);
        if right.is_empty() {
            return;
        }
        for node in 0..self.servers.nodes.len() {
            let down_for = self.course.random.between(1, 100) * MILLISECOND;
            self.crash(node, down_for);
        }
        right.iter().zip(&mut self.servers.disks).for_each(|(held, disk)| held.put(disk));
        self.judge.is_blind = false;
        self.images.taken.clear();
    }

    /// Checks that older images are not served.
    pub(super) fn watch_images(&mut self) {
        if self.images.right.is_empty() {
            return;
        }
        let serves =
            |node: &Node| node.coordinator.as_ref().is_some_and(|found| *found.phase() == Phase::Serving);
        if let Some(node) = self.servers.nodes.iter().position(serves) {
            self.course.violate([format!("node {node} serves the volume, and all disks are older images")]);
        }
    }
}
