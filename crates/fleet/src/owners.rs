//! The present servers of the workers' volumes: workers use those, wherever the volumes were when the
//! fleet was made.
//!
//! Promises: a server that is not up is never named; a volume without one is an error that may pass, not a guess.

use crate::nodes;
use crate::server::Server;
use crate::state::{ApiAccess, Node, State};
use api::model::Volume;
use api::requests::ShareView;
use std::collections::BTreeMap;

/// A server, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the server.
    pub name: String,
    /// HOST:PORT of SMB over TCP.
    pub smb: String,
    /// HOST:PORT of SMB Direct; `None`: the server has none.
    pub rdma: Option<String>,
    /// Access to the server's API; `None`: its counters are not read.
    pub api: Option<ApiAccess>,
    /// The volume to ask it for; `None` if that is unknown, as of servers that are no cluster.
    pub volume: Option<String>,
}

impl Owner {
    fn of(node: &Node) -> Self {
        Self {
            name: node.name.clone(),
            smb: node.smb.clone(),
            rdma: node.rdma.clone(),
            api: node.api.clone(),
            volume: None,
        }
    }
}

/// The owners of the volumes of some nodes of a fleet, by the nodes' places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners(BTreeMap<usize, Owner>);

/// Reason why a volume's server is unknown.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OwnersError {
    /// In a moment it may be known.
    #[error("{0}")]
    NotYetKnown(String),
    /// The fleet's description and the cluster do not agree.
    #[error("{0}")]
    Wrong(String),
}

impl Owners {
    /// Each node has its own volume: servers that are no cluster.
    pub fn as_made(state: &State, places: &[usize]) -> Self {
        let own = |place: &usize| Some((*place, Owner::of(state.nodes.get(*place)?)));
        Self(places.iter().filter_map(own).collect())
    }

    /// Asks the first server of the fleet that answers.
    ///
    /// # Errors
    /// [`OwnersError`].
    pub fn ask(state: &State, places: &[usize]) -> Result<Self, OwnersError> {
        if !state.is_cluster {
            return Ok(Self::as_made(state, places));
        }
        let mut problems = Vec::new();
        for node in &state.nodes {
            let Some(access) = &node.api else { continue };
            let lists = || -> Result<_, String> {
                let server = Server::connect(access)?;
                let listed = server.cluster_nodes()?.ok_or("it knows no nodes")?;
                let named = volumes_of(state, places, || server.shares())?;
                Ok((named, server.volumes()?, nodes::of_list(&listed, access)?))
            };
            match lists() {
                Ok((named, volumes, servers)) => {
                    let owners = Self::of_lists(state, &named, &volumes, &servers)?;
                    owners.are_served()?;
                    return Ok(owners);
                }
                Err(why) => problems.push(format!("{}: {why}", node.name)),
            }
        }
        Err(OwnersError::NotYetKnown(format!(
            "no server tells which one has the volumes: {}",
            problems.join("; ")
        )))
    }

    /// Tells whether the owners serve their volumes: one that has just taken a volume over opens it first.
    fn are_served(&self) -> Result<(), OwnersError> {
        for owner in self.servers() {
            let Some(access) = &owner.api else { continue };
            let listed = Server::connect(access).and_then(|server| server.volumes());
            let listed = listed.map_err(|why| {
                OwnersError::NotYetKnown(format!(
                    "{}, which has volumes of the fleet, does not answer: {why}",
                    owner.name
                ))
            })?;
            self.are_served_by(owner, &listed)?;
        }
        Ok(())
    }

    /// `listed`: the volumes, as their owner reports them.
    fn are_served_by(&self, owner: &Owner, listed: &[Volume]) -> Result<(), OwnersError> {
        let same = self.0.values().filter(|of_place| of_place.name == owner.name);
        for name in same.filter_map(|of_place| of_place.volume.as_ref()) {
            let is_served = listed.iter().any(|volume| {
                volume.name == *name
                    && volume.owner.as_ref() == Some(&owner.name)
                    // Only the server that serves it knows.
                    && volume.used_bytes.is_some()
                    && volume.in_sync_copies.is_some_and(|copies| copies > 0)
            });
            if !is_served {
                return Err(OwnersError::NotYetKnown(format!(
                    "{} does not serve volume {name} yet",
                    owner.name
                )));
            }
        }
        Ok(())
    }

    /// Finds owners by the lists of volumes, and of servers that are up. `named`: the volumes of places, as
    /// far as they are known.
    fn of_lists(
        state: &State,
        named: &BTreeMap<usize, Option<String>>,
        volumes: &[Volume],
        servers: &[Node],
    ) -> Result<Self, OwnersError> {
        let mut owners = BTreeMap::new();
        for (place, name) in named {
            let Some(node) = state.nodes.get(*place) else { continue };
            let Some(name) = name else {
                owners.insert(*place, Owner::of(node));
                continue;
            };
            let volume = volumes.iter().find(|volume| volume.name == *name).ok_or_else(|| {
                OwnersError::Wrong(format!(
                    "volume {name} is gone: `fleet remove` and `fleet new` make it again"
                ))
            })?;
            let Some(owner) = &volume.owner else {
                return Err(OwnersError::NotYetKnown(format!("no server has volume {name}")));
            };
            let server = servers.iter().find(|server| server.name == *owner).ok_or_else(|| {
                OwnersError::NotYetKnown(format!("{owner}, which has volume {name}, is not up"))
            })?;
            // The fleet's own access to a server, such as a file with a token, is better than the list's.
            let api =
                state.nodes.iter().find(|known| known.name == *owner).and_then(|known| known.api.clone());
            let api = api.or_else(|| server.api.clone());
            owners.insert(*place, Owner { api, volume: Some(name.clone()), ..Owner::of(server) });
        }
        Ok(Self(owners))
    }

    /// The server that the workers of the node at this place use.
    pub fn of_place(&self, place: usize) -> Option<&Owner> {
        self.0.get(&place)
    }

    /// Each server once.
    pub fn servers(&self) -> Vec<&Owner> {
        let mut servers: Vec<&Owner> = Vec::new();
        for owner in self.0.values() {
            if servers.iter().all(|known| known.name != owner.name) {
                servers.push(owner);
            }
        }
        servers
    }

    /// Whether every server answers at its API; one without an API is believed to.
    pub fn answer(&self) -> bool {
        self.servers()
            .iter()
            .filter_map(|owner| owner.api.as_ref())
            .all(|access| Server::connect(access).is_ok_and(|server| server.performance().is_ok()))
    }

    /// Describes the volumes that have another owner in `after`.
    pub fn moves(&self, after: &Self) -> Vec<String> {
        let volume = |owner: &Owner| owner.volume.clone().unwrap_or_default();
        let moved = |(place, owner): (&usize, &Owner)| {
            let now = after.of_place(*place)?;
            (now.name != owner.name)
                .then(|| format!("volume {} went from {} to {}", volume(owner), owner.name, now.name))
        };
        self.0.iter().filter_map(moved).collect()
    }

    /// Describes the volumes that are not at the node that the fleet made them for.
    pub fn strays(&self, state: &State) -> Vec<String> {
        let stray = |(place, owner): (&usize, &Owner)| {
            let node = state.nodes.get(*place)?;
            let volume = owner.volume.as_ref()?;
            (owner.name != node.name).then(|| {
                format!(
                    "volume {volume} is at {} now: the workers of {} ask there, away from their volume's owner",
                    owner.name, node.name
                )
            })
        };
        self.0.iter().filter_map(stray).collect()
    }
}

/// The volume of each place: the one that was made for it, or that of the share which was there.
fn volumes_of(
    state: &State,
    places: &[usize],
    shares: impl FnOnce() -> Result<Vec<ShareView>, String>,
) -> Result<BTreeMap<usize, Option<String>>, String> {
    let nodes = || places.iter().filter_map(|place| Some((*place, state.nodes.get(*place)?)));
    let shares = if nodes().all(|(_, node)| node.volume.is_some()) { Vec::new() } else { shares()? };
    let of_share = |node: &Node| {
        let name = node.share.split('/').next().unwrap_or_default();
        let share = shares.iter().find(|share| share.name.eq_ignore_ascii_case(name))?;
        Some(share.volume.clone())
    };
    Ok(nodes().map(|(place, node)| (place, node.volume.clone().or_else(|| of_share(node)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{node, state};

    fn cluster() -> State {
        State { is_cluster: true, ..state() }
    }

    fn volume(name: &str, owner: Option<&str>) -> Volume {
        serde_json::from_value(serde_json::json!({
            "id": "00000000-0000-0000-0000-000000000001", "name": name,
            "pool": "00000000-0000-0000-0000-000000000002", "owner": owner, "health": "healthy",
            "status": "ok", "resiliency": "two_way_mirror", "provisioning": "thin", "size_bytes": 1,
            "used_bytes": 0, "available_bytes": 1, "footprint_bytes": 2, "warn_at_percent": 70, "copies": 2,
            "in_sync_copies": 2, "min_copies": 1, "epoch": 1, "stale_bytes": 0, "cache_hit_bytes": 0,
            "cache_miss_bytes": 0
        }))
        .unwrap()
    }

    fn named() -> BTreeMap<usize, Option<String>> {
        volumes_of(&cluster(), &[0, 1], || unreachable!("the fleet made its volumes")).unwrap()
    }

    fn owners(second: Option<&str>, servers: &[Node]) -> Result<Owners, OwnersError> {
        let volumes = [volume("fleet-one", Some("one")), volume("fleet-two", second)];
        Owners::of_lists(&cluster(), &named(), &volumes, servers)
    }

    #[test]
    fn a_volume_that_moved_is_asked_for_at_its_new_server() {
        let mut third = node("three");
        third.smb = "127.0.0.3:4455".into();
        let servers = [node("one"), node("two"), third];
        let before = owners(Some("two"), &servers).unwrap();
        let after = owners(Some("three"), &servers).unwrap();
        assert_eq!(after.of_place(1).unwrap().smb, "127.0.0.3:4455");
        assert_eq!(after.of_place(0), before.of_place(0));
        assert_eq!(before.moves(&after), ["volume fleet-two went from two to three"]);
        assert_eq!((before.moves(&before).len(), before.strays(&cluster()).len()), (0, 0));
        assert!(after.strays(&cluster())[0].contains("fleet-two is at three now"));
        assert_eq!(after.servers().len(), 2);
    }

    #[test]
    fn a_server_that_came_back_at_another_address_is_asked_there() {
        let mut second = node("two");
        second.smb = "127.0.0.9:4455".into();
        let owners = owners(Some("two"), &[node("one"), second]).unwrap();
        assert_eq!(owners.of_place(1).unwrap().smb, "127.0.0.9:4455");
        assert_eq!(owners.strays(&cluster()), Vec::<String>::new());
    }

    #[test]
    fn a_volume_that_no_server_has_is_waited_for_and_one_that_is_gone_is_not() {
        let servers = [node("one"), node("two")];
        assert!(matches!(owners(None, &servers), Err(OwnersError::NotYetKnown(_))));
        assert!(
            matches!(owners(Some("two"), &servers[..1]), Err(OwnersError::NotYetKnown(why)) if why.contains("not up"))
        );
        let gone = Owners::of_lists(&cluster(), &named(), &[volume("fleet-one", Some("one"))], &servers);
        assert!(matches!(gone, Err(OwnersError::Wrong(why)) if why.contains("fleet-two is gone")));
    }

    #[test]
    fn a_volume_that_its_owner_has_not_opened_yet_is_waited_for() {
        let owners = owners(Some("two"), &[node("one"), node("two")]).unwrap();
        let served_by = |volume: Volume| owners.are_served_by(owners.of_place(1).unwrap(), &[volume]);
        assert_eq!(served_by(volume("fleet-two", Some("two"))), Ok(()));
        for wrong in [
            Volume { in_sync_copies: None, ..volume("fleet-two", Some("two")) },
            volume("fleet-two", Some("one")),
            volume("fleet-one", Some("two")),
        ] {
            assert!(matches!(served_by(wrong), Err(OwnersError::NotYetKnown(why)) if why.contains("yet")));
        }
    }

    #[test]
    fn a_share_that_was_there_is_asked_for_at_the_server_of_its_volume() {
        let mut state = cluster();
        for node in &mut state.nodes {
            (node.share, node.volume) = ("Bench/fleet".into(), None);
        }
        let shares = |name: &str| {
            let share = serde_json::json!({
                "name": name, "volume": "fleet-two", "volume_id": "00000000-0000-0000-0000-000000000001",
                "path": "", "comment": "", "access": [], "durability": "flush", "read_only": false,
                "continuously_available": false, "encrypt": false, "access_based_enumeration": false, "caching": true
            });
            serde_json::from_value::<ShareView>(share)
                .map(|share| vec![share])
                .map_err(|error| error.to_string())
        };
        let named = volumes_of(&state, &[0, 1], || shares("bench")).unwrap();
        let volumes = [volume("fleet-two", Some("two"))];
        let owners = Owners::of_lists(&state, &named, &volumes, &[node("one"), node("two")]).unwrap();
        assert_eq!(owners.of_place(0).unwrap().name, "two");
        assert_eq!(owners.strays(&state).len(), 1);
        assert_eq!(volumes_of(&state, &[0], || shares("other")).unwrap(), [(0, None)].into());
    }

    #[test]
    fn servers_that_are_no_cluster_are_asked_as_the_fleet_knows_them() {
        let owners = Owners::ask(&state(), &[1]).unwrap();
        assert_eq!((owners.of_place(0), owners.of_place(1).unwrap().name.as_str()), (None, "two"));
    }
}
