//! A fleet of workers that measure a storage system together, in VMFleet's words: runs, orders, and displays.
//!
//! Owns profiles, sweeps, the search of the core workload measurement, result rows, tables, plots and
//! reports as pure functions; beside them the running of workers. Promises: percentiles come from
//! merged histograms and are never averaged; a run resumes from the rows of result.tsv; missing
//! measurements are reported, not guessed. Never touches a server's disks.

#![forbid(unsafe_code)]

pub mod args;
pub mod cgroup;
pub mod commands;
pub mod experiment;
pub mod fit;
pub mod job;
pub mod machine;
pub mod microvm;
pub mod nodes;
pub mod outcome;
pub mod owners;
pub mod placement;
pub mod plot;
pub mod report;
pub mod row;
pub mod runner;
pub mod search;
pub mod server;
pub mod state;
pub mod sweep;
pub mod table;
pub mod telling;
pub mod tsv;
pub mod worker;
pub mod workload;
