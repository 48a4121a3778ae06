//! Rule `circles`: modules that stand side by side use each other in one direction. A module and those inside of it may use
//! each other: they are one room.

use super::Finding;
use super::modules::{self, Use};
use super::tree::{Crate, Module, Tree};
use std::collections::{BTreeMap, BTreeSet};

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates.iter().flat_map(check_crate).collect()
}

/// Uses between the modules of one folder, with their paths.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Use>>;

fn check_crate(member: &Crate) -> Vec<Finding> {
    let uses = modules::uses(member);
    let mut rooms: BTreeMap<&[String], Graph<'_>> = BTreeMap::new();
    for used in &uses {
        let common = used.from.iter().zip(&used.to).take_while(|(from, to)| from == to).count();
        // One of them is inside of the other.
        let (Some(from), Some(to)) = (used.from.get(common), used.to.get(common)) else { continue };
        rooms.entry(&used.from[..common]).or_default().entry(from).or_default().entry(to).or_insert(used);
    }
    let mut findings = Vec::new();
    for (room, graph) in &rooms {
        for circle in circles(graph) {
            let subject = [&[member.name().to_owned()], *room, &[circle.join("+")]].concat().join("::");
            findings.push(Finding::new("circles", subject, describe(graph, &circle)));
        }
    }
    findings
}

/// The modules that reach each other, in groups.
fn circles<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (*from, reachable(graph, from))).collect();
    let mut grouped: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for (from, reaches) in &reached {
        if !reaches.contains(from) || grouped.contains(from) {
            continue;
        }
        let back = |other: &&&str| reached.get(**other).is_some_and(|reaches| reaches.contains(from));
        let circle: Vec<&str> = reaches.iter().filter(back).copied().collect();
        grouped.extend(&circle);
        found.push(circle);
    }
    found
}

fn reachable<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = vec![from];
    while let Some(next) = waiting.pop() {
        for to in graph.get(next).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(*to) {
                waiting.push(to);
            }
        }
    }
    found
}

fn describe(graph: &Graph<'_>, circle: &[&str]) -> String {
    let mut edges = Vec::new();
    for from in circle {
        for (to, used) in graph.get(from).into_iter().flatten().filter(|(to, _)| circle.contains(to)) {
            edges.push(format!("{from} -> {to} ({} names {})", shown(&used.from), used.path));
        }
    }
    edges.join(", ")
}

fn shown(module: &Module) -> String {
    module.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    #[test]
    fn uses_in_one_direction_and_between_a_room_and_its_parts_pass() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::T;"),
            ("b.rs", "mod c; use c::U; pub struct T;"),
            ("b/c.rs", "use super::T;"),
        ];
        assert_eq!(check_crate(&crate_of("crates/x", &sources)), []);
    }

    #[test]
    fn a_circle_over_three_modules_is_found_once() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A; use crate::d::D;"),
            ("d.rs", ""),
        ];
        let found = check_crate(&crate_of("crates/x", &sources));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].subject, "x::a+b+c");
    }

    #[test]
    fn a_circle_through_the_parts_of_two_rooms_is_found() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod inner; pub struct T;"),
            ("a/inner.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
        ];
        assert_eq!(check_crate(&crate_of("crates/x", &sources)).len(), 1);
    }
}
