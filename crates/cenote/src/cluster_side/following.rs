//! Applies changes by other servers of the cluster: accounts, shares, and tokens of the API.
//!
//! Promises: follows a change as soon as the state reports it; reads several at once. Never decides.

use crate::manager::Manager;
use records::State;
use std::sync::Arc;
use std::time::Duration;

/// First segments of the records that a [`crate::directory::Directory`] is made of.
const ACCOUNT_PREFIXES: [&str; 5] = ["user/", "group/", "share/", "api-token/", "settings/"];
/// Timeout of one wait, after which the thread checks whether anybody still follows.
const WAIT: Duration = Duration::from_millis(200);
/// Changes that come together are followed together.
const TOGETHER: Duration = Duration::from_millis(20);

/// Signals changes of keys that begin with one of `prefixes`, the first time immediately.
fn changes(state: &State, prefixes: &[&str]) -> tokio::sync::watch::Receiver<()> {
    let (told, changed) = tokio::sync::watch::channel(());
    for prefix in prefixes {
        let (watch, told) = (state.watch(prefix), told.clone());
        // A thread for each: they sleep.
        tokio::task::spawn_blocking(move || {
            while !told.is_closed() {
                if watch.wait(WAIT).is_some() {
                    told.send_replace(());
                }
            }
        });
    }
    changed
}

/// Follows accounts and shares until the task is dropped.
pub async fn follow_accounts(state: State, manager: Arc<Manager>) {
    let mut changed = changes(&state, &ACCOUNT_PREFIXES);
    while changed.changed().await.is_ok() {
        tokio::time::sleep(TOGETHER).await;
        changed.mark_unchanged();
        if let Err(error) = manager.refresh().await {
            tracing::warn!(%error, "accounts and shares that another server changed cannot be read yet");
        }
    }
}
