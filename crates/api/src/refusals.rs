//! Refused requests of strangers in the audit log, bounded at any rate of refusals.
//!
//! Owns the number of strangers' entries there ([`LineLedger`]). Promises: refusals without their own
//! entry are counted, and each minute ends with one entry per source with their number. Never forgets a
//! count: the rest is written when the listener ends.

use crate::audit::Outcome;
use crate::management::Management;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{LeftOut, LineLedger};

/// Interval between entries that count omitted refusals.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Longest target in an entry, in characters.
const TARGET_CHARACTERS: usize = 200;

/// See the module.
pub struct Refusals {
    management: Arc<dyn Management>,
    began: Instant,
    ledger: Mutex<LineLedger>,
}

impl Refusals {
    pub fn new(management: Arc<dyn Management>) -> Arc<Self> {
        Arc::new(Self { management, began: Instant::now(), ledger: Mutex::default() })
    }

    /// A request, or a connection, that was refused.
    pub fn note(&self, peer: SocketAddr, action: &str, target: &str, detail: &str) {
        self.note_by("api", peer, action, target, detail);
    }

    /// The same for a caller with a token, as `actor`.
    pub fn note_by(&self, actor: &str, peer: SocketAddr, action: &str, target: &str, detail: &str) {
        let (ended, written) = self.with(|ledger, minute| {
            let ended = ledger.turn(minute);
            (ended, ledger.note(peer.ip().into()))
        });
        self.tell(ended);
        if written {
            let target: String = target.chars().take(TARGET_CHARACTERS).collect();
            let source = peer.to_string();
            self.management.audit_by(actor, &source, action, &target, Outcome::Refused, detail);
        }
    }

    /// Writes the counts of minutes that are over.
    pub fn turn(&self) {
        let ended = self.with(LineLedger::turn);
        self.tell(ended);
    }

    fn with<T>(&self, act: impl FnOnce(&mut LineLedger, u64) -> T) -> T {
        let minute = self.began.elapsed().as_secs() / MINUTE.as_secs();
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner), minute)
    }

    fn tell(&self, left_out: Vec<LeftOut>) {
        for left_out in left_out {
            let detail = format!("{} more in the same minute", left_out.count);
            let source = left_out.source();
            self.management.audit(&source, "refusals left out", "", Outcome::Refused, &detail);
        }
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        let left = self.with(|ledger, _| ledger.end());
        self.tell(left);
    }
}
