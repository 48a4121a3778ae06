//! Asking another server on its cluster port.

use crate::preflight::Seen;
use crate::tls::{ClusterTlsError, member_name};
use crate::wire::{Ask, Facts, Target, Tell, receive, send};
use records::nodes::NodeRecord;
use rustls::ClientConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trust::authority::Fingerprint;

/// Timeout of a server's answer about itself, for displays.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_millis(700);

/// Timeout of a connection to a server, before any question.
pub(crate) const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a server's proof that it answers, before a change is requested.
pub(crate) const PROOF_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{address} cannot be reached: {source}")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error("{address} did not answer in {} s", .within.as_secs_f32())]
    Silent { address: SocketAddr, within: Duration },
    #[error("{address} is no server of that cluster: {source}")]
    Stranger { address: SocketAddr, source: io::Error },
    #[error("{0} shows the certificate of another server")]
    Another(SocketAddr),
    #[error("{address} does not answer as a server of a cluster: {source}")]
    Rubbish { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] ClusterTlsError),
    /// Answered, and refused.
    #[error("{0}")]
    Refused(String),
}

/// Asks a server of this cluster at its recorded address. A question may hold secrets, so it leaves
/// only after that server's certificate was shown: another server at this address learns nothing.
///
/// # Errors
/// [`AskError`].
pub async fn ask_node(
    tls: Arc<ClientConfig>,
    node: &NodeRecord,
    question: &Ask,
    within: Duration,
) -> Result<Tell, AskError> {
    let is_node = |shown: Fingerprint| node.has_certificate(&shown.to_string());
    exchange_with(tls, node.cluster, is_node, question, within).await.map(|(told, _)| told)
}

/// Asks the server of the cluster at an address, any of them, once; the whole exchange ends after
/// `within`. Returns also the certificate that it showed.
///
/// # Errors
/// [`AskError`].
pub async fn ask(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    question: &Ask,
    within: Duration,
) -> Result<(Tell, Fingerprint), AskError> {
    exchange_with(tls, address, |_| true, question, within).await
}

/// A change that another server did not confirm.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub error: AskError,
    /// Whether the server did not get the request, or refused it, so that nothing was changed.
    pub is_untold: bool,
}

/// Has a server of this cluster change something, as [`ask_node`]. The request leaves only after the
/// server has answered another question on the same connection within `proof`: a server that takes
/// connections and answers nothing fails soon, and has changed nothing.
pub(crate) async fn have_done(
    tls: Arc<ClientConfig>,
    node: &NodeRecord,
    change: &Ask,
    (proof, within): (Duration, Duration),
) -> Result<Tell, Unanswered> {
    let address = node.cluster;
    let is_node = |shown: Fingerprint| node.has_certificate(&shown.to_string());
    let untold = |error| Unanswered { error, is_untold: true };
    let proven = async {
        let (mut stream, _) = reach(tls, address, is_node, proof).await?;
        // This question changes nothing and needs no disk; any answer will do.
        let _: Tell = exchange(&mut stream, address, &Ask::Standing, proof).await?;
        Ok(stream)
    };
    let mut stream = proven.await.map_err(untold)?;
    match exchange(&mut stream, address, change, within).await {
        Ok(Tell::Refused { reason }) => Err(untold(AskError::Refused(reason))),
        Ok(told) => Ok(told),
        Err(error) => Err(Unanswered { error, is_untold: false }),
    }
}

async fn exchange_with(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    is_wanted: impl Fn(Fingerprint) -> bool,
    question: &Ask,
    within: Duration,
) -> Result<(Tell, Fingerprint), AskError> {
    let exchanged = async {
        let (mut stream, who) = reach(tls, address, is_wanted, within).await?;
        Ok((exchange(&mut stream, address, question, within).await?, who))
    };
    let told = tokio::time::timeout(within, exchanged).await;
    match told.map_err(|_| AskError::Silent { address, within })? {
        Ok((Tell::Refused { reason }, _)) => Err(AskError::Refused(reason)),
        other => other,
    }
}

/// Connects to a server for which `is_wanted` is true.
async fn reach(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    is_wanted: impl Fn(Fingerprint) -> bool,
    within: Duration,
) -> Result<(TlsStream<TcpStream>, Fingerprint), AskError> {
    // However long the answer may take: a port that drops packets costs this, and not the minutes that TCP tries for.
    let reaching = within.min(REACH_TIMEOUT);
    let reached = async {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| AskError::Unreachable { address, source })?;
        let stream = TlsConnector::from(tls).connect(member_name(), stream).await;
        stream.map_err(|source| AskError::Stranger { address, source })
    };
    let silent = |_| AskError::Silent { address, within: reaching };
    let stream = tokio::time::timeout(reaching, reached).await.map_err(silent)??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let who = certificate.map(|certificate| Fingerprint::of(certificate));
    let who = who
        .ok_or_else(|| AskError::Stranger { address, source: io::Error::other("it shows no certificate") })?;
    if is_wanted(who) { Ok((stream, who)) } else { Err(AskError::Another(address)) }
}

async fn exchange(
    stream: &mut TlsStream<TcpStream>,
    address: SocketAddr,
    question: &Ask,
    within: Duration,
) -> Result<Tell, AskError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut => AskError::Silent { address, within },
        _ => AskError::Rubbish { address, source },
    };
    send(stream, question).await.map_err(failed)?;
    receive(stream, within).await.map_err(failed)
}

/// Asks one server for its facts.
pub(crate) async fn see(tls: Arc<ClientConfig>, node: &NodeRecord, within: Duration) -> Seen {
    let (began, address) = (Instant::now(), node.cluster);
    let told = match ask_node(tls, node, &Ask::Facts, within).await {
        Ok(Tell::Facts(facts)) => Ok(*facts),
        Ok(_) => Err(format!("{address} answered something else than was asked")),
        Err(error) => Err(error.to_string()),
    };
    let clock_ms = told.as_ref().map(|facts| clock_ms(facts, began.elapsed())).unwrap_or_default();
    Seen { name: node.name.clone(), told, clock_ms }
}

/// How far the clock of a server is ahead that answered within `took`.
pub(crate) fn clock_ms(facts: &Facts, took: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = i64::try_from((now.saturating_sub(took / 2)).as_millis()).unwrap_or_default();
    i64::try_from(facts.unix_ms).unwrap_or(i64::MAX).saturating_sub(then)
}

pub(crate) fn target_of(node: &NodeRecord) -> Target {
    Target { name: node.name.clone(), cluster: node.cluster, smb: node.smb, rdma: node.rdma }
}
