//! What the API refuses to strangers, in the audit log, however often they come.
//!
//! Owns how many lines they may have there. Promises: of each source the first [`SOURCE_LINES`] refusals of a minute are lines of
//! their own, of all together [`LINES`]; the others are counted, and the minute ends with a line for each source of the number that
//! was left out. Memory is bounded: sources beyond [`SOURCES`] are counted together. Never forgets what it counted: what is left when
//! the listener ends is written then.

use crate::management::Management;
use cluster::audit::Outcome;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one source in a minute.
const SOURCE_LINES: u32 = 10;
/// Lines of all sources in a minute.
const LINES: u32 = 60;
/// Sources that are told apart.
const SOURCES: usize = 64;
/// How often what was left out is told.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Characters of what was asked for.
const TARGET_CHARACTERS: usize = 200;

/// See the module.
pub struct Refusals {
    management: Arc<dyn Management>,
    began: Instant,
    ledger: Mutex<Ledger>,
}

impl Refusals {
    pub fn new(management: Arc<dyn Management>) -> Arc<Self> {
        Arc::new(Self { management, began: Instant::now(), ledger: Mutex::default() })
    }

    /// A request, or a connection, that was refused.
    pub fn note(&self, peer: SocketAddr, action: &str, target: &str, detail: &str) {
        let (ended, written) = self.with(|ledger, minute| {
            let ended = ledger.turn(minute);
            (ended, ledger.note(peer.ip()))
        });
        self.tell(ended);
        if written {
            let target: String = target.chars().take(TARGET_CHARACTERS).collect();
            self.management.audit(&peer.to_string(), action, &target, Outcome::Refused, detail);
        }
    }

    /// Tells of minutes that are over.
    pub fn turn(&self) {
        let ended = self.with(Ledger::turn);
        self.tell(ended);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        let minute = self.began.elapsed().as_secs() / MINUTE.as_secs();
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner), minute)
    }

    fn tell(&self, left_out: Vec<LeftOut>) {
        for LeftOut { source, refusals } in left_out {
            let detail = format!("{refusals} more in the same minute");
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

/// How many refusals of one source have no line.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    source: String,
    refusals: u64,
}

/// The minute that is counted.
#[derive(Debug, Default)]
struct Ledger {
    minute: u64,
    lines: u32,
    sources: BTreeMap<IpAddr, Source>,
    others: u64,
}

#[derive(Debug, Default)]
struct Source {
    lines: u32,
    left_out: u64,
}

impl Ledger {
    /// Counts a refusal. `true`: it gets a line.
    fn note(&mut self, address: IpAddr) -> bool {
        let key = network_of(address);
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&key) {
            self.others += 1;
            return false;
        }
        let source = self.sources.entry(key).or_default();
        let written = source.lines < SOURCE_LINES && self.lines < LINES;
        if written {
            source.lines += 1;
            self.lines += 1;
        } else {
            source.left_out += 1;
        }
        written
    }

    /// Begins a minute. What the one before left out.
    fn turn(&mut self, minute: u64) -> Vec<LeftOut> {
        if minute == self.minute {
            return Vec::new();
        }
        let ended = self.end();
        self.minute = minute;
        ended
    }

    fn end(&mut self) -> Vec<LeftOut> {
        let ended = std::mem::take(self);
        self.minute = ended.minute;
        let sources = ended.sources.into_iter().filter(|(_, source)| source.left_out > 0);
        let others = LeftOut { source: "other addresses".to_owned(), refusals: ended.others };
        sources
            .map(|(address, source)| LeftOut { source: name_of(address), refusals: source.left_out })
            .chain((others.refusals > 0).then_some(others))
            .collect()
    }
}

/// Who has one address of IPv6 has 2^64 of them.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

fn name_of(network: IpAddr) -> String {
    match network {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

#[cfg(test)]
mod tests;
