//! What nodes say to each other and to the cluster state: it is late, lost, repeated and cut off as the scenario has it.

use crate::world::{Event, MICROSECOND, MILLISECOND, World};
use cluster::{Answer, Request as StateRequest};
use space::coordinator::StateToken;
use space::message::{BusError, Operation, Request, Response, SessionId};
use types::DiskId;

impl World {
    /// Whether a message between two processes arrives.
    pub(crate) fn reaches(&self, from: usize, from_incarnation: u64, to: usize, to_incarnation: u64) -> bool {
        let alive = |node: usize, incarnation: u64| {
            self.nodes.get(node).is_some_and(|node| node.up && node.incarnation == incarnation)
        };
        alive(from, from_incarnation) && alive(to, to_incarnation) && !self.is_cut(from, to)
    }

    pub(crate) fn is_cut(&self, one: usize, other: usize) -> bool {
        one != other && self.cut.iter().any(|pair| *pair == (one, other) || *pair == (other, one))
    }

    /// How long a message takes; none: it is lost.
    pub(crate) fn travel(&mut self, local: bool) -> Option<u64> {
        if local {
            return Some(self.random.between(1, 20) * MICROSECOND);
        }
        let faulting = self.faulting();
        if faulting && self.random.chance(self.scenario.message_loss) {
            return None;
        }
        if faulting && self.random.chance(self.scenario.message_slow) {
            return Some(self.random.between(1, 60) * MILLISECOND);
        }
        Some(self.random.between(30, 400) * MICROSECOND)
    }

    /// Sessions are numbered by opening, and openings by node.
    pub(crate) fn owner_of_session(&self, session: SessionId) -> Option<usize> {
        let node = ((session.0 >> 32) % 16) as usize;
        (node < self.nodes.len()).then_some(node)
    }

    pub(crate) fn send(&mut self, from: usize, disk: DiskId, request: Request) {
        let Some(to) = self.disks.iter().position(|known| known.id == disk) else { return };
        let node = self.disks[to].node;
        let incarnations = (self.nodes[from].incarnation, self.nodes[node].incarnation);
        if !self.nodes[node].up {
            // The connection is refused; nobody may be there to say so.
            if self.random.chance(700) {
                let Request { volume, session, id, .. } = request;
                let response =
                    Response { from: disk, volume, session, id, result: Err(BusError::Unreachable) };
                let incarnations = (incarnations.0, incarnations.0);
                self.after(MILLISECOND, Event::Response { to: from, from, incarnations, response });
            }
            return;
        }
        let repeats = if self.faulting() && self.random.chance(self.scenario.message_repeat) { 2 } else { 1 };
        for _ in 0..repeats {
            let late = match &request.operation {
                Operation::Write { .. } if self.is_late_for_writes() => {
                    self.random.between(1, 60) * MILLISECOND
                }
                _ => 0,
            };
            if let Some(delay) = self.travel(node == from).map(|delay| delay + late) {
                let request = request.clone();
                self.after(delay, Event::Request { to, from, incarnations, request });
            }
        }
    }

    fn is_late_for_writes(&self) -> bool {
        let out = || self.last_record().is_some_and(|record| !record.stale.is_empty());
        self.scenario.late_writes && self.faulting() && out()
    }

    pub(crate) fn ask_state(&mut self, node: usize, token: StateToken, request: StateRequest) {
        self.next_token += 1;
        let number = self.next_token;
        let incarnation = self.nodes[node].incarnation;
        self.nodes[node].asked.insert(number, token);
        let lost = self.faulting() && self.random.chance(self.scenario.state_loss);
        if !lost {
            let late = self.faulting() && self.random.chance(self.scenario.state_loss / 2);
            let delay = if late { self.random.between(100, 900) * MILLISECOND } else { 500 * MICROSECOND };
            self.after(delay, Event::StateRequest { from: node, incarnation, number, request });
        }
        // The shell's time-out; an answer that comes first makes it moot.
        let unknown = Event::StateAnswer { to: node, incarnation, number, answer: Answer::Unknown };
        self.after(150 * MILLISECOND, unknown);
    }

    pub(crate) fn serve_state(&mut self, from: usize, incarnation: u64, number: u64, request: &StateRequest) {
        let state = self.nodes.len();
        if self.state_down || self.is_cut(from, state) {
            return;
        }
        let answer = self.state.answer(request);
        self.trace.note(&[5, self.now, from as u64, number]);
        if matches!(answer, Answer::Committed { .. }) {
            self.record_changed();
        }
        if self.faulting() && self.random.chance(self.scenario.state_loss) {
            return;
        }
        let delay = self.random.between(100, 900) * MICROSECOND;
        self.after(delay, Event::StateAnswer { to: from, incarnation, number, answer });
    }
}
