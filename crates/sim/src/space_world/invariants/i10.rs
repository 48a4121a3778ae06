//! I10: reads never go back in time: the history of every block is that of one register, across crashes and coordinators.

use crate::space_world::oracle::Register;
use std::collections::BTreeMap;

/// Returns every block's violations of linearizability; the map is from block to history.
pub fn check(registers: &BTreeMap<u64, Register>) -> Vec<String> {
    let each = registers.iter();
    each.flat_map(|(lba, register)| {
        register.violations().into_iter().map(move |what| format!("I10: block {lba}: {what}"))
    })
    .collect()
}
