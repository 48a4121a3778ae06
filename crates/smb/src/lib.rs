//! MS-SMB2, MS-FSCC and MS-DTYP on the wire; signing, encryption, SPNEGO and NTLM, DCE/RPC.
//!
//! Promises: parses in place without allocation; unknown contexts are skipped, never fatal. Keeps no state.

#![forbid(unsafe_code)]

pub mod auth;
pub mod crypto;
pub mod rpc;
pub mod wire;
