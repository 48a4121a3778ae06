//! The numbers of jobs: one number means one job in the whole cluster, also after restarts of
//! servers.
//!
//! Owns the layout of a number and the count of those assigned. Promises: a number carries the
//! server that gave it, so that another server never takes a job for its own; the count continues
//! from the end of the server's last run, since the state records a bound before the count reaches
//! it.

use records::{JobNumbers, StateError, Typed};
use std::fmt;
use types::NodeId;

/// Numbers of one server; the server's own number precedes them, as in 2000017. A single server has
/// none: its numbers are 1, 2, 3. Below 2^53 for every server: the largest integer that JavaScript
/// reads exactly.
const NUMBERS_PER_SERVER: u64 = 1_000_000;

/// Numbers reserved in the state at a time: far more jobs than one server begins while the state
/// takes a record, and few enough that only a thousand starts of the server use up its numbers.
const RESERVED_AT_ONCE: u64 = 1000;

/// The number of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

impl JobId {
    /// Returns the number of a server's `count`th job, from 1. After a million the numbers begin
    /// again: the jobs that had them are forgotten by then.
    fn nth(server: Option<NodeId>, count: u64) -> Self {
        debug_assert!(count > 0, "jobs are counted from 1");
        let within = (count - 1) % (NUMBERS_PER_SERVER - 1) + 1;
        Self(server.map_or(0, |server| u64::from(server.0)) * NUMBERS_PER_SERVER + within)
    }

    /// Returns the server that assigned the number; `None`: a server that was in no cluster.
    pub fn server(self) -> Option<NodeId> {
        let server = u32::try_from(self.0 / NUMBERS_PER_SERVER).ok()?;
        (server > 0).then_some(NodeId(server))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The numbers that one server assigns.
///
/// Invariant: unless the state fails, `last` is at most `reserved`, and the state has `reserved`.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    server: Option<NodeId>,
    last: u64,
    reserved: u64,
    is_reserving: bool,
}

impl Numbers {
    pub(crate) fn next(&mut self) -> JobId {
        self.last += 1;
        JobId::nth(self.server, self.last)
    }

    /// Continues behind the numbers of the server's last run, which are at most `used`.
    pub(crate) fn go_on(&mut self, server: Option<NodeId>, used: u64) {
        self.server = server;
        self.last = self.last.max(used);
        self.reserved = self.last;
    }

    /// Returns the bound to be recorded when few reserved numbers are left, once until
    /// [`Numbers::end_reserving`].
    pub(crate) fn begin_reserving(&mut self) -> Option<u64> {
        let is_due = !self.is_reserving && self.reserved < self.last + RESERVED_AT_ONCE / 2;
        self.is_reserving |= is_due;
        is_due.then_some(self.last + RESERVED_AT_ONCE)
    }

    /// Notes `reserved`, the bound that the state has now; `None`: the state did not take it.
    pub(crate) fn end_reserving(&mut self, reserved: Option<u64>) {
        self.is_reserving = false;
        self.reserved = self.reserved.max(reserved.unwrap_or_default());
    }
}

/// Returns the highest number that any run of the server may have assigned.
pub(crate) fn used(state: &records::State, server: Option<NodeId>) -> Result<u64, StateError> {
    let found = state.read::<JobNumbers>(&JobNumbers::id_of(server))?;
    Ok(found.map_or(0, |stored| stored.value.reserved))
}

/// Records that the server assigns numbers up to `reserved`.
pub(crate) fn reserve(
    state: &records::State,
    server: Option<NodeId>,
    reserved: u64,
) -> Result<(), StateError> {
    let found = state.read::<JobNumbers>(&JobNumbers::id_of(server))?;
    let revision = found.as_ref().map_or(0, |stored| stored.revision);
    if found.is_some_and(|stored| stored.value.reserved >= reserved) {
        return Ok(());
    }
    state.write(&JobNumbers { server, reserved }, revision).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::{MemoryState, State};

    #[test]
    fn a_number_names_its_server_and_stays_within_it() {
        assert_eq!(JobId::nth(None, 17), JobId(17));
        assert_eq!(JobId(17).server(), None);
        assert_eq!(JobId::nth(Some(NodeId(2)), 17), JobId(2_000_017));
        for count in [1, 17, 999_999, 1_000_000, 1_999_999, u64::MAX] {
            assert_eq!(JobId::nth(Some(NodeId(2)), count).server(), Some(NodeId(2)), "{count}");
        }
        assert_eq!(JobId(u64::MAX).server(), None, "no server has such a number");
        assert!(JobId::nth(Some(NodeId(u32::MAX)), 1).0 < 1 << 53);
    }

    #[test]
    fn numbers_go_on_behind_those_of_the_last_run() {
        let state = State::from(MemoryState::default());
        let server = Some(NodeId(3));
        let mut last = JobId(0);
        for _ in 0..3 {
            let mut numbers = Numbers::default();
            numbers.go_on(server, used(&state, server).unwrap());
            let bound = numbers.begin_reserving().expect("nothing is reserved yet");
            assert_eq!(numbers.begin_reserving(), None, "it is on its way");
            reserve(&state, server, bound).unwrap();
            numbers.end_reserving(Some(bound));
            for _ in 0..RESERVED_AT_ONCE / 2 {
                let next = numbers.next();
                assert!(next > last, "{next} after {last}");
                last = next;
            }
            assert_eq!(numbers.begin_reserving(), None, "half of them are left");
            numbers.next();
            assert!(numbers.begin_reserving().is_some());
            // The state does not take it: another request follows.
            numbers.end_reserving(None);
            assert!(numbers.begin_reserving().is_some());
            // The server is killed here, before the state has the next bound.
        }
        assert_eq!(used(&state, Some(NodeId(2))), Ok(0), "each server counts its own");
        assert_eq!(used(&state, None), Ok(0));
    }
}
