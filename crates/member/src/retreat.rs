//! A server whose data reach nobody falls silent, so that others take its volumes, and stops its member
//! of etcd before.
//!
//! The data plane requests it (`node`), and heartbeats then fall silent (`heartbeat`); this is the part
//! in between. If a leader of etcd cannot deliver entries, but still delivers its small heartbeats,
//! followers keep it, and nobody commits. So the process stops, and starts again when the server speaks
//! again. Promises:
//!
//! 1. The member stops only if the others have a majority of their own: heartbeats show most of all
//!    members, without this one, as voting. A foreign etcd has no members here: most of the servers,
//!    without this one, report that it answers them.
//! 2. The member's log has everything that it acknowledged, and it starts again with that log; mere
//!    proposals were reported to nobody.
//! 3. If the others lose that majority meanwhile, it starts again, and the server speaks.

use crate::control::ClusterControl;
use heartbeat::shell::Retreat;
use records::NodeRecord;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::NodeId;

/// Interval between checks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time for which the others may be without a majority of etcd: they elect a new leader.
const ELECTION_PATIENCE: Duration = Duration::from_secs(10);

/// Stops this server's member of etcd when the data plane wants the server to fall silent; ends
/// immediately on a single server.
pub(crate) async fn follow(control: Arc<ClusterControl>) {
    let Some(credentials) = control.credentials() else { return };
    let own = credentials.facts().node;
    let (mut has_made_way, mut carried_at, mut has_said) = (false, Instant::now(), false);
    loop {
        let retreat = control.server.retreating();
        let read = control.last_read().filter(|_| retreat.is_wanted);
        let is_carried = read.is_some_and(|read| others_vote(&read.members, own, &retreat));
        if is_carried {
            carried_at = Instant::now();
        }
        let may = is_carried || (has_made_way && carried_at.elapsed() < ELECTION_PATIENCE);
        let makes_way = retreat.is_wanted && retreat.is_spared && may;
        if makes_way != has_made_way {
            if !makes_way {
                control.server.hush(false);
            }
            let engine = control.engine();
            let paused = tokio::task::spawn_blocking(move || engine.pause_member(makes_way)).await;
            let Ok(paused) = paused else { return };
            match paused {
                Ok(()) => {
                    tell(makes_way);
                    control.server.hush(makes_way);
                    (has_made_way, has_said) = (makes_way, false);
                }
                Err(why) if !has_said => {
                    tracing::warn!(
                        why,
                        "this server's member of etcd does not begin again; it is tried again"
                    );
                    has_said = true;
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn tell(makes_way: bool) {
    match makes_way {
        true => tracing::error!(
            "large messages of this server reach no other one: it stops its member of etcd and its heartbeats for now, so \
             that other servers take its volumes over"
        ),
        false => tracing::warn!("this server sends heartbeats again, and starts its member of etcd again"),
    }
}

/// Whether the cluster's state works for the others, by their own reports: most of etcd's members, by
/// the servers' records, are others that vote; or a foreign etcd answers most of the servers without
/// this one.
fn others_vote(servers: &[NodeRecord], own: NodeId, retreat: &Retreat) -> bool {
    let has_seats = servers.iter().any(|server| server.etcd.is_some());
    let asked: Vec<NodeId> =
        servers.iter().filter(|server| server.etcd.is_some() == has_seats).map(|server| server.id).collect();
    let voting = asked.iter().filter(|node| **node != own && retreat.voting.contains(node)).count();
    voting > asked.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    #[test]
    fn a_member_makes_way_only_if_most_of_all_are_others_that_vote() {
        let servers: Vec<NodeRecord> = (1..=4).map(|number| record(number, number < 4)).collect();
        let may = |own: u32, voting: &[u32]| {
            let voting = voting.iter().copied().map(NodeId).collect();
            others_vote(&servers, NodeId(own), &Retreat { voting, ..Retreat::default() })
        };
        assert!(may(3, &[1, 2]) && may(1, &[2, 3]));
        assert!(!may(3, &[1]) && !may(3, &[1, 3]), "its own vote goes with it");
        assert!(!may(3, &[1, 4]), "the fourth server runs none");
        assert!(
            may(4, &[1, 3]) && !may(4, &[1]),
            "a server without a member has none to end, and the others need theirs"
        );
    }

    #[test]
    fn with_an_etcd_of_somebody_else_a_server_falls_silent_only_if_that_answers_most_without_it() {
        let servers: Vec<NodeRecord> = (1..=3).map(|number| record(number, false)).collect();
        let may = |voting: &[u32]| {
            let voting = voting.iter().copied().map(NodeId).collect();
            others_vote(&servers, NodeId(3), &Retreat { voting, ..Retreat::default() })
        };
        assert!(may(&[1, 2]));
        assert!(!may(&[]) && !may(&[1]) && !may(&[1, 3]), "nobody could take anything over");
    }
}
