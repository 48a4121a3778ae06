//! Limits on connections that keep the cluster's port busy, and on guesses of tokens.

use super::*;
use crate::asking::have_done;
use crate::guesses::GUESSES_MAX;
use crate::listener::Host;
use crate::tls::member_name;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;

#[tokio::test]
async fn a_removed_server_holds_a_strangers_part_of_the_port_and_keeps_no_server_out() {
    let (first, second, third) = (Server::new("node-1"), Server::new("node-2"), Server::new("node-3"));
    let control = first.found("C").await;
    for server in [&second, &third] {
        let token = control.new_token().await.unwrap().token;
        join(server, &token).await.unwrap();
    }
    control.remove_node("node-3".into()).await.unwrap();
    let removed = Identity::open(third.data.path()).unwrap().unwrap();
    let tls = Arc::new(tls::asking(&removed).unwrap());
    let mut held = Vec::new();
    for _ in 0..140 {
        let stream = tokio::net::TcpStream::connect(first.address()).await.unwrap();
        let stream = TlsConnector::from(tls.clone()).connect(member_name(), stream).await;
        held.extend(stream.ok());
    }
    assert!(matches!(facts_asked(&second, first.address()).await, Ok(Tell::Facts(_))));
    let mut open = 0;
    for stream in &mut held {
        let heard = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0; 16])).await;
        open += usize::from(heard.is_err());
    }
    assert!((1..=32).contains(&open), "{open} of {}", held.len());
}

#[tokio::test]
async fn joins_and_wrong_tokens_are_in_the_audit_log_and_a_host_that_guesses_waits() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let echo = Arc::<Echo>::default();
    control.set_runner(echo.clone());
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    assert_eq!(echo.lines.lock().unwrap()[..], ["127.0.0.1 cluster join node-2 Done "]);
    // A used token is no guess, however often it is shown.
    for _ in 0..2 * GUESSES_MAX {
        assert!(join(&Server::new("node-3"), &token).await.unwrap_err().message.contains("used already"));
    }
    let parsed: JoinToken = token.parse().unwrap();
    let stranger = Arc::new(tls::joining(parsed.authority).unwrap());
    let guess = Ask::Examine { token: parsed.id.to_string(), secret: Secret("00".into()) };
    let mut told = Vec::new();
    for _ in 0..GUESSES_MAX + 1 {
        let refused = ask(stranger.clone(), first.address(), &guess, PATIENCE).await.unwrap_err();
        told.push(refused.to_string());
    }
    let last = told.pop().unwrap();
    assert!(told.iter().all(|why| why.contains("not one of this cluster's")), "{told:?}");
    assert!(last.contains("too many tokens"), "{last}");
    let lines = echo.lines.lock().unwrap().clone();
    let refused = lines.iter().filter(|line| line.contains("cluster test  Refused the token is not one"));
    assert_eq!(refused.count(), GUESSES_MAX as usize, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains(&parsed.secret.to_hex())));
}

#[tokio::test]
async fn what_a_witness_hands_on_is_not_carried_out() {
    let (first, witness) = (Server::new("node-1"), Server::witness("witness"));
    let control = first.found("C").await;
    control.set_runner(Arc::<Echo>::default());
    let token = control.new_token().await.unwrap().token;
    join(&witness, &token).await.unwrap();
    let tls = Arc::new(tls::asking(&Identity::open(witness.data.path()).unwrap().unwrap()).unwrap());
    let (method, path) = ("DELETE".into(), "/api/v1/volumes/data".into());
    let errand = Ask::Errand(crate::wire::Errand { method, path, body: Secret(String::new()), by: None });
    let told = ask(tls.clone(), first.address(), &errand, PATIENCE).await;
    assert!(matches!(&told, Err(AskError::Refused(why)) if why.contains("witness")), "{told:?}");
    assert!(matches!(ask(tls, first.address(), &Ask::Facts, PATIENCE).await, Ok((Tell::Facts(_), _))));
}

#[tokio::test]
async fn a_port_that_takes_connections_and_says_nothing_costs_a_long_question_seconds() {
    let first = Server::new("node-1");
    first.found("C").await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = Arc::new(tls::asking(&Identity::open(first.data.path()).unwrap().unwrap()).unwrap());
    let minutes = Duration::from_secs(290);
    let asked = ask(tls, silent.local_addr().unwrap(), &Ask::Facts, minutes).await;
    assert!(
        matches!(asked, Err(AskError::Silent { within, .. }) if within == crate::asking::REACH_TIMEOUT),
        "{asked:?}"
    );
}

/// A server that has stopped to answer: nothing at all, or no errands.
#[derive(Default)]
struct Stuck {
    proves: AtomicBool,
    errands: AtomicUsize,
}

impl Host for Stuck {
    fn is_member(&self, _: Fingerprint) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { true })
    }

    fn answer(
        &self,
        _: SocketAddr,
        _: Option<Fingerprint>,
        question: Ask,
    ) -> Pin<Box<dyn Future<Output = Tell> + Send + '_>> {
        let proves = self.proves.load(Ordering::SeqCst);
        match question {
            Ask::Standing if proves => {
                Box::pin(async { Tell::Standing { is_member: true, removed_unix_s: None } })
            }
            Ask::Errand(_) => {
                self.errands.fetch_add(1, Ordering::SeqCst);
                Box::pin(std::future::pending())
            }
            _ => Box::pin(std::future::pending()),
        }
    }
}

#[tokio::test]
async fn a_server_that_answers_nothing_is_told_of_no_change_and_one_that_dies_may_have_made_it() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    let stuck = Arc::new(Stuck::default());
    let other = Server { state: first.state.clone(), ..second };
    let credentials = other.start().credentials().unwrap();
    other.port.set_nonblocking(true).unwrap();
    let port = tokio::net::TcpListener::from_std(other.port.try_clone().unwrap()).unwrap();
    let _serving = tokio::spawn(serve(port, credentials, stuck.clone()));
    let node = nodes::member_named(&first.state, "node-2").unwrap().unwrap().value;
    let tls = || Arc::new(tls::asking(&Identity::open(first.data.path()).unwrap().unwrap()).unwrap());
    let (method, path) = ("DELETE".to_owned(), "/api/v1/volumes/data".to_owned());
    let change = crate::wire::Errand { method, path, body: Secret(String::new()), by: None };
    let change = Ask::Errand(change);
    let moment = Duration::from_millis(300);

    let unanswered = have_done(tls(), &node, &change, (moment, PATIENCE)).await.unwrap_err();
    assert!(unanswered.is_untold && matches!(unanswered.error, AskError::Silent { .. }), "{unanswered:?}");
    assert_eq!(stuck.errands.load(Ordering::SeqCst), 0);
    stuck.proves.store(true, Ordering::SeqCst);
    let unanswered = have_done(tls(), &node, &change, (PATIENCE, moment)).await.unwrap_err();
    assert!(!unanswered.is_untold && matches!(unanswered.error, AskError::Silent { .. }), "{unanswered:?}");

    let asked = Errand { method: "GET".into(), path: "/api/v1/volumes/v/quotas".into(), body: String::new() };
    let message = control.send("node-2".into(), asked).await.unwrap_err().message;
    assert!(message.contains("'node-2'") && message.contains("did not answer in"), "{message}");

    let seen = stuck.errands.load(Ordering::SeqCst);
    let errand = Errand { method: "PATCH".into(), path: "/api/v1/volumes/data".into(), body: "{}".into() };
    let dies = async {
        while stuck.errands.load(Ordering::SeqCst) == seen {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        first.rest.lives.lock().unwrap().insert(NodeId(2), false);
    };
    let (sent, ()) = tokio::join!(control.send("node-2".into(), errand), dies);
    let message = sent.unwrap_err().message;
    assert!(message.contains("not known") && message.contains("went down"), "{message}");
}
