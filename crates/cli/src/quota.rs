//! `cenote quota`.

use crate::args;
use crate::output::{Align, Column, json, pairs, say, table, word};
use crate::printable::println;
use api::model::{QuotaReport, QuotaView};
use api::requests::{QuotaBounds, SetQuotas};
use api_client::{Client, Failure, escaped};
use args::QuotaSet;
use types::size::{Bound, show_size};

pub fn quota(client: &Client, as_json: bool, command: args::Quota) -> Result<(), Failure> {
    match command {
        args::Quota::List { volume } => {
            let report: QuotaReport = client.get(&path(&volume, None))?;
            if as_json {
                return json(&report);
            }
            list(&report);
        }
        args::Quota::Show { volume, user } => {
            let quota: QuotaView = client.get(&path(&volume, Some(&user)))?;
            if as_json {
                return json(&quota);
            }
            pairs(&[
                ("user", quota.user.clone()),
                ("sid", quota.sid.clone()),
                ("used", show_size(quota.used_bytes)),
                ("warning", bound(quota.threshold_bytes)),
                ("limit", bound(quota.limit_bytes)),
                (
                    "bounds",
                    if quota.own_limits { "the user's own" } else { "the volume's defaults" }.to_owned(),
                ),
                ("state", state(&quota).to_owned()),
            ]);
        }
        args::Quota::Set(set) => {
            let message = change(client, &set)?;
            say(as_json, message)?;
        }
        args::Quota::Remove { volume, user } => {
            client.delete(&path(&volume, Some(&user)))?;
            say(
                as_json,
                format!("the volume's default limits apply to '{user}' on volume '{volume}' again"),
            )?;
        }
    }
    Ok(())
}

fn path(volume: &str, user: Option<&str>) -> String {
    let user = user.map(|user| format!("/{}", escaped(user))).unwrap_or_default();
    format!("/volumes/{}/quotas{user}", escaped(volume))
}

/// Sets the given options, and reports the result.
fn change(client: &Client, set: &QuotaSet) -> Result<String, Failure> {
    let QuotaSet { volume, user, limit, warning, mode } = set;
    let chosen = |new: Option<Bound>, old: Option<u64>| new.map_or(old, |new| new.bytes());
    let has_bounds = limit.is_some() || warning.is_some();
    match user {
        Some(_) if mode.is_some() => Err(Failure::new("--mode is the volume's: give it without a user")),
        None if mode.is_none() && !has_bounds => {
            Err(Failure::new("nothing to set: give --mode, --limit or --warning"))
        }
        Some(_) if !has_bounds => Err(Failure::new("nothing to set: give --limit or --warning")),
        Some(user) => {
            let path = path(volume, Some(user));
            let old: QuotaView = client.get(&path)?;
            let bounds = QuotaBounds {
                threshold_bytes: chosen(*warning, old.threshold_bytes),
                limit_bytes: chosen(*limit, old.limit_bytes),
            };
            let () = client.put(&path, &bounds)?;
            Ok(format!("the limits of '{user}' on volume '{volume}' were set"))
        }
        None => {
            let path = path(volume, None);
            let old: QuotaReport = client.get(&path)?;
            let defaults = has_bounds.then(|| QuotaBounds {
                threshold_bytes: chosen(*warning, old.default_threshold_bytes),
                limit_bytes: chosen(*limit, old.default_limit_bytes),
            });
            let () = client.patch(&path, &SetQuotas { mode: mode.map(Into::into), defaults })?;
            Ok(format!("the quotas of volume '{volume}' were set"))
        }
    }
}

fn list(report: &QuotaReport) {
    let counting = if report.counting { ", files are still being counted: no limit holds yet" } else { "" };
    pairs(&[
        ("quotas", format!("{}{counting}", word(report.mode))),
        ("default warning", bound(report.default_threshold_bytes)),
        ("default limit", bound(report.default_limit_bytes)),
    ]);
    println!();
    let columns = [
        Column("USER", Align::Left),
        Column("USED", Align::Right),
        Column("WARNING", Align::Right),
        Column("LIMIT", Align::Right),
        Column("BOUNDS", Align::Left),
        Column("STATE", Align::Left),
    ];
    let rows = report.users.iter().map(|quota| {
        vec![
            quota.user.clone(),
            show_size(quota.used_bytes),
            bound(quota.threshold_bytes),
            bound(quota.limit_bytes),
            if quota.own_limits { "own" } else { "default" }.to_owned(),
            state(quota).to_owned(),
        ]
    });
    table(&columns, rows.collect(), "no user owns anything on this volume, or quotas are off");
    if report.truncated {
        println!("there are more users: these are the first");
    }
}

fn bound(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "none".to_owned(), show_size)
}

fn state(quota: &QuotaView) -> &'static str {
    // Enforced limits keep everybody below: a user who is refused more space is a little below the limit.
    let is_used_up = |limit: u64| limit - quota.used_bytes.min(limit) <= limit / 100;
    match quota.limit_bytes {
        _ if quota.over_limit => "over the limit",
        Some(limit) if is_used_up(limit) => "at the limit",
        _ if quota.over_threshold => "over the warning",
        _ => "ok",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_gets_no_more_room_is_not_said_to_be_fine() {
        let quota = |used_bytes, over_threshold| QuotaView {
            user: "ann".to_owned(),
            sid: "S-1-5-21-1".to_owned(),
            used_bytes,
            threshold_bytes: Some(800),
            limit_bytes: Some(1000),
            own_limits: true,
            over_threshold,
            over_limit: used_bytes > 1000,
        };
        assert_eq!(state(&quota(500, false)), "ok");
        assert_eq!(state(&quota(900, true)), "over the warning");
        assert_eq!(state(&quota(990, true)), "at the limit");
        assert_eq!(state(&quota(1000, true)), "at the limit");
        assert_eq!(state(&quota(1001, true)), "over the limit");
        assert_eq!(state(&QuotaView { limit_bytes: None, ..quota(1000, true) }), "over the warning");
    }
}
