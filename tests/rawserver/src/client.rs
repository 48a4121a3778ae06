//! One connection's raw client: builds, signs and seals any message.

use crate::people::{PASSWORD, User};
use crate::world::{WALL, World};
use smb::auth::{Credentials, Initiator, InitiatorStep, NtHash};
use smb::crypto::{
    CipherId, KeySchedule, OpeningKey, PreauthHash, SealingKey, SessionKeys, SigningAlgorithm, SigningKey,
};
use smb::wire::*;
use smb_server::ConnectionId;
use std::rc::Rc;
use sys::BufMut;
use types::NtStatus;
use zerocopy::IntoBytes;

/// Purpose of a logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    New,
    /// The client's present session, signed with its key.
    Again,
    /// This connection becomes one more channel of this session.
    Binding(u64),
}

/// Keys of one session on one connection.
pub struct Keys {
    pub signing: Rc<SigningKey>,
    pub sealing: SealingKey,
    pub opening: OpeningKey,
}

pub struct Client {
    pub connection: ConnectionId,
    pub message_id: u64,
    pub session: u64,
    pub tree: u32,
    pub keys: Option<Keys>,
    preauth: PreauthHash,
    /// Whether every message is signed, if there is a key.
    pub signs: bool,
}

impl Client {
    /// Connected; nothing said.
    pub fn new(world: &mut World) -> Option<Self> {
        Some(Self {
            connection: world.connect()?,
            message_id: 0,
            session: 0,
            tree: 0,
            keys: None,
            preauth: PreauthHash::default(),
            signs: false,
        })
    }

    /// Logged on and connected to a share.
    ///
    /// # Panics
    /// When the server refuses that.
    pub fn ready(world: &mut World, user: User, share: &str) -> Self {
        let mut client = Self::new(world).expect("a connection");
        assert_eq!(client.negotiate(world), Some(NtStatus::SUCCESS));
        assert_eq!(client.log_on(world, user, Purpose::New, None), Some(NtStatus::SUCCESS));
        // A TREE_CONNECT of 3.1.1 is signed in any case.
        client.signs = true;
        assert_eq!(client.tree_connect(world, share), Some(NtStatus::SUCCESS));
        client.signs = false;
        client
    }

    pub fn header(&mut self, command: Command, credit_charge: u16) -> Header {
        let mut header = Header::new(command);
        header.message_id = self.message_id.into();
        header.credits = 8192.into();
        header.credit_charge = credit_charge.into();
        header.session_id = self.session.into();
        header.tree_id = self.tree.into();
        self.message_id += u64::from(credit_charge.max(1));
        header
    }

    /// A message, unsigned, with the credits that its size costs.
    pub fn build(&mut self, command: Command, body: &[u8], credit_charge: u16) -> Vec<u8> {
        let mut out = self.header(command, credit_charge).as_bytes().to_vec();
        out.extend_from_slice(body);
        out
    }

    fn signed(&self, mut message: Vec<u8>) -> Vec<u8> {
        if let Some(keys) = self.keys.as_ref().filter(|_| self.signs) {
            sign(&keys.signing, &mut message);
        }
        message
    }

    pub fn seal(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let session = self.session;
        let keys = self.keys.as_mut()?;
        let mut out = vec![0; TRANSFORM_HEADER_BYTES + message.len()];
        keys.sealing.seal_parts(&[message], &mut out, session).ok()?;
        Some(out)
    }

    /// A message from the server, decrypted if it is encrypted; `None`: by another key.
    pub fn open(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if !bytes.starts_with(&PROTOCOL_TRANSFORM) {
            return Some(bytes.to_vec());
        }
        let mut plain = BufMut::for_overwrite(bytes.len().checked_sub(TRANSFORM_HEADER_BYTES)?);
        self.keys.as_ref()?.opening.open_into(bytes, &mut plain).ok()?;
        Some(plain.to_vec())
    }

    /// Sends one request and takes one answer; `None`: there is none.
    pub fn call(&mut self, world: &mut World, command: Command, body: &[u8]) -> Option<Vec<u8>> {
        let message = self.build(command, body, 1);
        let message = self.signed(message);
        world.deliver(self.connection, &message);
        self.open(&world.sent(self.connection)?)
    }

    pub fn negotiate(&mut self, world: &mut World) -> Option<NtStatus> {
        let mut body = Vec::new();
        let contexts = [
            put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[7; 32])),
            put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[CIPHER_AES_128_GCM])),
            put_context(CONTEXT_SIGNING, &put_counted_ids(&[SIGNING_AES_GMAC])),
        ];
        let fixed = NegotiateRequestBody {
            security_mode: 1.into(),
            capabilities: 0x7F.into(),
            client_guid: [5; 16],
            ..Default::default()
        };
        // Offsets in it are those from the header on.
        let header = self.header(Command::Negotiate, 1);
        body.extend_from_slice(header.as_bytes());
        let mut tail = Vec::new();
        write_negotiate_request(&mut tail, fixed, &[0x0311], &contexts);
        body.extend_from_slice(&tail);
        self.preauth = PreauthHash::default();
        self.preauth.update(&body);
        world.deliver(self.connection, &body);
        let answer = world.sent(self.connection)?;
        self.preauth.update(&answer);
        status(&answer)
    }

    /// The whole logon, or `None` if an answer does not come. With `binds` the requests are signed by that key.
    pub fn log_on(
        &mut self,
        world: &mut World,
        user: User,
        purpose: Purpose,
        binds: Option<&SigningKey>,
    ) -> Option<NtStatus> {
        self.log_on_with(world, user, PASSWORD, purpose, binds)
    }

    pub fn log_on_with(
        &mut self,
        world: &mut World,
        user: User,
        password: &str,
        purpose: Purpose,
        binds: Option<&SigningKey>,
    ) -> Option<NtStatus> {
        let mut state = self.connection.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        // Each logon has a key of its own.
        let mut random = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 33) as u8;
            }
        };
        let mut initiator = Initiator::new(Credentials::User {
            user: user.name().to_owned(),
            domain: String::new(),
            workstation: String::new(),
            hash: NtHash::from_password(password),
            target_name: String::new(),
        });
        let session = match purpose {
            Purpose::New => 0,
            Purpose::Again => self.session,
            Purpose::Binding(session) => session,
        };
        let first = initiator.first_token().to_vec();
        let mut preauth = self.preauth;
        let challenge = self.setup_leg(world, &first, session, purpose, binds, &mut preauth)?;
        if status(&challenge)? != NtStatus::MORE_PROCESSING_REQUIRED {
            return status(&challenge);
        }
        let session = Header::parse(&challenge).ok()?.session_id.get();
        let token = SessionSetupResponse::parse(&challenge).ok()?.security_buffer().ok()?;
        let InitiatorStep::Send(answer) = initiator.step(token, WALL, &mut random).ok()? else { return None };
        let key = initiator.session_key()?.clone();
        let answer = self.setup_leg(world, &answer, session, purpose, binds, &mut preauth)?;
        let done = status(&answer)?;
        if done == NtStatus::SUCCESS && purpose != Purpose::Again {
            let keys = SessionKeys::new(KeySchedule::Smb311(&preauth), &key[..]);
            let (sealing, opening) = keys.client_ciphers(CipherId::Aes128Gcm).ok()?;
            self.keys = Some(Keys {
                signing: Rc::new(keys.signing_key(SigningAlgorithm::AesGmac)),
                sealing,
                opening,
            });
            self.session = session;
        }
        Some(done)
    }

    /// Sends one SESSION_SETUP; hashes it into `preauth`.
    fn setup_leg(
        &mut self,
        world: &mut World,
        token: &[u8],
        session: u64,
        purpose: Purpose,
        binds: Option<&SigningKey>,
        preauth: &mut PreauthHash,
    ) -> Option<Vec<u8>> {
        let flags = if matches!(purpose, Purpose::Binding(_)) { SESSION_FLAG_BINDING } else { 0 };
        let fixed = SessionSetupRequestBody { security_mode: 1, flags, ..Default::default() };
        let mut body = Vec::new();
        write_session_setup_request(&mut body, fixed, token);
        let mut message = self.build(Command::SessionSetup, &body, 1);
        Header::in_place(&mut message)?.session_id = session.into();
        let key = match purpose {
            Purpose::New => None,
            Purpose::Again => self.keys.as_ref().map(|keys| &*keys.signing),
            Purpose::Binding(_) => binds,
        };
        if let Some(key) = key {
            sign(key, &mut message);
        }
        preauth.update(&message);
        world.deliver(self.connection, &message);
        let answer = world.sent(self.connection)?;
        if status(&answer)? == NtStatus::MORE_PROCESSING_REQUIRED {
            preauth.update(&answer);
        }
        Some(answer)
    }

    pub fn tree_connect(&mut self, world: &mut World, share: &str) -> Option<NtStatus> {
        let mut body = Vec::new();
        write_tree_connect_request(&mut body, 0, &wide_from_str(&format!(r"\\filer\{share}")));
        let answer = self.call(world, Command::TreeConnect, &body)?;
        let done = status(&answer)?;
        if done == NtStatus::SUCCESS {
            self.tree = Header::parse(&answer).ok()?.tree_id.get();
        }
        Some(done)
    }

    /// The body of a CREATE with full access and this disposition.
    pub fn create_body(name: &str, disposition: u32, options: u32, contexts: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let body = CreateRequestBody {
            impersonation_level: 2.into(),
            desired_access: 0x001F_01FF.into(),
            share_access: 7.into(),
            create_disposition: disposition.into(),
            create_options: options.into(),
            ..Default::default()
        };
        write_create_request(&mut out, body, &wide_from_str(name), contexts);
        out
    }

    /// Opens a file or makes it.
    pub fn create(&mut self, world: &mut World, name: &str, options: u32) -> Option<FileId> {
        let answer =
            self.call(world, Command::Create, &Self::create_body(name, FILE_OPEN_IF, options, &[]))?;
        CreateResponse::parse(&answer).ok().map(|created| created.file_id)
    }
}

/// Signs a request in place.
pub fn sign(key: &SigningKey, message: &mut [u8]) {
    let Some(header) = Header::in_place(message) else { return };
    header.flags = (header.flags() | HeaderFlags::SIGNED).bits().into();
    let id = header.message_id.get();
    let is_cancel = header.command() == Some(Command::Cancel);
    // Fails only for a message shorter than a header.
    let _ = key.sign_in_place(message, id, false, is_cancel);
}

/// Status of the first answer in a message.
pub fn status(message: &[u8]) -> Option<NtStatus> {
    Header::parse(message).ok().map(Header::status)
}

/// The parts of a compound, as far as they can be told apart.
pub fn split(message: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), Some(message));
    while let Some(bytes) = rest {
        let Ok((first, next)) = split_compound(bytes) else { break };
        parts.push(first);
        rest = next;
    }
    parts
}

/// Requests as one compound message; all but the first related if `related`.
pub fn join(requests: Vec<Vec<u8>>, related: bool) -> Vec<u8> {
    let count = requests.len();
    let mut out = Vec::new();
    for (position, mut request) in requests.into_iter().enumerate() {
        let padded = request.len().next_multiple_of(8);
        if position + 1 < count {
            request.resize(padded, 0);
        }
        if let Some(header) = Header::in_place(&mut request) {
            header.next_command = if position + 1 < count { padded as u32 } else { 0 }.into();
            if related && position > 0 {
                header.flags = (header.flags() | HeaderFlags::RELATED_OPERATIONS).bits().into();
            }
        }
        out.extend(request);
    }
    out
}
