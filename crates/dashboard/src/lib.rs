//! The dashboard: pages that a browser loads from the server itself, their events each second, and the
//! history behind them.
//!
//! Owns the pages, the streams of events, the history's file, and the three answers of the first page.
//! Promises: pages load nothing from elsewhere; at most [`streams::STREAMS_MAX`] streams, each of which
//! holds one event, even if its reader is slow; the history has a bounded file, whose damaged points
//! are left out. Never changes storage: pages ask the API for that, as the command line does.

#![forbid(unsafe_code)]

mod activity;
mod answers;
mod capacity;
mod clients;
mod disks;
mod events;
mod files;
mod fleet;
pub mod history;
mod live;
mod machine;
mod mutes;
mod next_failure;
mod others;
mod parts;
mod planning;
mod pool_history;
mod rates;
mod repairs;
mod routes;
mod sampler;
mod slow;
mod stored;
mod streams;

use api::{Management, Pages};
use history::Keeper;
use routes::Shared;
use std::path::Path;
use std::sync::Arc;

/// The file of the server's data directory that has the history.
const HISTORY_FILE: &str = "history.bin";

/// Pages that a server serves beside its API.
pub struct Dashboard {
    shared: Arc<Shared>,
}

impl Dashboard {
    /// `server`: its name; `data`: its data directory. If the history's file cannot be written there, the history is kept in memory.
    pub fn new(management: Arc<dyn Management>, server: String, data: &Path) -> Self {
        let keeper = Keeper::open(&data.join(HISTORY_FILE), records::clock::unix_now_s());
        Self { shared: Arc::new(Shared::new(management, server, keeper, data)) }
    }

    /// The pages, and their routes beyond the API: under `/` and `/dashboard/` without a token, under
    /// `/api/` with one.
    pub fn pages(&self) -> Pages {
        routes::add_to(files::pages(), &self.shared)
    }

    /// Samples the server once a second, until the task is dropped.
    pub async fn watch(self) {
        sampler::watch(self.shared).await;
    }
}
