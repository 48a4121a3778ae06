//! The client of the management API: finds a server's address and token, and sends requests.
//!
//! Promises: talks to nothing but the API; sends the token to no other user's listener, and to other machines over TLS only. Never
//! decides what to ask.

#![forbid(unsafe_code)]

mod args;
mod client;
mod data_files;
mod failure;
mod listener;

pub use args::{Access, Resiliency};
pub use client::{Client, escaped};
pub use data_files::{data_directory, near_directory};
pub use failure::Failure;
