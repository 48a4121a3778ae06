//! Access to the bus, and of nodes to other shares; and bad input of nodes.

use crate::world::{Carried, OTHER_VOLUME, PASSWORD, World, disk, wall_clock};
use bus::{NodeAccounts, SHARE};
use smb::auth::{Credentials, NodeCredentials, NtHash};
use smb::wire::{
    CONTEXT_BUS_SESSION, CreateContextWriter, CreateRequestBody, CreateResponse, FILE_OPEN, FileId, U32,
    fsctl,
};
use smb_client::{Binding, Channel, Connection, Options, Random, Reply, Request, Token};
use smb_transport::client::{Link, Way};
use std::net::TcpStream;
use std::time::Duration;
use sys::{Buf, Payload, monotonic_now};
use trust::authority::NodeKey;
use trust::node_trust::NodeTrust;
use types::{FileTime, NodeId, NtStatus};

fn random() -> Random {
    Box::new(|bytes: &mut [u8]| getrandom::fill(bytes).unwrap())
}

/// A client of node 2, on the world's own loop.
struct Raw {
    channel: Channel,
    options: Options,
    last: u64,
}

impl Raw {
    /// Logs on by a password.
    fn log_on(world: &mut World, user: &str) -> Result<Self, String> {
        let credentials = Credentials::User {
            user: user.into(),
            domain: String::new(),
            workstation: String::new(),
            hash: NtHash::from_password(PASSWORD),
            target_name: "cifs/node".into(),
        };
        let options = Self::options();
        Self::begin(world, Connection::new(options, credentials, "node", wall_clock(), random()))
    }

    /// Logs on as a node, by this trust.
    fn as_node(world: &mut World, trust: NodeTrust, binding: Option<Binding>) -> Result<Self, String> {
        let accounts = NodeAccounts::default();
        accounts.set(trust, false);
        let credentials = NodeCredentials { prover: accounts.prover().unwrap(), peer: NodeId(2) };
        let connection =
            Connection::of_node(Self::options(), credentials, "node", wall_clock(), random(), binding);
        Self::begin(world, connection.map_err(|error| error.to_string())?)
    }

    fn options() -> Options {
        Options { client_guid: [3; 16], ..Options::default() }
    }

    fn begin(world: &mut World, connection: Connection) -> Result<Self, String> {
        let address = world.nodes[1].serving.as_ref().unwrap().address;
        let (stream, options) = (TcpStream::connect(address).unwrap(), Self::options());
        let link =
            Link::new(&world.driver, Way::Tcp(stream), &options.of_link(Duration::from_secs(5))).unwrap();
        let mut raw = Self { channel: Channel::new(connection, link, 0, monotonic_now()), options, last: 0 };
        let mut failure = None;
        world.until("the logon is over", |_| {
            if let Err(error) = raw.channel.pump(monotonic_now(), raw.options.timeout, &mut Vec::new()) {
                failure = Some(error.to_string());
            }
            failure.is_some() || raw.channel.connection.is_ready()
        });
        failure.map_or(Ok(raw), Err)
    }

    fn call(&mut self, world: &mut World, request: Request) -> Reply {
        self.last += 1;
        self.channel.submit(Token(self.last), request, &self.options, monotonic_now());
        let mut replies = Vec::new();
        world.until("an answer", |_| {
            self.channel.pump(monotonic_now(), self.options.timeout, &mut replies).unwrap();
            !replies.is_empty()
        });
        replies.pop().unwrap().1
    }

    fn connect(&mut self, world: &mut World, share: &str) -> Result<u32, NtStatus> {
        let reply = self.call(world, Request::tree_connect(&format!(r"\\node\{share}")));
        if reply.status() == NtStatus::SUCCESS { Ok(reply.tree_id()) } else { Err(reply.status()) }
    }

    fn create(
        &mut self,
        world: &mut World,
        tree: u32,
        name: &str,
        context: Option<&[u8]>,
    ) -> Result<FileId, Reply> {
        let mut contexts = CreateContextWriter::default();
        if let Some(data) = context {
            contexts.push(CONTEXT_BUS_SESSION, data);
        }
        let body = CreateRequestBody {
            desired_access: U32::new(3),
            share_access: U32::new(7),
            create_disposition: U32::new(FILE_OPEN),
            ..Default::default()
        };
        let reply = self.call(world, Request::create(tree, name, body, &contexts.finish()));
        match reply.status() {
            NtStatus::SUCCESS => Ok(CreateResponse::parse(reply.message()).unwrap().file_id),
            _ => Err(reply),
        }
    }
}

#[test]
fn users_do_not_reach_the_bus() {
    let mut world = World::new(2, Carried::Tcp);
    let mut ana = Raw::log_on(&mut world, "ana").ok().unwrap();
    assert_eq!(ana.connect(&mut world, SHARE), Err(NtStatus::ACCESS_DENIED));
    assert!(ana.connect(&mut world, "IPC$").is_ok());
}

#[test]
fn no_password_makes_anybody_a_node() {
    let mut world = World::new(2, Carried::Tcp);
    let refused = Raw::log_on(&mut world, "node-1$").err().unwrap();
    assert!(refused.contains("ACCESS_DENIED"), "{refused}");
    let unknown = Raw::log_on(&mut world, "node-2$").err().unwrap();
    assert!(unknown.contains("LOGON_FAILURE"), "{unknown}");
}

#[test]
fn nodes_reach_nothing_but_the_bus() {
    let mut world = World::new(2, Carried::Tcp);
    let trust = world.certificates.trust(NodeId(1));
    let mut node = Raw::as_node(&mut world, trust, None).ok().unwrap();
    assert_eq!(node.connect(&mut world, "files"), Err(NtStatus::ACCESS_DENIED));
    assert_eq!(node.connect(&mut world, "IPC$"), Err(NtStatus::ACCESS_DENIED));
    assert!(node.connect(&mut world, SHARE).is_ok());
}

#[test]
fn a_node_is_known_by_a_certificate_that_is_on_record() {
    let mut world = World::new(2, Carried::Tcp);
    // Issued with the authority's key, as a removed server could.
    let key = NodeKey::generate().unwrap();
    let now_unix_s = (wall_clock().0 - FileTime::UNIX_EPOCH.0) / 10_000_000;
    let forged = world.certificates.issue(NodeId(1), &key, now_unix_s);
    let forger = world.certificates.trust_showing(NodeId(1), &key.pem(), &forged.pem);
    let refused = Raw::as_node(&mut world, forger, None).err().unwrap();
    assert!(refused.contains("LOGON_FAILURE"), "{refused}");
    // A thief with the certificate, but not its key.
    let genuine = world.certificates.certificate(NodeId(1));
    let thief = world.certificates.trust_showing(NodeId(1), &key.pem(), genuine);
    let refused = Raw::as_node(&mut world, thief, None).err().unwrap();
    assert!(refused.contains("LOGON_FAILURE"), "{refused}");
    let renewed = world.certificates.renew(NodeId(1), 0);
    let accounts = world.nodes[1].serving.as_ref().unwrap().accounts.clone();
    accounts.set(world.certificates.trust(NodeId(2)), false);
    let key = world.certificates.key(NodeId(1));
    let after = world.certificates.trust_showing(NodeId(1), &key, &renewed.pem);
    assert!(Raw::as_node(&mut world, after, None).is_ok(), "a renewed certificate is good");
    let before = world.certificates.trust(NodeId(1));
    assert!(Raw::as_node(&mut world, before, None).is_ok(), "and so is the one before");
}

#[test]
fn a_stranger_to_a_session_gets_no_channel_of_it() {
    let mut world = World::new(2, Carried::Tcp);
    let trust = |world: &World, node| world.certificates.trust(NodeId(node));
    let one = trust(&world, 1);
    let victim = Raw::as_node(&mut world, one, None).ok().unwrap();
    let (session, own) = (victim.channel.connection.session_id(), victim.channel.connection.binding());
    // Another session of the same node proves nothing; its certificate alone does not either.
    let one = trust(&world, 1);
    let other = Raw::as_node(&mut world, one, None).ok().unwrap();
    let stranger = other.channel.connection.binding().unwrap().to_session(session);
    let one = trust(&world, 1);
    let refused = Raw::as_node(&mut world, one, Some(stranger)).err().unwrap();
    assert!(refused.contains("ACCESS_DENIED"), "{refused}");
    // A node that had the session's keys would still have to be the same node.
    let mut three = World::new(3, Carried::Tcp);
    let one = trust(&three, 1);
    let victim_of_three = Raw::as_node(&mut three, one, None).ok().unwrap();
    let binding = victim_of_three.channel.connection.binding();
    let third = trust(&three, 3);
    let refused = Raw::as_node(&mut three, third, binding).err().unwrap();
    assert!(refused.contains("ACCESS_DENIED"), "{refused}");
    let channels = |world: &mut World| {
        let now = monotonic_now();
        let sessions = world.nodes[1].serving.as_mut().unwrap().server.sessions(now);
        sessions.iter().map(|session| session.connections.len()).max()
    };
    assert_eq!(channels(&mut world), Some(1));
    let one = trust(&world, 1);
    let bound = Raw::as_node(&mut world, one, own);
    assert!(bound.is_ok());
    assert_eq!(channels(&mut world), Some(2));
}

#[test]
fn malformed_requests_are_refused_and_change_nothing() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    let trust = world.certificates.trust(NodeId(1));
    let mut node = Raw::as_node(&mut world, trust, None).ok().unwrap();
    let tree = node.connect(&mut world, SHARE).unwrap();
    let name = disk(2).to_string();
    for (path, context) in [
        ("nonsense", &[0; 56][..]),
        (&name[..], &[][..]),
        (&name[..], &[0; 56][..]),
        (&name[..], &[255; 56][..]),
        (&name[..], &[1; 300][..]),
    ] {
        let refused = node.create(&mut world, tree, path, Some(context)).unwrap_err();
        assert!(refused.status().is_error(), "{path} {context:?}");
    }
    assert_eq!(
        node.create(&mut world, tree, &name, None).unwrap_err().status(),
        NtStatus::OBJECT_NAME_NOT_FOUND
    );
    let context = bus::wire::put_session(
        OTHER_VOLUME,
        types::Epoch(1),
        space::message::SessionId(1),
        types::Epoch(0),
        types::Epoch(0),
    );
    let file = node.create(&mut world, tree, &name, Some(&context)).ok().unwrap();
    let root = node.create(&mut world, tree, "", None).ok().unwrap();
    let payload = Payload::from(Buf::from(&[7; 5000][..]));
    let requests = [
        Request::read(tree, file, 0, 4096),
        Request::read(tree, file, 1, 4104),
        Request::write(tree, file, 0, payload, 0),
        Request::fsctl(tree, file, fsctl::BUS_PROMISE, &[1, 2, 3], 0),
        Request::fsctl(tree, file, fsctl::BUS_DISCARD, &[0; 32], 0),
        Request::fsctl(tree, file, fsctl::BUS_ALLOCATE, &[255; 32], 0),
        Request::fsctl(tree, file, fsctl::BUS_STATUS, &[0; 8], 1 << 16),
        Request::fsctl(tree, root, fsctl::BUS_PROMISE, &[0; 32], 0),
        Request::fsctl(tree, root, fsctl::BUS_STATUS, &[0; 8], 3),
        Request::fsctl(tree, root, fsctl::BUS_STATUS, &[0; 9], 1 << 16),
        Request::query_info(tree, file, 1, 18, 0, 4096),
        Request::set_info(tree, file, 1, 20, 0, &[0; 8]),
        Request::query_directory(tree, root, 1, "*", 0, 4096),
    ];
    for request in requests {
        let command = request.command;
        let reply = node.call(&mut world, request);
        assert!(reply.status().is_error(), "{command:?} {}", reply.status());
    }
    // The others' session remains, and this one as well.
    assert!(world.call(0, disk(2), 1, 5, space::message::ReplicaOperation::Promise).is_ok());
    let input = bus::wire::control_of(types::Epoch(2), &space::message::ReplicaOperation::Promise).unwrap().1;
    let reply = node.call(&mut world, Request::fsctl(tree, file, fsctl::BUS_PROMISE, &input, 0));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
}
