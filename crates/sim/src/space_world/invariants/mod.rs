//! One file per invariant. Each says what it proves, and gets the events of the run.

pub mod beginnings;
pub mod copies;
pub mod dead_nodes;
pub mod i1;
pub mod i10;
pub mod i2;
pub mod i3;
pub mod i4;
pub mod i5;
pub mod i6;
