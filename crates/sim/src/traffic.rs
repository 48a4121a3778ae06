//! Drives the clients: what they ask, what they are answered, and the last reads of all copies.

use crate::client::{Client, Doing};
use crate::narrate;
use crate::world::{Event, MICROSECOND, MILLISECOND, World};
use space::api::{SpaceCompletion, SpaceReply, SpaceRequest};
use space::coordinator::Phase;
use std::collections::VecDeque;
use types::{Lba, Monotonic};

impl World {
    pub(crate) fn complete(&mut self, node: usize, completion: SpaceCompletion) {
        let Some(client) = self.nodes[node].tokens.remove(&completion.token) else { return };
        let step = self.step;
        self.trace.note(&[8, self.now, client as u64, u64::from(completion.result.is_ok())]);
        let Some((doing, _)) = self.clients[client].doing.take() else { return };
        let began = self.clients[client].began;
        narrate::done(self.moment(), client, &doing, &completion.result);
        match (doing, completion.result) {
            (Doing::Read { lba }, Ok(SpaceReply::Data(data))) => {
                self.coverage.reads += 1;
                self.history.read(lba, &data, began, step);
            }
            (Doing::Write { lba, blocks, value }, Ok(_)) => {
                self.coverage.acknowledged_writes += 1;
                self.history.wrote(lba, blocks, value, step);
                self.check_acknowledged(node, lba, blocks);
            }
            (Doing::Discard { lbas, value }, Ok(_)) => {
                self.coverage.discards += 1;
                for at in lbas {
                    self.history.wrote(at, 1, value, step);
                    self.check_acknowledged(node, at, 1);
                }
            }
            (_, Err(space::api::SpaceError::NoSpace)) => self.coverage.no_space += 1,
            _ => {}
        }
        // Nothing is learnt from pauses between the last reads, and there are many of them.
        let longest = if self.last_reads.is_some() { 1_000 } else { self.scenario.client_pause_us };
        let pause = self.random.between(1, longest) * MICROSECOND;
        self.after(pause, Event::Client { client, operation: None });
    }

    pub(crate) fn drive_client(&mut self, client: usize) {
        let (step, now) = (self.step, self.now);
        if self.clients[client].doing.is_some() {
            if self.clients[client].patience_until > now {
                return;
            }
            let token = self.clients[client].token;
            for node in &mut self.nodes {
                node.tokens.remove(&token);
            }
            self.clients[client].doing = None;
        }
        if self.now > self.faults_end + 300 * MILLISECOND {
            return self.finish_client(client);
        }
        let open: Vec<usize> = (0..self.nodes.len())
            .filter(|node| {
                self.nodes[*node].up
                    && self.nodes[*node]
                        .coordinator
                        .as_ref()
                        .is_some_and(|found| *found.phase() == Phase::Serving)
            })
            .collect();
        let Some(node) = self.random.pick(&open) else {
            return self.after(5 * MILLISECOND, Event::Client { client, operation: None });
        };
        let (doing, request) = self.history.choose(&mut self.random, step);
        narrate::begins(self.moment(), client, &doing, &request);
        self.submit(client, node, doing, request);
    }

    pub(crate) fn submit(&mut self, client: usize, node: usize, doing: Doing, request: SpaceRequest) {
        self.next_token += 1;
        let token = self.next_token;
        let patience = 1500 * MILLISECOND;
        self.clients[client] = Client {
            doing: Some((doing, token)),
            began: self.step,
            patience_until: self.now + patience,
            token,
        };
        self.nodes[node].tokens.insert(token, client);
        let now = Monotonic(self.now);
        if let Some(coordinator) = &mut self.nodes[node].coordinator {
            coordinator.submit(now, token, request);
        }
        self.pump(node);
        self.after(patience, Event::Client { client, operation: Some(token) });
    }

    /// The second phase: when the volume is whole, every block is read from each copy by itself.
    pub(crate) fn finish_client(&mut self, client: usize) {
        let Some(node) = self.whole_on() else {
            return self.after(20 * MILLISECOND, Event::Client { client, operation: None });
        };
        if client > 0 {
            return;
        }
        if self.last_reads.is_none() {
            let copies = self.scenario.resiliency.copies();
            let lbas = self.history.registers.keys().copied();
            self.last_reads = Some(lbas.flat_map(|lba| (0..copies).map(move |copy| (lba, copy))).collect());
        }
        while let Some((lba, copy)) = self.last_reads.as_mut().and_then(VecDeque::pop_front) {
            // Where nothing was ever allocated there are no copies.
            let touched =
                self.history.registers.get(&lba).is_some_and(|register| register.has_durable_value());
            if touched {
                let request = SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: Some(copy) };
                return self.submit(client, node, Doing::Read { lba }, request);
            }
        }
        self.check_copies();
        self.drop_coordinator(node);
        self.finished = true;
    }
}
