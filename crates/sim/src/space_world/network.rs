//! Messages between nodes, and to the cluster state: late, lost, repeated and cut off by the
//! scenario.

use super::course::{Course, MICROSECOND, MILLISECOND};
use super::event::Event;
use super::servers::Servers;
use records::{Answer, Request as StateRequest, VolumeRecord};
use space::coordinator::StateToken;
use space::message::{BusError, ReplicaOperation, Request, Response};
use types::DiskId;

/// The network between nodes. Its last node, beyond the real ones, is the cluster state.
#[derive(Default)]
pub(crate) struct Network {
    /// Pairs of nodes that cannot reach each other, once for each fault that cuts them off.
    cut: Vec<(usize, usize)>,
    /// Directed links between nodes on which large messages are lost.
    loses_large: Vec<(usize, usize)>,
}

/// Time without a message after which a connection that lost a large one is closed: sooner than a
/// disk is late.
const SILENCE: u64 = 60 * MILLISECOND;

impl Network {
    pub fn cut(&mut self, one: usize, other: usize) {
        self.cut.push((one, other));
    }

    pub fn reconnect(&mut self, one: usize, other: usize) {
        self.cut.retain(|pair| *pair != (one, other));
    }

    pub fn reconnect_all(&mut self) {
        self.cut.clear();
        self.loses_large.clear();
    }

    /// Loses large messages on these links, until [`Network::carry_large`].
    pub fn lose_large(&mut self, ways: impl IntoIterator<Item = (usize, usize)>) {
        self.loses_large.extend(ways);
    }

    pub fn carry_large(&mut self) {
        self.loses_large.clear();
    }

    /// Whether large messages are lost between two nodes, in either direction: a connection tests
    /// both.
    pub fn loses_large_between(&self, one: usize, other: usize) -> bool {
        self.loses_large.contains(&(one, other)) || self.loses_large.contains(&(other, one))
    }

    pub fn loses_anything_large(&self) -> bool {
        !self.loses_large.is_empty()
    }

    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        one != other && self.cut.iter().any(|pair| *pair == (one, other) || *pair == (other, one))
    }

    /// Whether a message between two processes, each identified by node and incarnation, arrives.
    pub fn reaches(&self, servers: &Servers, from: (usize, u64), to: (usize, u64)) -> bool {
        servers.is_alive(from.0, from.1) && servers.is_alive(to.0, to.1) && !self.is_cut(from.0, to.0)
    }

    /// Sends a coordinator's request to a disk. `record`: the one in force.
    pub fn send(
        &self,
        course: &mut Course,
        servers: &Servers,
        record: Option<&VolumeRecord>,
        from: usize,
        disk: DiskId,
        request: Request,
    ) {
        let Some(to) = servers.disks.iter().position(|known| known.id == disk) else { return };
        let node = servers.disks[to].node;
        let incarnations = (servers.nodes[from].incarnation, servers.nodes[node].incarnation);
        if !servers.nodes[node].up {
            // The connection is refused, unless there is nobody to do so.
            if course.random.chance(700) {
                let Request { volume, session, id, .. } = request;
                let response =
                    Response { from: disk, volume, session, id, result: Err(BusError::Unreachable) };
                let incarnations = (incarnations.0, incarnations.0);
                course.after(MILLISECOND, Event::Response { to: from, from, incarnations, response });
            }
            return;
        }
        if self.loses_large.contains(&(from, node))
            && matches!(request.operation, ReplicaOperation::Write { .. })
        {
            let Request { volume, session, id, .. } = request;
            let response = Response { from: disk, volume, session, id, result: Err(BusError::Unreachable) };
            return course.after(SILENCE, Event::Response { to: from, from: node, incarnations, response });
        }
        for _ in 0..times(course) {
            let late = match &request.operation {
                ReplicaOperation::Write { .. } if is_late_for_writes(course, record) => {
                    course.random.between(1, 60) * MILLISECOND
                }
                _ => 0,
            };
            if let Some(delay) = travel(course, node == from).map(|delay| delay + late) {
                let request = request.clone();
                course.after(delay, Event::Request { to, from, incarnations, request });
            }
        }
    }

    /// Sends a disk's response to the coordinator that asked.
    pub fn respond(&self, course: &mut Course, servers: &Servers, disk: usize, response: &Response) {
        let node = servers.disks[disk].node;
        let Some(to) = servers.owner_of_session(response.session) else { return };
        let incarnations = (servers.nodes[node].incarnation, servers.nodes[to].incarnation);
        if self.loses_large.contains(&(node, to))
            && matches!(response.result, Ok(space::message::Answer::Data { .. }))
        {
            let response = Response { result: Err(BusError::Unreachable), ..response.clone() };
            return course.after(SILENCE, Event::Response { to, from: node, incarnations, response });
        }
        for _ in 0..times(course) {
            if let Some(delay) = travel(course, node == to) {
                let response = response.clone();
                course.after(delay, Event::Response { to, from: node, incarnations, response });
            }
        }
    }

    /// Sends a coordinator's request to the cluster state.
    pub fn ask_state(
        &self,
        course: &mut Course,
        servers: &mut Servers,
        node: usize,
        token: StateToken,
        request: StateRequest,
    ) {
        let number = course.new_token();
        let incarnation = servers.nodes[node].incarnation;
        servers.nodes[node].asked.insert(number, token);
        let loss = course.scenario.state_loss;
        let lost = course.faulting() && course.random.chance(loss);
        if !lost {
            let late = course.faulting() && course.random.chance(loss / 2);
            let delay = if late { course.random.between(100, 900) * MILLISECOND } else { 500 * MICROSECOND };
            course.after(delay, Event::StateRequest { from: node, incarnation, number, request });
        }
        // Timeout of the request; ignored if an answer comes first.
        let unknown = Event::StateAnswer { to: node, incarnation, number, answer: Answer::Unknown };
        course.after(150 * MILLISECOND, unknown);
    }

    /// Sends the cluster state's answer.
    pub fn answer_state(
        &self,
        course: &mut Course,
        to: usize,
        incarnation: u64,
        number: u64,
        answer: Answer,
    ) {
        let loss = course.scenario.state_loss;
        if course.faulting() && course.random.chance(loss) {
            return;
        }
        let delay = course.random.between(100, 900) * MICROSECOND;
        course.after(delay, Event::StateAnswer { to, incarnation, number, answer });
    }
}

/// Chooses the number of copies of a message.
fn times(course: &mut Course) -> usize {
    let repeat = course.scenario.message_repeat;
    if course.faulting() && course.random.chance(repeat) { 2 } else { 1 }
}

/// Chooses the latency of a message; `None` if it is lost.
fn travel(course: &mut Course, local: bool) -> Option<u64> {
    if local {
        return Some(course.random.between(1, 20) * MICROSECOND);
    }
    let (loss, slow) = (course.scenario.message_loss, course.scenario.message_slow);
    let faulting = course.faulting();
    if faulting && course.random.chance(loss) {
        return None;
    }
    if faulting && course.random.chance(slow) {
        return Some(course.random.between(1, 60) * MILLISECOND);
    }
    Some(course.random.between(30, 400) * MICROSECOND)
}

fn is_late_for_writes(course: &Course, record: Option<&VolumeRecord>) -> bool {
    let out = || record.is_some_and(|record| !record.stale.is_empty());
    course.scenario.late_writes && course.faulting() && out()
}
