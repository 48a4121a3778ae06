//! Initiator and acceptor against each other.

use super::*;

fn log_on(credentials: Credentials) -> (AuthStep, Option<SessionKey>) {
    let (mut client, mut server) = (Initiator::new(credentials), acceptor());
    let (mut client_random, mut server_random) = (counting(1), counting(2));
    let challenge = token(server.step(client.first_token(), &OneUser, NOW, &mut server_random));
    let Ok(InitiatorStep::Send(answer)) = client.step(&challenge, NOW, &mut client_random) else {
        panic!("the client did not answer the challenge");
    };
    let verdict = server.step(&answer, &OneUser, NOW, &mut server_random);
    let key = match &verdict {
        AuthStep::Done(accepted) => match client.step(&accepted.token, NOW, &mut client_random) {
            Ok(InitiatorStep::Done(key)) => Some(key),
            _ => panic!("the client did not accept the verdict"),
        },
        _ => None,
    };
    (verdict, key)
}

#[test]
fn the_right_password_gives_both_sides_the_same_key() {
    let (verdict, key) = log_on(credentials("Ana", PASSWORD));
    let accepted = accepted(verdict);
    assert_eq!(Some(&accepted.session_key), key.as_ref());
    assert_ne!(*accepted.session_key, [0; 16]);
    assert_eq!(
        accepted.identity,
        Identity::User {
            user: "Ana".into(),
            domain: "FILER".into(),
            workstation: "DESK".into(),
            target_name: Some("cifs/filer".into())
        }
    );
}

#[test]
fn the_case_of_the_user_name_does_not_matter_and_that_of_the_password_does() {
    assert!(matches!(log_on(credentials("aNA", PASSWORD)).0, AuthStep::Done(_)));
    let (verdict, _) = log_on(credentials("Ana", &PASSWORD.to_uppercase()));
    assert_eq!(denied(verdict), DeniedReason::WrongPassword);
}

#[test]
fn a_wrong_password_and_an_unknown_user_look_the_same_from_outside() {
    let (AuthStep::Denied(wrong), _) = log_on(credentials("Ana", "guess")) else { panic!("accepted") };
    let (AuthStep::Denied(unknown), _) = log_on(credentials("Bob", "guess")) else { panic!("accepted") };
    assert_eq!(wrong.reason, DeniedReason::WrongPassword);
    assert_eq!(unknown.reason, DeniedReason::UnknownUser);
    assert_eq!(wrong.status(), unknown.status());
    assert_eq!(unknown.user.as_deref(), Some("Bob"));
}

#[test]
fn anonymous_is_reported_as_such() {
    let (verdict, key) = log_on(Credentials::Anonymous);
    assert_eq!(accepted(verdict).identity, Identity::Anonymous);
    assert_eq!(key.map(|key| *key), Some([0; 16]));
}

#[test]
fn nothing_is_accepted_after_the_verdict() {
    let client = Initiator::new(credentials("Ana", PASSWORD));
    let mut server = acceptor();
    assert_eq!(denied(server.step(b"junk", &OneUser, NOW, &mut counting(1))), DeniedReason::Malformed);
    let again = server.step(client.first_token(), &OneUser, NOW, &mut counting(1));
    assert_eq!(denied(again), DeniedReason::OutOfSequence);
}

#[test]
fn an_answer_that_took_too_long_is_refused() {
    let mut client = Initiator::new(credentials("Ana", PASSWORD));
    let mut server = acceptor();
    let challenge = token(server.step(client.first_token(), &OneUser, NOW, &mut counting(2)));
    let Ok(InitiatorStep::Send(answer)) = client.step(&challenge, NOW, &mut counting(1)) else { panic!() };
    let late = FileTime(NOW.0 + 301 * 10_000_000);
    assert_eq!(denied(server.step(&answer, &OneUser, late, &mut counting(3))), DeniedReason::Expired);
}

#[test]
fn a_proof_made_for_another_server_is_refused() {
    let mut client = Initiator::new(credentials("Ana", PASSWORD));
    // The man in the middle passes on our challenge, but under the name of the server that the client meant.
    let mut other = Acceptor::new(ServerNames::standalone("other.example.org"));
    let mut server = acceptor();
    token(server.step(client.first_token(), &OneUser, NOW, &mut counting(2)));
    let challenge = token(other.step(client.first_token(), &OneUser, NOW, &mut counting(2)));
    let Ok(InitiatorStep::Send(answer)) = client.step(&challenge, NOW, &mut counting(1)) else { panic!() };
    assert_eq!(denied(server.step(&answer, &OneUser, NOW, &mut counting(3))), DeniedReason::OtherTarget);
}

#[test]
fn secrets_are_not_printed() {
    let hash = NtHash::from_password(PASSWORD);
    let printed = format!("{hash:?} {:?}", credentials("Ana", PASSWORD));
    let bytes = format!("{:?}", hash.as_bytes());
    assert!(!printed.contains(&bytes[1..bytes.len() - 1]), "{printed}");
    let (verdict, key) = log_on(credentials("Ana", PASSWORD));
    let key = format!("{:?}", *key.unwrap());
    assert!(!format!("{verdict:?}").contains(&key[1..key.len() - 1]));
}
