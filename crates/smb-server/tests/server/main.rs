//! The server from outside: a client with a separate codec on one side, a file layer under the test's
//! control on the other.

mod application;
mod asynchronous;
mod boundaries;
mod channels;
mod compound;
mod cost;
mod credits;
mod deviations;
mod encryption;
mod files;
mod fixture;
mod grants;
mod guesses;
mod half_logons;
mod holding;
mod hostile;
mod keys;
mod latencies;
mod leases;
mod listing;
mod logon;
mod names;
mod negotiate;
mod persistent;
mod policy;
mod quotas;
mod raw;
mod remote;
mod remote_transform;
mod saving;
mod security;
mod symlinks;
