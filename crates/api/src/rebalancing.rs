//! The rebalance of a pool by all servers of a cluster, as one job of the requested server.
//!
//! Each server moves the data of the volumes that it serves, one server after the other: each plans by
//! the disks' fill levels, so that two concurrent plans would fill the same disk.

use crate::cluster::{Carried, Errand};
use crate::management::{ApiError, ErrorKind, Management, RebalanceStep};
use crate::model::{Job, JobState};
use crate::paths::percent_encoded;
use crate::requests::Started;
use std::sync::Arc;
use std::time::Duration;
use types::PoolId;

/// Interval between polls of a server's part.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Consecutive unanswered polls after which a server's part is abandoned: about the time of a server's
/// restart.
const SILENT_LOOKS_MAX: u32 = 30;
/// Timeout of one request to a server.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The parts of the job that have ended.
#[derive(Debug, Default)]
struct Tally {
    /// Bytes done and in all.
    ended: (u64, u64),
    /// Sentences on servers that moved something.
    moved: Vec<String>,
    idle: Vec<String>,
    down: Vec<String>,
    /// Sentences on servers whose part did not complete.
    failed: Vec<String>,
}

impl Tally {
    fn bytes_with(&self, part: Option<&Job>) -> (u64, u64) {
        let (done, total) = part.map_or((0, 0), |job| (job.done_bytes, job.total_bytes));
        (self.ended.0 + done, self.ended.1 + total)
    }

    fn note_ended(&mut self, server: &str, part: &Job) {
        self.ended = self.bytes_with(Some(part));
        match part.state {
            JobState::Completed if part.total_bytes == 0 => self.idle.push(server.to_owned()),
            JobState::Completed => self.moved.push(format!("{server}: {}", part.message)),
            _ => self.failed.push(format!("{server}: {}", part.message)),
        }
    }

    fn note_failed(&mut self, server: &str, why: &str) {
        self.failed.push(format!("{server}: {why}"));
    }

    /// Returns the job's end state, and its result in words.
    fn end(self) -> (JobState, String) {
        let mut words = Vec::new();
        if !self.failed.is_empty() {
            words.push(format!("not done by {}", self.failed.join("; ")));
        }
        words.extend(self.moved);
        if !self.idle.is_empty() {
            words.push(format!("nothing to move for the volumes of {}", self.idle.join(", ")));
        }
        if !self.down.is_empty() {
            words.push(format!("no volume is served by {}, which is down", self.down.join(", ")));
        }
        let state = if self.failed.is_empty() { JobState::Completed } else { JobState::Failed };
        (state, words.join("; "))
    }
}

/// Outcome of one server's part.
enum Part {
    Over,
    Cancelled,
}

/// Has all servers rebalance the pool.
pub(crate) struct Rebalance {
    pub management: Arc<dyn Management>,
    pub pool: PoolId,
    pub name: String,
}

impl Rebalance {
    /// Begins the job, and answers with its number.
    pub async fn begin(self) -> Result<u64, ApiError> {
        let job = self.management.rebalance_pool(RebalanceStep::Begin(self.pool)).await?.job;
        tokio::spawn(self.run(job));
        Ok(job)
    }

    async fn run(self, job: u64) {
        let mut tally = Tally::default();
        for (id, server) in self.management.cluster().servers() {
            if self.management.cluster().is_up(id) == Some(false) {
                tally.down.push(server);
                continue;
            }
            match self.part_of(job, &server, &mut tally).await {
                Ok(Part::Over) => {}
                Ok(Part::Cancelled) => {
                    let message = format!("ended by an administrator; {}", tally.end().1);
                    return self.end(job, JobState::Cancelled, message).await;
                }
                Err(why) => tally.note_failed(&server, &why.message),
            }
        }
        let (state, message) = tally.end();
        self.end(job, state, message).await;
    }

    /// Follows the part of one server until it has ended.
    async fn part_of(&self, job: u64, server: &str, tally: &mut Tally) -> Result<Part, ApiError> {
        let number = self.begin_part(server).await?;
        let mut silent_looks = 0;
        loop {
            let looked = self.look_at(server, number).await;
            let part = match &looked {
                Ok(part) => Some(part),
                Err(why) if why.kind == ErrorKind::NotFound => {
                    let why = "it was started again before its part came to its end";
                    return Err(ApiError::new(ErrorKind::Unavailable, why));
                }
                Err(_) => None,
            };
            if !self.note(job, tally.bytes_with(part), server).await? {
                self.cancel(server, number).await;
                return Ok(Part::Cancelled);
            }
            silent_looks = if part.is_some() { 0 } else { silent_looks + 1 };
            match looked {
                Ok(part) if !matches!(part.state, JobState::Running | JobState::Suspended) => {
                    tally.note_ended(server, &part);
                    return Ok(Part::Over);
                }
                Err(why) if silent_looks >= SILENT_LOOKS_MAX => return Err(why),
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Answers with the number of the server's own job.
    async fn begin_part(&self, server: &str) -> Result<u64, ApiError> {
        if self.management.cluster().is_own(server) {
            return Ok(self.management.rebalance_pool(RebalanceStep::Own(self.pool)).await?.job);
        }
        let path = format!("/api/v1/pools/{}/rebalance?local=true", percent_encoded(&self.name));
        Ok(self.ask::<Started>(server, "POST", path).await?.job)
    }

    async fn look_at(&self, server: &str, number: u64) -> Result<Job, ApiError> {
        if !self.management.cluster().is_own(server) {
            return self.ask(server, "GET", format!("/api/v1/jobs/{number}")).await;
        }
        let jobs = self.management.figures().await?.jobs;
        let found = jobs.into_iter().find(|job| job.id == number);
        found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "its part is not known any more"))
    }

    async fn cancel(&self, server: &str, number: u64) {
        let cancelled = match self.management.cluster().is_own(server) {
            true => self.management.cancel_job(number).await,
            false => self.ask::<()>(server, "DELETE", format!("/api/v1/jobs/{number}")).await,
        };
        if let Err(why) = cancelled {
            tracing::warn!(server, job = number, %why, "a server's part of a rebalance could not be ended");
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        server: &str,
        method: &str,
        path: String,
    ) -> Result<T, ApiError> {
        let errand = Errand { method: method.to_owned(), path, body: String::new() };
        let cluster = self.management.cluster();
        let sent = tokio::time::timeout(ANSWER_MAX, cluster.send(server.to_owned(), errand)).await;
        let silent = |_| ApiError::new(ErrorKind::Unavailable, "it does not answer");
        let Carried { status, body } = sent.map_err(silent)??;
        if status >= 400 {
            let told = serde_json::from_str::<ApiError>(&body);
            return Err(told.unwrap_or_else(|_| ApiError::new(ErrorKind::Internal, body)));
        }
        serde_json::from_str(&body).map_err(|error| ApiError::new(ErrorKind::Internal, error.to_string()))
    }

    /// `false`: the administrator has ended the job.
    async fn note(&self, job: u64, bytes: (u64, u64), server: &str) -> Result<bool, ApiError> {
        let message = format!("{server} moves what belongs to the volumes that it serves");
        let noted = self.management.rebalance_pool(RebalanceStep::Note { job, bytes, message });
        Ok(noted.await?.is_wanted)
    }

    async fn end(&self, job: u64, state: JobState, message: String) {
        let ended = self.management.rebalance_pool(RebalanceStep::End { job, state, message });
        if let Err(error) = ended.await {
            tracing::warn!(job, %error, "the end of a rebalance could not be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(state: &str, done: u64, total: u64, message: &str) -> Job {
        let text = serde_json::json!({
            "id": 7, "kind": "rebalance", "target": "pool", "state": state, "done_bytes": done, "total_bytes": total,
            "started_unix_s": 1, "ended_unix_s": null, "remaining_s": null, "message": message,
        });
        serde_json::from_value(text).expect("a job")
    }

    #[test]
    fn the_progress_of_a_rebalance_is_that_of_all_servers_and_its_end_says_what_each_did() {
        let mut tally = Tally::default();
        tally.note_ended("node-1", &part("completed", 0, 0, "there was nothing to do"));
        tally.note_ended("node-2", &part("completed", 70, 70, "7 moves were planned, of data"));
        assert_eq!(tally.bytes_with(Some(&part("running", 10, 30, ""))), (80, 100));
        tally.note_ended("node-3", &part("completed", 30, 30, "3 moves were planned, of logs"));
        tally.down.push("node-4".to_owned());
        let (state, message) = tally.end();
        assert_eq!(state, JobState::Completed);
        for words in [
            "node-2: 7 moves",
            "node-3: 3 moves",
            "node-4, which is down",
            "nothing to move for the volumes of node-1",
        ] {
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    #[test]
    fn a_rebalance_without_a_server_is_not_said_to_be_complete() {
        let mut tally = Tally::default();
        tally.note_ended("node-1", &part("completed", 5, 5, "1 moves were planned, of data"));
        tally.note_failed("node-2", "it does not answer");
        let (state, message) = tally.end();
        assert_eq!(state, JobState::Failed);
        assert!(message.starts_with("not done by node-2: it does not answer"), "{message}");
    }
}
