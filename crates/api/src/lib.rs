//! The management API: REST with an OpenAPI document, Prometheus metrics, and the trait behind which the daemon stands.
//!
//! Promises: the CLI uses nothing else. Never touches the data path.

#![forbid(unsafe_code)]

mod document;
pub mod management;
mod metrics;
pub mod model;
pub mod printed;
pub mod rdma;
mod refusals;
pub mod requests;
mod routes;
mod seats;
mod server;
pub mod tls;
mod token;

pub use management::{Answer, ApiError, ErrorKind, Management};
pub use seats::CONNECTIONS_MAX;
pub use server::{openapi, serve, serve_tls};
pub use token::Token;
