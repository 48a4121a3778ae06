//! Asking another server on its cluster port.

use crate::tls::{ClusterTlsError, member_name};
use cluster::authority::Fingerprint;
use cluster::nodes::NodeRecord;
use cluster::wire::{Ask, Tell, receive, send};
use rustls::ClientConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
    /// It answered, and said no.
    #[error("{0}")]
    Refused(String),
}

/// Asks a server of this cluster at its recorded address. A question may hold secrets, so it leaves only when that server's certificate
/// was shown: another server of the cluster at this address learns nothing.
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

/// Asks whichever server of the cluster is at an address, once; the whole exchange is over after `within`. Answers also who answered.
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

async fn exchange_with(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    is_wanted: impl Fn(Fingerprint) -> bool,
    question: &Ask,
    within: Duration,
) -> Result<(Tell, Fingerprint), AskError> {
    let exchange = async {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| AskError::Unreachable { address, source })?;
        let stream = TlsConnector::from(tls).connect(member_name(), stream).await;
        let mut stream = stream.map_err(|source| AskError::Stranger { address, source })?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let who = certificate.map(|certificate| Fingerprint::of(certificate)).ok_or_else(|| {
            AskError::Stranger { address, source: io::Error::other("it shows no certificate") }
        })?;
        if !is_wanted(who) {
            return Err(AskError::Another(address));
        }
        let rubbish = |source| AskError::Rubbish { address, source };
        send(&mut stream, question).await.map_err(rubbish)?;
        let told = receive(&mut stream, within).await.map_err(rubbish)?;
        Ok((told, who))
    };
    let told = tokio::time::timeout(within, exchange).await;
    match told.map_err(|_| AskError::Silent { address, within })? {
        Ok((Tell::Refused { reason }, _)) => Err(AskError::Refused(reason)),
        other => other,
    }
}
