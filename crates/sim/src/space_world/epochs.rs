//! Servers' decisions on epochs from other servers, in runs in which one of them lies:
//! [`space::local::epochs`] itself, and around it the handling by `space::local`.
//!
//! A server that lies begins a session under an epoch that no record gave. No disk may promise such
//! an epoch, under any other faults: it would lock out every later owner.

use super::blocks::VOLUME;
use super::course::{Course, MICROSECOND};
use super::event::Event;
use super::membership::id_of;
use super::network::Network;
use super::servers::Servers;
use records::{Answer, MemoryState, Record, Request as StateRequest, Typed, VolumeRecord};
use space::block_store::BlockStore;
use space::local::epochs::{Asked, Epochs};
use space::message::{BusError, PeerId, Priority, ReplicaOperation, Request, RequestId, Response, SessionId};
use types::Epoch;

/// Each server's knowledge of records, by which it decides on others' requests.
pub(crate) struct Gates {
    of: Vec<Epochs>,
    last_token: u64,
}

/// Returns the connection of a server's process to all others.
fn peer_of(servers: &Servers, node: usize) -> PeerId {
    PeerId(servers.nodes[node].incarnation * 16 + node as u64)
}

impl Gates {
    pub fn new(nodes: usize) -> Self {
        Self { of: (0..nodes).map(|_| Epochs::default()).collect(), last_token: 0 }
    }

    /// Passes a request to its disk, or makes it wait until the record that gave its epoch is
    /// known.
    pub fn receive(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        from: usize,
        disk: usize,
        request: Request,
    ) {
        let node = servers.disks[disk].node;
        let promised = servers.disks[disk].replica.as_ref().map(|replica| replica.store().promised(VOLUME));
        let Some(promised) = promised.filter(|_| from != node && course.scenario.strange_epochs) else {
            return servers.handle_request(course, disk, request);
        };
        let id = servers.disks[disk].id;
        let asked = Asked { peer: peer_of(servers, from), from: id_of(from), disk: id, request };
        if self.of[node].admits(&asked, promised) {
            servers.handle_request(course, disk, asked.request);
        } else if self.of[node].wait(asked) {
            self.begin_reading(course, servers, node);
        }
    }

    fn begin_reading(&mut self, course: &mut Course, servers: &Servers, node: usize) {
        self.last_token += 1;
        self.of[node].begin_reading(self.last_token, VOLUME);
        let (incarnation, token) = (servers.nodes[node].incarnation, self.last_token);
        course.after(500 * MICROSECOND, Event::RecordRead { node, incarnation, token });
    }

    /// Handles a record that a server requested; without `state` it cannot be read.
    pub fn has_read(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        network: &Network,
        state: Option<&MemoryState>,
        (node, token): (usize, u64),
    ) {
        let key = VolumeRecord::key_of(&VOLUME.to_string());
        let answer = state.map_or(Answer::Unknown, |state| state.answer(&StateRequest::Get { key }));
        let Some(decisions) = self.of[node].answered(token, &answer) else { return };
        decisions.admitted.into_iter().for_each(|asked| admit(course, servers, asked));
        for (asked, error) in decisions.refused {
            course.coverage.refused_epochs += u64::from(error != BusError::NoSession);
            let Request { volume, session, id, .. } = asked.request;
            let response = Response { from: asked.disk, volume, session, id, result: Err(error) };
            if let Some(disk) = servers.disks.iter().position(|disk| disk.id == asked.disk) {
                network.respond(course, servers, disk, &response);
            }
        }
        if decisions.again.is_some() {
            self.begin_reading(course, servers, node);
        }
    }

    /// Makes a server act on a record from now on.
    pub fn note(&mut self, course: &mut Course, servers: &mut Servers, node: usize, record: &VolumeRecord) {
        if course.scenario.strange_epochs {
            self.of[node].note(record).into_iter().for_each(|asked| admit(course, servers, asked));
        }
    }

    /// Handles the imminent end of a server's process.
    pub fn end(&mut self, servers: &Servers, node: usize) {
        let peer = peer_of(servers, node);
        self.of[node] = Epochs::default();
        self.of.iter_mut().for_each(|other| other.end_peer(peer));
    }
}

fn admit(course: &mut Course, servers: &mut Servers, asked: Asked) {
    if let Some(disk) = servers.disks.iter().position(|disk| disk.id == asked.disk) {
        servers.handle_request(course, disk, asked.request);
    }
}

/// Makes a server name an epoch, far beyond the record's, to another one's disk.
pub(crate) fn lie(course: &mut Course, servers: &Servers, state: &MemoryState, from: usize, to: usize) {
    let node = servers.disks[to].node;
    let Some(recorded) = recorded(state).filter(|_| from != node && servers.nodes[from].up) else { return };
    course.coverage.strange_epochs += 1;
    let epoch = Epoch(recorded.0 + course.random.between(1_000, 1 << 32));
    // Sessions are numbered by node, and no opening reaches these.
    let session = SessionId(((0xfff0 + from as u64) << 32) + course.new_token());
    let operation = ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) };
    let (volume, id, priority) = (VOLUME, RequestId(1), Priority::Client);
    let request = Request { volume, session, id, epoch, priority, operation };
    let incarnations = (servers.nodes[from].incarnation, servers.nodes[node].incarnation);
    course.after(300 * MICROSECOND, Event::Request { to, from, incarnations, request });
}

/// Names a disk that has promised an epoch that no record has given yet.
pub(crate) fn check(servers: &Servers, state: &MemoryState, disk: usize) -> Option<String> {
    let (disk, recorded) = (&servers.disks[disk], recorded(state)?);
    let (id, promised) = (disk.id, disk.promised);
    (promised > recorded)
        .then(|| format!("I3: disk {id} promises epoch {promised}; the record has {recorded}"))
}

fn recorded(state: &MemoryState) -> Option<Epoch> {
    Some(state.read::<VolumeRecord>(&VOLUME.to_string()).ok()??.value.epoch)
}
