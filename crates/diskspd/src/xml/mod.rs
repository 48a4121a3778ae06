//! DiskSpd's XML: profiles and results, read and written.
//!
//! Profiles may come from strangers: they are bounded in size, depth and count; document types, and
//! entities other than XML's own five and character references, are refused.

mod profile_read;
mod profile_write;
mod results;
mod results_read;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

pub use profile_read::read_profile;
pub use profile_write::profile;
pub use results::results;
pub use results_read::{RESULTS_BYTES_MAX, SpanSummary, TargetSummary, read_results};
pub use tree::BYTES_MAX as PROFILE_BYTES_MAX;

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ERROR: invalid XML profile: {0}")]
pub struct XmlError(pub String);
