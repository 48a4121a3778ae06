//! The connection to one of etcd's members, and which member that is.
//!
//! Promises: at most one connection is used at a time, the nearest member that answered; one that failed is left, and the next asked
//! goes to the next member. Never sends anything again.

use super::options::{EtcdOptions, reason};
use crate::StateError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// A connection, and which one it is: so that only its own failure ends it.
#[derive(Clone)]
pub(super) struct Connection {
    pub channel: Channel,
    generation: u64,
}

struct Current {
    endpoints: Vec<Endpoint>,
    /// The endpoint that is used, or tried next.
    at: usize,
    connection: Option<Connection>,
    generation: u64,
}

pub(super) struct Channels {
    current: Mutex<Current>,
    /// One connects at a time.
    connecting: tokio::sync::Mutex<()>,
}

impl Channels {
    /// # Errors
    /// As [`EtcdOptions::parse_endpoints`].
    pub fn new(options: &EtcdOptions) -> Result<Self, StateError> {
        let endpoints = options.parse_endpoints()?;
        let current = Current { endpoints, at: 0, connection: None, generation: 0 };
        Ok(Self { current: Mutex::new(current), connecting: tokio::sync::Mutex::default() })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other members or certificates from now on; requests in flight end on the connection they began on.
    pub fn replace(&self, options: &EtcdOptions) -> Result<(), StateError> {
        let endpoints = options.parse_endpoints()?;
        let mut current = self.current();
        (current.endpoints, current.at, current.connection) = (endpoints, 0, None);
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
        if let Some(connection) = self.current().connection.clone() {
            return Ok(connection);
        }
        let _one = self.connecting.lock().await;
        let mut why = String::new();
        for _ in 0..self.count() {
            let (at, endpoint) = {
                let current = self.current();
                if let Some(connection) = current.connection.clone() {
                    return Ok(connection);
                }
                (current.at, current.endpoints[current.at].clone())
            };
            match endpoint.connect().await {
                Ok(channel) => return Ok(self.connected(channel)),
                Err(error) => {
                    why = format!("{}: {}", endpoint.uri(), reason(&error));
                    self.current().pass_over(at);
                }
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
