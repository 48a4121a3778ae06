//! Two engines joined by a pair of byte streams, in virtual time: no sockets, no sleeps.

#![allow(dead_code)] // Each test file uses its part.

use iwarp::{Access, Completion, Config, Connection, DomainId, Event, Memory, Stag, StreamId, WorkId};
use std::collections::VecDeque;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

pub const DOMAIN: DomainId = DomainId(1);

pub struct End {
    pub connection: Connection,
    pub memory: Memory,
    pub events: Vec<String>,
    pub completions: VecDeque<Completion>,
    pub private_data: Vec<u8>,
    pub terminated: Option<(bool, iwarp::TerminateCode)>,
    pub stags: u32,
}

impl End {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            memory: Memory::new(),
            events: Vec::new(),
            completions: VecDeque::new(),
            private_data: Vec::new(),
            terminated: None,
            stags: 0x1234_5600,
        }
    }

    pub fn region(&mut self, bytes: &[u8], access: Access) -> Stag {
        let mut buffer = BufMut::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.stags += 0x100;
        self.memory.register(buffer, 0, access, DOMAIN, None, self.stags)
    }

    pub fn post_receives(&mut self, count: u64, len_bytes: usize) {
        for id in 0..count {
            self.connection
                .post_receive(WorkId(1000 + id), BufMut::zeroed(len_bytes))
                .expect("takes receives");
        }
    }

    fn collect(&mut self, accept: bool, now: Monotonic) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::ConnectRequest { private_data } => {
                    self.events.push("request".into());
                    self.private_data = private_data;
                    if accept {
                        self.connection.accept(b"welcome", now).expect("a request waits");
                    } else {
                        self.connection.reject(b"no");
                    }
                }
                Event::Established { private_data } => {
                    self.events.push("established".into());
                    if !private_data.is_empty() {
                        self.private_data = private_data;
                    }
                }
                Event::Rejected { private_data } => {
                    self.events.push("rejected".into());
                    self.private_data = private_data;
                }
                Event::Completion(completion) => self.completions.push_back(completion),
                Event::Terminated { by_peer, code } => self.terminated = Some((by_peer, code)),
                Event::Closed => self.events.push("closed".into()),
            }
        }
    }
}

pub struct Pair {
    pub client: End,
    pub server: End,
    pub now: Monotonic,
    pub accept: bool,
    /// Sizes of the pieces that the byte streams are cut into; repeated.
    pub pieces: Vec<usize>,
    next_piece: usize,
}

pub fn config() -> Config {
    Config::new(DOMAIN, StreamId(7))
}

impl Pair {
    pub fn new(client: Config, server: Config) -> Self {
        let now = Monotonic(1);
        Self {
            client: End::new(Connection::connect(client, b"", now)),
            server: End::new(Connection::listen(server, now)),
            now,
            accept: true,
            pieces: vec![usize::MAX],
            next_piece: 0,
        }
    }

    pub fn established() -> Self {
        Self::established_with(config(), config())
    }

    pub fn established_with(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.drive();
        assert!(pair.client.connection.is_established() && pair.server.connection.is_established());
        pair
    }

    /// Moves bytes both ways until both are silent.
    pub fn drive(&mut self) {
        loop {
            let moved = self.step(true) | self.step(false);
            let (accept, now) = (self.accept, self.now);
            self.client.collect(accept, now);
            self.server.collect(accept, now);
            if !moved {
                return;
            }
        }
    }

    fn step(&mut self, from_client: bool) -> bool {
        let (from, to) = if from_client {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        let Some(bytes) = from.connection.poll_transmit(&mut from.memory, 256 * 1024, self.now) else {
            return false;
        };
        let bytes = bytes.contiguous();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = self.pieces[self.next_piece % self.pieces.len()].clamp(1, rest.len());
            self.next_piece += 1;
            to.connection.handle_input(&rest[..piece], &mut to.memory, self.now);
            rest = &rest[piece..];
        }
        true
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        for end in [&mut self.client, &mut self.server] {
            end.connection.handle_timeout(self.now, &mut end.memory);
        }
        self.drive();
    }
}

pub fn pattern(len_bytes: usize, seed: u8) -> Vec<u8> {
    (0..len_bytes)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed))
        .collect()
}

pub fn payload(bytes: &[u8]) -> Payload {
    Payload::from(Buf::from(bytes))
}

pub const ALL: Access = Access { remote_read: true, remote_write: true, remote_invalidate: true };
