//! A pool: disks made of slabs, fault domains, and where the copies of a chunk go.
//!
//! Owns pure functions over a [`PoolView`]: [`place`], [`repair_plan`], [`rebalance_plan`]; and of pools that are only planned:
//! [`capacity`]. Promises: no two copies of a
//! chunk on one disk, nor in one fault domain of the strictest level that the pool's disks can satisfy; disks fill evenly by
//! capacity, to 2 % or one slab; the reserve is left to repair. The same input gives the same answer. Never moves data.

#![forbid(unsafe_code)]

mod capacity;
mod domain;
mod place;
mod plan;
pub mod s2d;
mod view;

pub use capacity::{Capacity, PlannedDisk, capacity};
pub use domain::{FaultDomain, Level};
pub use place::{PlaceError, Purpose, place};
pub use plan::{ChunkCopies, Move, Repair, Shortage, rebalance_plan, repair_plan, shortage_without, surplus};
pub use view::{Disk, PoolView, Route, default_reserve_disks, level};

#[cfg(test)]
mod tests;
