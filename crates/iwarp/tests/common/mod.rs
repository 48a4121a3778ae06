//! Two engines joined by a pair of byte streams, in virtual time: no sockets, no sleeps.

#![allow(dead_code)] // Each test file uses its part.

use iwarp::connection::Transmitted;
use iwarp::connection::direct::{Expected, Plan};
use iwarp::ddp::Header;
use iwarp::framing::Outgoing;
use iwarp::{Access, Completion, Config, Connection, DomainId, Event, Memory, Stag, StreamId, WorkId};
use std::collections::VecDeque;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

pub const DOMAIN: DomainId = DomainId(1);
pub const STREAM: StreamId = StreamId(7);
/// Space behind a plan's last payload.
const BEHIND_BYTES: usize = 512;

pub struct End {
    pub connection: Connection,
    pub memory: Memory,
    pub events: Vec<String>,
    pub completions: VecDeque<Completion>,
    pub private_data: Vec<u8>,
    pub terminated: Option<(bool, iwarp::TerminateCode)>,
    pub stags: u32,
    /// Receives that went straight into registered memory.
    pub plans: usize,
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
            plans: 0,
        }
    }

    pub fn region(&mut self, bytes: &[u8], access: Access) -> Stag {
        let mut buffer = BufMut::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.stags += 0x100;
        self.memory.register(buffer, 0, access, DOMAIN, None, self.stags)
    }

    /// As [`Self::region`], reached by the one stream only.
    pub fn bound_region(&mut self, bytes: &[u8], access: Access) -> Stag {
        let mut buffer = BufMut::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.stags += 0x100;
        self.memory.register(buffer, 0, access, DOMAIN, Some(STREAM), self.stags)
    }

    /// Takes bytes as an owner does that receives into registered memory where the engine says so.
    pub fn receive(&mut self, mut bytes: &[u8], now: Monotonic) {
        let mut plan = Plan::default();
        while !bytes.is_empty() {
            let Some(mut payload) = self.connection.plan_receive(&mut self.memory, &mut plan) else {
                return self.connection.handle_input(bytes, &mut self.memory, now);
            };
            self.plans += 1;
            let mut between = vec![0xEE; plan.between_bytes() + BEHIND_BYTES];
            let (mut from, mut count) = (0, 0);
            let behind = [Expected::Between { len_bytes: BEHIND_BYTES }];
            for piece in plan.pieces.iter().chain(&behind) {
                let target = match *piece {
                    Expected::Payload { at, len_bytes } => &mut payload[at..at + len_bytes],
                    Expected::Between { len_bytes } => {
                        from += len_bytes;
                        &mut between[from - len_bytes..from]
                    }
                };
                let (here, rest) = bytes.split_at(target.len().min(bytes.len()));
                target[..here.len()].copy_from_slice(here);
                bytes = rest;
                count += here.len();
            }
            self.connection.handle_planned(&plan, payload, &between, count, &mut self.memory, now);
        }
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
    next_take: usize,
    /// Bytes are received straight into registered memory where the engine says so.
    pub planned: bool,
}

pub fn config() -> Config {
    Config::new(DOMAIN, STREAM)
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
            next_take: 0,
            planned: false,
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
        // TCP takes all, nothing or a part of the offered bytes.
        let takes = [usize::MAX, 0, 1, 100, 5000][self.next_take % 5];
        self.next_take += 1;
        let mut bytes = Vec::new();
        let sent = from.connection.transmit(&mut from.memory, 256 * 1024, self.now, |fpdus| {
            fpdus.slices(|slice| bytes.extend_from_slice(slice));
            bytes.truncate(takes);
            bytes.len()
        });
        match sent {
            Transmitted::Nothing => return false,
            Transmitted::All => {}
            Transmitted::Rest(rest) => bytes.extend_from_slice(&rest.contiguous()),
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = self.pieces[self.next_piece % self.pieces.len()].clamp(1, rest.len());
            self.next_piece += 1;
            let (now, memory) = (self.now, &mut to.memory);
            match self.next_piece % 2 {
                _ if self.planned => to.receive(&rest[..piece], now),
                0 => to.connection.handle_input(&rest[..piece], memory, now),
                // With bytes behind it that are none of the stream.
                _ => {
                    let input = Buf::from(&[&rest[..piece], &[0xEE; 9]].concat()[..]);
                    to.connection.handle_shared_input(&input, piece, memory, now);
                }
            }
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

pub const ALL: Access =
    Access { remote_read: true, remote_write: true, remote_invalidate: true, unspecified_content: false };

/// One FPDU as a peer without markers sends it.
pub fn fpdu(header: Header, head: &[u8], data: &[u8], crc: bool) -> Buf {
    let mut out = Outgoing::default();
    out.push_whole(&header, head, payload(data), crc);
    out.rest(0).expect("an FPDU").contiguous()
}
