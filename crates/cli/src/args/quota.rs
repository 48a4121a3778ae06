//! `cenote quota`.

use clap::{Args, Subcommand, ValueEnum};
use types::size::{Bound, parse_bound};

/// Subcommands of `cenote quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// List a volume's quotas and how much each user owns
    List {
        /// The volume's name
        volume: String,
    },
    /// Show the quota of one user
    Show {
        /// The volume's name
        volume: String,
        /// A user's name or SID: the owner of files
        user: String,
    },
    /// Turn quotas on or off, and set limits
    Set(QuotaSet),
    /// Remove a user's own limits: the volume's defaults apply again
    Remove {
        /// The volume's name
        volume: String,
        /// A user's name or SID
        user: String,
    },
}

/// Options of `cenote quota set`, for one user or for all without own limits.
#[derive(Debug, Args)]
pub struct QuotaSet {
    /// The volume's name
    pub volume: String,
    /// A user's name or SID [default: all users without limits of their own]
    pub user: Option<String>,
    /// Refuse writes beyond this size, such as 10GiB, or none
    #[arg(long, value_parser = parse_bound, value_name = "SIZE")]
    pub limit: Option<Bound>,
    /// Show the user as over the warning level beyond this size, or none
    #[arg(long, value_parser = parse_bound, value_name = "SIZE")]
    pub warning: Option<Bound>,
    /// Whether the server counts, and refuses writes beyond a limit
    #[arg(long, value_enum)]
    pub mode: Option<QuotaMode>,
}

/// Whether a volume's quotas are counted and enforced.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum QuotaMode {
    /// Keep no counts
    Off,
    /// Count, and refuse nothing
    Track,
    /// Count, and refuse writes beyond a limit
    Enforce,
}

impl From<QuotaMode> for api::model::QuotaMode {
    fn from(mode: QuotaMode) -> Self {
        match mode {
            QuotaMode::Off => Self::Off,
            QuotaMode::Track => Self::Track,
            QuotaMode::Enforce => Self::Enforce,
        }
    }
}
