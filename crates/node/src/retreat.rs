//! A node whose data reach no other node, and which gets no answers from the cluster's state, falls
//! silent, so that others take its volumes.
//!
//! [`crate::letting_go`] passes a volume on by the cluster's state. If the state is behind the same
//! network, which carries heartbeats and no large messages, the node cannot use it, and no other
//! node takes a volume from a node whose heartbeats it hears. Promises: the node falls silent only
//! if large messages reach most of the other nodes and not this one, by the nodes' own reports; if
//! the state has not answered for [`UNANSWERED_FOR`]; and if others have all data of each volume
//! that it serves, so that silence ends no service that could continue. The node speaks again when
//! its data have come through for [`PROVEN_FOR`], or when the others need it. No safety depends on
//! this: to the others the node is dead, and `heartbeat` explains why two nodes never answer at the
//! same time.

use crate::lease_gate::{Heartbeats, LeaseGate};
use crate::letting_go::{demand_answer, own_record};
use crate::peers::{Peers, UNREACHED_AFTER};
use crate::state::State;
use crate::tasks::Tasks;
use crate::volume_opening::VolumeOpener;
use crate::volumes::Volumes;
use space::takeover;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Monotonic, VolumeId};

/// Time without an answer of the state. The state answers within a second, or reports that the
/// outcome is unknown; an election takes as long.
const UNANSWERED_FOR: Duration = Duration::from_secs(2);
/// Time for which data must have reached most nodes before this one speaks again.
const PROVEN_FOR: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Timeout for falling silent, after which the retreat is given up: the cluster's state needs this
/// server's member.
const SILENT_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a retreat that ended because the others needed this node.
const PAUSE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

const WHY: &str = "data of this server reach no other one, and the cluster's state does not answer: another server is to have it";

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The node takes part. No retreat before `not_before`.
    Speaks { not_before: Monotonic },
    /// The node is silent, or about to be, since `since`. `reached_since`: time since which data
    /// get through again.
    Retreats { since: Monotonic, was_silent: bool, reached_since: Option<Monotonic> },
}

/// Makes this node fall silent, and speak again.
#[derive(Clone)]
pub(crate) struct Retreating {
    pub tasks: Rc<Tasks>,
    pub volumes: Rc<Volumes>,
    pub peers: Rc<Peers>,
    pub lease_gate: Rc<LeaseGate>,
    pub opener: VolumeOpener,
    pub state: State,
    phase: Rc<RefCell<Phase>>,
    /// Time of the first request to the state since its last answer.
    unanswered_since: Rc<Cell<Option<Monotonic>>>,
    is_asking: Rc<Cell<bool>>,
}

impl Retreating {
    pub fn new(opener: VolumeOpener, lease_gate: Rc<LeaseGate>) -> Self {
        let VolumeOpener { tasks, volumes, peers, state, .. } = opener.clone();
        Self {
            tasks,
            volumes,
            peers,
            lease_gate,
            opener,
            state,
            phase: Rc::new(RefCell::new(Phase::Speaks { not_before: Monotonic(0) })),
            unanswered_since: Rc::default(),
            is_asking: Rc::default(),
        }
    }

    /// Whether this node should be silent, and therefore opens no volume.
    pub fn is_under_way(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Retreats { .. })
    }

    /// Reports to the others whether data reach most nodes, and begins or ends a retreat. Call once
    /// a second.
    pub fn look(&self) {
        let Some(heartbeats) = self.lease_gate.heartbeats() else { return };
        let now = self.tasks.now();
        let reaches_most = self.peers.reaches_most(now, UNREACHED_AFTER);
        heartbeats.note_reach(reaches_most);
        let phase = *self.phase.borrow();
        let next = match phase {
            Phase::Speaks { not_before } => {
                self.ask_state(now);
                let begins = !reaches_most && now >= not_before && self.is_called_for(heartbeats, now);
                begins.then(|| self.begin(heartbeats, now))
            }
            Phase::Retreats { since, was_silent, reached_since } => {
                let reached_since = reaches_most.then(|| reached_since.unwrap_or(now));
                let phase = Phase::Retreats { since, was_silent, reached_since };
                Some(self.go_on(heartbeats, phase, now))
            }
        };
        if let Some(next) = next {
            self.phase.replace(next);
        }
    }

    /// Sends a request to the state while data do not reach most nodes: only then its answers
    /// matter.
    fn ask_state(&self, now: Monotonic) {
        if self.peers.reaches_most(now, Duration::ZERO) {
            self.unanswered_since.set(None);
            return;
        }
        let Some(volume) = self.peers.any_volume() else { return };
        if self.is_asking.replace(true) {
            return;
        }
        let asking = self.clone();
        self.tasks.spawn(async move {
            let answered = asking.state.change(move |state| demand_answer(state, volume)).await;
            let first = asking.unanswered_since.get().unwrap_or(now);
            asking.unanswered_since.set(answered.is_err().then_some(first));
            asking.is_asking.set(false);
        });
    }

    fn is_called_for(&self, heartbeats: &dyn Heartbeats, now: Monotonic) -> bool {
        let (Some(own), view) = (self.peers.own(), self.peers.view()) else { return false };
        let is_spared = |volume: &VolumeId| {
            let record = own_record(&self.opener.pools, &self.volumes, *volume);
            record.is_some_and(|record| takeover::is_spared(&record, &view, own))
        };
        self.unanswered_since.get().is_some_and(|since| now.since(since) >= UNANSWERED_FOR)
            && heartbeats.retreating().is_spared
            && self.volumes.served_ids().iter().all(is_spared)
    }

    fn begin(&self, heartbeats: &dyn Heartbeats, now: Monotonic) -> Phase {
        tracing::error!(
            "data reach no other server, although heartbeats do, and the cluster's state does not answer: this server stops its heartbeats"
        );
        heartbeats.retreat(true);
        Phase::Retreats { since: now, was_silent: false, reached_since: None }
    }

    fn go_on(&self, heartbeats: &dyn Heartbeats, phase: Phase, now: Monotonic) -> Phase {
        let Phase::Retreats { since, was_silent, reached_since } = phase else { return phase };
        let is_silent = heartbeats.retreating().is_silent;
        if is_silent {
            // Clients move to the next owners of the volumes, and this node sends no more answers
            // for these volumes.
            self.volumes.served_ids().into_iter().for_each(|volume| self.opener.suspend(volume, WHY));
        }
        let is_proven = reached_since.is_some_and(|since| now.since(since) >= PROVEN_FOR);
        let is_refused = !is_silent && (was_silent || now.since(since) >= SILENT_WITHIN);
        if !is_proven && !is_refused {
            return Phase::Retreats { since, was_silent: is_silent, reached_since };
        }
        match is_proven {
            true => tracing::warn!("data reach most other servers again: this server sends heartbeats again"),
            false => {
                tracing::warn!("the others have no majority without this server: it sends heartbeats again")
            }
        }
        heartbeats.retreat(false);
        self.unanswered_since.set(None);
        Phase::Speaks { not_before: if is_proven { now } else { now.after(PAUSE) } }
    }
}
