//! A node's reaction when an opening ends or the volume is lost: as in `node`, by the same rules
//! ([`space::takeover`]).

use super::course::MILLISECOND;
use super::holding::{Hold, Holding};
use super::membership::id_of;
use super::world::SpaceWorld;
use records::{Record, Transaction, Typed, VolumeRecord};
use space::api::SpaceError;
use space::coordinator::{Phase, Predecessor};
use space::takeover::{self, Ended, PassOn, Tried};

impl SpaceWorld {
    /// Advances the node's hold on the volume. `has_read`: the node has read the records.
    pub(super) fn hold(&mut self, node: usize, has_read: bool) {
        let now = self.course.now;
        if !self.servers.nodes[node].is_awake(now) {
            return;
        }
        let known = self.membership.known(node);
        self.holdings[node].hear(known, has_read);
        match self.holdings[node].hold {
            Hold::Mounting { until, fails } if until <= now => self.opening_ended(node, fails),
            Hold::LettingGo { until } if until <= now => self.holdings[node].let_go(),
            Hold::Failed { at } if at <= now => self.pass_on(node),
            Hold::Waiting { until } if until <= now => {
                (self.holdings[node].hold, self.holdings[node].looks) = (Hold::Elsewhere, true);
            }
            _ => {}
        }
        if self.membership.is_silent(node) {
            return self.withdraw_in_silence(node);
        }
        // News that arrives while the node holds the volume has no effect, then or later.
        let looks = std::mem::take(&mut self.holdings[node].looks);
        if looks
            && self.holdings[node].hold == Hold::Elsewhere
            && let Some(predecessor) = self.membership.to_open(&self.servers, &self.state, node)
        {
            self.begin_opening(node, predecessor);
        }
    }

    fn begin_opening(&mut self, node: usize, predecessor: Predecessor) {
        let Some(record) = self.membership.record(node).cloned() else { return };
        let fence = predecessor.fence.clone();
        let incarnation = self.open_on(node, predecessor);
        let holding = &mut self.holdings[node];
        holding.hold = Hold::Opening;
        holding.tried = Some(Tried { by: id_of(node), incarnation: Some(incarnation), record, fence });
        self.pump(node);
    }

    /// Handles the phase of the node's virtual disk.
    pub(super) fn heed_phase(&mut self, node: usize) {
        let Some(coordinator) = &self.servers.nodes[node].coordinator else { return };
        let phase = coordinator.phase().clone();
        match (self.holdings[node].hold, phase) {
            (Hold::Opening, Phase::Serving) => {
                let course = &mut self.course;
                let until = course.now + course.random.between(1, 60) * MILLISECOND;
                let failing = course.scenario.failing_openings;
                let fails = course.faulting() && course.random.chance(failing);
                self.holdings[node].hold = Hold::Mounting { until, fails };
            }
            (Hold::Opening | Hold::Mounting { .. }, Phase::Stopped(_)) => self.opening_ended(node, true),
            (Hold::Serving, Phase::Stopped(_) | Phase::Closed) => self.withdraw(node),
            _ => {}
        }
    }

    fn withdraw(&mut self, node: usize) {
        let until = self.course.now + self.course.random.between(1, 150) * MILLISECOND;
        self.holdings[node].hold = Hold::LettingGo { until };
        self.servers.nodes[node].serves = false;
        self.drop_coordinator(node);
    }

    /// Takes the volume out of service at a node that has fallen silent. The node checks again when
    /// it speaks.
    fn withdraw_in_silence(&mut self, node: usize) {
        if self.holdings[node].hold == Hold::Serving {
            self.withdraw(node);
        }
    }

    fn opening_ended(&mut self, node: usize, has_failed: bool) {
        let coordinator = self.servers.nodes[node].coordinator.as_ref();
        let phase = coordinator.map(|coordinator| coordinator.phase().clone());
        let stopped = match &phase {
            Some(Phase::Stopped(why)) => Some(why),
            _ => None,
        };
        match takeover::ended(stopped, !has_failed && phase == Some(Phase::Serving)) {
            Ended::Well => {
                self.holdings[node].hold = Hold::Serving;
                self.servers.nodes[node].serves = true;
                return;
            }
            Ended::ClaimedElsewhere => self.holdings[node].let_go(),
            Ended::Failed => {
                if phase == Some(Phase::Stopped(SpaceError::Fenced)) {
                    let wrong = "takeover: an opening that another claim ended is told as one that failed";
                    self.course.violate([wrong.to_owned()]);
                }
                let at = self.course.now + self.course.random.between(1, 400) * MILLISECOND;
                self.holdings[node].hold = Hold::Failed { at };
            }
        }
        self.drop_coordinator(node);
    }

    /// Records that another node is to try.
    fn pass_on(&mut self, node: usize) {
        let nodes = self.servers.nodes.len();
        if self.state_down || self.network.is_cut(node, nodes) {
            return self.holdings[node].fail(&self.course);
        }
        let (Some(tried), Ok(Some(found))) = (
            self.holdings[node].tried.clone(),
            self.state.read::<VolumeRecord>(&super::blocks::VOLUME.to_string()),
        ) else {
            return self.holdings[node].fail(&self.course);
        };
        let view = self.membership.view(&self.servers, node);
        let (is_passed, record, fence) = match takeover::pass_on(&found.value, &tried, &view) {
            PassOn::To { record, fence, .. } => (true, record, fence),
            PassOn::Again { record } => (false, record, None),
            PassOn::Keep => return self.holdings[node].fail(&self.course),
            PassOn::ClaimedElsewhere => return self.holdings[node].let_go(),
        };
        let is_healthy = self.serving_by(&found.value).is_some_and(|owner| owner != node);
        let mut changes = Transaction::default().when(record.key(), found.revision);
        if let Some(fence) = fence {
            changes = changes.when(fence.key, fence.revision);
        }
        let committed = self.state.commit(changes.put(record.key(), record.encode())).is_ok();
        self.course.coverage.passed_on += u64::from(committed && is_passed);
        let retired = self.manager.retired();
        let (disks, history) = (&self.servers.disks, &self.traffic.history);
        self.judge.state_changed(&mut self.course, &self.state, disks, history, retired);
        if committed && is_healthy {
            let wrong = "takeover: a node that gave up rewrote the record of another one, which serves";
            self.course.violate([wrong.to_owned()]);
        }
        match committed && is_passed {
            true => self.holdings[node].let_go(),
            false => self.holdings[node].fail(&self.course),
        }
    }

    /// Returns the node that serves the volume by this record.
    fn serving_by(&self, record: &VolumeRecord) -> Option<usize> {
        self.servers.nodes.iter().position(|node| {
            let coordinator = node.coordinator.as_ref();
            node.serves && coordinator.is_some_and(|found| found.record().coordinator == record.coordinator)
        })
    }

    /// Checks that no node that has read the record in force serves the volume if it is another's
    /// by that.
    pub(super) fn watch_owners(&mut self) {
        for (node, found) in self.servers.nodes.iter().enumerate() {
            let Some(coordinator) = found.coordinator.as_ref().filter(|_| found.serves) else { continue };
            let Some(record) = self.membership.record(node) else { continue };
            let is_later = record.epoch > coordinator.record().epoch
                || record.owner != coordinator.record().owner && record.epoch == coordinator.record().epoch;
            if is_later && record.coordinator != coordinator.record().coordinator {
                let wrong =
                    format!("takeover: node {node} serves on, and has read that it has lost the volume");
                self.course.violations.push(wrong);
            }
        }
    }

    /// Handles the end of the node's process.
    pub(super) fn forget_holding(&mut self, node: usize) {
        self.holdings[node] = Holding::default();
        self.servers.nodes[node].serves = false;
    }
}
