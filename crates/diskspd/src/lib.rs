//! DiskSpd's command line, profiles, statistics and reports: what is measured and how it is said.
//!
//! docs/DISKSPD.md lists where this differs from DiskSpd on Windows.

#![forbid(unsafe_code)]

pub mod cli;
pub mod profile;
pub mod report;
pub mod size;
pub mod statistics;
