//! The cluster's port: who joins, and what servers ask each other.
//!
//! Promises: at most [`api::CONNECTIONS_MAX`] connections, of which strangers make room for others; one that says nothing, or rubbish, ends
//! after [`PATIENCE`]; a question is answered in order. Never decides: that is [`Host`]'s.

use crate::credentials::Credentials;
use cluster::authority::Fingerprint;
use cluster::wire::{Ask, PATIENCE, Tell, receive, send};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Questions over one connection.
const QUESTIONS_MAX: usize = 64;
/// A request of the API that another server handed on takes the longest; it has a bound of its own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// Who answers questions.
pub trait Host: Send + Sync + 'static {
    /// `from`: the certificate that the peer showed, made by the cluster's authority; `None`: a stranger.
    fn answer(
        &self,
        peer: SocketAddr,
        from: Option<Fingerprint>,
        question: Ask,
    ) -> Pin<Box<dyn Future<Output = Tell> + Send + '_>>;
}

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, credentials: Arc<Credentials>, host: Arc<dyn Host>) {
    let seats = api::Seats::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                tracing::warn!(%error, "the cluster's port cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(seat) = seats.take(peer) else { continue };
        let seat = Arc::new(seat);
        // The certificate may have been renewed meanwhile.
        let acceptor = TlsAcceptor::from(credentials.listening());
        let (host, its_seat) = (host.clone(), seat.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = converse(stream, peer, acceptor, &*host, &its_seat).await {
                tracing::debug!(%peer, %error, "a connection to the cluster's port ended");
            }
        });
        seat.is_of(task.abort_handle());
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    host: &dyn Host,
    seat: &api::Seat,
) -> io::Result<()> {
    let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut stream = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await.map_err(silent)??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let from = certificate.map(|certificate| Fingerprint::of(certificate));
    if from.is_some() {
        seat.prove();
    }
    for _ in 0..QUESTIONS_MAX {
        let question = match receive::<Ask>(&mut stream, PATIENCE).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let reason = format!("this is no question that a server of this version answers: {error}");
                return send(&mut stream, &Tell::Refused { reason }).await;
            }
            question => question?,
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, host.answer(peer, from, question)).await;
        let answer =
            answer.unwrap_or_else(|_| Tell::Refused { reason: "no answer within five minutes".into() });
        send(&mut stream, &answer).await?;
    }
    Ok(())
}
