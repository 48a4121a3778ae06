//! Certificates of a cluster's servers.
//!
//! Owns the cluster's authority, which issues them ([`authority`]), and the answer whether a certificate that another server shows is good
//! ([`node_trust`]). Promises: a certificate that the records do not name is not believed. Never decides who joins.
//!
//! The storage bus admits other nodes by these rules, so that they stand below it, apart from the rest of a server's membership (`member`).

#![forbid(unsafe_code)]

pub mod authority;
pub mod node_trust;
