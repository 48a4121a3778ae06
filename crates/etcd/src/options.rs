//! Options of an etcd client.

use records::StateError;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use types::NodeId;
use zeroize::Zeroizing;

/// etcd refuses clients that ask for a sign of life more often than this, unless
/// `--grpc-keepalive-min-time` permits it.
const KEEPALIVE_OF_ETCD: Duration = Duration::from_secs(5);
/// A connection on which no sign of life comes back within this time is given up.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// This process's certificate and key for etcd, and the authority that it trusts; all in PEM.
#[derive(Clone)]
pub struct TlsIdentity {
    /// Certificate of the authority that etcd's certificates are checked by.
    pub ca_pem: Vec<u8>,
    /// Certificate of this process.
    pub certificate_pem: Vec<u8>,
    /// Private key of that certificate.
    pub key_pem: Zeroizing<Vec<u8>>,
}

/// How a cluster's etcd is reached.
#[derive(Clone)]
pub struct EtcdOptions {
    /// URLs as `https://10.1.0.11:2379`; the nearest first.
    pub endpoints: Vec<String>,
    /// `None` only for URLs with `http:`, which is for tests.
    pub tls: Option<TlsIdentity>,
    /// The cluster's name: its records are the keys below `cenote/NAME/`.
    pub cluster: String,
    /// How long an answer may take, after which it is Unknown.
    pub deadline: Duration,
    /// How often an idle connection is asked for a sign of life; `None`: every five seconds, which any etcd allows.
    pub keepalive: Option<Duration>,
    /// A revision that the state had once. An etcd that has less was restored from an old backup, and is not used. 0: unknown.
    pub floor: u64,
    /// Where that is kept over restarts; `None`: nowhere.
    pub floor_file: Option<PathBuf>,
    /// The server that writes: a commit of its is applied only while its record does not say that it was removed. `None`: no server's, or that of
    /// one which is of no cluster.
    pub writer: Option<NodeId>,
    /// How much history stays when old history is dropped; `None`: this process drops none. One process a cluster is enough, more do
    /// no harm. The newest revision is never dropped: with etcd #17780, revisions would count down after a crash.
    pub kept_revisions: Option<NonZeroU32>,
}

impl EtcdOptions {
    /// For [`EtcdOptions::kept_revisions`]: the changes that a watch may be behind.
    pub const KEPT_REVISIONS: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");

    /// Makes options with a timeout of one second, no keepalive and no floor.
    pub fn new(cluster: &str, endpoints: Vec<String>, tls: Option<TlsIdentity>) -> Self {
        Self {
            endpoints,
            tls,
            cluster: cluster.to_owned(),
            deadline: Duration::from_secs(1),
            keepalive: None,
            floor: 0,
            floor_file: None,
            writer: None,
            kept_revisions: None,
        }
    }

    /// # Errors
    /// [`StateError::Open`] if there is no endpoint, or an URL, certificate or key is none.
    pub(super) fn parse_endpoints(&self) -> Result<Vec<Endpoint>, StateError> {
        if self.endpoints.is_empty() {
            return Err(StateError::Open("no address of etcd is given".into()));
        }
        self.endpoints.iter().map(|url| self.endpoint(url)).collect()
    }

    pub(super) fn endpoint(&self, url: &str) -> Result<Endpoint, StateError> {
        let failed = |why: String| StateError::Open(format!("etcd at {url}: {why}"));
        let is_tls = url.starts_with("https://");
        if !is_tls && !url.starts_with("http://") {
            return Err(failed("the address is to begin with https://".into()));
        }
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| failed(reason(&error)))?;
        let endpoint = match (&self.tls, is_tls) {
            (Some(tls), true) => endpoint.tls_config(config(tls)).map_err(|error| failed(reason(&error)))?,
            (None, false) => endpoint,
            (None, true) => return Err(failed("a certificate is needed".into())),
            (Some(_), false) => {
                return Err(failed("there is a certificate, but the address is not https://".into()));
            }
        };
        Ok(endpoint
            .connect_timeout(self.deadline / 2)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keepalive.unwrap_or(KEEPALIVE_OF_ETCD))
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true))
    }
}

fn config(tls: &TlsIdentity) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.ca_pem))
        .identity(Identity::from_pem(&tls.certificate_pem, tls.key_pem.as_slice()))
}

/// An error and its causes: tonic's own text says "transport error" only.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
