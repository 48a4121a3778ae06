//! Watches the server's health: each change goes to the log, and to a webhook if one is set.
//!
//! Promises: what could not be delivered is told with a later try, as long as it is still so; a webhook that does not answer holds
//! nothing up. Never decides what is healthy.

use crate::https;
use crate::management::Management;
use crate::model::{Health, HealthIssue, HealthReport};
use cluster::clock::unix_now_s;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use ureq::Agent;

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A webhook has so long to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between tries of a webhook that does not take what it is sent: at first, and at last.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The receiver of changes.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// `http://` or `https://`.
    pub url: String,
    /// Who may vouch for an HTTPS server's name; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
}

/// What a webhook is sent, as JSON.
#[derive(Debug, Serialize)]
struct Notice<'a> {
    server: &'a str,
    at_unix_s: u64,
    health: Health,
    /// New since the last notice that was taken, or of another severity.
    appeared: Vec<&'a HealthIssue>,
    /// Gone since then.
    resolved: Vec<&'a HealthIssue>,
    /// All that is wrong.
    issues: &'a [HealthIssue],
}

/// The issues that were told last. Figures within their texts change all the time: only which there are, and how bad, counts.
#[derive(Debug, Default)]
struct Told(BTreeMap<(String, String), HealthIssue>);

impl Told {
    /// What is new and what is gone.
    fn changes<'a>(&'a self, report: &'a HealthReport) -> (Vec<&'a HealthIssue>, Vec<&'a HealthIssue>) {
        let is_new = |issue: &&HealthIssue| {
            self.0
                .get(&(issue.code.clone(), issue.target.clone()))
                .is_none_or(|told| told.health != issue.health)
        };
        let is_gone = |told: &&HealthIssue| {
            !report.issues.iter().any(|issue| issue.code == told.code && issue.target == told.target)
        };
        (report.issues.iter().filter(is_new).collect(), self.0.values().filter(is_gone).collect())
    }

    fn update(&mut self, report: &HealthReport) {
        let issues = report.issues.iter();
        self.0 = issues.map(|issue| ((issue.code.clone(), issue.target.clone()), issue.clone())).collect();
    }
}

/// Watches until the task is dropped.
pub async fn watch(management: Arc<dyn Management>, server: String, webhook: Option<Webhook>) {
    let (mut logged, mut delivered) = (Told::default(), Told::default());
    let (mut retry_at, mut retry_after) = (Instant::now(), RETRY_MIN);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(snapshot) = management.snapshot().await else { continue };
        let report = snapshot.health;
        log(&logged, &report);
        logged.update(&report);
        let Some(webhook) = &webhook else { continue };
        let (appeared, resolved) = delivered.changes(&report);
        if appeared.is_empty() && resolved.is_empty() || Instant::now() < retry_at {
            continue;
        }
        let notice = Notice {
            server: &server,
            at_unix_s: unix_now_s(),
            health: report.health,
            appeared,
            resolved,
            issues: &report.issues,
        };
        match post(webhook, &notice).await {
            Ok(()) => {
                delivered.update(&report);
                retry_after = RETRY_MIN;
            }
            Err(why) => {
                tracing::warn!(
                    webhook = server_of(&webhook.url),
                    why,
                    retry_s = retry_after.as_secs(),
                    "health was not told"
                );
                retry_at = Instant::now() + retry_after;
                retry_after = (retry_after * 2).min(RETRY_MAX);
            }
        }
    }
}

fn log(logged: &Told, report: &HealthReport) {
    let (appeared, resolved) = logged.changes(report);
    for issue in appeared {
        let HealthIssue { code, target, what, meaning, action, .. } = issue;
        if issue.health == Health::Unhealthy {
            tracing::error!(code, target, meaning, action, "health: {what}");
        } else {
            tracing::warn!(code, target, meaning, action, "health: {what}");
        }
    }
    for issue in resolved {
        tracing::info!(code = issue.code, target = issue.target, "health: resolved: {}", issue.what);
    }
}

/// The server that a URL leads to: all of it that may be logged, since many webhooks carry their secret in path or query.
fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let rest = url.get(host..).unwrap_or_default();
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    rest.rsplit('@').next().unwrap_or_default()
}

async fn post(webhook: &Webhook, notice: &Notice<'_>) -> Result<(), String> {
    let body = serde_json::to_string(notice).map_err(|error| error.to_string())?;
    let webhook = webhook.clone();
    let posted = tokio::task::spawn_blocking(move || {
        let is_https = webhook.url.starts_with("https://");
        let agent: Agent =
            https::agent(https::Receiver::Webhook, is_https, webhook.authorities.as_deref(), ANSWER_WITHIN)?;
        let sent = agent.post(&webhook.url).header("Content-Type", "application/json").send(body);
        let status = sent.map_err(|error| error.to_string())?.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
    });
    posted.await.unwrap_or_else(|_| Err("the server stops".into()))
}

#[cfg(test)]
mod tests;
