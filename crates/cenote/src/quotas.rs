//! Quotas in the API's words.

use api::model::{QuotaMode, QuotaReport, QuotaView};
use api::requests::{QuotaBounds, SetQuotas};
use types::Sid;
use volume::fs::{QuotaLimits, QuotaMode as Mode, QuotaSettings};

pub fn show(report: node::QuotaReport, name_of: impl Fn(&Sid) -> String) -> QuotaReport {
    let QuotaSettings { mode, defaults, .. } = report.settings;
    QuotaReport {
        mode: match mode {
            Mode::Off => QuotaMode::Off,
            Mode::Track => QuotaMode::Track,
            Mode::Enforce => QuotaMode::Enforce,
        },
        counting: report.is_counting,
        default_threshold_bytes: defaults.threshold_bytes,
        default_limit_bytes: defaults.limit_bytes,
        users: report.users.into_iter().map(|user| show_user(&user, &name_of)).collect(),
        truncated: report.is_truncated,
    }
}

fn show_user(user: &volume::fs::QuotaUser, name_of: impl Fn(&Sid) -> String) -> QuotaView {
    let QuotaLimits { threshold_bytes, limit_bytes } = user.limits;
    let beyond = |bound: Option<u64>| bound.is_some_and(|bound| user.used_bytes > bound);
    QuotaView {
        user: name_of(&user.user),
        sid: user.user.to_string(),
        used_bytes: user.used_bytes,
        threshold_bytes,
        limit_bytes,
        own_limits: user.is_own,
        over_threshold: beyond(threshold_bytes),
        over_limit: beyond(limit_bytes),
    }
}

/// Applies the request to the settings; omitted ones stay.
pub fn change(settings: &mut QuotaSettings, request: &SetQuotas) {
    if let Some(mode) = request.mode {
        settings.mode = match mode {
            QuotaMode::Off => Mode::Off,
            QuotaMode::Track => Mode::Track,
            QuotaMode::Enforce => Mode::Enforce,
        };
    }
    if let Some(defaults) = request.defaults {
        settings.defaults = limits(defaults);
    }
}

pub fn limits(bounds: QuotaBounds) -> QuotaLimits {
    QuotaLimits { threshold_bytes: bounds.threshold_bytes, limit_bytes: bounds.limit_bytes }
}
