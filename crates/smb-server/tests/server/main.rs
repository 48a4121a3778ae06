//! The server from outside: a client of its own codec on one side, a file layer that does what a test tells it on the other.

mod application;
mod asynchronous;
mod boundaries;
mod channels;
mod compound;
mod cost;
mod credits;
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
mod logon;
mod negotiate;
mod persistent;
mod policy;
mod quotas;
mod raw;
mod remote;
mod remote_transform;
mod security;
