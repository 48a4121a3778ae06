//! Reports the progress of a run to the nodes' dashboards.
//!
//! Promises: a run waits for no dashboard, and does not end for one.

use crate::server::Server;
use crate::state::Node;
use api::fleet::FleetProgress;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Progress comes more often than a page shows it.
const TELL_EVERY_MS: u64 = 900;

/// A thread that reports; it ends with this value.
pub struct Telling {
    /// `None`: there is no thread.
    progress: Option<SyncSender<FleetProgress>>,
    told_unix_ms: Cell<u64>,
}

impl Telling {
    pub fn begin(nodes: Vec<Node>) -> Self {
        // One that waits while another one is on its way.
        let (sender, progress) = sync_channel(1);
        let thread = std::thread::Builder::new().name("telling".into());
        let is_begun = thread.spawn(move || tell_all(&nodes, &progress)).is_ok();
        Self { progress: is_begun.then_some(sender), told_unix_ms: Cell::new(0) }
    }

    pub fn tell(&self, live: &FleetProgress) {
        if live.updated_unix_ms.saturating_sub(self.told_unix_ms.get()) < TELL_EVERY_MS {
            return;
        }
        self.told_unix_ms.set(live.updated_unix_ms);
        if let Some(progress) = &self.progress {
            let _ = progress.try_send(live.clone());
        }
    }
}

fn tell_all(nodes: &[Node], progress: &Receiver<FleetProgress>) {
    let access = nodes.iter().filter_map(|node| node.api.as_ref());
    let mut servers: Vec<_> = access.map(|access| (access, None::<Server>)).collect();
    for progress in progress {
        for (access, server) in &mut servers {
            if server.is_none() {
                *server = Server::connect(access).ok();
            }
            if server.as_ref().is_some_and(|server| server.tell(&progress).is_err()) {
                *server = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::node;

    #[test]
    fn a_run_waits_for_no_dashboard() {
        let telling = Telling::begin(vec![node("one")]);
        for at in 0..10_000 {
            telling.tell(&FleetProgress { updated_unix_ms: at * 1000, ..FleetProgress::default() });
        }
    }
}
