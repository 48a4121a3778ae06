//! The server and its volume, driven by hand.

use crate::people::{People, VOLUME};
use smb_server::{Config, ConnectionId, ConnectionInfo, Server, Transport};
use space::memory::MemoryVirtualDisk;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use sys::Buf;
use types::{BlockCount, FileTime, Monotonic};
use volume::backend::Backend;
use volume::fs::{FileSystem, Format};
use volume::service::{Service, ServiceConfig};

pub(crate) const WALL: FileTime = FileTime(133_000_000_000_000_000);
/// Turns after which all effects of one message have to be over.
const TURNS_MAX: usize = 200_000;
/// Blocks of 4 KiB: sparse, so that a large volume costs nothing.
const BLOCKS: BlockCount = BlockCount(1 << 16);
const CACHE_BYTES: usize = 32 << 20;

pub struct World {
    server: Server<Service, People>,
    now: Monotonic,
    opened: u16,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that are the same in every run.
fn seeded_random() -> smb_server::RandomSource {
    let mut state = 0x1234_5678_9ABC_DEF0_u64;
    Box::new(move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 33) as u8;
        }
    })
}

impl World {
    pub fn new() -> Self {
        let disk = MemoryVirtualDisk::new(BLOCKS, 256, BLOCKS);
        let format =
            Format { id: [7; 16], label: "raw".into(), serial: 1, now: WALL, root_security: Vec::new() };
        let cache = volume::fs::Config {
            cache_bytes: CACHE_BYTES,
            dirty_bytes: CACHE_BYTES / 4,
            page_cache_bytes: CACHE_BYTES / 4,
        };
        let fs = FileSystem::format(Box::new(disk), &format, cache);
        let now = Monotonic(1_000_000_000);
        let service = Service::new(fs, ServiceConfig::default(), now, WALL);
        let config = Config::new([9; 16], "FILER");
        let mut server = Server::new(config, People::default(), seeded_random(), now, WALL);
        server.add_volume(VOLUME, service);
        let mut world = Self { server, now, opened: 0 };
        world.run_until_idle();
        world
    }

    /// A new connection of TCP, each from an address of its own; `None`: the server refuses it.
    pub fn connect(&mut self) -> Option<ConnectionId> {
        self.opened += 1;
        let [high, low] = self.opened.to_be_bytes();
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), 50_000);
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 445);
        self.server.connection_opened(ConnectionInfo { peer, local, transport: Transport::Tcp }, self.now)
    }

    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.server.connection_closed(connection, self.now);
        self.run_until_idle();
    }

    /// Tells whether the transport would take a message of this size.
    pub fn takes(&self, connection: ConnectionId, bytes: usize) -> bool {
        bytes <= self.server.message_bytes_max(connection)
    }

    /// Gives the server a message, and takes the first turn of its work. [`World::turn`] takes the next ones.
    pub fn begin(&mut self, connection: ConnectionId, message: Buf) -> bool {
        self.server.handle_message(connection, message, self.now);
        self.turn()
    }

    /// One turn of the server's loop; `false`: there was nothing to do, and nothing waits for the next turn.
    pub fn turn(&mut self) -> bool {
        self.now = Monotonic(self.now.0 + 1000);
        for (_, volume) in self.server.volumes_mut() {
            volume.handle_timeout(self.now);
        }
        let worked = self.server.poll(self.now);
        worked || self.server.next_timeout().is_some_and(|at| at <= self.now)
    }

    pub fn run_until_idle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.turn() {
                return;
            }
        }
        panic!("the server does not come to rest");
    }

    pub fn deliver(&mut self, connection: ConnectionId, message: &[u8]) {
        if self.takes(connection, message.len()) {
            self.server.handle_message(connection, Buf::from(message), self.now);
            self.run_until_idle();
        }
    }

    pub fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.server.handle_timeout(self.now);
        self.run_until_idle();
    }

    /// The next message for the client, as it would be on the wire.
    pub fn sent(&mut self, connection: ConnectionId) -> Option<Vec<u8>> {
        Some(self.server.poll_transmit(connection)?.contiguous().to_vec())
    }

    /// Connections that the server has ended since the last call.
    pub fn ended(&mut self) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        self.server.take_closing(&mut ended);
        ended
    }

    pub fn sessions(&self) -> usize {
        self.server.sessions(self.now).len()
    }

    pub fn opens(&self) -> usize {
        self.server.opens(self.now).len()
    }

    pub fn requests_in_work(&self) -> usize {
        self.server.requests_in_work()
    }
}
