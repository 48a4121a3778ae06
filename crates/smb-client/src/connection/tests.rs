//! The protocol against a server of this file's own, without sockets: answers that must be believed,
//! and others that must not.

use super::*;
use smb::auth::{Acceptor, AccountLookup, AuthStep, NtHash, ServerNames};
use smb::crypto::{CipherId, KeySchedule, PreauthHash, SessionKeys, SigningAlgorithm};
use smb::wire::*;
use types::NtStatus;

const NOW: FileTime = FileTime(133_000_000_000_000_000);
const SESSION: u64 = 0x77;

struct Accounts;

impl AccountLookup for Accounts {
    fn nt_hash(&self, user: &str, _domain: &str) -> Option<NtHash> {
        (user == "ana").then(|| NtHash::from_password("secret"))
    }
}

fn random(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = seed;
    move |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(73).wrapping_add(29);
            *byte = next;
        }
    }
}

/// The server's half of one session.
struct Server {
    acceptor: Acceptor,
    hash: PreauthHash,
    key: Option<SigningKey>,
    ciphers: Option<(SealingKey, OpeningKey)>,
    encrypts: bool,
    credits: u16,
    /// Headers of the requests that came after the logon.
    seen: Vec<Header>,
}

impl Server {
    fn new(encrypts: bool, credits: u16) -> Self {
        Self {
            acceptor: Acceptor::new(ServerNames::standalone("filer")),
            hash: PreauthHash::default(),
            key: None,
            ciphers: None,
            encrypts,
            credits,
            seen: Vec::new(),
        }
    }

    fn answer_header(&self, request: &Header, status: NtStatus) -> Header {
        let mut header = *request;
        header.flags = U32::new(HeaderFlags::SERVER_TO_REDIR.bits());
        header.status = U32::new(status.0);
        header.credits = U16::new(self.credits);
        header.session_id = U64::new(SESSION);
        header.next_command = U32::new(0);
        header
    }

    fn message(&self, request: &Header, status: NtStatus, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.put(&self.answer_header(request, status));
        message.extend_from_slice(body);
        message
    }

    /// Answers one message of the handshake.
    fn handshake(&mut self, request: &[u8]) -> Vec<u8> {
        self.hash.update(request);
        let header = *Header::parse(request).unwrap();
        let mut body = Vec::new();
        if header.command() == Some(Command::Negotiate) {
            let contexts = [
                put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[1; 32])),
                put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[CIPHER_AES_256_GCM])),
                put_context(CONTEXT_SIGNING, &put_counted_ids(&[SIGNING_AES_GMAC])),
            ];
            let fixed = NegotiateResponseBody {
                dialect_revision: U16::new(0x0311),
                capabilities: U32::new(Capabilities::LARGE_MTU.bits()),
                max_transact_size: U32::new(1 << 20),
                max_read_size: U32::new(1 << 20),
                max_write_size: U32::new(u32::MAX),
                ..Default::default()
            };
            write_negotiate_response(&mut body, fixed, b"", &contexts);
            let answer = self.message(&header, NtStatus::SUCCESS, &body);
            self.hash.update(&answer);
            return answer;
        }
        let token = SessionSetupRequest::parse(request).unwrap().security_buffer().unwrap().to_vec();
        match self.acceptor.step(&token, &Accounts, NOW, &mut random(3)) {
            AuthStep::Continue(token) => {
                write_session_setup_response(&mut body, SessionFlags::empty(), &token);
                let answer = self.message(&header, NtStatus::MORE_PROCESSING_REQUIRED, &body);
                self.hash.update(&answer);
                answer
            }
            AuthStep::Done(accepted) => {
                let keys = SessionKeys::new(KeySchedule::Smb311(&self.hash), &*accepted.session_key);
                let key = keys.signing_key(SigningAlgorithm::AesGmac);
                self.ciphers = Some(keys.server_ciphers(CipherId::Aes256Gcm).unwrap());
                let flags = if self.encrypts { SessionFlags::ENCRYPT_DATA } else { SessionFlags::empty() };
                write_session_setup_response(&mut body, flags, &accepted.token);
                let mut answer = self.message(&header, NtStatus::SUCCESS, &body);
                sign(&key, &mut answer);
                self.key = Some(key);
                answer
            }
            AuthStep::Denied(denied) => self.message(&header, denied.status(), &[9, 0, 0, 0, 0, 0, 0, 0, 0]),
        }
    }

    /// The elements of a client's message, checked and decrypted.
    fn open(&mut self, outgoing: &Outgoing) -> Vec<Vec<u8>> {
        let mut bytes = outgoing.head[4..].to_vec();
        outgoing.payload.parts().iter().for_each(|part| bytes.extend_from_slice(part));
        assert_eq!(outgoing.head[..4], (bytes.len() as u32).to_be_bytes());
        if bytes.starts_with(&PROTOCOL_TRANSFORM) {
            bytes = self.ciphers.as_ref().unwrap().1.open_in_place(&mut bytes).unwrap().to_vec();
        }
        let mut elements = Vec::new();
        let mut rest = Some(&bytes[..]);
        while let Some(chain) = rest {
            let (element, after) = split_compound(chain).unwrap();
            let element = element.to_vec();
            let header = *Header::parse(&element).unwrap();
            if header.flags().contains(HeaderFlags::SIGNED) {
                let is_cancel = header.command() == Some(Command::Cancel);
                let key = self.key.as_ref().unwrap();
                key.verify(&[&element], header.message_id.get(), false, is_cancel).unwrap();
            }
            self.seen.push(header);
            elements.push(element);
            rest = after;
        }
        elements
    }
}

fn sign(key: &SigningKey, answer: &mut [u8]) {
    let header = Header::in_place(answer).unwrap();
    header.flags = U32::new((header.flags() | HeaderFlags::SIGNED).bits());
    let id = header.message_id.get();
    key.sign_in_place(answer, id, true, false).unwrap();
}

fn credentials(password: &str) -> Credentials {
    Credentials::User {
        user: "ana".into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password(password),
        target_name: String::new(),
    }
}

fn client(options: Options) -> Connection {
    Connection::new(options, credentials("secret"), "filer", NOW, Box::new(random(1)))
}

/// Runs the handshake; `bend` may change each answer on its way.
fn log_on(
    client: &mut Connection,
    server: &mut Server,
    bend: impl Fn(usize, &mut Vec<u8>),
) -> Result<(), ClientError> {
    for round in 0..3 {
        let request = client.poll_transmit().expect("a message of the handshake");
        let mut answer = server.handshake(&request.head[4..]);
        bend(round, &mut answer);
        client.handle_message(Buf::from(&answer[..]))?;
    }
    Ok(())
}

fn ready(options: Options, encrypts: bool, credits: u16) -> (Connection, Server) {
    let (mut client, mut server) = (client(options), Server::new(encrypts, credits));
    log_on(&mut client, &mut server, |_, _| ()).unwrap();
    assert!(client.is_ready());
    assert!(matches!(client.poll_event(), Some(Event::Ready)));
    (client, server)
}

fn echo() -> Request {
    Request::echo()
}

fn signed_echo_answer(server: &Server, request: &[u8]) -> Vec<u8> {
    let mut answer = server.message(Header::parse(request).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]);
    sign(server.key.as_ref().unwrap(), &mut answer);
    answer
}

#[test]
fn a_signed_session_carries_requests_and_answers() {
    let (mut client, mut server) = ready(Options::default(), false, 10);
    client.submit(Token(5), echo());
    let sent = server.open(&client.poll_transmit().unwrap());
    assert!(server.seen[0].flags().contains(HeaderFlags::SIGNED));
    let answer = signed_echo_answer(&server, &sent[0]);
    client.handle_message(Buf::from(&answer[..])).unwrap();
    let Some(Event::Completed { token, reply }) = client.poll_event() else { panic!("no answer") };
    assert_eq!((token, reply.status()), (Token(5), NtStatus::SUCCESS));
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn limits_are_the_servers_but_never_beyond_the_clients_own() {
    let (client, _) = ready(Options::default(), false, 10);
    let limits = client.limits();
    assert_eq!((limits.read_bytes, limits.write_bytes), (1 << 20, 8 << 20));
}

#[test]
fn nothing_of_the_handshake_can_be_changed_on_the_way() {
    // Any bit of the answers to NEGOTIATE and SESSION_SETUP that the client does not refuse at once changes the keys, so that
    // the last answer's signature is wrong.
    for round in 0..3 {
        for at in 0..400 {
            let (mut client, mut server) = (client(Options::default()), Server::new(false, 10));
            let is_changed = std::cell::Cell::new(false);
            let outcome = log_on(&mut client, &mut server, |this, answer| {
                if this == round && at < answer.len() {
                    answer[at] ^= 0x10;
                    is_changed.set(true);
                }
            });
            assert!(outcome.is_err() || !is_changed.get(), "round {round}, byte {at}");
        }
    }
}

#[test]
fn a_wrong_password_ends_the_handshake_with_the_servers_status() {
    let mut client =
        Connection::new(Options::default(), credentials("guess"), "filer", NOW, Box::new(random(1)));
    let outcome = log_on(&mut client, &mut Server::new(false, 10), |_, _| ());
    assert_eq!(outcome.unwrap_err().status(), Some(NtStatus::LOGON_FAILURE));
}

#[test]
fn an_answer_without_or_with_a_wrong_signature_is_refused() {
    for bend in 0..3 {
        let (mut client, mut server) = ready(Options::default(), false, 10);
        client.submit(Token(5), echo());
        let sent = server.open(&client.poll_transmit().unwrap());
        let mut answer = match bend {
            0 => server.message(Header::parse(&sent[0]).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]),
            _ => signed_echo_answer(&server, &sent[0]),
        };
        if bend == 1 {
            answer[66] ^= 1;
        }
        if bend == 2 {
            answer[50] ^= 1;
        }
        let outcome = client.handle_message(Buf::from(&answer[..]));
        assert!(matches!(outcome, Err(ClientError::NotAuthentic(_))), "{bend}");
        assert!(client.poll_event().is_none());
    }
}

#[test]
fn an_encrypted_session_sends_and_believes_nothing_in_the_clear() {
    let (mut client, mut server) = ready(Options::default(), true, 10);
    client.submit(Token(1), echo());
    let outgoing = client.poll_transmit().unwrap();
    assert!(outgoing.payload.contiguous().starts_with(&PROTOCOL_TRANSFORM));
    let sent = server.open(&outgoing);
    let clear = signed_echo_answer(&server, &sent[0]);
    let plain = server.message(Header::parse(&sent[0]).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]);
    let mut sealed = vec![0; 52 + plain.len()];
    server.ciphers.as_mut().unwrap().0.seal_parts(&[&plain], &mut sealed, SESSION).unwrap();
    client.handle_message(Buf::from(&sealed[..])).unwrap();
    assert!(matches!(client.poll_event(), Some(Event::Completed { token: Token(1), .. })));
    assert!(matches!(client.handle_message(Buf::from(&clear[..])), Err(ClientError::NotAuthentic(_))));
}

#[test]
fn an_encrypted_answer_that_shares_its_memory_is_opened_beside_it_and_believed_no_more_than_another() {
    for bend in [false, true] {
        let (mut client, mut server) = ready(Options::default(), true, 10);
        client.submit(Token(1), echo());
        let sent = server.open(&client.poll_transmit().unwrap());
        let plain = server.message(Header::parse(&sent[0]).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]);
        let mut sealed = vec![0; 52 + plain.len()];
        server.ciphers.as_mut().unwrap().0.seal_parts(&[&plain], &mut sealed, SESSION).unwrap();
        sealed[60] ^= u8::from(bend);
        let shared = Buf::from(&sealed[..]);
        let outcome = client.handle_message(shared.clone());
        assert!(shared[..] == sealed[..], "other views see what came");
        assert_eq!(matches!(outcome, Err(ClientError::NotAuthentic(_))), bend);
        assert_eq!(client.poll_event().is_some(), !bend);
    }
}

#[test]
fn requests_wait_for_credits_and_large_ones_for_many() {
    let (mut client, mut server) = ready(Options::default(), false, 1);
    for token in 0..3 {
        client.submit(Token(token), echo());
    }
    let first = client.poll_transmit().unwrap();
    // Each answer so far brought one credit: one was at hand, and it is spent.
    assert!(client.poll_transmit().is_none());
    let sent = server.open(&first);
    server.credits = 40;
    client.handle_message(Buf::from(&signed_echo_answer(&server, &sent[0])[..])).unwrap();
    let second = client.poll_transmit().unwrap();
    let third = client.poll_transmit().unwrap();
    server.open(&second);
    server.open(&third);
    client.submit(Token(9), Request::read(1, FileId::default(), 0, 1 << 20));
    let read = client.poll_transmit().unwrap();
    server.open(&read);
    client.submit(Token(10), echo());
    server.open(&client.poll_transmit().unwrap());
    let ids: Vec<u64> = server.seen.iter().map(|header| header.message_id.get()).collect();
    assert_eq!(server.seen[3].credit_charge.get(), 16);
    // A request of 16 credits takes 16 identifiers.
    assert_eq!(ids[4] - ids[3], 16);
    assert_eq!(ids[3] - ids[2], 1);
}

#[test]
fn a_compound_is_one_message_of_related_requests_each_signed() {
    let (mut client, mut server) = ready(Options::default(), false, 20);
    let chain = vec![
        (Token(1), echo()),
        (Token(2), Request::flush(1, FileId::RELATED)),
        (Token(3), Request::write(1, FileId::RELATED, 0, sys::Buf::from(&[1, 2, 3][..]).into(), 0)),
        (Token(4), Request::close(1, FileId::RELATED)),
    ];
    client.submit_compound(chain);
    let elements = server.open(&client.poll_transmit().unwrap());
    assert_eq!(elements.len(), 4);
    for (index, header) in server.seen.iter().enumerate() {
        assert_eq!(header.flags().contains(HeaderFlags::RELATED_OPERATIONS), index > 0);
        assert!(header.flags().contains(HeaderFlags::SIGNED));
    }
    let write = WriteRequest::parse(&elements[2]).unwrap();
    assert_eq!(elements[2][write.data_range().unwrap()], [1, 2, 3]);
}

#[test]
fn an_interim_answer_keeps_the_request_and_cancel_names_it() {
    let (mut client, mut server) = ready(Options::default(), false, 10);
    client.submit(Token(8), echo());
    let sent = server.open(&client.poll_transmit().unwrap());
    let request = *Header::parse(&sent[0]).unwrap();
    let mut interim = server.message(&request, NtStatus::PENDING, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
    Header::in_place(&mut interim).unwrap().set_async_id(0x1_0000_0002);
    client.handle_message(Buf::from(&interim[..])).unwrap();
    assert!(client.poll_event().is_none());
    client.cancel(Token(8));
    let cancel = server.open(&client.poll_transmit().unwrap());
    let header = Header::parse(&cancel[0]).unwrap();
    assert_eq!((header.command(), header.async_id()), (Some(Command::Cancel), 0x1_0000_0002));
    let mut last = server.message(&request, NtStatus::CANCELLED, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
    sign(server.key.as_ref().unwrap(), &mut last);
    client.handle_message(Buf::from(&last[..])).unwrap();
    let Some(Event::Completed { reply, .. }) = client.poll_event() else { panic!("no answer") };
    assert_eq!(reply.status(), NtStatus::CANCELLED);
}

#[test]
fn answers_to_nothing_and_to_something_else_end_the_connection() {
    let (mut client, mut server) = ready(Options::default(), false, 10);
    client.submit(Token(8), echo());
    let sent = server.open(&client.poll_transmit().unwrap());
    let key = server.key.take().unwrap();
    let mut stranger = server.message(Header::parse(&sent[0]).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]);
    Header::in_place(&mut stranger).unwrap().message_id = U64::new(99);
    sign(&key, &mut stranger);
    assert!(matches!(client.handle_message(Buf::from(&stranger[..])), Err(ClientError::Protocol(_))));
    let mut other = server.message(Header::parse(&sent[0]).unwrap(), NtStatus::SUCCESS, &[4, 0, 0, 0]);
    Header::in_place(&mut other).unwrap().command = U16::new(Command::Read as u16);
    sign(&key, &mut other);
    assert!(matches!(client.handle_message(Buf::from(&other[..])), Err(ClientError::Protocol(_))));
}

#[test]
fn a_server_that_grants_no_credits_is_an_error_and_not_a_hang() {
    let (mut client, mut server) = (client(Options::default()), Server::new(false, 0));
    let outcome = log_on(&mut client, &mut server, |_, _| ());
    assert!(matches!(outcome, Err(ClientError::Protocol(_))));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_client_panic(junk: Vec<u8>, flip in 0_usize..200, with: u8) {
        let _ = client(Options::default()).handle_message(Buf::from(&junk[..]));
        let (mut client, mut server) = (client(Options::default()), Server::new(false, 10));
        let _ = log_on(&mut client, &mut server, |round, answer| {
            if round == 0 && flip < answer.len() {
                answer[flip] = with;
            }
        }).is_ok();
        let (mut client, mut server) = ready(Options::default(), false, 10);
        client.submit(Token(8), echo());
        let sent = server.open(&client.poll_transmit().unwrap());
        let mut answer = signed_echo_answer(&server, &sent[0]);
        let at = flip % answer.len();
        answer[at] = with;
        let _ = client.handle_message(Buf::from(&answer[..]));
        let _ = client.handle_message(Buf::from(&junk[..]));
    }
}
