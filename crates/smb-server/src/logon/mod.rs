//! What failed logons cost, and what the audit log says of them.

pub(crate) mod audit;
pub(crate) mod guard;
pub(crate) mod target;
