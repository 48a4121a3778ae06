//! The client library against the daemon, both as they ship, over TCP and SMB Direct.

mod channels;
mod cli;
mod direct;
mod fixture;
mod small_files;
