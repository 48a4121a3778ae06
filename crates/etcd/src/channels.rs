//! The connection to one of etcd's members, and which member that is.
//!
//! Promises: at most one connection is used at a time, the nearest member that answered; one that failed is left, and the next asked
//! goes to the next member. Never sends anything again.

use super::options::{EtcdOptions, reason};
use records::StateError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};

/// A connection, and which one it is: so that only its own failure ends it.
#[derive(Clone)]
pub(super) struct Connection {
    pub channel: Channel,
    generation: u64,
}

/// Outcome of an attempt to connect; `None`: it still runs.
type Attempt = Option<Result<Connection, String>>;

struct Current {
    endpoints: Vec<Endpoint>,
    /// How often there were other endpoints.
    era: u64,
    /// The endpoint that is used, or tried next.
    at: usize,
    connection: Option<Connection>,
    generation: u64,
    /// The attempt that is under way; later callers wait for it too.
    attempt: Option<watch::Receiver<Attempt>>,
}

#[derive(Clone)]
pub(super) struct Channels {
    current: Arc<Mutex<Current>>,
    /// Timeout for connecting to a member, TLS included. The endpoint's own limit leaves TLS out, and the
    /// kernel of a stopped process still accepts connections.
    patience: Duration,
}

impl Channels {
    /// # Errors
    /// As [`EtcdOptions::parse_endpoints`].
    pub fn new(options: &EtcdOptions) -> Result<Self, StateError> {
        let endpoints = options.parse_endpoints()?;
        let current = Current { endpoints, era: 0, at: 0, connection: None, generation: 0, attempt: None };
        Ok(Self { current: Arc::new(Mutex::new(current)), patience: options.deadline / 2 })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other members or certificates from now on; requests in flight end on the connection they began on.
    pub fn replace(&self, options: &EtcdOptions) -> Result<(), StateError> {
        let endpoints = options.parse_endpoints()?;
        let mut current = self.current();
        (current.endpoints, current.at, current.connection) = (endpoints, 0, None);
        current.era += 1;
        Ok(())
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        self.current().endpoints.len()
    }

    /// The connection, made if there is none: all members are tried once.
    ///
    /// # Errors
    /// Why the last member could not be reached.
    pub async fn connection(&self) -> Result<Connection, String> {
        let mut attempt = {
            let mut current = self.current();
            if let Some(connection) = current.connection.clone() {
                return Ok(connection);
            }
            match current.attempt.clone().filter(|attempt| attempt.has_changed().is_ok()) {
                Some(attempt) => attempt,
                None => current.attempt.insert(self.attempt()).clone(),
            }
        };
        let ended = attempt.wait_for(Option::is_some).await;
        ended.ok().and_then(|ended| ended.clone()).unwrap_or_else(|| Err("the program ends".into()))
    }

    /// Begins to connect, in a task of its own: a caller may give up before an unresponsive member is
    /// passed over, and the next caller must not begin with that member again.
    fn attempt(&self) -> watch::Receiver<Attempt> {
        let (told, attempt) = watch::channel(None);
        let channels = self.clone();
        tokio::spawn(async move {
            let outcome = channels.connect().await;
            channels.current().attempt = None;
            told.send_replace(Some(outcome));
        });
        attempt
    }

    async fn connect(&self) -> Result<Connection, String> {
        let mut why = String::new();
        for _ in 0..self.count() {
            let (era, at, endpoint) = {
                let current = self.current();
                if let Some(connection) = current.connection.clone() {
                    return Ok(connection);
                }
                (current.era, current.at, current.endpoints[current.at].clone())
            };
            let failed = match tokio::time::timeout(self.patience, endpoint.connect()).await {
                Ok(Ok(_)) if self.current().era != era => "it is no member any more".into(),
                Ok(Ok(channel)) => return Ok(self.connected(channel)),
                Ok(Err(error)) => reason(&error),
                Err(_) => "no answer in time".into(),
            };
            why = format!("{}: {failed}", endpoint.uri());
            let mut current = self.current();
            if current.era == era {
                current.pass_over(at);
            }
        }
        Err(why)
    }

    fn connected(&self, channel: Channel) -> Connection {
        let mut current = self.current();
        current.generation += 1;
        let connection = Connection { channel, generation: current.generation };
        current.connection = Some(connection.clone());
        connection
    }

    /// A connection failed: the next one is made to the next member.
    pub fn failed(&self, connection: &Connection) {
        let mut current = self.current();
        if current.connection.as_ref().is_some_and(|used| used.generation == connection.generation) {
            current.connection = None;
            let at = current.at;
            current.pass_over(at);
        }
    }

    /// The nearest member again, once it answers: the others are farther away.
    pub async fn prefer_nearest(&self, patience: Duration) {
        let endpoint = {
            let current = self.current();
            if current.at == 0 {
                return;
            }
            current.endpoints[0].clone()
        };
        if let Ok(Ok(channel)) = tokio::time::timeout(patience, endpoint.connect()).await {
            let mut current = self.current();
            if current.endpoints.first().is_some_and(|nearest| nearest.uri() == endpoint.uri()) {
                current.at = 0;
                drop(current);
                self.connected(channel);
            }
        }
    }
}

impl Current {
    fn pass_over(&mut self, at: usize) {
        if self.at == at {
            self.at = (at + 1) % self.endpoints.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{certificates, options};
    use crate::process::{EtcdProcess, EtcdStart, version_of};
    use std::net::TcpListener;

    /// A process that is stopped: its kernel takes connections, and nobody says a word.
    fn stopped() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        (listener, url)
    }

    #[tokio::test]
    async fn those_with_little_patience_get_past_a_member_that_is_stopped() {
        if let Err(why) = version_of(None) {
            return eprintln!("left out: {why}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (files, identity) = certificates(directory.path());
        let mut one = options(directory.path(), "one", Some(files));
        one.start = EtcdStart::New { members: vec![("one".into(), one.peer_url())] };
        let _process = EtcdProcess::start(one.clone()).expect("etcd");
        let (_listener, silent) = stopped();
        let both = EtcdOptions::new("test", vec![silent, one.client_url()], Some(identity));
        let patience = both.deadline / 4;
        let channels = Channels::new(&both).expect("endpoints");
        let connected = async {
            loop {
                let ask = || tokio::time::timeout(patience, channels.connection());
                let (first, second) = tokio::join!(ask(), ask());
                if matches!((first, second), (Ok(Ok(_)), _) | (_, Ok(Ok(_)))) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), connected).await.expect("the other member is reached");
    }
}
