//! Propagation of a directory's access entries to all files and directories below it, as a job
//! concurrent with clients.
//!
//! Promises: all changes that the job reports are durable. A server that is killed forgets the job,
//! not its changes. An administrator can begin it again, with the same result.

use crate::error::{Done, Error, ErrorKind};
use crate::jobs::{JobId, JobKind, JobState, Jobs};
use crate::served::ServedVolume;
use crate::tasks::Tasks;
use crate::volume_paths::refused;
use crate::volumes::Volumes;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{NtStatus, VolumeId};
use volume::backend::{Operation, Reply, ShareRoot};
use volume::security::OwnEntries;
use volume::service::{Propagation, PropagationReport, PropagationStep};

/// Pause after each step, in which clients are served.
const REST: Duration = Duration::from_millis(1);

/// Begins propagations.
#[derive(Clone)]
pub struct AclPropagations {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) jobs: Rc<RefCell<Jobs>>,
}

impl AclPropagations {
    /// Begins to propagate the entries of the directory at `path` (`\` between names, empty: the
    /// root). Returns the job, or `None` if there is a file or a reparse point at `path`, which
    /// have nothing below them.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the volume is not served.
    pub async fn begin(&self, volume: VolumeId, path: &str, own: OwnEntries) -> Done<Option<JobId>> {
        let served = self.volumes.served_for(volume)?;
        let request = Operation::OpenRoot { path: path.encode_utf16().collect() };
        let top = match served.perform(request, self.tasks.now()).await {
            Ok(Reply::Root(top)) => top,
            Ok(_) => return Err(Error::new(ErrorKind::Io, format!("{path}: the volume gave no directory"))),
            Err(NtStatus::NOT_A_DIRECTORY | NtStatus::IO_REPARSE_TAG_NOT_HANDLED) => return Ok(None),
            Err(status) => return Err(refused(path, status)),
        };
        let target = format!("{}\\{path}", self.volumes.name(volume));
        let unix_s = self.tasks.unix_seconds();
        let job = self.jobs.borrow_mut().begin_check(JobKind::AclPropagation, target, unix_s);
        let run = Run { parts: self.clone(), job, volume };
        self.tasks.spawn(async move { run.run(served, top, own).await });
        Ok(Some(job))
    }
}

/// A running propagation.
struct Run {
    parts: AclPropagations,
    job: JobId,
    volume: VolumeId,
}

impl Run {
    async fn run(self, served: ServedVolume, top: ShareRoot, own: OwnEntries) {
        let mut propagation = Propagation::new(top, own);
        let stopped = self.walk(&served, &mut propagation).await;
        let report = propagation.report();
        let durable = served.make_durable(|| !self.parts.volumes.is_served(self.volume)).await;
        let (state, message) = match (stopped, durable) {
            (Ok(JobState::Completed), Ok(())) => match report.unreached_count {
                0 => (JobState::Completed, in_words(report)),
                _ => (JobState::Failed, in_words(report)),
            },
            (Ok(state), Ok(())) => (state, in_words(report)),
            (Err(status), _) | (Ok(_), Err(status)) => {
                (JobState::Failed, format!("{}; ended by {status:?}: begin again", in_words(report)))
            }
        };
        let unix_s = self.parts.tasks.unix_seconds();
        self.parts.jobs.borrow_mut().end_check(self.job, state, message, unix_s);
    }

    /// Walks until all is done or an administrator ends the job.
    async fn walk(&self, served: &ServedVolume, propagation: &mut Propagation) -> Result<JobState, NtStatus> {
        loop {
            if !self.parts.volumes.is_served(self.volume) {
                return Err(NtStatus::DEVICE_NOT_READY);
            }
            if served.with_mut(|service| service.propagate(propagation))? == PropagationStep::Finished {
                return Ok(JobState::Completed);
            }
            {
                let mut jobs = self.parts.jobs.borrow_mut();
                jobs.note_message(self.job, in_words(propagation.report()));
                if jobs.is_cancelled(self.job) {
                    return Ok(JobState::Cancelled);
                }
            }
            self.parts.tasks.rest(REST).await;
        }
    }
}

fn in_words(report: &PropagationReport) -> String {
    let PropagationReport { seen, changed, protected, unreached, unreached_count } = report;
    let mut words = format!("{changed} of {seen} files and directories changed");
    if *protected > 0 {
        words += &format!("; {protected} inherit nothing and stayed as they are, with what is below them");
    }
    if *unreached_count > 0 {
        let named: Vec<String> = unreached
            .iter()
            .map(|(path, status)| format!("\\{}: {}", String::from_utf16_lossy(path), why(*status)))
            .collect();
        words += &format!("; {unreached_count} could not be changed: {}", named.join(", "));
    }
    words
}

fn why(status: NtStatus) -> String {
    match status {
        NtStatus::DATA_ERROR => "what is stored of it is damaged (`cenote volume check`)".to_owned(),
        NtStatus::INVALID_ACL | NtStatus::INVALID_PARAMETER => {
            "its list of entries would be longer than 64 KiB".to_owned()
        }
        status => format!("{status:?}"),
    }
}
