//! `cenote plan` for input on a page.

use api::model::{Disk, Pool};
use api::planned::Plan;
use api::{ApiError, ErrorKind};
use serde::Deserialize;

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
    fn words(&self) -> Vec<String> {
        let options = [
            ("--nodes", &self.nodes),
            ("--drives", &self.drives),
            ("--pool", &self.pool),
            ("--add-nodes", &self.add_nodes),
            ("--lose-nodes", &self.lose_nodes),
            ("--racks", &self.racks),
            ("--resiliency", &self.resiliency),
            ("--reserve-disks", &self.reserve_disks),
            ("--network", &self.network),
            ("--protection", &self.protection),
        ];
        let given = options.into_iter().filter(|(_, value)| !value.trim().is_empty());
        // One word, so that a value is never taken for an option.
        let mut words: Vec<String> = given.map(|(name, value)| format!("{name}={}", value.trim())).collect();
        if !self.witness.is_empty() {
            words.push("--witness".into());
        }
        words
    }
}

/// # Errors
/// `Invalid`, with the command line's reason.
pub fn plan(typed: &Typed, pools: &[Pool], disks: &[Disk]) -> Result<Plan, ApiError> {
    cli::plan_of_words(&typed.words(), pools, disks)
        .map_err(|failure| ApiError::new(failure.kind.unwrap_or(ErrorKind::Invalid), failure.message))
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
    }
}
