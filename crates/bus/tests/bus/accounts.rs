//! Who may reach the bus, and where else nodes may go; and bad input from who may.

use crate::world::{Carried, PASSWORD, World, disk, secret};
use bus::{SHARE, account_name};
use smb::auth::{Credentials, NtHash};
use smb::wire::{
    CONTEXT_BUS_SESSION, CreateContextWriter, CreateRequestBody, CreateResponse, FILE_OPEN, FileId, U32,
    fsctl,
};
use smb_client::{Binding, Channel, Connection, Options, Reply, Request, Token};
use smb_transport::client::{Link, Way};
use std::net::TcpStream;
use std::time::Duration;
use sys::{Buf, Payload, monotonic_now};
use types::{FileTime, NodeId, NtStatus};

/// A client of node 2, on the world's own loop.
struct Raw {
    channel: Channel,
    options: Options,
    last: u64,
}

fn hex(node: u8) -> String {
    [node; 32].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Raw {
    fn log_on(world: &mut World, user: &str, password: &str) -> Result<Self, String> {
        Self::begin(world, user, password, None)
    }

    /// One more channel of a session.
    fn bind(world: &mut World, user: &str, password: &str, binding: Binding) -> Result<Self, String> {
        Self::begin(world, user, password, Some(binding))
    }

    fn begin(
        world: &mut World,
        user: &str,
        password: &str,
        binding: Option<Binding>,
    ) -> Result<Self, String> {
        let address = world.nodes[1].serving.as_ref().unwrap().address;
        let stream = TcpStream::connect(address).unwrap();
        let options = Options { client_guid: [3; 16], ..Options::default() };
        let link =
            Link::new(&world.driver, Way::Tcp(stream), &options.of_link(Duration::from_secs(5))).unwrap();
        let credentials = Credentials::User {
            user: user.into(),
            domain: String::new(),
            workstation: String::new(),
            hash: NtHash::from_password(password),
            target_name: "cifs/node".into(),
        };
        let random = Box::new(|bytes: &mut [u8]| getrandom::fill(bytes).unwrap());
        let wall = FileTime(133_000_000_000_000_000);
        let connection = match binding {
            None => Connection::new(options.clone(), credentials, "node", wall, random),
            Some(binding) => Connection::bind(options.clone(), credentials, "node", wall, random, binding),
        };
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
    let mut ana = Raw::log_on(&mut world, "ana", PASSWORD).ok().unwrap();
    assert_eq!(ana.connect(&mut world, SHARE), Err(NtStatus::ACCESS_DENIED));
    assert!(ana.connect(&mut world, "IPC$").is_ok());
}

#[test]
fn nodes_reach_nothing_but_the_bus() {
    let mut world = World::new(2, Carried::Tcp);
    let mut node = Raw::log_on(&mut world, &account_name(NodeId(1), 0), &hex(1)).ok().unwrap();
    assert_eq!(node.connect(&mut world, "files"), Err(NtStatus::ACCESS_DENIED));
    assert_eq!(node.connect(&mut world, "IPC$"), Err(NtStatus::ACCESS_DENIED));
    assert!(node.connect(&mut world, SHARE).is_ok());
}

#[test]
fn a_node_with_another_secret_is_no_node() {
    let mut world = World::new(2, Carried::Tcp);
    let refused = Raw::log_on(&mut world, &account_name(NodeId(1), 0), &hex(9)).err().unwrap();
    assert!(refused.contains("LOGON_FAILURE"), "{refused}");
    let unknown = Raw::log_on(&mut world, &account_name(NodeId(7), 0), &hex(7)).err().unwrap();
    assert!(unknown.contains("LOGON_FAILURE"), "{unknown}");
    assert_eq!(format!("{:?}", secret(9)), "Secret", "no secret is shown");
}

#[test]
fn a_stranger_to_a_session_gets_no_channel_of_it() {
    let mut world = World::new(2, Carried::Tcp);
    let name = account_name(NodeId(1), 0);
    let victim = Raw::log_on(&mut world, &name, &hex(1)).ok().unwrap();
    let (session, own) = (victim.channel.connection.session_id(), victim.channel.connection.binding());
    // Another session of the same account proves nothing; its secret alone does not either.
    let other = Raw::log_on(&mut world, &name, &hex(1)).ok().unwrap();
    let stranger = other.channel.connection.binding().unwrap().to_session(session);
    let refused = Raw::bind(&mut world, &name, &hex(1), stranger).err().unwrap();
    assert!(refused.contains("ACCESS_DENIED"), "{refused}");
    // Another node that had the session's keys would still have to be the same node.
    let refused = Raw::bind(&mut world, &account_name(NodeId(2), 0), &hex(2), own.clone().unwrap());
    assert!(refused.err().unwrap().contains("ACCESS_DENIED"));
    let channels = |world: &mut World| {
        let now = monotonic_now();
        let sessions = world.nodes[1].serving.as_mut().unwrap().server.sessions(now);
        sessions.iter().map(|session| session.connections.len()).max()
    };
    assert_eq!(channels(&mut world), Some(1));
    let bound = Raw::bind(&mut world, &name, &hex(1), own.unwrap());
    assert!(bound.is_ok());
    assert_eq!(channels(&mut world), Some(2));
}

#[test]
fn malformed_requests_are_refused_and_change_nothing() {
    let mut world = World::new(2, Carried::Tcp);
    world.settle(0);
    world.open(0, disk(2), 1, 5).unwrap();
    let mut node = Raw::log_on(&mut world, &account_name(NodeId(1), 0), &hex(1)).ok().unwrap();
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
        types::VolumeId::from_bytes([8; 16]),
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
    // The others' session goes on, and this one as well.
    assert!(world.call(0, disk(2), 1, 5, space::message::Operation::Promise).is_ok());
    let input = bus::wire::control_of(types::Epoch(2), &space::message::Operation::Promise).unwrap().1;
    let reply = node.call(&mut world, Request::fsctl(tree, file, fsctl::BUS_PROMISE, &input, 0));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
}
