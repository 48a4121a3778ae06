//! Several servers of one cluster, of which one serves the share at a time.

use super::pauses::Pauses;
use super::{connect, reconnect};
use crate::channel::Channel;
use crate::{ClientError, Engine, Options};
use connect::Target;
use smb::auth::Credentials;
use std::time::Duration;

/// Silence after which a server counts as dead if others may serve the share.
const SILENCE: Duration = Duration::from_secs(10);
/// Time for one of several servers to answer each step of a session's set-up: the next one may be quicker.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Pauses between rounds through all servers.
const ROUNDS: Pauses = Pauses::new(Duration::from_millis(50), Duration::from_millis(250));

/// The servers that may serve the share, in the order in which they are tried.
pub(super) struct Servers {
    names: Vec<String>,
    at: usize,
    /// The one at which the session is, or was last.
    session_at: usize,
}

impl Servers {
    /// `options` get the timeouts for several servers, if there are several.
    pub fn new(first: &str, options: &mut Options) -> Self {
        let names: Vec<String> = std::iter::once(first.to_owned()).chain(options.others.clone()).collect();
        if names.len() > 1 {
            options.timeout = options.timeout.min(SILENCE);
        }
        Self { names, at: 0, session_at: 0 }
    }

    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The server in use, or the one that is tried.
    pub fn name(&self) -> &str {
        self.names.get(self.at).map_or("", String::as_str)
    }

    /// Goes on to the next one. True: all have been tried.
    pub fn advance(&mut self) -> bool {
        self.at = (self.at + 1) % self.names.len().max(1);
        self.at == 0
    }

    /// The session is at the server that was tried.
    pub fn arrived(&mut self) {
        self.session_at = self.at;
    }

    /// Goes back to the server at which the session is.
    pub fn return_to_session(&mut self) {
        self.at = self.session_at;
    }

    /// Whether the last session was at this server, too.
    pub fn is_same(&self) -> bool {
        self.at == self.session_at
    }

    /// Pauses between attempts to set a session up.
    pub fn pauses(&self) -> Pauses {
        if self.names.len() > 1 { ROUNDS } else { reconnect::SET_UPS }
    }

    /// Time for each step of a set-up.
    pub fn answer_time(&self, options: &Options) -> Duration {
        if self.names.len() > 1 { options.timeout.min(ANSWER_TIME) } else { options.timeout }
    }

    /// Begins a session at the first server that answers.
    ///
    /// # Errors
    /// The last server's, or the first refusal: a wrong password is not tried everywhere.
    pub fn first_session(
        &mut self,
        engine: &Engine,
        target: Target,
        credentials: &Credentials,
        options: &Options,
    ) -> Result<Channel, ClientError> {
        let timeout = self.answer_time(options);
        loop {
            let within = Options { timeout, ..options.clone() };
            let begun = connect::link(engine, self.name(), target, timeout, &within).and_then(|link| {
                let connection =
                    connect::session(self.name(), target.is_rdma, options.clone(), credentials.clone());
                connect::log_on(engine, link, 0, connection, &within)
            });
            let error = match begun {
                Ok(channel) => {
                    self.arrived();
                    return Ok(channel);
                }
                Err(error) => error,
            };
            let is_refused = matches!(error, ClientError::Status { .. } | ClientError::Auth(_));
            if is_refused || self.advance() {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_are_tried_in_turn_and_the_round_is_known() {
        let mut options = Options { others: vec!["b".into(), "c".into()], ..Options::default() };
        let mut servers = Servers::new("a", &mut options);
        assert_eq!(options.timeout, SILENCE);
        let round: Vec<(bool, String)> =
            (0..4).map(|_| (servers.advance(), servers.name().to_owned())).collect();
        assert_eq!(
            round,
            [(false, "b".into()), (false, "c".into()), (true, "a".into()), (false, "b".into())]
        );
        servers.arrived();
        servers.advance();
        assert!(!servers.is_same());
        servers.return_to_session();
        assert_eq!((servers.name(), servers.is_same()), ("b", true));
    }

    #[test]
    fn a_single_server_keeps_its_times() {
        let mut options = Options::default();
        let mut servers = Servers::new("a", &mut options);
        assert_eq!(options.timeout, Options::default().timeout);
        assert_eq!(servers.answer_time(&options), options.timeout);
        assert!(servers.advance() && servers.is_same());
    }
}
