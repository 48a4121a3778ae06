//! The cluster state for coordinators: they get the answer to a commit only when the disks carry
//! its records (D8).
//!
//! Promises: a coordinator learns that a change of its volume's record was committed only after all
//! reachable disks of the pool carry it, so that no write is ever acknowledged under members that a
//! later import could not find. Nor does it read a record back before (it reads if the outcome of
//! its change is unknown). In a cluster the state itself survives the loss of a node, and
//! coordinators do not wait for disks: an import then finds by the disks' promises which data may
//! be older ([`records::import`]).

use records::image::PoolImage;
use records::{Answer, ClusterState, Request, State, StateClient, StateCompletion, StateError, Versioned};
use std::cell::Cell;
use std::rc::Rc;
use types::PoolId;

/// The state, and its revision that all disks carry.
///
/// Invariant: `kept` never goes back, and was read from the state.
pub struct PersistedState {
    state: State,
    /// Whether coordinators wait for the disks.
    holds: Rc<Cell<bool>>,
    /// The state's revision when this process began: an earlier process did not write a newer
    /// record.
    began_at: u64,
    /// Revision that all reachable disks carry, except for parts that may be older there.
    kept: Rc<Cell<u64>>,
}

impl PersistedState {
    /// `holds`: coordinators wait for the disks; not in a cluster.
    pub fn new(state: State, holds: bool) -> Self {
        Self { began_at: state.revision(), state, holds: Rc::new(Cell::new(holds)), kept: Rc::default() }
    }

    pub(crate) fn holds(&self) -> bool {
        self.holds.get()
    }

    /// Stops waits for the disks, since the server has become a node of a cluster.
    pub(crate) fn let_go(&self) {
        self.holds.set(false);
    }

    /// Makes a coordinator's client of the state.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn client(&self, wake: impl Fn() + Send + 'static) -> Result<PersistedClient, StateError> {
        let inner = self.state.client(wake)?;
        let (kept, holds) = (self.kept.clone(), self.holds.clone());
        Ok(PersistedClient { inner, holds, kept, held: Vec::new(), answers: Vec::new() })
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the disks carry the state's last revision.
    pub fn is_kept(&self) -> bool {
        self.kept.get() >= self.state.revision()
    }

    /// Notes that the disks carry this revision.
    pub fn set_kept(&self, revision: u64) {
        debug_assert!(revision >= self.kept.get(), "the disks' records went back");
        self.kept.set(revision);
    }

    /// Reads the pool from the state, to compare with a disk's records: under the revision at this
    /// process's start, unless the disk was in use since.
    pub fn own(&self, pool: PoolId, was_here: bool) -> impl FnOnce() -> Option<PoolImage> + Send + 'static {
        // In a cluster other nodes write records too, and each disk carries the last copy written
        // by its own node.
        let was_here = was_here || !self.holds.get();
        let (state, began_at) = (self.state.clone(), self.began_at);
        move || {
            let mut own = PoolImage::of(&state.dump().ok()?, pool, "", 0)?;
            if !was_here {
                own.header.version.revision = own.header.version.revision.min(began_at);
            }
            Some(own)
        }
    }
}

/// The cluster state for coordinators: commits and reads are answered once the disks carry their
/// revision.
pub struct PersistedClient {
    inner: StateClient,
    holds: Rc<Cell<bool>>,
    kept: Rc<Cell<u64>>,
    held: Vec<(u64, StateCompletion)>,
    answers: Vec<StateCompletion>,
}

impl ClusterState for PersistedClient {
    fn submit(&mut self, token: u64, request: Request) {
        self.inner.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<StateCompletion>) {
        if !self.holds.get() {
            out.extend(self.held.drain(..).map(|(_, completion)| completion));
            return self.inner.poll(out);
        }
        self.inner.poll(&mut self.answers);
        for completion in self.answers.drain(..) {
            match &completion.answer {
                Answer::Committed { revision } | Answer::Value(Some(Versioned { revision, .. })) => {
                    self.held.push((*revision, completion));
                }
                _ => out.push(completion),
            }
        }
        let kept = self.kept.get();
        for at in (0..self.held.len()).rev() {
            if self.held[at].0 <= kept {
                out.push(self.held.swap_remove(at).1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PersistedState;
    use records::{Answer, ClusterState, MemoryState, Request, State, Transaction, Typed};
    use std::time::{Duration, Instant};

    #[test]
    fn a_coordinator_neither_hears_of_nor_reads_back_what_the_disks_do_not_carry_yet() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("state.redb")).unwrap();
        let revision = state.commit(Transaction::default().put("volume/x", vec![1])).unwrap();
        let kept = PersistedState::new(state, true);
        let mut client = kept.client(|| {}).unwrap();
        client.submit(1, Request::Get { key: "volume/x".into() });
        client
            .submit(2, Request::Commit(Transaction::default().when("volume/x", 0).put("volume/x", vec![2])));
        let mut answers = Vec::new();
        let patience = Instant::now() + Duration::from_secs(20);
        while answers.is_empty() {
            assert!(Instant::now() < patience);
            client.poll(&mut answers);
        }
        // In order: the read was answered before.
        assert_eq!((answers.len(), &answers[0].answer), (1, &Answer::Conflict));
        kept.set_kept(revision);
        client.poll(&mut answers);
        assert!(matches!(&answers[1].answer, Answer::Value(Some(found)) if found.revision == revision));
    }

    #[test]
    fn what_is_held_for_the_disks_is_answered_when_the_server_becomes_a_node() {
        let state = State::from(MemoryState::new());
        let kept = PersistedState::new(state, true);
        let (wake, woken) = std::sync::mpsc::channel();
        let mut client = kept.client(move || wake.send(()).unwrap_or(())).unwrap();
        client.submit(1, Request::Commit(Transaction::default().put("volume/x", vec![1])));
        woken.recv_timeout(Duration::from_secs(20)).unwrap();
        let mut answers = Vec::new();
        client.poll(&mut answers);
        assert!(answers.is_empty());
        kept.let_go();
        client.poll(&mut answers);
        assert!(matches!(&answers[..], [answered] if answered.token == 1));
    }
}
