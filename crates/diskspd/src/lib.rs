//! DiskSpd's command line, profiles, statistics and reports.
//!
//! docs/DISKSPD.md lists where this differs from DiskSpd on Windows.

#![forbid(unsafe_code)]

pub mod cli;
pub mod engine;
pub mod events;
pub mod histogram;
pub mod port;
pub mod profile;
pub mod progress;
pub mod report;
pub mod run;
pub mod size;
pub mod statistics;
pub mod system;
pub mod target;
pub mod xml;
