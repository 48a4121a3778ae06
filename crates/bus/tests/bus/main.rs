//! Nodes in one process that reach each other's disks over real sockets.

mod accounts;
mod channels;
mod losses;
mod operations;
mod queues;
mod relay;
mod spaces;
mod tshark;
mod world;
