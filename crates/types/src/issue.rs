//! Issues of health, as the parts that find them report them.

/// Code of the issue that another live server has a volume and does not answer this one. In a cluster
/// it counts if all servers report it.
pub const VOLUME_UNREACHED: &str = "volume_unreached";

/// Weight of an issue, the heavier the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object works, with less safety or speed than it should have.
    Warning,
    /// The object does not do its work.
    Unhealthy,
}

/// An issue of one object of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Weight of the issue.
    pub severity: Severity,
    /// A stable word for programs, such as `disk_lost`.
    pub code: &'static str,
    /// The object concerned, such as `disk 3f1c...`.
    pub target: String,
    /// Beginning of the issue; `None`: nobody recorded it.
    pub since_unix_s: Option<u64>,
    /// Description of the issue, in a sentence.
    pub what: String,
    /// Meaning for the data.
    pub meaning: String,
    /// Advice to the administrator.
    pub action: String,
}
