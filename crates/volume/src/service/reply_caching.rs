//! Caching granted by an answer that had to wait until it was durable.
//!
//! Meanwhile others may break the caching that the answer grants, and the holder is told immediately: a
//! break does not wait for the disks. So the answer is reduced to its holder's caching by then, with
//! the epoch of the break: MS-SMB2 3.3.5.9.8 and 3.3.5.9.11 build it from the lease as it is. It never
//! grants more than when it began to wait: a later upgrade may not be durable.

use super::cache_state::{level_of, state_of};
use super::parts::Parts;
use super::transfers::Shown;
use crate::backend::{CacheGrant, LeaseState, OplockLevel, Reply};

/// Reduces an answer that has waited to the present caching. A closed open or lease caches nothing.
pub fn cut_down(parts: &mut Parts<'_>, reply: &mut Reply, shown: Option<Shown>) {
    let Some(shown) = shown else { return };
    let now = match shown {
        Shown::Lease(name) => parts.caching.lease_grant(name),
        Shown::Open(id) => match parts.opens.get_mut(id) {
            Some(open) => {
                open.told = true;
                parts.caching.current_grant(&open.holder)
            }
            None => CacheGrant::Oplock(OplockLevel::None),
        },
    };
    match reply {
        Reply::Created(created) => lower(&mut created.cache, now),
        Reply::Oplock(level) => {
            let mut told = CacheGrant::Oplock(*level);
            lower(&mut told, now);
            if let CacheGrant::Oplock(left) = told {
                *level = left;
            }
        }
        Reply::Lease { state, .. } => match now {
            CacheGrant::Lease { state: held, .. } => *state &= held,
            CacheGrant::Oplock(_) => *state = LeaseState::empty(),
        },
        _ => {}
    }
}

fn lower(told: &mut CacheGrant, now: CacheGrant) {
    match (told, now) {
        (
            CacheGrant::Lease { state, breaking, version_2, .. },
            CacheGrant::Lease { state: held, breaking: is_breaking, version_2: newest, .. },
        ) => {
            if is_breaking || !held.contains(*state) {
                *state &= held;
                (*breaking, *version_2) = (is_breaking, newest);
            }
        }
        (CacheGrant::Lease { state, .. }, CacheGrant::Oplock(_)) => *state = LeaseState::empty(),
        (CacheGrant::Oplock(level), CacheGrant::Oplock(held)) => {
            *level = level_of(state_of(*level) & state_of(held));
        }
        (CacheGrant::Oplock(_), CacheGrant::Lease { .. }) => {
            debug_assert!(false, "an open keeps the kind of its caching");
        }
    }
}
