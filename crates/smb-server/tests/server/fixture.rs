//! A client in virtual time, and a file layer that keeps one file and answers on a test's command, or a
//! whole volume in memory.

use smb::auth::{Credentials, Initiator, InitiatorStep, NtHash};
use smb::crypto::{
    CipherId, KeySchedule, OpeningKey, PreauthHash, SealingKey, SessionKeys, SigningAlgorithm, SigningKey,
};
use smb::rpc::AccountEntry;
use smb::wire::*;
use smb_server::{Account, Config, ConnectionId, ConnectionInfo, Directory, Server, Share, Transport};
use space::api::{SpaceCompletion, SpaceRequest, SpaceSize, VirtualDisk};
use space::memory::MemoryVirtualDisk;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use types::{BlockCount, FileTime, Monotonic, NtStatus, Sid, VolumeId};
use volume::backend::*;
use volume::fs::{FileSystem, Format};
use volume::security::{Ace, AceFlags, Acl, SecurityDescriptor, rights, volume_root};
use volume::service::{Service, ServiceConfig};
use zerocopy::IntoBytes;

pub const PASSWORD: &str = "right";
pub const WALL: FileTime = FileTime(133_000_000_000_000_000);

/// Turns of the loop that [`World::run_until_idle`] gives to a volume in memory.
const VOLUME_POLLS: usize = 64;

/// A disk in memory that outlives the server.
#[derive(Clone)]
pub struct LastingDisk(Rc<RefCell<MemoryVirtualDisk>>);

impl Default for LastingDisk {
    fn default() -> Self {
        let blocks = BlockCount(65_536);
        Self(Rc::new(RefCell::new(MemoryVirtualDisk::new(blocks, 4096, blocks))))
    }
}

impl VirtualDisk for LastingDisk {
    fn size(&self) -> SpaceSize {
        self.0.borrow().size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.0.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.0.borrow_mut().poll(out);
    }
}

/// Operations received by the file layer, and events that it will report.
#[derive(Default)]
pub struct Layer {
    pub asked: Vec<(OperationId, Operation)>,
    pub cancelled: Vec<OperationId>,
    pub events: VecDeque<Event>,
    /// Operations are not answered before [`Fake::release`].
    pub hold: bool,
    /// Held operations cannot be cancelled any more.
    pub cannot_cancel: bool,
    /// Leases are granted while they break.
    pub breaking: bool,
    pub content: Vec<u8>,
    pub next_open: u64,
    /// A volume in memory that answers in the place of all this.
    pub volume: Option<Service>,
    /// Answer to every READ; every WRITE is answered with its length. Neither is kept in `asked`, and
    /// nothing is allocated.
    pub block: Option<Buf>,
}

impl Layer {
    fn answer(&mut self, operation: &Operation) -> Result<Reply, NtStatus> {
        Ok(match operation {
            Operation::OpenRoot { .. } => Reply::Root(ShareRoot::VOLUME),
            Operation::Create(create) => {
                if create.path.iter().eq("missing".encode_utf16().collect::<Vec<_>>().iter()) {
                    return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
                }
                self.next_open += 1;
                Reply::Created(Box::new(Created {
                    open: OpenId(self.next_open),
                    action: CreateAction::Opened,
                    cache: match create.cache {
                        CacheRequest::Oplock(level) => CacheGrant::Oplock(level),
                        CacheRequest::Lease(lease) => CacheGrant::Lease {
                            key: lease.key,
                            state: lease.state,
                            breaking: self.breaking,
                            version_2: lease.version_2,
                        },
                    },
                    information: FileInformation::default(),
                    granted_access: create.desired_access,
                    maximal_access: None,
                    durable: None,
                    persistent: false,
                    path: create.path.clone(),
                    is_stream: false,
                }))
            }
            Operation::Read { range, .. } => {
                let from = (range.offset as usize).min(self.content.len());
                let to = (from + range.len_bytes as usize).min(self.content.len());
                Reply::Read(Payload::from(Buf::from(&self.content[from..to])))
            }
            Operation::Write { data, .. } => {
                self.content = data.contiguous().to_vec();
                Reply::Written(data.len() as u32)
            }
            Operation::Close { .. } => Reply::Closed(None),
            Operation::QueryInformation { .. } => Reply::Information(Box::default()),
            Operation::AcknowledgeOplock { level, .. } => Reply::Oplock(*level),
            Operation::AcknowledgeLease { key, state, .. } => Reply::Lease { key: *key, state: *state },
            _ => Reply::Done,
        })
    }
}

/// The file layer's handle: one for the server, one for the test.
#[derive(Clone, Default)]
pub struct Fake(pub Rc<RefCell<Layer>>);

impl Fake {
    /// Answers the oldest operation that is held.
    pub fn release(&self, position: usize) {
        let mut layer = self.0.borrow_mut();
        let (operation, request) = layer.asked.remove(position);
        let result = layer.answer(&request).map_err(Refusal::from);
        layer.events.push_back(Event::Done { operation, result });
    }

    pub fn asked(&self) -> usize {
        self.0.borrow().asked.len()
    }
}

impl Backend for Fake {
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        let mut layer = self.0.borrow_mut();
        if let Some(volume) = &mut layer.volume {
            return volume.submit(operation, request, now);
        }
        if let Some(block) = &layer.block {
            let result = match &request {
                Operation::Read { .. } => Some(Reply::Read(block.clone().into())),
                Operation::Write { data, .. } => Some(Reply::Written(data.len() as u32)),
                _ => None,
            };
            if let Some(reply) = result {
                return layer.events.push_back(Event::Done { operation, result: Ok(reply) });
            }
        }
        if layer.hold {
            layer.asked.push((operation, request));
            return;
        }
        let result = layer.answer(&request).map_err(Refusal::from);
        // Tests count clients' operations on files.
        if !matches!(request, Operation::OpenRoot { .. }) {
            layer.asked.push((operation, request));
        }
        layer.events.push_back(Event::Done { operation, result });
    }

    fn cancel(&mut self, operation: OperationId) {
        let mut layer = self.0.borrow_mut();
        if let Some(volume) = &mut layer.volume {
            return volume.cancel(operation);
        }
        layer.cancelled.push(operation);
        if layer.cannot_cancel {
            return;
        }
        layer.asked.retain(|(asked, _)| *asked != operation);
        layer.events.push_back(Event::Done { operation, result: Err(NtStatus::CANCELLED.into()) });
    }

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic) {
        if let Some(volume) = &mut self.0.borrow_mut().volume {
            volume.review(judge, now);
        }
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let mut layer = self.0.borrow_mut();
        if let Some(volume) = &mut layer.volume {
            return volume.poll(out);
        }
        out.extend(layer.events.drain(..));
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        self.0.borrow().volume.as_ref()?.next_timeout()
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if let Some(volume) = &mut self.0.borrow_mut().volume {
            volume.handle_timeout(now);
        }
    }
}

/// One user and some shares, except for a test's own.
#[derive(Clone, Default)]
pub struct People(pub Rc<RefCell<Policy>>);

/// Changes made by a test; `None` has been deleted.
#[derive(Default)]
pub struct Policy {
    pub account: Option<Option<Account>>,
    pub shares: HashMap<String, Option<Share>>,
    /// Accounts are known to have changed elsewhere.
    pub is_behind: bool,
}

/// Users who may log on, with [`PASSWORD`].
const USERS: [&str; 3] = ["user", "second", "third"];

pub fn user_sid() -> Sid {
    Sid::new(5, &[21, 1, 2, 3, 1000]).unwrap()
}

fn token(number: usize) -> Arc<AccessToken> {
    Arc::new(AccessToken {
        user: Sid::new(5, &[21, 1, 2, 3, 1000 + number as u32]).unwrap(),
        primary_group: Sid::users(),
        groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::users()],
        privileges: Privileges::empty(),
    })
}

impl Directory for People {
    fn account(&self, _domain: &str, user: &str) -> Option<Account> {
        if user == "user"
            && let Some(changed) = &self.0.borrow().account
        {
            return changed.clone();
        }
        let nt_hash = *NtHash::from_password(PASSWORD).as_bytes();
        let number = USERS.iter().position(|known| known.eq_ignore_ascii_case(user))?;
        Some(Account { name: USERS[number].to_owned(), nt_hash, enabled: true, token: token(number) })
    }

    fn is_behind(&self) -> bool {
        self.0.borrow().is_behind
    }

    fn share(&self, name: &str) -> Option<Arc<Share>> {
        if let Some(changed) = self.0.borrow().shares.get(name) {
            return changed.clone().map(Arc::new);
        }
        let (path, granted) = match name {
            "share" | "secret" | "full" | "read-only" => ("", rights::FILE_ALL),
            "change" => ("", rights::FILE_MODIFY),
            "read" => ("", rights::FILE_GENERIC_READ | rights::FILE_GENERIC_EXECUTE),
            "public" => ("public", rights::FILE_ALL),
            "not a directory" => ("public\\in.txt", rights::FILE_ALL),
            "deep" => ("public\\below", rights::FILE_ALL),
            "forbidden" => ("", 0),
            _ => return None,
        };
        Some(Arc::new(Share {
            name: name.to_owned(),
            comment: String::new(),
            volume: VolumeId::from_bytes([9; 16]),
            path: path.to_owned(),
            options: ShareOptions { read_only: name == "read-only", ..ShareOptions::default() },
            encrypt: name == "secret",
            access: vec![(Sid::everyone(), granted)],
        }))
    }

    fn shares(&self) -> Vec<Arc<Share>> {
        self.share("share").into_iter().collect()
    }

    fn domain_sid(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).unwrap()
    }

    fn account_by_sid(&self, _sid: &Sid) -> Option<AccountEntry> {
        None
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

/// A server with one volume.
pub struct World {
    pub server: Server<Fake, People>,
    pub layer: Fake,
    pub people: People,
    pub now: Monotonic,
}

/// Bytes that are the same in every run.
pub fn seeded_random(seed: u64) -> smb_server::RandomSource {
    let mut state = 0x1234_5678_9ABC_DEF0_u64 ^ seed;
    Box::new(move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 33) as u8;
        }
    })
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::built(change, 0)
    }

    /// With other random bytes.
    pub fn seeded(seed: u64) -> Self {
        Self::built(|_| {}, seed)
    }

    /// With a new volume in memory, open to everyone.
    pub fn over_volume() -> Self {
        Self::over_disk(&LastingDisk::default())
    }

    /// The same on a disk that outlives the server.
    pub fn over_disk(disk: &LastingDisk) -> Self {
        let mut root = volume_root();
        let below = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
        root.dacl = Some(Acl::new(vec![Ace::allow(Sid::everyone(), rights::FILE_ALL, below)]));
        Self::formatted(disk.clone(), root)
    }

    fn built(change: impl FnOnce(&mut Config), seed: u64) -> Self {
        // The keys of each world come from the same seeds.
        smb::crypto::forget_nonces();
        let mut config = Config::new([3; 16], "SERVER");
        change(&mut config);
        let now = Monotonic(1);
        let people = People::default();
        let mut server = Server::new(config, people.clone(), seeded_random(seed), now, WALL);
        let layer = Fake::default();
        server.add_volume(VolumeId::from_bytes([9; 16]), layer.clone());
        Self { server, layer, people, now }
    }

    /// With an empty volume in memory in the place of the file layer that keeps one file.
    pub fn with_volume() -> Self {
        Self::with_root(volume_root())
    }

    fn with_root(root: SecurityDescriptor) -> Self {
        Self::formatted(LastingDisk::default(), root)
    }

    fn formatted(disk: LastingDisk, root: SecurityDescriptor) -> Self {
        let format = Format {
            id: [3; 16],
            label: "test".into(),
            serial: 1,
            now: WALL,
            root_security: root.build().expect("short enough"),
        };
        Self::serving(FileSystem::format(Box::new(disk), &format, volume::fs::Config::default()))
    }

    /// Starts a server over the disk of the last one.
    pub fn started_again(disk: &LastingDisk) -> Self {
        disk.0.borrow_mut().crash(|_| 0);
        Self::serving(FileSystem::open(Box::new(disk.clone()), volume::fs::Config::default()))
    }

    fn serving(fs: FileSystem) -> Self {
        let world = Self::new();
        let mut volume = Service::new(fs, ServiceConfig::default(), world.now, WALL);
        while !volume.is_open() {
            volume.poll(&mut Vec::new());
        }
        world.layer.0.borrow_mut().volume = Some(volume);
        world
    }

    pub fn connect(&mut self) -> Option<ConnectionId> {
        self.connect_by(Transport::Tcp)
    }

    pub fn connect_by(&mut self, transport: Transport) -> Option<ConnectionId> {
        self.connect_from("10.0.0.2", transport)
    }

    pub fn connect_from(&mut self, address: &str, transport: Transport) -> Option<ConnectionId> {
        let info = ConnectionInfo {
            peer: (address.parse::<IpAddr>().unwrap(), 50000).into(),
            local: "10.0.0.1:445".parse().unwrap(),
            transport,
        };
        self.server.connection_opened(info, self.now)
    }

    /// Gives the server a message and lets it work until it has nothing left to do.
    pub fn deliver(&mut self, connection: ConnectionId, message: &[u8]) {
        self.server.handle_message(connection, Buf::from(message), self.now);
        self.run_until_idle();
    }

    pub fn run_until_idle(&mut self) {
        while self.server.poll(self.now) {}
        // A volume has more to do than it reports: its disk answers, and work that was too much for one turn
        // continues.
        let polls = if self.layer.0.borrow().volume.is_some() { VOLUME_POLLS } else { 0 };
        for _ in 0..polls {
            self.server.poll(self.now);
        }
    }

    pub fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.server.handle_timeout(self.now);
        self.run_until_idle();
    }

    /// The next message for the client, as it would be on the wire.
    pub fn sent(&mut self, connection: ConnectionId) -> Option<Vec<u8>> {
        let payload = self.server.poll_transmit(connection)?;
        let mut bytes = vec![0; payload.len()];
        payload.copy_to(&mut bytes);
        Some(bytes)
    }

    /// Opens of the volume, those whose clients are away included.
    pub fn opens_in_volume(&self) -> usize {
        self.layer.0.borrow().volume.as_ref().map_or(0, Service::open_count)
    }

    pub fn is_closing(&mut self, connection: ConnectionId) -> bool {
        let mut closing = Vec::new();
        self.server.take_closing(&mut closing);
        closing.contains(&connection)
    }
}

/// A client on one connection.
pub struct Client {
    /// User as which it logs on.
    pub user: String,
    /// Service for the logon; empty: none named.
    pub target: String,
    pub guid: [u8; 16],
    pub connection: ConnectionId,
    pub dialect: Dialect,
    pub message_id: u64,
    pub session: u64,
    pub tree: u32,
    pub signing: Option<SigningKey>,
    pub sign: bool,
    pub sealing: Option<(SealingKey, OpeningKey)>,
    pub seal: bool,
    pub preauth: PreauthHash,
    /// AES-GMAC is negotiated.
    pub gmac: bool,
    /// The SESSION_SETUP requests of its last logon, as they were sent.
    pub setups: Vec<Vec<u8>>,
}

/// How the client negotiates.
pub struct Wishes {
    pub dialects: Vec<u16>,
    pub ciphers: Vec<u16>,
    pub signing: Vec<u16>,
    /// Of payload by RDMA.
    pub transforms: Vec<u16>,
    pub capabilities: u32,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            dialects: vec![0x0311],
            ciphers: vec![CIPHER_AES_128_GCM],
            signing: vec![SIGNING_AES_CMAC],
            transforms: vec![],
            capabilities: 0x7F,
        }
    }
}

impl Wishes {
    pub fn contexts(&self) -> Vec<Vec<u8>> {
        let mut contexts = vec![
            put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[7; 32])),
            put_context(0x0100, b"unknown to the server"),
            put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&self.ciphers)),
            put_context(CONTEXT_SIGNING, &put_counted_ids(&self.signing)),
        ];
        if !self.transforms.is_empty() {
            contexts.push(put_context(CONTEXT_RDMA_TRANSFORM, &put_rdma_transform_ids(&self.transforms)));
        }
        contexts
    }
}

impl Client {
    /// Connected, nothing said.
    pub fn new(world: &mut World) -> Self {
        let connection = world.connect().unwrap();
        Self::on(connection)
    }

    /// Connected from this address, and negotiated.
    pub fn from(world: &mut World, address: &str) -> Self {
        let mut client = Self::on(world.connect_from(address, Transport::Tcp).unwrap());
        client.negotiate(world, &Wishes::default());
        client
    }

    fn on(connection: ConnectionId) -> Self {
        Self {
            user: "user".to_owned(),
            target: String::new(),
            guid: [5; 16],
            connection,
            dialect: Dialect::Smb311,
            message_id: 0,
            session: 0,
            tree: 0,
            signing: None,
            sign: false,
            sealing: None,
            seal: false,
            preauth: PreauthHash::default(),
            gmac: false,
            setups: Vec::new(),
        }
    }

    /// Logged on and connected to the share.
    pub fn ready(world: &mut World) -> Self {
        Self::ready_at(world, "share")
    }

    /// Logged on and connected to that share.
    pub fn ready_at(world: &mut World, share: &str) -> Self {
        let mut client = Self::new(world);
        client.negotiate(world, &Wishes::default());
        assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
        assert_eq!(client.tree_connect(world, share), NtStatus::SUCCESS);
        client
    }

    pub fn header(&mut self, command: Command) -> Header {
        let mut header = Header::new(command);
        header.message_id = self.message_id.into();
        header.credits = 64.into();
        header.credit_charge = 1.into();
        header.session_id = self.session.into();
        header.tree_id = self.tree.into();
        self.message_id += 1;
        header
    }

    pub fn build(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = self.header(command).as_bytes().to_vec();
        let mut tail = Vec::new();
        body(&mut tail);
        out.extend_from_slice(&tail);
        out
    }

    /// Signs or encrypts, as the session requires.
    pub fn protect(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        if self.seal {
            let (sealing, _) = self.sealing.as_mut().unwrap();
            let mut out = vec![0; TRANSFORM_HEADER_BYTES + message.len()];
            sealing.seal_parts(&[&message], &mut out, self.session).unwrap();
            return out;
        }
        if self.sign
            && let Some(key) = &self.signing
        {
            sign(key, &mut message);
        }
        message
    }

    /// Sends without waiting.
    pub fn send(&mut self, world: &mut World, message: Vec<u8>) {
        let message = self.protect(message);
        world.deliver(self.connection, &message);
    }

    /// The next message from the server, decrypted.
    pub fn receive(&mut self, world: &mut World) -> Option<Vec<u8>> {
        let bytes = world.sent(self.connection)?;
        Some(self.open(&bytes))
    }

    /// A message from the server, decrypted where it is encrypted.
    pub fn open(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.starts_with(&PROTOCOL_TRANSFORM) {
            let (_, opening) = self.sealing.as_ref().unwrap();
            let mut plain = BufMut::for_overwrite(bytes.len() - TRANSFORM_HEADER_BYTES);
            opening.open_into(bytes, &mut plain).unwrap();
            return plain.to_vec();
        }
        bytes.to_vec()
    }

    pub fn call(&mut self, world: &mut World, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let message = self.build(command, body);
        self.send(world, message);
        self.receive(world).expect("an answer")
    }

    pub fn negotiate(&mut self, world: &mut World, wishes: &Wishes) -> Vec<u8> {
        let contexts = if wishes.dialects.contains(&0x0311) { wishes.contexts() } else { vec![] };
        let client_guid = self.guid;
        let message = self.build(Command::Negotiate, |out| {
            let body = NegotiateRequestBody {
                security_mode: 1.into(),
                capabilities: wishes.capabilities.into(),
                client_guid,
                ..Default::default()
            };
            write_negotiate_request(out, body, &wishes.dialects, &contexts);
        });
        self.preauth.update(&message);
        self.gmac = wishes.signing.contains(&SIGNING_AES_GMAC);
        self.send(world, message);
        let answer = self.receive(world).expect("an answer");
        if status(&answer) == NtStatus::SUCCESS {
            let response = NegotiateResponse::parse(&answer).unwrap();
            self.dialect = Dialect::from_wire(response.dialect_revision.get()).unwrap();
            self.preauth.update(&answer);
        }
        answer
    }

    pub fn log_on(&mut self, world: &mut World, password: &str) -> NtStatus {
        let answer = self.try_log_on(world, password);
        answer.map_or(NtStatus::PENDING, |answer| status(&answer))
    }

    /// `None`: the last answer has not come yet.
    pub fn try_log_on(&mut self, world: &mut World, password: &str) -> Option<Vec<u8>> {
        self.exchange(world, password, None, |_| {})
    }

    /// Logs on while `between` happens between the two halves.
    pub fn log_on_with(
        &mut self,
        world: &mut World,
        password: &str,
        between: impl FnOnce(&mut World),
    ) -> NtStatus {
        let answer = self.exchange(world, password, None, between);
        answer.map_or(NtStatus::PENDING, |answer| status(&answer))
    }

    /// Makes this connection one more channel of another client's session, whose key signs the requests.
    pub fn bind(&mut self, world: &mut World, other: &Client) -> NtStatus {
        status(&self.try_bind(world, other))
    }

    /// The last answer to a request to bind.
    pub fn try_bind(&mut self, world: &mut World, other: &Client) -> Vec<u8> {
        self.session = other.session;
        self.tree = other.tree;
        self.exchange(world, PASSWORD, Some(other), |_| {}).expect("an answer")
    }

    /// As [`Self::try_bind`], as another user or with another password; `None`: the last answer has not
    /// arrived.
    pub fn try_bind_with(&mut self, world: &mut World, other: &Client, password: &str) -> Option<NtStatus> {
        self.session = other.session;
        Some(status(&self.exchange(world, password, Some(other), |_| {})?))
    }

    /// Waits for the next message, in steps of 50 ms. Returns the time taken, and the status.
    pub fn wait_for_status(&mut self, world: &mut World) -> (Duration, NtStatus) {
        let began = world.now;
        for _ in 0..1200 {
            if let Some(answer) = self.receive(world) {
                return (world.now.since(began), status(&answer));
            }
            world.wait(Duration::from_millis(50));
        }
        panic!("no answer in a minute");
    }

    fn exchange(
        &mut self,
        world: &mut World,
        password: &str,
        binds: Option<&Client>,
        between: impl FnOnce(&mut World),
    ) -> Option<Vec<u8>> {
        // Each logon has its own key.
        let mut random = seeded_random(self.connection.0);
        let mut initiator = Initiator::new(Credentials::User {
            user: self.user.clone(),
            domain: String::new(),
            workstation: String::new(),
            hash: NtHash::from_password(password),
            target_name: self.target.clone(),
        });
        let mut preauth = self.preauth;
        let session = self.session;
        let first = initiator.first_token().to_vec();
        let message = self.session_setup(&first, binds);
        preauth.update(&message);
        self.setups = vec![message.clone()];
        world.deliver(self.connection, &message);
        let challenge = self.receive(world).expect("a challenge");
        preauth.update(&challenge);
        if status(&challenge) != NtStatus::MORE_PROCESSING_REQUIRED {
            assert!(binds.is_some(), "a logon begins with a challenge");
            return Some(challenge);
        }
        self.session = Header::parse(&challenge).unwrap().session_id.get();
        between(world);
        let token = SessionSetupResponse::parse(&challenge).unwrap().security_buffer().unwrap();
        let InitiatorStep::Send(answer) = initiator.step(token, WALL, &mut random).unwrap() else {
            panic!("the server cannot be done yet");
        };
        let key = initiator.session_key().unwrap().clone();
        let message = self.session_setup(&answer, binds);
        preauth.update(&message);
        let schedule = match self.dialect {
            Dialect::Smb202 | Dialect::Smb210 => KeySchedule::Smb2,
            Dialect::Smb300 | Dialect::Smb302 => KeySchedule::Smb30,
            Dialect::Smb311 => KeySchedule::Smb311(&preauth),
        };
        let keys = SessionKeys::new(schedule, &key[..]);
        let algorithm = match self.dialect {
            Dialect::Smb202 | Dialect::Smb210 => SigningAlgorithm::HmacSha256,
            Dialect::Smb311 if self.gmac => SigningAlgorithm::AesGmac,
            _ => SigningAlgorithm::AesCmac,
        };
        // A logon anew within a session keeps its keys.
        let anew = binds.is_none() && session != 0;
        if !anew {
            self.signing = Some(keys.signing_key(algorithm));
        }
        let cipher = if self.dialect == Dialect::Smb311 { CipherId::Aes128Gcm } else { CipherId::Aes128Ccm };
        if !anew {
            self.sealing = keys.client_ciphers(cipher).ok();
        }
        self.setups.push(message.clone());
        world.deliver(self.connection, &message);
        let answer = world.sent(self.connection)?;
        if status(&answer) == NtStatus::SUCCESS {
            assert!(self.is_signed(&answer), "the last answer proves the key");
        }
        Some(answer)
    }

    /// The first half of a logon, and no more of it; answers the status.
    pub fn begin_log_on(&mut self, world: &mut World) -> NtStatus {
        self.begin_log_on_in(world, 0)
    }

    /// As [`Self::begin_log_on`], within a session; zero: in none.
    pub fn begin_log_on_in(&mut self, world: &mut World, session: u64) -> NtStatus {
        let first = Initiator::new(Credentials::Anonymous).first_token().to_vec();
        self.session = session;
        let message = self.session_setup(&first, None);
        world.deliver(self.connection, &message);
        let answer = self.receive(world).expect("an answer");
        self.session = Header::parse(&answer).unwrap().session_id.get();
        status(&answer)
    }

    pub fn session_setup(&mut self, token: &[u8], binds: Option<&Client>) -> Vec<u8> {
        let flags = if binds.is_some() { SESSION_FLAG_BINDING } else { 0 };
        let mut message = self.build(Command::SessionSetup, |out| {
            let body = SessionSetupRequestBody { security_mode: 1, flags, ..Default::default() };
            write_session_setup_request(out, body, token);
        });
        if let Some(key) = binds.and_then(|other| other.signing.as_ref()) {
            sign(key, &mut message);
        }
        message
    }

    pub fn is_signed(&self, answer: &[u8]) -> bool {
        let header = Header::parse(answer).unwrap();
        let id = header.message_id.get();
        header.flags().contains(HeaderFlags::SIGNED)
            && self.signing.as_ref().unwrap().verify(&[answer], id, true, false).is_ok()
    }

    pub fn tree_connect(&mut self, world: &mut World, share: &str) -> NtStatus {
        let path = wide_from_str(&format!(r"\\server\{share}"));
        let signs = self.sign;
        // 3.1.1 takes it only signed or encrypted.
        self.sign |= self.dialect == Dialect::Smb311;
        let answer = self.call(world, Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
        self.sign = signs;
        self.tree = Header::parse(&answer).unwrap().tree_id.get();
        status(&answer)
    }

    /// Makes the body of a CREATE that opens the file or makes it, with all rights.
    pub fn create_body(name: &str) -> impl FnOnce(&mut Vec<u8>) {
        Self::create_body_with(name, 0x001F_01FF, FILE_OPEN_IF, Vec::new())
    }

    /// A CREATE that shares the file with everybody; `contexts` as the wire has them.
    pub fn create_body_with(
        name: &str,
        access: u32,
        disposition: u32,
        contexts: Vec<u8>,
    ) -> impl FnOnce(&mut Vec<u8>) {
        let name = wide_from_str(name);
        move |out| {
            let body = CreateRequestBody {
                impersonation_level: 2.into(),
                desired_access: access.into(),
                share_access: 7.into(),
                create_disposition: disposition.into(),
                ..Default::default()
            };
            write_create_request(out, body, &name, &contexts);
        }
    }

    pub fn create(&mut self, world: &mut World, name: &str) -> FileId {
        let answer = self.call(world, Command::Create, Self::create_body(name));
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        CreateResponse::parse(&answer).unwrap().file_id
    }

    pub fn read_body(file_id: FileId, length: u32) -> impl FnOnce(&mut Vec<u8>) {
        move |out| {
            let body = ReadRequestBody { length: length.into(), file_id, ..Default::default() };
            write_read_request(out, body, &[]);
        }
    }

    pub fn write_body(file_id: FileId, data: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
        move |out| {
            let length = (data.len() as u32).into();
            write_write_request(out, WriteRequestBody { length, file_id, ..Default::default() }, &[]);
            out.extend_from_slice(data);
        }
    }

    pub fn close_body(file_id: FileId) -> impl FnOnce(&mut Vec<u8>) {
        move |out| out.put(&CloseRequestBody { file_id, ..Default::default() })
    }
}

pub fn sign(key: &SigningKey, message: &mut [u8]) {
    let header = Header::in_place(message).unwrap();
    header.flags = (header.flags() | HeaderFlags::SIGNED).bits().into();
    let id = header.message_id.get();
    key.sign_in_place(message, id, false, false).unwrap();
}

/// Status of the first answer in a message.
pub fn status(message: &[u8]) -> NtStatus {
    Header::parse(message).unwrap().status()
}

/// The answers of a compound.
pub fn split(message: &[u8]) -> Vec<Vec<u8>> {
    let (mut parts, mut rest) = (Vec::new(), Some(message));
    while let Some(bytes) = rest {
        let (first, next) = split_compound(bytes).unwrap();
        parts.push(first.to_vec());
        rest = next;
    }
    parts
}

/// Requests as one compound message; all but the first related where `related`.
pub fn join(requests: Vec<Vec<u8>>, related: bool) -> Vec<u8> {
    let count = requests.len();
    let mut out = Vec::new();
    for (position, mut request) in requests.into_iter().enumerate() {
        if position + 1 < count {
            request.resize(request.len().next_multiple_of(8), 0);
            let len = request.len() as u32;
            Header::in_place(&mut request).unwrap().next_command = len.into();
        }
        if related && position > 0 {
            let header = Header::in_place(&mut request).unwrap();
            header.flags = (header.flags() | HeaderFlags::RELATED_OPERATIONS).bits().into();
        }
        out.extend(request);
    }
    out
}
