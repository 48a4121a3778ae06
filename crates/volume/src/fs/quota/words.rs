//! Questions about quotas and changes of them, as callers put them.

use ::types::Sid;

use super::record::{QuotaLimits, QuotaSettings};

/// A question about quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaQuery {
    /// Those of these users, known or not.
    Of(Vec<Sid>),
    /// Those of all users behind `after`, in the order of their identifiers.
    All { after: Option<Sid> },
}

/// A change of quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaChange {
    /// [`QuotaSettings::counted`] is not changed.
    Settings(QuotaSettings),
    /// Users' own limits; `None`: the volume's defaults hold.
    Limits(Vec<(Sid, Option<QuotaLimits>)>),
}
