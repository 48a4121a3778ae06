//! The log, on standard error.
//!
//! Owns its level, which can change while the program runs.

use crate::service_manager::{self, JournalLines};
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;

/// Overrides the level, also by module (`node=debug`).
const VARIABLE: &str = "CENOTE_LOG";

type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// Sets the log's filter. The program has one log, which exists from its first messages on.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Begins the log.
pub fn begin(level: &str) {
    let filter = std::env::var(VARIABLE).unwrap_or_else(|_| level.to_owned());
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr);
    let set: SetFilter = if service_manager::logs_to_journal() {
        let log = log.event_format(JournalLines).with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
    } else {
        let log = log.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
    };
    // `init` panics if there was a log already.
    let _ = SET_FILTER.set(set);
}

/// Changes the level, unless the environment has one.
///
/// # Errors
/// Why it stays.
pub fn set_level(level: &str) -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    SET_FILTER.get().map_or(Ok(()), |set| set(EnvFilter::new(level)))
}
