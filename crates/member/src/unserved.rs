//! The reason, for every display, why a server without a majority answers for no volume.

use api::cluster::Unserved;
use heartbeat::shell::Standing;
use records::NodeRecord;
use std::time::Duration;
use types::NodeId;

/// Time without lease from which it is reported: shorter losses pass, such as during another server's
/// death.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Explains why this server may answer for no volume, if it may not. `members`: those on record, all
/// with a vote.
pub(crate) fn unserved(members: &[NodeRecord], own: NodeId, standing: &Standing) -> Option<Unserved> {
    if standing.without_lease_for? < TOLD_AFTER {
        return None;
    }
    let is_heard = |node: &&NodeRecord| node.id == own || standing.heard.contains(&node.id);
    let names = |wanted: bool| {
        let found = members.iter().filter(|node| is_heard(node) == wanted).map(|node| node.name.clone());
        let mut names: Vec<String> = found.collect();
        names.sort_unstable();
        names
    };
    let (heard, missing) = (names(true), names(false));
    Some(Unserved { sentence: sentence(&heard, &missing), heard, missing })
}

fn sentence(heard: &[String], missing: &[String]) -> String {
    let all = heard.len() + missing.len();
    let wanted = (all / 2 + 1).saturating_sub(heard.len());
    let what = match (all, wanted) {
        // The records could not be read since the start.
        (0, _) => {
            return "no volume is served: most of the cluster's servers are not heard; start them".to_owned();
        }
        (_, 0) => {
            return format!(
                "no volume is served by this server: it hears {} of {all} servers, and most of them do not hear it; see to the network \
                 between them",
                heard.len()
            );
        }
        _ if heard.len() == 1 => format!("no volume is served: 1 of {all} servers is heard"),
        _ => format!("no volume is served: {} of {all} servers are heard", heard.len()),
    };
    let start = match wanted {
        1 => listed(missing, "or"),
        _ if wanted == missing.len() => listed(missing, "and"),
        _ => format!("{wanted} of {}", missing.join(", ")),
    };
    format!("{what}; start {start}")
}

/// Lists names with commas, and a word before the last.
fn listed(names: &[String], word: &str) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} {word} {last}", others.join(", ")),
        _ => names.join(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    fn told(servers: u8, heard: &[u32], without_lease_for: Option<Duration>) -> Option<String> {
        let members: Vec<NodeRecord> = (1..=servers).map(|number| record(number, true)).collect();
        let heard = heard.iter().map(|node| NodeId(*node)).collect();
        let standing = Standing { heard, without_lease_for };
        unserved(&members, NodeId(2), &standing).map(|found| found.sentence)
    }

    #[test]
    fn a_server_alone_says_how_many_are_heard_and_which_are_to_be_started() {
        let long = Some(Duration::from_secs(9));
        for (servers, heard, sentence) in [
            (3, &[][..], "no volume is served: 1 of 3 servers is heard; start node-1 or node-3"),
            (2, &[], "no volume is served: 1 of 2 servers is heard; start node-1"),
            (
                5,
                &[],
                "no volume is served: 1 of 5 servers is heard; start 2 of node-1, node-3, node-4, node-5",
            ),
            (5, &[5], "no volume is served: 2 of 5 servers are heard; start node-1, node-3 or node-4"),
        ] {
            assert_eq!(told(servers, heard, long).as_deref(), Some(sentence));
        }
        let heard_by_nobody = told(3, &[1, 3], long).unwrap();
        assert!(heard_by_nobody.contains("do not hear it"), "{heard_by_nobody}");
    }

    #[test]
    fn a_server_with_a_lease_or_without_one_for_a_moment_says_nothing() {
        assert_eq!(told(3, &[1], None), None);
        assert_eq!(told(3, &[], Some(Duration::from_millis(400))), None);
    }
}
