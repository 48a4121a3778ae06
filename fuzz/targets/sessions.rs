//! Whole sessions: scripts of well-formed, replayed and altered messages over three connections with two users.
//!
//! Each user keeps a secret in a share that only this user may connect. Checked of every answer: it is signed
//! or sealed with a session's key only if the request that it answers was proven with that key (or is the
//! logon that makes the key); no key protects two messages with one nonce (smb's `nonce-monitor`), as long as
//! its client does not (smb-server's `Bindings`); a secret comes only over a connection that its user has
//! logged on to. At the end the server has neither work nor sessions left, and still serves others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rawserver::{Client, Purpose, User, World, join, sign, split};
use smb::crypto::SigningKey;
use smb::wire::{
    CloseRequestBody, Command, EmptyBody, FILE_OPEN_IF, FileId, Header, HeaderFlags, PROTOCOL_TRANSFORM,
    ReadRequestBody, WriteRequestBody, write_read_request, write_write_request,
};
use smb_server::ConnectionId;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;
use types::NtStatus;
use zerocopy::IntoBytes;

const CONNECTIONS: usize = 3;
/// FILE_DIRECTORY_FILE of CREATE (MS-SMB2 2.2.13).
const DIRECTORY_FILE: u32 = 1;
const SECRET_FILE: &str = "secret";
/// Logons of one script: more of the same find nothing.
const LOGONS_MAX: usize = 24;

fn secret(user: User) -> &'static [u8] {
    match user {
        User::Ana => b"what only ana may read",
        User::Bob => b"what only bob may read",
    }
}

/// The script: bytes taken from the front; zeros when there are none left.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn position(&mut self, len: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % len.max(1)
    }

    fn user(&mut self) -> User {
        User::ALL[self.below(2)]
    }
}

/// One connection: its client, the user who has logged on over it, and the last open.
struct Seat {
    client: Client,
    users: HashSet<User>,
    file: FileId,
}

struct Stage {
    world: World,
    seats: Vec<Seat>,
    /// Keys that some logon made, with the session and the connection they are of.
    keys: Vec<(u64, ConnectionId, Rc<SigningKey>)>,
    /// Requests that were proven with the key of the session they name: connection, message and session.
    proven: HashSet<(ConnectionId, u64, u64)>,
    sent: Vec<Vec<u8>>,
    /// Sessions that a connection was bound to with their own key.
    bound: HashSet<u64>,
    logons: usize,
}

impl Stage {
    fn new() -> Self {
        let mut world = World::new();
        for user in User::ALL {
            let mut maker = Client::ready(&mut world, user, "both");
            maker.create(&mut world, user.name(), DIRECTORY_FILE).expect("a directory for the share's root");
            world.disconnect(maker.connection);
            let mut client = Client::ready(&mut world, user, user.name());
            let file = client.create(&mut world, SECRET_FILE, 0).expect("an owner makes a file");
            let data = secret(user);
            let mut body = Vec::new();
            let length = (data.len() as u32).into();
            write_write_request(
                &mut body,
                WriteRequestBody { length, file_id: file, ..Default::default() },
                &[],
            );
            body.extend_from_slice(data);
            client.call(&mut world, Command::Write, &body).expect("an owner writes");
            world.disconnect(client.connection);
        }
        let seats = (0..CONNECTIONS).map(|_| Seat::new(&mut world)).collect();
        Self {
            world,
            seats,
            keys: Vec::new(),
            proven: HashSet::new(),
            sent: Vec::new(),
            bound: HashSet::new(),
            logons: 0,
        }
    }

    /// Checks every waiting answer against the allowed ones.
    fn take_answers(&mut self) {
        for seat in &self.seats {
            while let Some(bytes) = self.world.sent(seat.client.connection) {
                let sealed = bytes.starts_with(&PROTOCOL_TRANSFORM);
                // Sealed for a session whose key this client no longer has.
                let Some(plain) = seat.client.open(&bytes) else { continue };
                for user in User::ALL {
                    let told = plain.windows(secret(user).len()).any(|window| window == secret(user));
                    assert!(!told || seat.users.contains(&user), "a secret of {user:?} is told to others");
                }
                for answer in split(&plain) {
                    self.judge(seat, answer, sealed);
                }
            }
        }
    }

    fn judge(&self, seat: &Seat, answer: &[u8], sealed: bool) {
        let Ok(header) = Header::parse(answer) else { return };
        let connection = seat.client.connection;
        let id = header.message_id.get();
        // A break is no answer, and the last message of a logon proves its own key.
        if id == u64::MAX
            || header.command() == Some(Command::SessionSetup) && header.status() == NtStatus::SUCCESS
        {
            return;
        }
        if sealed || !header.flags().contains(HeaderFlags::SIGNED) {
            return;
        }
        for (session, of, key) in &self.keys {
            if key.verify(&[answer], id, true, false).is_ok() {
                assert!(
                    self.proven.contains(&(connection, id, *session)),
                    "message {id} was signed with the key of session {session} (of {of:?}) over {connection:?}, and not proven: {header:?}"
                );
            }
        }
    }

    /// Sends a message, altered perhaps, and checks the answers.
    fn send(&mut self, at: usize, message: Vec<u8>) {
        let connection = self.seats[at].client.connection;
        self.note_proofs(at, &message);
        self.world.deliver(connection, &message);
        self.sent.push(message);
        self.take_answers();
        self.replace_ended();
    }

    /// Notes the parts of a message that verify under an existing key: an attacker may also replay
    /// another's signed messages.
    fn note_proofs(&mut self, at: usize, message: &[u8]) {
        let connection = self.seats[at].client.connection;
        for part in split(message) {
            let Ok(header) = Header::parse(part) else { continue };
            let id = header.message_id.get();
            for (session, _, key) in &self.keys {
                let genuine = header.flags().contains(HeaderFlags::SIGNED)
                    && key.verify(&[part], id, false, false).is_ok();
                if genuine {
                    self.proven.insert((connection, id, *session));
                }
            }
        }
    }

    fn replace_ended(&mut self) {
        for ended in self.world.ended() {
            if let Some(at) = self.seats.iter().position(|seat| seat.client.connection == ended) {
                self.reconnect(at);
            }
        }
    }

    fn reconnect(&mut self, at: usize) {
        self.world.disconnect(self.seats[at].client.connection);
        self.seats[at] = Seat::new(&mut self.world);
    }

    fn log_on(&mut self, script: &mut Script<'_>, at: usize) {
        self.logons += 1;
        if self.logons > LOGONS_MAX {
            return;
        }
        let (user, other, kind) = (script.user(), script.below(CONNECTIONS), script.byte());
        let password = if kind & 0x80 == 0 { rawserver::PASSWORD } else { "wrong" };
        let purpose = match kind & 3 {
            0 | 1 => Purpose::New,
            2 => Purpose::Again,
            _ => Purpose::Binding(self.seats[other].client.session),
        };
        // A client that binds a session has its key; or signs with one of another session, or with one that is none.
        let signer = match kind >> 2 & 3 {
            0 | 1 => other,
            2 => script.below(CONNECTIONS),
            _ => at,
        };
        let key = self.seats[signer].client.keys.as_ref().map(|keys| keys.signing.clone());
        let signed_for = match purpose {
            Purpose::New => None,
            Purpose::Again => Some(self.seats[at].client.session),
            Purpose::Binding(_) => Some(self.seats[signer].client.session),
        };
        if let Purpose::Binding(session) = purpose
            && key.is_some()
            && signed_for == Some(session)
        {
            // A session's key signs with the identifiers of each connection that binds it: what a client signs later than with its first
            // two, or on a second connection, is its own second use of a nonce, and the server's answers are no better.
            let is_fresh = self.seats[at].client.message_id == 1;
            if !is_fresh || !self.bound.insert(session) {
                return;
            }
        }
        let Seat { client, users, .. } = &mut self.seats[at];
        let (connection, first) = (client.connection, client.message_id);
        let done = client.log_on_with(&mut self.world, user, password, purpose, key.as_deref());
        let legs = first..client.message_id;
        self.proven.extend(legs.flat_map(|id| signed_for.map(|session| (connection, id, session))));
        if done == Some(NtStatus::SUCCESS) {
            assert_eq!(password, rawserver::PASSWORD, "a wrong password is let in");
            users.insert(user);
            if let Some(keys) = client.keys.as_ref().filter(|_| purpose != Purpose::Again) {
                self.keys.push((client.session, client.connection, keys.signing.clone()));
            }
        }
        self.take_answers();
        self.replace_ended();
    }

    /// A request as an honest client builds it.
    fn request(&mut self, script: &mut Script<'_>, at: usize) -> Vec<u8> {
        let Seat { client, file, .. } = &mut self.seats[at];
        let file = *file;
        let mut body = Vec::new();
        let command = match script.below(9) {
            0 => Command::Echo,
            1 | 2 => Command::Create,
            3 | 4 => Command::Read,
            5 => Command::Close,
            6 => Command::Logoff,
            7 => Command::TreeDisconnect,
            _ => Command::Cancel,
        };
        match command {
            Command::Create => body = Client::create_body(SECRET_FILE, FILE_OPEN_IF, 0, &[]),
            Command::Read => {
                write_read_request(
                    &mut body,
                    ReadRequestBody { length: 64.into(), file_id: file, ..Default::default() },
                    &[],
                );
            }
            Command::Close => {
                body.extend_from_slice(CloseRequestBody { file_id: file, ..Default::default() }.as_bytes())
            }
            _ => body.extend_from_slice(EmptyBody::default().as_bytes()),
        }
        client.build(command, &body, 1)
    }

    /// Signs or leaves it.
    fn protect(&self, at: usize, mut message: Vec<u8>, how: u8) -> Vec<u8> {
        if let Some(keys) = self.seats[at].client.keys.as_ref().filter(|_| how & 1 == 0) {
            sign(&keys.signing, &mut message);
        }
        message
    }

    /// An honest round: the share of the user, the file, its content; so that scripts come to where secrets are.
    fn open_secret(&mut self, at: usize, user: User) {
        let Seat { client, file, .. } = &mut self.seats[at];
        if client.keys.is_none() {
            return;
        }
        let first = client.message_id;
        client.signs = true;
        client.tree_connect(&mut self.world, user.name());
        if let Some(opened) = client.create(&mut self.world, SECRET_FILE, 0) {
            *file = opened;
        }
        client.signs = false;
        let (connection, session) = (client.connection, client.session);
        self.proven.extend((first..client.message_id).map(|id| (connection, id, session)));
        self.take_answers();
        self.replace_ended();
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let at = script.below(CONNECTIONS);
        match script.below(11) {
            0 => {
                self.seats[at].client.negotiate(&mut self.world);
                self.replace_ended();
            }
            1 | 2 => self.log_on(script, at),
            3 => {
                let user = script.user();
                self.open_secret(at, user);
            }
            4 => {
                let message = self.request(script, at);
                let message = self.protect(at, message, script.byte());
                self.send(at, message);
            }
            5 => {
                // Names and identifiers of another's session.
                let other = script.below(CONNECTIONS);
                let message = self.request(script, at);
                let message = self.borrow(script, message, other);
                let message = self.protect(at, message, script.byte());
                self.send(at, message);
            }
            6 => self.send_compound(script, at),
            7 => self.replay(script, at),
            8 => self.send_sealed(script, at),
            9 => self.world.wait(Duration::from_millis(200 * u64::from(script.byte()))),
            _ => self.reconnect(at),
        }
    }

    /// The session, tree and file of another connection's client.
    fn borrow(&self, script: &mut Script<'_>, mut message: Vec<u8>, other: usize) -> Vec<u8> {
        let other = &self.seats[other].client;
        if let Some(header) = Header::in_place(&mut message) {
            header.session_id = other.session.into();
            if script.byte() & 1 == 0 {
                header.tree_id = other.tree.into();
            }
        }
        message
    }

    fn send_compound(&mut self, script: &mut Script<'_>, at: usize) {
        let mut parts = Vec::new();
        for _ in 0..2 + script.below(3) {
            let message = self.request(script, at);
            let other = script.below(CONNECTIONS);
            parts.push(if script.byte() & 1 == 0 { self.borrow(script, message, other) } else { message });
        }
        let how = script.byte();
        let message = join(parts, how & 2 == 0);
        // Each part has a signature of its own.
        let mut signed = Vec::with_capacity(message.len());
        for part in split(&message) {
            signed.extend(self.protect(at, part.to_vec(), how));
        }
        self.send(at, signed);
    }

    /// Something that was sent before, over this connection, with some bytes altered.
    fn replay(&mut self, script: &mut Script<'_>, at: usize) {
        if self.sent.is_empty() {
            return;
        }
        let mut message = self.sent[script.below(self.sent.len())].clone();
        for _ in 0..script.below(4) {
            let place = script.position(message.len());
            message[place] ^= script.byte();
        }
        if script.byte() & 1 == 0
            && let Some(header) = Header::in_place(&mut message)
        {
            header.message_id = self.seats[at].client.message_id.into();
            self.seats[at].client.message_id += 1;
        }
        self.send(at, message);
    }

    /// Encrypted under this client's session, perhaps naming another's inside.
    fn send_sealed(&mut self, script: &mut Script<'_>, at: usize) {
        let message = self.request(script, at);
        let other = script.below(CONNECTIONS);
        let message = if script.byte() & 1 == 0 { self.borrow(script, message, other) } else { message };
        let Some(sealed) = self.seats[at].client.seal(&message) else { return };
        self.send(at, sealed);
    }
}

impl Seat {
    fn new(world: &mut World) -> Self {
        let mut client = Client::new(world).expect("a few connections are welcome");
        client.negotiate(world);
        Self { client, users: HashSet::new(), file: FileId::default() }
    }
}

fuzz_target!(|input: &[u8]| {
    // Each run's keys come from the same seed.
    smb::crypto::forget_nonces();
    let mut script = Script(input);
    let mut stage = Stage::new();
    while !script.0.is_empty() {
        stage.step(&mut script);
    }
    assert!(
        stage.world.opens() <= input.len() && stage.world.sessions() <= input.len(),
        "more is kept than was asked for"
    );
    let connections: Vec<ConnectionId> = stage.seats.iter().map(|seat| seat.client.connection).collect();
    for connection in connections {
        stage.world.disconnect(connection);
    }
    assert_eq!((stage.world.sessions(), stage.world.requests_in_work()), (0, 0), "something stays behind");
    // Failed logons hold an address or an account back; in ten minutes all is forgotten.
    stage.world.wait(Duration::from_secs(700));
    let mut honest = Client::ready(&mut stage.world, User::Ana, "ana");
    assert!(honest.create(&mut stage.world, SECRET_FILE, 0).is_some());
});
