//! Drives the clients: their requests, the answers, and the last reads of all copies.

use super::client::{Client, Doing, History};
use super::course::{Course, MICROSECOND, MILLISECOND};
use super::event::Event;
use super::judge::Judge;
use super::narrate;
use super::servers::Servers;
use space::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest};
use space::coordinator::Phase;
use std::collections::VecDeque;
use types::{Lba, Monotonic};

/// Longest wait of an operation. It may wait for a late disk, after a job's step that waited for
/// that disk, and for the record; but not for as long as a link is bad.
const STALLED: u64 = 700 * MILLISECOND;

/// The clients and their common knowledge.
///
/// A client has at most one operation in flight, whose token is at one node at most.
pub(crate) struct Traffic {
    clients: Vec<Client>,
    pub history: History,
    /// Blocks and copies that remain to be read at the end; `None` before that.
    last_reads: Option<VecDeque<(u64, u8)>>,
}

/// A client's next step.
pub(crate) enum Turn {
    /// The client waits for an answer, or for its next turn.
    Wait,
    /// The client sends a request to this node's coordinator.
    Ask { node: usize, doing: Doing, request: SpaceRequest },
    /// Every copy was read, and the run is over. The volume is open on this node.
    Finished { node: usize },
}

impl Traffic {
    pub fn new(clients: usize, discards: bool) -> Self {
        Self {
            clients: (0..clients).map(|_| Client::default()).collect(),
            history: History { discards, ..History::default() },
            last_reads: None,
        }
    }

    /// Whether a client's event is still valid. If its operation was answered, the client has gone
    /// on already, and would otherwise do so twice, and ever more often.
    pub fn awaits(&self, client: usize, operation: Option<u64>) -> bool {
        operation.is_none_or(|operation| self.clients[client].awaits(operation))
    }

    /// Continues clients whose coordinator is gone.
    pub fn forsaken(&mut self, course: &mut Course, clients: impl Iterator<Item = usize>) {
        for client in clients {
            self.clients[client].doing = None;
            course.after(MILLISECOND, Event::Client { client, operation: None });
        }
    }

    /// Handles the completion of a client's operation on a node.
    pub fn complete(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        judge: &mut Judge,
        node: usize,
        completion: SpaceCompletion,
    ) {
        let Some(client) = servers.nodes[node].tokens.remove(&completion.token) else { return };
        let step = course.step;
        course.trace.note(&[8, course.now, client as u64, u64::from(completion.result.is_ok())]);
        let Some((doing, _)) = self.clients[client].doing.take() else { return };
        let began = self.clients[client].began;
        narrate::done(course.moment(), client, &doing, &completion.result);
        match (doing, completion.result) {
            (Doing::Read { lba }, Ok(SpaceReply::Data(data))) => {
                course.coverage.reads += 1;
                self.history.read(lba, &data, began, step);
            }
            (Doing::Write { lba, blocks, value }, Ok(_)) => {
                course.coverage.acknowledged_writes += 1;
                self.history.wrote(lba, blocks, value, step);
                judge.acknowledged(course, servers, &self.history, node, lba..lba + blocks);
            }
            (Doing::Discard { lbas, value }, Ok(_)) => {
                course.coverage.discards += 1;
                for at in lbas {
                    self.history.wrote(at, 1, value, step);
                    judge.acknowledged(course, servers, &self.history, node, at..at + 1);
                }
            }
            (_, Err(SpaceError::NoSpace)) => course.coverage.no_space += 1,
            _ => {}
        }
        // Pauses between the last reads would teach nothing, and there are many of these reads.
        let longest = if self.last_reads.is_some() { 1_000 } else { course.scenario.client_pause_us };
        let pause = course.random.between(1, longest) * MICROSECOND;
        course.after(pause, Event::Client { client, operation: None });
    }

    /// Chooses a client's step in its turn. `whole_on`: the node that serves the volume with all
    /// copies.
    pub fn choose(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        whole_on: impl FnOnce(&Course, &Servers) -> Option<usize>,
        client: usize,
    ) -> Turn {
        if self.clients[client].doing.is_some() {
            if self.clients[client].patience_until > course.now {
                return Turn::Wait;
            }
            let token = self.clients[client].token;
            for node in &mut servers.nodes {
                node.tokens.remove(&token);
            }
            self.clients[client].doing = None;
        }
        if course.now > course.faults_end + 300 * MILLISECOND {
            let whole_on = whole_on(course, servers);
            return self.choose_last(course, whole_on, client);
        }
        let serves = |node: usize| {
            let node = &servers.nodes[node];
            let is_open = node.coordinator.as_ref().is_some_and(|found| *found.phase() == Phase::Serving);
            node.is_awake(course.now) && node.serves && is_open
        };
        let open: Vec<usize> = (0..servers.nodes.len()).filter(|node| serves(*node)).collect();
        let Some(node) = course.random.pick(&open) else {
            course.after(5 * MILLISECOND, Event::Client { client, operation: None });
            return Turn::Wait;
        };
        let (doing, request) = self.history.choose(&mut course.random, course.step);
        narrate::begins(course.moment(), client, &doing, &request);
        Turn::Ask { node, doing, request }
    }

    /// Chooses in the second phase: once the volume has all copies, reads every block of each copy
    /// by itself.
    fn choose_last(&mut self, course: &mut Course, whole_on: Option<usize>, client: usize) -> Turn {
        let Some(node) = whole_on else {
            course.after(20 * MILLISECOND, Event::Client { client, operation: None });
            return Turn::Wait;
        };
        if client > 0 {
            return Turn::Wait;
        }
        let last_reads = self.last_reads.get_or_insert_with(|| {
            let copies = course.scenario.resiliency.copies();
            let lbas = self.history.registers.keys().copied();
            lbas.flat_map(|lba| (0..copies).map(move |copy| (lba, copy))).collect()
        });
        while let Some((lba, copy)) = last_reads.pop_front() {
            // A block that was never allocated has no copies.
            let touched =
                self.history.registers.get(&lba).is_some_and(|register| register.has_durable_value());
            if touched {
                let request = SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: Some(copy) };
                return Turn::Ask { node, doing: Doing::Read { lba }, request };
            }
        }
        Turn::Finished { node }
    }

    /// Names an operation that waits for longer than the timeout of a silent disk, if there is one.
    pub fn stalled(&self, now: u64) -> Option<String> {
        let waits = |client: &&Client| client.doing.is_some() && now - client.since >= STALLED;
        let client = self.clients.iter().find(waits)?;
        Some(format!(
            "stalled: {:?} waits since {} ms, and others could answer",
            client.doing,
            client.since / MILLISECOND
        ))
    }

    /// Passes a client's request to a node's coordinator. Returns its token.
    pub fn ask(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        client: usize,
        node: usize,
        doing: Doing,
        request: SpaceRequest,
    ) -> u64 {
        let token = course.new_token();
        self.clients[client] = Client {
            doing: Some((doing, token)),
            began: course.step,
            since: course.now,
            patience_until: course.now + course.scenario.patience_ms * MILLISECOND,
            token,
        };
        servers.nodes[node].tokens.insert(token, client);
        if let Some(coordinator) = &mut servers.nodes[node].coordinator {
            coordinator.submit(Monotonic(course.now), token, request);
        }
        token
    }
}
