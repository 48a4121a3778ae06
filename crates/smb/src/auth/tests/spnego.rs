//! Framing: tokens that other implementations send, and some that nobody should.

use super::*;
use crate::auth::der::{Reader, element};
use crate::auth::spnego::*;

/// A client's first token as Windows sends it: NTLM only.
const WINDOWS_FIRST: &str = "604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A\
    04284E544C4D5353500001000000978208E200000000000000000000000000000000060380250000000F";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn the_first_token_of_windows_is_understood_and_challenged() {
    let answer = token(acceptor().step(&hex(WINDOWS_FIRST), &OneUser, NOW, &mut counting(1)));
    let Ok(NegotiationToken::Resp(resp)) = NegotiationToken::parse(&answer) else { panic!() };
    assert_eq!(resp.state, Some(NegState::AcceptIncomplete));
    assert_eq!(resp.mechanism, Some(Mechanism::Ntlm));
    assert!(resp.token.unwrap().starts_with(b"NTLMSSP\0\x02\0\0\0"));
}

#[test]
fn bare_ntlmssp_is_answered_bare() {
    let spnego = hex(WINDOWS_FIRST);
    let Ok(NegotiationToken::Init(init)) = NegotiationToken::parse(&spnego) else { panic!() };
    let answer = token(acceptor().step(init.token.unwrap(), &OneUser, NOW, &mut counting(1)));
    assert!(answer.starts_with(b"NTLMSSP\0\x02\0\0\0"));
}

#[test]
fn the_servers_hint_is_the_one_windows_sends() {
    assert_eq!(
        server_hint(&[Mechanism::Ntlm]),
        hex("604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA32A3028A0261B246E6F745F64656669
             6E65645F696E5F5246433431373840706C656173655F69676E6F7265")
    );
}

/// A client that would rather use Kerberos, with or without a guess.
fn kerberos_first(with_token: bool) -> (Vec<u8>, Vec<u8>) {
    let (mut first, list) = encode_init(&[Mechanism::KerberosMicrosoft, Mechanism::Ntlm], b"a ticket");
    if !with_token {
        let fields = element(0xA0, &list);
        let mut frame = element(6, &[0x2B, 6, 1, 5, 5, 2]);
        frame.extend(element(0xA0, &element(0x30, &fields)));
        first = element(0x60, &frame);
    }
    (first, list)
}

#[test]
fn a_client_that_prefers_kerberos_is_asked_for_ntlm_and_must_protect_its_list() {
    for with_token in [true, false] {
        let (first, list) = kerberos_first(with_token);
        for protect in [true, false] {
            let mut server = acceptor();
            let answer = token(server.step(&first, &OneUser, NOW, &mut counting(1)));
            let Ok(NegotiationToken::Resp(resp)) = NegotiationToken::parse(&answer) else { panic!() };
            assert_eq!((resp.mechanism, resp.token), (Some(Mechanism::Ntlm), None));

            let client = super::super::ntlm::NtlmInitiator::new(credentials("Ana", PASSWORD));
            let negotiate =
                encode_resp(&NegTokenResp { token: Some(client.negotiate()), ..Default::default() });
            let answer = token(server.step(&negotiate, &OneUser, NOW, &mut counting(2)));
            let Ok(NegotiationToken::Resp(resp)) = NegotiationToken::parse(&answer) else { panic!() };
            let (authenticate, context) =
                client.authenticate(resp.token.unwrap(), NOW, &mut counting(3)).unwrap();
            let mic = context.sign_first(super::super::ntlm::Direction::ClientToServer, &list);
            let last = encode_resp(&NegTokenResp {
                token: Some(&authenticate),
                mechanism_list_mic: protect.then_some(&mic[..]),
                ..Default::default()
            });
            let verdict = server.step(&last, &OneUser, NOW, &mut counting(4));
            if !protect {
                assert_eq!(denied(verdict), DeniedReason::WrongMechanismListMic);
                continue;
            }
            let done = accepted(verdict);
            let Ok(NegotiationToken::Resp(resp)) = NegotiationToken::parse(&done.token) else { panic!() };
            assert_eq!(resp.state, Some(NegState::AcceptCompleted));
            let ours = resp.mechanism_list_mic.unwrap();
            assert!(context.verify_first(super::super::ntlm::Direction::ServerToClient, &list, ours));
        }
    }
}

#[test]
fn a_list_that_was_changed_on_the_way_is_refused() {
    let mut client = Initiator::new(credentials("Ana", PASSWORD));
    let mut server = acceptor();
    // Somebody strips Kerberos from, or here adds it to, the list that the client signs.
    let spnego = client.first_token().to_vec();
    let Ok(NegotiationToken::Init(init)) = NegotiationToken::parse(&spnego) else { panic!() };
    let (changed, _) = encode_init(&[Mechanism::Ntlm, Mechanism::Kerberos], init.token.unwrap());
    let challenge = token(server.step(&changed, &OneUser, NOW, &mut counting(1)));
    let Ok(InitiatorStep::Send(answer)) = client.step(&challenge, NOW, &mut counting(2)) else { panic!() };
    assert_eq!(
        denied(server.step(&answer, &OneUser, NOW, &mut counting(3))),
        DeniedReason::WrongMechanismListMic
    );
}

#[test]
fn a_client_without_ntlm_is_refused() {
    let (first, _) = encode_init(&[Mechanism::Kerberos], b"ticket");
    assert_eq!(denied(acceptor().step(&first, &OneUser, NOW, &mut counting(1))), DeniedReason::Unsupported);
}

#[test]
fn every_truncation_of_a_token_is_refused_without_harm() {
    let whole = hex(WINDOWS_FIRST);
    for len in 0..whole.len() {
        let step = acceptor().step(&whole[..len], &OneUser, NOW, &mut counting(1));
        assert!(matches!(step, AuthStep::Denied(_)), "{len} bytes");
    }
}

#[test]
fn der_lengths_that_lie_loop_or_overflow_are_refused() {
    for bad in [
        &[0x30][..],
        &[0x30, 0x80, 0, 0],
        &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
        &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0x30, 0x82, 0x01],
        &[0x30, 0xFF],
        &[0x3F, 0x01, 0],
        &[0x30, 5, 1],
    ] {
        assert!(Reader::new(bad).element().is_err(), "{bad:X?}");
    }
    let mut nested = Vec::new();
    for _ in 0..5000 {
        nested = element(0x60, &nested);
    }
    assert!(NegotiationToken::parse(&nested).is_err());
    let many = vec![Mechanism::Ntlm; 33];
    assert!(NegotiationToken::parse(&encode_init(&many, b"").0).is_err());
}

#[test]
fn tokens_over_the_limit_are_not_looked_at() {
    let (huge, _) = encode_init(&[Mechanism::Ntlm], &vec![0; TOKEN_BYTES_MAX]);
    assert_eq!(denied(acceptor().step(&huge, &OneUser, NOW, &mut counting(1))), DeniedReason::Malformed);
}

#[test]
fn what_is_encoded_parses_back() {
    for len in [0, 1, 127, 128, 255, 256, 65_000] {
        let bytes = vec![7; len];
        let resp = NegTokenResp {
            state: Some(NegState::RequestMic),
            mechanism: Some(Mechanism::KerberosMicrosoft),
            token: Some(&bytes),
            mechanism_list_mic: Some(&bytes),
        };
        assert_eq!(NegotiationToken::parse(&encode_resp(&resp)), Ok(NegotiationToken::Resp(resp.clone())));
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_acceptor_panic(first: Vec<u8>, second: Vec<u8>, flip in 0_usize..90, with: u8) {
        let mut server = acceptor();
        server.step(&first, &OneUser, NOW, &mut counting(1));
        let mut server = acceptor();
        let mut known = hex(WINDOWS_FIRST);
        let at = flip % known.len();
        known[at] = with;
        server.step(&known, &OneUser, NOW, &mut counting(1));
        server.step(&second, &OneUser, NOW, &mut counting(1));
    }
}
