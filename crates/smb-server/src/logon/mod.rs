//! Cost of failed logons, and their entries in the audit log.

pub(crate) mod audit;
pub(crate) mod guard;
pub(crate) mod target;
