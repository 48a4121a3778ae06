//! `cenote plan` for input on a page.

use api::model::{Disk, Pool, Resiliency};
use api::planned::Plan;
use api::{ApiError, ErrorKind};
use plan::{DriveList, NETWORK_GBPS_MAX, NODES_MAX, Node, Protection, RACKS_MAX, Request, nodes_of_pool};
use serde::Deserialize;
use std::ops::RangeInclusive;

/// The options of `cenote plan`, as they are typed; left out or empty: not given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Typed {
    nodes: String,
    drives: String,
    pool: String,
    add_nodes: String,
    lose_nodes: String,
    racks: String,
    resiliency: String,
    reserve_disks: String,
    network: String,
    protection: String,
    /// Any text: there is a witness.
    witness: String,
}

impl Typed {
    fn request(&self, pools: &[Pool], disks: &[Disk]) -> Result<Request, String> {
        self.demand_sense()?;
        let defaults = Request::default();
        Ok(Request {
            nodes: self.nodes(pools, disks)?,
            lose_nodes: number("lose-nodes", &self.lose_nodes, 0..=u32::MAX)?.unwrap_or(0),
            racks: number("racks", &self.racks, 0..=RACKS_MAX)?.unwrap_or(0),
            resiliency: choice(
                "resiliency",
                &self.resiliency,
                RESILIENCIES.map(|one| (plan::word(one), one)),
            )?,
            reserve_disks: number("reserve-disks", &self.reserve_disks, 0..=u32::MAX)?,
            network_gbps: number("network", &self.network, 1..=NETWORK_GBPS_MAX)?
                .unwrap_or(defaults.network_gbps),
            protection: choice("protection", &self.protection, PROTECTIONS)?.unwrap_or_default(),
            has_witness: !self.witness.is_empty(),
        })
    }

    /// Demands what the command line demands of options beside each other.
    fn demand_sense(&self) -> Result<(), String> {
        let [nodes, drives, pool, add_nodes] =
            [&self.nodes, &self.drives, &self.pool, &self.add_nodes].map(|value| !value.trim().is_empty());
        match () {
            () if nodes && pool => Err("--nodes and --pool exclude each other".to_owned()),
            () if nodes && !drives => Err("--nodes takes --drives as well".to_owned()),
            () if add_nodes && !pool => Err("--add-nodes takes --pool as well".to_owned()),
            () => Ok(()),
        }
    }

    /// The nodes of the pool with the added ones, or those that may be bought.
    fn nodes(&self, pools: &[Pool], disks: &[Disk]) -> Result<Vec<Node>, String> {
        let add_nodes = number("add-nodes", &self.add_nodes, 0..=NODES_MAX)?.unwrap_or(0);
        let nodes = number("nodes", &self.nodes, 1..=NODES_MAX)?.unwrap_or(1);
        let drives = match self.drives.trim() {
            "" => None,
            text => Some(text.parse::<DriveList>().map_err(|why| refused("drives", text, &why))?),
        };
        let name = self.pool.trim();
        if name.is_empty() {
            return Ok(drives.map(|drives| Node::equal(nodes, &drives.0).collect()).unwrap_or_default());
        }
        let found = pools.iter().find(|pool| pool.name.to_lowercase() == name.to_lowercase());
        let pool = found.ok_or_else(|| format!("there is no pool '{name}'"))?;
        Ok(nodes_of_pool(pool, disks, add_nodes))
    }
}

const RESILIENCIES: [Resiliency; 3] =
    [Resiliency::Simple, Resiliency::TwoWayMirror, Resiliency::ThreeWayMirror];
const PROTECTIONS: [(&str, Protection); 3] =
    [("plain", Protection::Plain), ("signed", Protection::Signed), ("encrypted", Protection::Encrypted)];

fn refused(option: &str, text: &str, why: &str) -> String {
    format!("invalid value '{text}' for --{option}: {why}")
}

/// Reads a number of this range; `None` if nothing is typed.
fn number(option: &str, text: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let (least, most) = (*range.start(), *range.end());
    let found = text.parse().ok().filter(|number| range.contains(number));
    found.map(Some).ok_or_else(|| refused(option, text, &format!("it is not a number of {least} to {most}")))
}

/// Reads one of these words; `None` if nothing is typed.
fn choice<T: Copy>(option: &str, text: &str, words: [(&str, T); 3]) -> Result<Option<T>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let found = words.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, one)| Some(one)).ok_or_else(|| {
        refused(option, text, &format!("it is none of {}", words.map(|(word, _)| word).join(", ")))
    })
}

/// # Errors
/// `Invalid`, with the option and the reason.
pub fn plan(typed: &Typed, pools: &[Pool], disks: &[Disk]) -> Result<Plan, ApiError> {
    let invalid = |why: String| ApiError::new(ErrorKind::Invalid, why);
    let request = typed.request(pools, disks).map_err(invalid)?;
    plan::plan(&request).map_err(|why| invalid(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next_failure::tests::snapshot;

    fn typed(json: serde_json::Value) -> Result<Plan, ApiError> {
        let snapshot = snapshot();
        plan(&serde_json::from_value(json).unwrap(), &snapshot.pools, &snapshot.disks)
    }

    #[test]
    fn what_is_typed_is_planned_as_by_the_command_line() {
        let plan = typed(serde_json::json!({ "nodes": "4", "drives": "4x1TiB:nvme" })).unwrap();
        assert_eq!((plan.nodes, plan.drives), (4, 16));
        assert_eq!(plan.choices.len(), 3);
    }

    #[test]
    fn a_running_pool_is_planned_with_changes() {
        let plan = typed(serde_json::json!({ "pool": "pool", "add_nodes": "2" })).unwrap();
        assert_eq!((plan.nodes, plan.drives), (3, 9));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let refused = |json| typed(json).unwrap_err().message;
        assert!(refused(serde_json::json!({ "nodes": "x", "drives": "4x1TiB" })).contains("--nodes"));
        assert!(refused(serde_json::json!({ "nodes": "3", "drives": "4 tapes" })).contains("COUNTxSIZE"));
        assert!(refused(serde_json::json!({ "pool": "nothing" })).contains("no pool"));
        assert!(refused(serde_json::json!({})).contains("nothing to plan"));
        assert!(refused(serde_json::json!({ "nodes": "2 --help", "drives": "4x1TiB" })).contains("--nodes"));
        assert!(refused(serde_json::json!({ "nodes": "65", "drives": "4x1TiB" })).contains("1 to 64"));
        assert!(refused(serde_json::json!({ "nodes": "2" })).contains("--drives"));
        assert!(refused(serde_json::json!({ "add_nodes": "2" })).contains("--pool"));
        assert!(refused(serde_json::json!({ "nodes": "2", "pool": "pool" })).contains("exclude"));
        let drives = |name: &str, value: &str| serde_json::json!({ "drives": "4x1TiB", name: value });
        assert!(refused(drives("resiliency", "raid")).contains("two-way-mirror"));
        assert!(refused(drives("protection", "some")).contains("encrypted"));
        assert!(refused(drives("network", "0")).contains("1 to 3200"));
        assert!(refused(drives("racks", "65")).contains("--racks"));
    }
}
