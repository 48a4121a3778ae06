//! Watches the server's health: reports each change to the log, and to a webhook and by mail if
//! configured.
//!
//! Promises: an issue that lasts for a second is reported, even if it ends before its delivery; a
//! failed delivery is repeated with a later try; a receiver that does not answer delays nothing, least
//! of all the log. Never decides what is healthy.

use crate::https;
use crate::mail::{self, Mail};
use crate::management::Management;
use crate::model::{Health, HealthIssue, HealthReport};
use crate::requests::TestedReceiver;
use records::clock::unix_now_s;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use ureq::Agent;

/// Sends a new issue within a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Timeout of a webhook's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two mails: people read them.
const MAIL_PAUSE: Duration = Duration::from_secs(30);
/// Timeout of a test of the receivers, for which an administrator waits.
const TEST_WITHIN: Duration = Duration::from_secs(30);
/// Pauses between tries of a receiver that refuses or does not answer: the first, and the longest.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The receivers of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receivers {
    /// Receiver by HTTP; `None`: none configured.
    pub webhook: Option<Webhook>,
    /// Receivers by mail; `None`: none configured.
    pub mail: Option<Mail>,
}

/// A receiver of changes by HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// `http://` or `https://`.
    pub url: String,
    /// Authorities for an HTTPS server's certificate; `None`: the system's.
    pub authorities: Option<PathBuf>,
}

/// The JSON body of a webhook's notice.
#[derive(Debug, Serialize)]
struct Notice<'a> {
    server: &'a str,
    at_unix_s: u64,
    health: Health,
    /// New since the last delivered notice, or changed in severity.
    appeared: Vec<&'a HealthIssue>,
    /// Gone since then. One that came and went meanwhile is in both.
    resolved: Vec<&'a HealthIssue>,
    /// All that is wrong.
    issues: &'a [HealthIssue],
    /// Nothing has changed: an administrator tries whether notices arrive.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
}

impl Notice<'_> {
    fn json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// The subject, and below it the text of a mail.
    fn letter(&self) -> String {
        let health = match self.health {
            Health::Healthy => "healthy",
            Health::Warning => "warning",
            Health::Unhealthy => "unhealthy",
        };
        let what = match (self.appeared.as_slice(), self.resolved.as_slice()) {
            _ if self.test => "a test: notices arrive".to_owned(),
            ([one], _) => one.what.clone(),
            ([], [one]) => format!("resolved: {}", one.what),
            ([], resolved) => format!("{} issues are resolved", resolved.len()),
            (appeared, _) => format!("{} new issues", appeared.len()),
        };
        let mut text = format!("[cenote] {} is {health}: {}\n", self.server, what.replace(['\r', '\n'], " "));
        mail::list(&mut text, "New", &self.appeared);
        mail::list(&mut text, "Resolved", &self.resolved);
        mail::list(&mut text, "All that is wrong now", &self.issues.iter().collect::<Vec<_>>());
        text
    }
}

/// The issues reported last. Figures within their texts change all the time: only the set of issues
/// counts, and how bad each is.
#[derive(Debug, Default)]
struct Told(BTreeMap<(String, String), HealthIssue>);

impl Told {
    /// Returns new and resolved issues.
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

/// Issues yet to be delivered. Bounded by the number of possible issues: each is in it once, however
/// often it came and went.
#[derive(Debug, Default, Clone)]
struct Pending {
    appeared: BTreeMap<(String, String), HealthIssue>,
    resolved: BTreeMap<(String, String), HealthIssue>,
    /// The report as of the last change.
    report: HealthReport,
}

impl Pending {
    fn note(&mut self, appeared: &[&HealthIssue], resolved: &[&HealthIssue], report: &HealthReport) {
        for (kept, new) in [(&mut self.appeared, appeared), (&mut self.resolved, resolved)] {
            kept.extend(
                new.iter()
                    .map(|issue| ((issue.code.clone(), issue.target.clone()), HealthIssue::clone(issue))),
            );
        }
        self.report = report.clone();
    }

    fn is_empty(&self) -> bool {
        self.appeared.is_empty() && self.resolved.is_empty()
    }

    /// Puts back undelivered changes, before later ones.
    fn put_back(&mut self, undelivered: Self) {
        let is_newest = self.is_empty();
        for (kept, old) in
            [(&mut self.appeared, undelivered.appeared), (&mut self.resolved, undelivered.resolved)]
        {
            for (key, issue) in old {
                kept.entry(key).or_insert(issue);
            }
        }
        if is_newest {
            self.report = undelivered.report;
        }
    }

    fn notice<'a>(&'a self, server: &'a str) -> Notice<'a> {
        Notice {
            server,
            at_unix_s: unix_now_s(),
            health: self.report.health,
            appeared: self.appeared.values().collect(),
            resolved: self.resolved.values().collect(),
            issues: &self.report.issues,
            test: false,
        }
    }
}

/// Mailbox between the health check and the delivery to one receiver.
#[derive(Default)]
struct Outbox {
    pending: Mutex<Pending>,
    filled: Notify,
    /// Wakes the delivery after a change of the receiver: its next try is due immediately.
    redirected: Notify,
}

impl Outbox {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches until the task is dropped. Receivers may change meanwhile.
pub async fn watch(
    management: Arc<dyn Management>,
    server: String,
    receivers: tokio::sync::watch::Receiver<Receivers>,
) {
    let (posts, mails) = (Outbox::default(), Outbox::default());
    let posting = |body| {
        let webhook = receivers.borrow().webhook.clone();
        async move {
            match webhook {
                Some(webhook) => post(webhook, body).await,
                None => Ok(()),
            }
        }
    };
    let mailing = |letter| {
        let mail = receivers.borrow().mail.clone();
        async move {
            match mail {
                Some(mail) => send(mail, letter).await,
                None => Ok(()),
            }
        }
    };
    let redirecting = async {
        let mut receivers = receivers.clone();
        while receivers.changed().await.is_ok() {
            posts.redirected.notify_waiters();
            mails.redirected.notify_waiters();
        }
    };
    let mail_pace = Pace { pause: MAIL_PAUSE, ..PACE };
    tokio::join!(
        look(&*management, [&posts, &mails]),
        deliver(&posts, &server, |notice| notice.json(), PACE, posting),
        deliver(&mails, &server, |notice| Ok(notice.letter()), mail_pace, mailing),
        redirecting
    );
}

/// Sends each receiver a test notice.
pub async fn test(receivers: Receivers, server: &str) -> Vec<TestedReceiver> {
    let notice = Notice {
        server,
        at_unix_s: unix_now_s(),
        health: Health::Healthy,
        appeared: Vec::new(),
        resolved: Vec::new(),
        issues: &[],
        test: true,
    };
    let Receivers { webhook, mail } = receivers;
    let (body, letter) = (notice.json(), notice.letter());
    let posted = async {
        let (webhook, body) = webhook.zip(body.ok())?;
        let to = server_of(&webhook.url).to_owned();
        let error = in_time(post(webhook, body)).await.err();
        Some(TestedReceiver { receiver: "webhook".into(), to, error })
    };
    let mailed = async {
        let mail = mail?;
        let to = mail.to.join(", ");
        let error = in_time(send(mail, letter)).await.err();
        Some(TestedReceiver { receiver: "mail".into(), to, error })
    };
    let (posted, mailed) = tokio::join!(posted, mailed);
    posted.into_iter().chain(mailed).collect()
}

async fn in_time(sent: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    tokio::time::timeout(TEST_WITHIN, sent).await.unwrap_or_else(|_| Err("no answer in time".into()))
}

async fn send(mail: Mail, letter: String) -> Result<(), String> {
    let server = mail.host.clone();
    mail::send(&mail, &letter).await.map_err(|why| format!("{server}: {why}"))
}

/// Checks health again and again, and logs changes.
async fn look(management: &dyn Management, outboxes: [&Outbox; 2]) {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(figures) = management.figures().await else { continue };
        let report = figures.health;
        let (appeared, resolved) = told.changes(&report);
        log(&appeared, &resolved);
        let has_changed = !appeared.is_empty() || !resolved.is_empty();
        for outbox in outboxes.iter().filter(|_| has_changed) {
            outbox.pending().note(&appeared, &resolved, &report);
            outbox.filled.notify_one();
        }
        told.update(&report);
    }
}

/// How often a receiver is sent something.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pause after a delivered notice.
    pause: Duration,
    /// Behind the first one that was not.
    retry_min: Duration,
}

const PACE: Pace = Pace { pause: Duration::ZERO, retry_min: RETRY_MIN };

/// Delivers the changes, one notice after the other.
async fn deliver<F>(
    outbox: &Outbox,
    server: &str,
    write: impl Fn(&Notice<'_>) -> Result<String, String>,
    Pace { pause, retry_min }: Pace,
    post: impl Fn(String) -> F,
) where
    F: Future<Output = Result<(), String>>,
{
    let mut retry_after = retry_min;
    loop {
        outbox.filled.notified().await;
        let taken = std::mem::take(&mut *outbox.pending());
        if taken.is_empty() {
            continue;
        }
        let posted = match write(&taken.notice(server)) {
            Ok(body) => post(body).await,
            Err(why) => Err(why),
        };
        match posted {
            Ok(()) => {
                retry_after = retry_min;
                tokio::time::sleep(pause).await;
            }
            Err(why) => {
                tracing::warn!(why, retry_s = retry_after.as_secs(), "health was not told");
                outbox.pending().put_back(taken);
                tokio::select! {
                    () = tokio::time::sleep(retry_after) => retry_after = (retry_after * 2).min(RETRY_MAX),
                    () = outbox.redirected.notified() => retry_after = retry_min,
                }
                outbox.filled.notify_one();
            }
        }
    }
}

fn log(appeared: &[&HealthIssue], resolved: &[&HealthIssue]) {
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

/// Returns the server of a URL: the only part for the log, since many webhooks carry their secret in
/// path or query.
fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let rest = url.get(host..).unwrap_or_default();
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    rest.rsplit('@').next().unwrap_or_default()
}

async fn post(webhook: Webhook, body: String) -> Result<(), String> {
    let server = server_of(&webhook.url).to_owned();
    let posted = tokio::task::spawn_blocking(move || {
        let is_https = webhook.url.starts_with("https://");
        let agent: Agent =
            https::agent(https::Receiver::Webhook, is_https, webhook.authorities.as_deref(), ANSWER_WITHIN)?;
        let sent = agent.post(&webhook.url).header("Content-Type", "application/json").send(body);
        let status = sent.map_err(|error| error.to_string())?.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
    });
    let posted = posted.await.unwrap_or_else(|_| Err("the server stops".into()));
    posted.map_err(|why| format!("{server}: {why}"))
}

#[cfg(test)]
mod tests;
