//! Logons in pipes, signed and sealed calls, and the fate of calls that were changed on the way.

use super::*;
use crate::auth::{Credentials, Initiator, InitiatorStep, MessageSecurity};

const INTEGRITY: u8 = 5;
const PRIVACY: u8 = 6;
const SPNEGO: u8 = 9;

/// A PDU with a security trailer and this value.
fn with_trailer(kind: u8, flags: u8, level: u8, body: &[u8], value: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let mut whole = body.to_vec();
    whole.resize(body.len() + padding, 0);
    whole.extend_from_slice(&[SPNEGO, level, padding as u8, 0, 1, 0, 0, 0]);
    whole.extend_from_slice(value);
    let mut out = pdu(kind, flags, 7, &whole);
    out[10..12].copy_from_slice(&(value.len() as u16).to_le_bytes());
    out
}

/// The authentication value at the end of a PDU.
fn value_of(pdu: &[u8]) -> &[u8] {
    let len = usize::from(u16::from_le_bytes([pdu[10], pdu[11]]));
    &pdu[pdu.len() - len..]
}

/// Logs on in the pipe; answers the client's keys, or the last answer of a logon that was refused.
fn log_on(pipe: &mut Pipe, user: &str, password: &str, level: u8) -> Result<MessageSecurity, Vec<u8>> {
    let mut client = Initiator::new(Credentials::User {
        user: user.into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password(password),
        target_name: String::new(),
    });
    let bind = bind(&SRVSVC, &NDR)[16..].to_vec();
    let mut kind = 11;
    let mut keys = None;
    let mut token = client.first_token().to_vec();
    loop {
        // BIND with header signing, then ALTER_CONTEXT.
        let flags = 3 | if kind == 11 { 4 } else { 0 };
        let asked = with_trailer(kind, flags, level, &bind, &token);
        let answer = pipe.transact(&asked, 65536, &FILER).unwrap().unwrap().bytes;
        if !matches!(answer[2], 12 | 15) {
            return Err(answer);
        }
        kind = 14;
        let mut random = |bytes: &mut [u8]| bytes.fill(3);
        match client.step(value_of(&answer), FILER.now(), &mut random).unwrap() {
            InitiatorStep::Send(next) => token = next,
            InitiatorStep::Done(_) => return Ok(keys.unwrap()),
        }
        keys = client.message_security();
    }
}

/// Calls NetrRemoteTOD, protected; answers its stub, opened and checked.
fn time_of_day(pipe: &mut Pipe, keys: &mut MessageSecurity, level: u8) -> Vec<u8> {
    let asked = protected(keys, level, 28, &words(&[0]));
    let mut answer = pipe.transact(&asked, 65536, &FILER).unwrap().unwrap().bytes;
    assert_eq!(answer[2], 2, "{answer:X?}");
    let signature = value_of(&answer).to_vec();
    let at = answer.len() - 24;
    let padding = usize::from(answer[at + 2]);
    let sealed = (level == PRIVACY).then_some(24..at);
    assert!(keys.verify(&mut answer, 0..at + 8, sealed, &signature));
    answer[24..at - padding].to_vec()
}

fn protected(keys: &mut MessageSecurity, level: u8, operation: u16, stub: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 0, 0, 0, 0][..], &operation.to_le_bytes(), stub].concat();
    let mut asked = with_trailer(0, 3, level, &body, &[0; 16]);
    let end = asked.len() - 16;
    let sealed = (level == PRIVACY).then_some(24..end - 8);
    let signature = keys.protect(&mut asked, 0..end, sealed);
    asked[end..].copy_from_slice(&signature);
    asked
}

#[test]
fn calls_and_answers_are_signed_and_sealed() {
    let expected = call(&mut bound("srvsvc"), &FILER, 28, &words(&[0]));
    for level in [INTEGRITY, PRIVACY] {
        let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
        let mut keys = log_on(&mut pipe, "ana", "secret", level).unwrap();
        for _ in 0..3 {
            assert_eq!(time_of_day(&mut pipe, &mut keys, level), expected);
        }
    }
}

#[test]
fn a_sealed_call_shows_nothing_of_itself() {
    let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
    let mut keys = log_on(&mut pipe, "ana", "secret", PRIVACY).unwrap();
    let stub = [words(&[0]), wide("demo0"), words(&[1])].concat();
    assert!(!contains(&protected(&mut keys, PRIVACY, 16, &stub), "demo0"));
}

#[test]
fn a_call_that_was_changed_or_is_not_signed_ends_the_pipe() {
    let plain = request(28, &words(&[0]));
    for change in 0..3 {
        let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
        let mut keys = log_on(&mut pipe, "ana", "secret", INTEGRITY).unwrap();
        let mut asked = protected(&mut keys, INTEGRITY, 28, &words(&[0]));
        match change {
            // The operation; the signature; no signature at all.
            0 => asked[22] = 21,
            1 => *asked.last_mut().unwrap() ^= 1,
            _ => asked = plain.clone(),
        }
        let answer = pipe.transact(&asked, 65536, &FILER).unwrap().unwrap().bytes;
        assert_eq!((answer[2], &answer[24..28]), (3, &[5, 0, 0, 0][..]), "change {change}");
        assert_eq!(pipe.write(&plain, &FILER), Err(PipeError::Protocol));
    }
}

#[test]
fn another_user_or_password_than_the_sessions_does_not_log_on() {
    for (user, password) in [("ana", "wrong"), ("bob", "secret"), ("", "secret")] {
        let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
        let refused = log_on(&mut pipe, user, password, INTEGRITY).unwrap_err();
        assert_eq!((refused[2], &refused[24..28]), (3, &[5, 0, 0, 0][..]), "{user}");
        let answer = pipe.transact(&request(28, &words(&[0])), 65536, &FILER).unwrap().unwrap().bytes;
        assert_eq!(answer[2], 3, "nothing is called afterwards");
    }
    let mut pipe = Pipe::open("srvsvc", RpcCaller { nt_hash: None, ..caller(false) }).unwrap();
    assert!(log_on(&mut pipe, "ana", "secret", INTEGRITY).is_err());
}
