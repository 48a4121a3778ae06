//! The accepting side: connections of clients, and the service that owns their messages.
//!
//! [`Clients`] owns the connections of both transports and knows the service as a [`Service`] only.

mod clients;
mod group;
mod held;
mod memory;
mod service;
pub mod smb_direct;
pub mod tcp;
#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use service::{Carrier, Descriptors, Origin, Outgoing, Service};
