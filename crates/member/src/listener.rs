//! The cluster's port: joins, and requests between servers.
//!
//! Promises: at most [`SEATS`] connections, half of them of strangers, who yield to others; no address
//! has more than a part of either. A peer that is not, or no longer, a server of the cluster is a
//! stranger. A silent or invalid connection ends after [`PATIENCE`]; a stranger's always after
//! [`STRANGER_TIME`]. Answers requests in order. Never decides: [`Host`] does.

use crate::credentials::Credentials;
use crate::wire::{Ask, PATIENCE, Tell, receive, send};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use trust::authority::Fingerprint;
use types::AdmissionLimits;

/// Questions over one connection.
const QUESTIONS_MAX: usize = 64;
/// Timeout of an answer. A forwarded request of the API takes the longest; it has its own timeout.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// One server has few connections: each is for one question. In a trial all servers have one address.
const SEATS: AdmissionLimits =
    AdmissionLimits { connections: 128, connections_per_host: 64, guests: 64, guests_per_host: 32 };
/// A join, which adds a member to etcd, takes at most half a minute.
const STRANGER_TIME: Duration = Duration::from_secs(45);

/// The server that answers questions.
pub trait Host: Send + Sync + 'static {
    /// Whether it is the certificate of a server that is in the cluster now.
    fn is_member(&self, from: Fingerprint) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;

    /// Answers a request. `from`: the peer's certificate, issued by the cluster's authority; `None`: a
    /// stranger.
    fn answer(
        &self,
        peer: SocketAddr,
        from: Option<Fingerprint>,
        question: Ask,
    ) -> Pin<Box<dyn Future<Output = Tell> + Send + '_>>;
}

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, credentials: Arc<Credentials>, host: Arc<dyn Host>) {
    let seats = api::Seats::with_limits(SEATS);
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
    // One that was removed shows a certificate of the authority, too.
    let is_member = match from {
        Some(from) => tokio::time::timeout(PATIENCE, host.is_member(from)).await.unwrap_or(false),
        None => false,
    };
    let talking = talk(&mut stream, peer, from, host);
    if is_member {
        seat.prove();
        return talking.await;
    }
    tokio::time::timeout(STRANGER_TIME, talking).await.map_err(silent)?
}

/// Answers a connection's questions.
async fn talk(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    peer: SocketAddr,
    from: Option<Fingerprint>,
    host: &dyn Host,
) -> io::Result<()> {
    for _ in 0..QUESTIONS_MAX {
        let question = match receive::<Ask>(stream, PATIENCE).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let reason = format!("this is no question that a server of this version answers: {error}");
                return send(stream, &Tell::Refused { reason }).await;
            }
            question => question?,
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, host.answer(peer, from, question)).await;
        let answer =
            answer.unwrap_or_else(|_| Tell::Refused { reason: "no answer within five minutes".into() });
        send(stream, &answer).await?;
    }
    Ok(())
}
