//! Storage Spaces Direct beside a plan: its published efficiencies, and differences.

use crate::{DriveType, Node};
use api::planned::S2dChoice;
use pool::s2d::{S2dResiliency, efficiency_of};

/// Storage Spaces Direct's tables for as many servers.
pub fn choices(nodes: &[Node]) -> Vec<S2dChoice> {
    let servers = nodes.len() as u32;
    let drives: u32 = nodes.first().map_or(0, |node| node.drives.iter().map(|drives| drives.count).sum());
    let is_all_flash =
        nodes.iter().flat_map(|node| &node.drives).all(|drives| drives.drive != DriveType::Hdd);
    let all = [
        ("two-way mirror", S2dResiliency::TwoWayMirror, true),
        ("three-way mirror", S2dResiliency::ThreeWayMirror, true),
        ("dual parity", S2dResiliency::DualParity, false),
        (
            "mirror-accelerated parity, 20 % mirror",
            S2dResiliency::MirrorAcceleratedParity { mirror_percent: 20 },
            false,
        ),
        ("nested two-way mirror", S2dResiliency::NestedMirror, false),
        (
            "nested mirror-accelerated parity, 20 % mirror",
            S2dResiliency::NestedParity { mirror_percent: 20 },
            false,
        ),
    ];
    let shown = all.into_iter().filter_map(|(name, resiliency, is_here)| {
        let found = efficiency_of(resiliency, servers, drives, is_all_flash)?;
        Some(S2dChoice {
            resiliency: name.into(),
            efficiency_percent: (found.usable * 1000.0).round() / 10.0,
            code: found.code.into(),
            survives: found.tolerates,
            is_here,
        })
    });
    shown.collect()
}

/// Assumptions of the plan, and differences from Storage Spaces Direct.
pub fn notes(servers: usize, has_hdd: bool) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut note = |applies: bool, text: &str| {
        if applies {
            notes.push(text.to_owned());
        }
    };
    note(
        true,
        "The reserve is enforced: only repair may take it. S2D recommends one capacity drive for each server, up to four, and enforces nothing.",
    );
    note(
        true,
        "Drives need not be alike: copies go by capacity, and what finds no partner is shown as unusable. S2D asks for symmetry.",
    );
    note(
        true,
        "A three-way mirror acknowledges writes on two copies at least: with one left it can be read, and writes wait for repair.",
    );
    note(
        servers == 2,
        "A three-way mirror on two nodes has two copies on one: without that one the data can be read, and writes wait.",
    );
    note(
        servers == 2,
        "Two nodes take a witness: without one neither goes on alone. S2D has nested resiliency here, which is not built.",
    );
    note(servers >= 4, "S2D has parity from four servers on; parity is not built yet (D10).");
    note(
        servers == 3 || servers == 4,
        "S2D keeps a pool quorum beside the cluster's: three servers with a witness stay up while their pool does not. Here is one state.",
    );
    note(
        servers >= 5,
        "S2D survives two servers from five on; the state here is kept by three nodes, so one of those may be lost at a time.",
    );
    note(
        servers > pool::s2d::SERVERS_MAX as usize,
        "S2D ends at 16 servers: it has no figures for this plan.",
    );
    note(has_hdd, "S2D puts a cache of flash in front of disks that turn; here is a cache in RAM only.");
    note(
        true,
        "S2D takes 10 GbE at least, and RDMA with 25 GbE for four servers and more; the same is wise here.",
    );
    note(
        true,
        "Bounds are of one processor core a node, which is what serves today (D17), and of round figures of drives; docs/PERFORMANCE.md has what was measured.",
    );
    notes
}
