//! The configuration in effect, and the file to reload it from: `systemctl reload`, or SIGHUP.
//!
//! Promises: an invalid file changes nothing, and the log has the reason; names changed keys that need
//! a restart. Reloads the API's certificate as well. Reads at most once a second, at any number of
//! signals.

use crate::config::{Config, ConfigError, TakenUp};
use crate::logging;
use crate::service_manager;
use api::health_watch::Receivers;
use api::tls::Identity;
use sd_notify::NotifyState;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Between two readings of the file. Signals that come meanwhile are one.
const PAUSE: Duration = Duration::from_secs(1);

/// The configuration in effect.
pub struct InEffect {
    config: RwLock<Config>,
    receivers: watch::Sender<Receivers>,
}

impl InEffect {
    /// Begins with the configuration that the server started with.
    pub fn new(config: Config) -> Arc<Self> {
        let receivers = watch::Sender::new(config.health.receivers());
        Arc::new(Self { config: RwLock::new(config), receivers })
    }

    /// Reads from the configuration in effect.
    pub fn get<T>(&self, look: impl FnOnce(&Config) -> T) -> T {
        look(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Receivers of changes of health, now and from now on.
    pub fn receivers(&self) -> watch::Receiver<Receivers> {
        self.receivers.subscribe()
    }

    /// Applies the part of a new configuration that a running server can. Returns the result in words.
    fn take_up(&self, new: Result<Config, ConfigError>) -> String {
        let new = match new {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%error, "the configuration stays as it was");
                return format!("the configuration stays as it was: {error}");
            }
        };
        if let Err(why) = logging::set_level(&new.log.level) {
            tracing::warn!(why, "the log's level stays as it was");
        }
        let TakenUp { in_force, restart } =
            self.config.write().unwrap_or_else(PoisonError::into_inner).take_up(&new);
        let receivers = new.health.receivers();
        self.receivers.send_if_modified(|current| {
            let differs = *current != receivers;
            *current = receivers;
            differs
        });
        let (in_force, restart) = (in_force.join(", "), restart.join(", "));
        if restart.is_empty() {
            tracing::info!(in_force, "the configuration was read again");
            return "the configuration was read again".into();
        }
        let needs_restart = &restart;
        tracing::warn!(in_force, needs_restart, "the configuration was read again; some keys need a restart");
        format!("the configuration was read again; a restart is needed for {restart}")
    }
}

/// The configuration's file, and the signal to read it again.
pub struct Reload {
    file: PathBuf,
    hangup: Signal,
}

impl Reload {
    /// Listens for the signal, which from now on no longer ends the process. Within a runtime.
    ///
    /// # Errors
    /// If it cannot listen for the signal.
    pub fn of(file: &Path) -> io::Result<Self> {
        Ok(Self { file: file.to_owned(), hangup: signal(SignalKind::hangup())? })
    }

    /// Reads the file again at each signal, until the task is dropped. `None`: no file.
    pub(crate) async fn follow(
        reload: Option<Self>,
        in_effect: Arc<InEffect>,
        identity: Option<Arc<Identity>>,
    ) {
        let Some(Self { file, mut hangup }) = reload else { return };
        while hangup.recv().await.is_some() {
            if let Ok(now) = NotifyState::monotonic_usec_now() {
                service_manager::tell_all(&[NotifyState::Reloading, now]);
            }
            let (file, in_effect, identity) = (file.clone(), in_effect.clone(), identity.clone());
            let taken = tokio::task::spawn_blocking(move || {
                if let Some(identity) = identity {
                    identity.reload();
                }
                in_effect.take_up(Config::read_again(&file))
            });
            let status = taken.await.unwrap_or_else(|_| "the configuration stays as it was".into());
            service_manager::tell_all(&[NotifyState::Ready, NotifyState::Status(&status)]);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_changes_nothing_and_the_answer_says_why() {
        let in_effect = InEffect::new(Config::default());
        let receivers = in_effect.receivers();
        let said = in_effect.take_up(Config::parse("[health]\nwebhook = \"hooks\"\n", "cenote.toml"));
        assert!(said.contains("stays as it was") && said.contains("health.webhook"), "{said}");
        assert_eq!(in_effect.get(Config::clone), Config::default());
        assert!(!receivers.has_changed().unwrap());
    }

    #[test]
    fn receivers_are_told_of_once_and_the_same_file_again_changes_nothing() {
        let in_effect = InEffect::new(Config::default());
        let mut receivers = in_effect.receivers();
        let file = "[health]\nwebhook = \"https://hooks.example/x\"\n[smb]\nlisten = [\"[::1]:445\"]\n";
        for is_new in [true, false] {
            let said = in_effect.take_up(Config::parse(file, "cenote.toml"));
            assert!(said.ends_with("a restart is needed for smb.listen"), "{said}");
            assert_eq!(receivers.has_changed().unwrap(), is_new);
            let webhook = receivers.borrow_and_update().webhook.clone().unwrap();
            assert_eq!(webhook.url, "https://hooks.example/x");
        }
    }
}
