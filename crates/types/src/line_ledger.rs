//! How many lines strangers may have in a log, however often they come.
//!
//! Promises: of each host the first [`HOST_LINES`] of a minute are lines of their own, of all hosts together [`LINES`]; the others are
//! counted, and the minute ends with the number of those left out, for each host. Memory is bounded: hosts beyond [`HOSTS`] are
//! counted together.

use crate::PeerHost;
use std::collections::BTreeMap;

/// Lines of one host in a minute.
pub const HOST_LINES: u32 = 10;
/// Lines of all hosts in a minute.
pub const LINES: u32 = 60;
/// Hosts counted apart.
pub const HOSTS: usize = 64;

/// How many of one host have no line.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// `None`: of all hosts beyond [`HOSTS`] together.
    pub host: Option<PeerHost>,
    pub count: u64,
}

impl LeftOut {
    /// The host, for people.
    pub fn source(&self) -> String {
        self.host.map_or_else(|| "other addresses".to_owned(), |host| host.to_string())
    }
}

/// The minute that is counted.
#[derive(Debug, Default)]
pub struct LineLedger {
    minute: u64,
    lines: u32,
    hosts: BTreeMap<PeerHost, Source>,
    others: u64,
}

#[derive(Debug, Default)]
struct Source {
    lines: u32,
    left_out: u64,
}

impl LineLedger {
    /// Counts one of `host`. `true`: it gets a line.
    pub fn note(&mut self, host: PeerHost) -> bool {
        if self.hosts.len() >= HOSTS && !self.hosts.contains_key(&host) {
            self.others += 1;
            return false;
        }
        let source = self.hosts.entry(host).or_default();
        let written = source.lines < HOST_LINES && self.lines < LINES;
        if written {
            source.lines += 1;
            self.lines += 1;
        } else {
            source.left_out += 1;
        }
        written
    }

    /// Begins a minute, by its number. Returns the lines that the minute before left out.
    pub fn turn(&mut self, minute: u64) -> Vec<LeftOut> {
        if minute == self.minute {
            return Vec::new();
        }
        let ended = self.end();
        self.minute = minute;
        ended
    }

    /// The number of the minute that is counted, if anything was noted in it.
    pub fn counted_minute(&self) -> Option<u64> {
        (!self.hosts.is_empty()).then_some(self.minute)
    }

    /// Forgets all. Returns the lines left out so far.
    pub fn end(&mut self) -> Vec<LeftOut> {
        let ended = std::mem::take(self);
        self.minute = ended.minute;
        let hosts = ended.hosts.into_iter().filter(|(_, source)| source.left_out > 0);
        let others = LeftOut { host: None, count: ended.others };
        hosts
            .map(|(host, source)| LeftOut { host: Some(host), count: source.left_out })
            .chain((others.count > 0).then_some(others))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{HOST_LINES, HOSTS, LINES, LeftOut, LineLedger};
    use crate::PeerHost;
    use std::net::IpAddr;

    fn host(text: &str) -> PeerHost {
        text.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn one_host_gets_few_lines_a_minute_and_then_the_number_that_was_left_out() {
        let mut ledger = LineLedger::default();
        let lines = (0..1000).filter(|_| ledger.note(host("192.0.2.7"))).count();
        assert_eq!(lines, HOST_LINES as usize);
        assert!(ledger.turn(0).is_empty(), "the minute goes on");
        let told = ledger.turn(1);
        assert_eq!(told, [LeftOut { host: Some(host("192.0.2.7")), count: 990 }]);
        assert!(ledger.note(host("192.0.2.7")), "the next minute begins anew");
        assert!(ledger.turn(2).is_empty(), "nothing was left out");
    }

    #[test]
    fn one_who_knocks_much_takes_no_line_from_another() {
        let mut ledger = LineLedger::default();
        assert_eq!((0..1000).filter(|_| ledger.note(host("192.0.2.7"))).count(), HOST_LINES as usize);
        assert!(ledger.note(host("192.0.2.8")));
    }

    #[test]
    fn many_hosts_together_get_no_more_lines_and_no_more_memory_than_that() {
        let mut ledger = LineLedger::default();
        let knocks = 100_000_u32;
        let address = |at: u32| IpAddr::V4((0x0a00_0000 + at % 5000).into());
        let lines = (0..knocks).filter(|at| ledger.note(address(*at).into())).count();
        assert_eq!(lines, LINES as usize);
        assert_eq!(ledger.hosts.len(), HOSTS);
        let told = ledger.turn(1);
        assert_eq!(told.len(), HOSTS + 1);
        let left_out: u64 = told.iter().map(|told| told.count).sum();
        assert_eq!(left_out + lines as u64, u64::from(knocks), "each is a line or counted");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_host_and_a_mapped_one_is_that_of_ipv4() {
        let mut ledger = LineLedger::default();
        let address = |at: u128| IpAddr::V6((0x2001_0db8_u128 << 96 | at << 8).into());
        assert_eq!((0..100).filter(|at| ledger.note(address(*at).into())).count(), HOST_LINES as usize);
        let mapped = (0..12).filter(|_| ledger.note(host("::ffff:192.0.2.7")));
        assert_eq!(mapped.count(), HOST_LINES as usize);
        let told: Vec<String> = ledger.turn(1).iter().map(LeftOut::source).collect();
        assert_eq!(told, ["192.0.2.7", "2001:db8::/64"]);
    }
}
