//! A hostile client: messages before and after the logon at a server with a volume.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::rpc::{AccountEntry, AccountKind};
use smb::wire::{HEADER_BYTES, Header, U16, U32, U64};
use smb_client::{Connection, Credentials, Event, NtHash, Options, Request, Signing, Token};
use smb_server::{Account, Config, ConnectionId, ConnectionInfo, Directory, Server, Share, Transport};
use space::memory::MemoryVirtualDisk;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use sys::Buf;
use types::{BlockCount, FileTime, Monotonic, Sid, VolumeId};
use volume::backend::{AccessToken, Privileges, ShareOptions};
use volume::fs::{FileSystem, Format};
use volume::service::{Service, ServiceConfig};

const WALL: FileTime = FileTime(133_000_000_000_000_000);
const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);
/// Rounds after which all effects of one message have to be over.
const ROUNDS_MAX: usize = 20_000;

struct One {
    share: Arc<Share>,
    token: Arc<AccessToken>,
}

impl One {
    fn new() -> Self {
        let user = Sid::new(5, &[21, 1, 2, 3, 1000]).expect("a SID");
        let token = AccessToken {
            user: user.clone(),
            primary_group: Sid::users(),
            groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::administrators()],
            privileges: Privileges::all(),
        };
        let share = Share {
            name: "demo".into(),
            comment: String::new(),
            volume: VOLUME,
            path: String::new(),
            options: ShareOptions::default(),
            encrypt: false,
            access: vec![(Sid::everyone(), 0x001F_01FF)],
        };
        Self { share: Arc::new(share), token: Arc::new(token) }
    }
}

impl Directory for One {
    fn account(&self, _domain: &str, user: &str) -> Option<Account> {
        (user == "ana").then(|| Account {
            name: user.into(),
            nt_hash: *NtHash::from_password("password").as_bytes(),
            enabled: true,
            token: self.token.clone(),
        })
    }
    fn share(&self, name: &str) -> Option<Arc<Share>> {
        (name == "demo").then(|| self.share.clone())
    }
    fn shares(&self) -> Vec<Arc<Share>> {
        vec![self.share.clone()]
    }
    fn domain_sid(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).expect("a SID")
    }
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        Some(AccountEntry { sid: sid.clone(), name: "ana".into(), kind: AccountKind::User })
    }
    fn account_by_name(&self, _name: &str) -> Option<AccountEntry> {
        None
    }
    fn users(&self) -> Vec<smb::rpc::UserEntry> {
        Vec::new()
    }
    fn groups(&self) -> Vec<smb::rpc::GroupEntry> {
        Vec::new()
    }
    fn volume_name(&self, _volume: types::VolumeId) -> Option<String> {
        None
    }
}

struct Pair {
    server: Server<Service, One>,
    connection: ConnectionId,
    now: Monotonic,
}

impl Pair {
    fn new() -> Self {
        let blocks = BlockCount(1 << 14);
        let disk = MemoryVirtualDisk::new(blocks, 256, blocks);
        let format =
            Format { id: [7; 16], label: "fuzz".into(), serial: 1, now: WALL, root_security: Vec::new() };
        let cache =
            volume::fs::Config { cache_bytes: 4 << 20, dirty_bytes: 1 << 20, page_cache_bytes: 1 << 20 };
        let fs = FileSystem::format(Box::new(disk), &format, cache);
        let now = Monotonic(1_000_000_000);
        let service = Service::new(fs, ServiceConfig::default(), now, WALL);
        let mut next = 0_u8;
        let random = Box::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                next = next.wrapping_mul(73).wrapping_add(41);
                *byte = next;
            }
        });
        let mut server = Server::new(Config::new([9; 16], "FILER"), One::new(), random, now, WALL);
        server.add_volume(VOLUME, service);
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 445);
        let info = ConnectionInfo { peer: address, local: address, transport: Transport::Tcp };
        let connection = server.connection_opened(info, now).expect("the first connection is welcome");
        let mut pair = Self { server, connection, now };
        pair.run_until_idle();
        pair
    }

    /// Lets the server do due work.
    fn run_until_idle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.now = Monotonic(self.now.0 + 1000);
            for (_, volume) in self.server.volumes_mut() {
                volume::backend::Backend::handle_timeout(volume, self.now);
            }
            if !self.server.poll(self.now) {
                return;
            }
        }
        panic!("the server does not come to rest");
    }

    fn send(&mut self, message: Buf) {
        if message.len() <= self.server.message_bytes_max(self.connection) {
            self.server.handle_message(self.connection, message, self.now);
        }
        self.run_until_idle();
    }

    fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(message) = self.server.poll_transmit(self.connection) {
            out.push(message.contiguous().to_vec());
        }
        out
    }
}

/// Logs on and connects the share; the client, its tree and the next message identifier to use.
fn log_on(pair: &mut Pair) -> Option<(Connection, u32)> {
    let credentials = Credentials::User {
        user: "ana".into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password("password"),
        target_name: String::new(),
    };
    let options = Options { signing: Signing::IfRequired, credits: 64, ..Options::default() };
    let mut client = Connection::new(options, credentials, "filer", WALL, Box::new(|bytes| bytes.fill(5)));
    client.submit(Token(1), Request::tree_connect("\\\\filer\\demo"));
    let mut tree = None;
    for _ in 0..10 {
        while let Some(message) = client.poll_transmit() {
            pair.send(Buf::from(&message.head[4..]));
        }
        for answer in pair.answers() {
            client.handle_message(Buf::from(&answer[..])).ok()?;
        }
        while let Some(event) = client.poll_event() {
            if let Event::Completed { reply, .. } = event {
                tree = Some(reply.success().ok()?.tree_id());
            }
        }
    }
    tree.map(|tree| (client, tree))
}

fuzz_target!(|input: &[u8]| {
    // Each run's keys come from the same seed.
    smb::crypto::forget_nonces();
    let Some((&mode, mut rest)) = input.split_first() else { return };
    let mut pair = Pair::new();
    if mode & 1 == 0 {
        while let Some((prefix, after)) = rest.split_first_chunk::<2>() {
            let len = usize::from(u16::from_le_bytes(*prefix)).min(after.len());
            let (bytes, after) = after.split_at(len);
            pair.send(Buf::from(bytes));
            rest = after;
        }
        return;
    }

    let (client, tree) = log_on(&mut pair).expect("an honest client is let in");
    let mut message_id = 5;
    // (command, flags, length, body), again and again; the rest of the header is right.
    while let [command, flags, low, high, after @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (body, after) = after.split_at(len);
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(body);
        if let Some(header) = Header::in_place(&mut message) {
            *header = Header::new(smb::wire::Command::Echo);
            header.command = U16::new(u16::from(*command % 20));
            header.flags = U32::new(u32::from(*flags & 4));
            header.credits = U16::new(16);
            header.credit_charge = U16::new(1);
            header.message_id = U64::new(message_id);
            header.tree_id = U32::new(tree);
            header.session_id = U64::new(client.session_id());
        }
        message_id += 1;
        pair.send(Buf::from(&message[..]));
        pair.answers();
        rest = after;
    }
    // Other clients are served after any input.
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 446);
    let info = ConnectionInfo { peer: address, local: address, transport: Transport::Tcp };
    pair.connection =
        pair.server.connection_opened(info, pair.now).expect("the second connection is welcome");
    assert!(log_on(&mut pair).is_some(), "an honest client is locked out");
});
