//! A client that builds its own AUTHENTICATE: wrong password times every flag and field it could bend.

use super::*;
use crate::auth::der::element;
use crate::auth::ntlm::testing::{Forgery, forge};

/// The name of a forgery, and the change that makes it.
type Bend = (&'static str, fn(&mut Forgery));

fn verdict(forgery: &Forgery) -> AuthStep {
    let mut server = acceptor();
    let negotiate = forge::negotiate(forgery);
    let challenge = match server.step(&negotiate, &OneUser, NOW, &mut counting(9)) {
        AuthStep::Continue(challenge) => challenge,
        other => return other,
    };
    let authenticate = forge::authenticate(forgery, &negotiate, &challenge);
    server.step(&authenticate, &OneUser, NOW, &mut counting(8))
}

fn with(password: &str, bend: impl FnOnce(&mut Forgery)) -> AuthStep {
    let mut forgery = Forgery::honest("Ana", password);
    bend(&mut forgery);
    verdict(&forgery)
}

#[test]
fn an_honest_message_of_the_forge_is_accepted_so_that_refusals_below_mean_something() {
    assert!(matches!(with(PASSWORD, |_| ()), AuthStep::Done(_)));
}

#[test]
fn a_right_password_without_a_mic_is_accepted_where_none_was_announced() {
    assert!(matches!(with(PASSWORD, |f| f.announce_mic = false), AuthStep::Done(_)));
}

#[test]
fn a_right_password_without_key_exchange_is_accepted() {
    assert!(matches!(with(PASSWORD, |f| f.clear_flags = 0x4000_0000), AuthStep::Done(_)));
}

#[test]
fn oem_text_is_understood() {
    let step = with(PASSWORD, |f| f.oem = true);
    let Identity::User { user, .. } = accepted(step).identity else { panic!() };
    assert_eq!(user, "Ana");
}

#[test]
fn a_wrong_password_is_refused_however_the_message_is_bent() {
    let bends: [Bend; 10] = [
        ("as it is", |_| ()),
        ("no MIC announced", |f| f.announce_mic = false),
        ("no MIC announced, NEGOTIATE_TARGET_INFO cleared", |f| {
            f.announce_mic = false;
            f.clear_flags = 0x0080_0000;
        }),
        ("NEGOTIATE_TARGET_INFO cleared", |f| f.clear_flags = 0x0080_0000),
        ("no KEY_EXCH", |f| f.clear_flags = 0x4000_0000),
        ("no KEY_EXCH, no MIC", |f| {
            f.clear_flags = 0x4000_0000;
            f.announce_mic = false;
        }),
        ("SIGN, SEAL, ALWAYS_SIGN and key strengths cleared", |f| f.clear_flags = 0xE000_8030),
        ("ANONYMOUS set", |f| f.set_flags = 0x0000_0800),
        ("a proof of zeros", |f| f.proof = Some([0; 16])),
        ("OEM text", |f| f.oem = true),
    ];
    for (what, bend) in bends {
        assert_eq!(denied(with("wrong", bend)), DeniedReason::WrongPassword, "{what}");
    }
}

#[test]
fn responses_that_are_not_ntlm_v2_are_refused_with_the_right_password_too() {
    for password in [PASSWORD, "wrong"] {
        // LMv2 only, NTLMv1, nothing at all, and a proof without a blob.
        for nt_len in [0, 24, 16] {
            let step = with(password, |f| {
                f.nt_response_len = Some(nt_len);
                f.lm_response = vec![5; 24];
            });
            assert_eq!(denied(step), DeniedReason::NotNtlmV2, "{nt_len} bytes");
        }
        let empty = with(password, |f| {
            f.nt_response_len = Some(0);
            f.lm_response = Vec::new();
        });
        assert_eq!(denied(empty), DeniedReason::NotNtlmV2);
    }
}

#[test]
fn a_user_with_the_empty_response_of_an_anonymous_logon_is_not_anonymous() {
    let step = with("wrong", |f| {
        f.nt_response_len = Some(0);
        f.lm_response = vec![0];
        f.set_flags = 0x0000_0800;
    });
    assert_eq!(denied(step), DeniedReason::NotNtlmV2);
}

#[test]
fn an_anonymous_logon_with_a_response_is_no_logon() {
    let step = with("wrong", |f| f.user.clear());
    assert_eq!(denied(step), DeniedReason::UnknownUser);
}

#[test]
fn a_wrong_mic_is_refused() {
    assert_eq!(denied(with(PASSWORD, |f| f.mic = Some([7; 16]))), DeniedReason::WrongMic);
    assert_eq!(denied(with(PASSWORD, |f| f.mic = Some([0; 16]))), DeniedReason::WrongMic);
}

#[test]
fn a_mic_that_was_announced_and_left_out_is_refused() {
    assert_eq!(denied(with(PASSWORD, |f| f.leave_out_mic = true)), DeniedReason::WrongMic);
}

#[test]
fn a_client_that_drops_extended_session_security_is_refused() {
    assert_eq!(denied(with(PASSWORD, |f| f.clear_flags = 0x0008_0000)), DeniedReason::Unsupported);
}

#[test]
fn a_session_key_of_the_wrong_length_is_malformed() {
    for len in [0, 15, 17] {
        assert_eq!(denied(with(PASSWORD, |f| f.session_key_len = len)), DeniedReason::Malformed);
    }
}

#[test]
fn a_clock_that_is_days_off_matters_only_without_the_servers_time() {
    let days = 3 * 24 * 3600 * 10_000_000;
    assert!(matches!(with(PASSWORD, |f| f.time = FileTime(NOW.0 - days)), AuthStep::Done(_)));
    let step = with(PASSWORD, |f| {
        f.time = FileTime(NOW.0 - days);
        f.echo_target_info = false;
    });
    assert_eq!(denied(step), DeniedReason::Expired);
}

#[test]
fn every_truncation_and_every_wild_offset_is_refused_without_harm() {
    let forgery = Forgery::honest("Ana", PASSWORD);
    let challenged = || {
        let mut server = acceptor();
        let negotiate = forge::negotiate(&forgery);
        let challenge = token(server.step(&negotiate, &OneUser, NOW, &mut counting(9)));
        let authenticate = forge::authenticate(&forgery, &negotiate, &challenge);
        (server, authenticate)
    };
    let (_, whole) = challenged();
    for len in 0..whole.len() {
        let (mut server, whole) = challenged();
        let step = server.step(&whole[..len], &OneUser, NOW, &mut counting(8));
        assert!(matches!(step, AuthStep::Denied(_)), "{len} bytes");
    }
    for at in 12..64 {
        for value in [0x00, 0x7F, 0xFF] {
            let (mut server, mut bent) = challenged();
            bent[at] = value;
            if bent != whole {
                // Maximum lengths and unused high flags may change the message without changing its meaning, but the MIC covers them.
                let step = server.step(&bent, &OneUser, NOW, &mut counting(8));
                assert!(matches!(step, AuthStep::Denied(_)), "byte {at} = {value:#X}");
            }
        }
    }
}

#[test]
fn target_information_that_loops_or_lies_is_refused() {
    for bad in [&[1, 0, 0xFF, 0xFF][..], &[1, 0, 4, 0, 1], &[9], &[2, 0, 1]] {
        let step = with(PASSWORD, |f| f.target_info = Some(bad.to_vec()));
        assert_eq!(denied(step), DeniedReason::Malformed, "{bad:X?}");
    }
}

#[test]
fn a_second_negotiate_instead_of_an_answer_is_refused() {
    let mut server = acceptor();
    let negotiate = forge::negotiate(&Forgery::honest("Ana", PASSWORD));
    token(server.step(&negotiate, &OneUser, NOW, &mut counting(9)));
    assert_eq!(denied(server.step(&negotiate, &OneUser, NOW, &mut counting(9))), DeniedReason::Malformed);
}

#[test]
fn messages_that_would_be_kept_or_looked_at_for_long_are_refused_for_their_length() {
    let forgery = Forgery::honest("Ana", PASSWORD);
    let negotiate_of = |len: usize| {
        let mut negotiate = forge::negotiate(&forgery);
        negotiate.resize(len, 0);
        negotiate
    };
    let begin = |negotiate: &[u8]| acceptor().step(negotiate, &OneUser, NOW, &mut counting(9));
    assert!(matches!(begin(&negotiate_of(1024)), AuthStep::Continue(_)));
    assert_eq!(denied(begin(&negotiate_of(1025))), DeniedReason::Malformed);

    let finish = |len: usize| {
        let mut server = acceptor();
        let negotiate = forge::negotiate(&forgery);
        let challenge = token(server.step(&negotiate, &OneUser, NOW, &mut counting(9)));
        let without_mic = Forgery { announce_mic: false, ..Forgery::honest("Ana", PASSWORD) };
        let mut authenticate = forge::authenticate(&without_mic, &negotiate, &challenge);
        authenticate.resize(len, 0);
        server.step(&authenticate, &OneUser, NOW, &mut counting(8))
    };
    assert!(matches!(finish(NTLM_BYTES_MAX), AuthStep::Done(_)));
    assert_eq!(denied(finish(NTLM_BYTES_MAX + 1)), DeniedReason::Malformed);

    // A list of mechanisms that are each a KiB long.
    let identifier = element(6, &[0x2B; 1024]);
    let ntlm = element(6, &[0x2B, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10]);
    let list = element(0x30, &[ntlm, identifier].concat());
    let fields = element(0x30, &element(0xA0, &list));
    let mut frame = element(6, &[0x2B, 6, 1, 5, 5, 2]);
    frame.extend(element(0xA0, &fields));
    assert_eq!(denied(begin(&element(0x60, &frame))), DeniedReason::Malformed);
}
