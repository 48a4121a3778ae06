//! The API's interface to the daemon: its operations, and its refusals.
//!
//! Owns the trait and the error. Never knows HTTP beyond an error's status code.

use crate::audit::Outcome;
use crate::caller::{Caller, Role};
use crate::cluster::{
    Carried, ClusterFigures, ClusterView, CreateCluster, Errand, JoinCluster, Joined, NewToken,
    PreflightCheck, TestCluster, Unserved,
};
use crate::model::{
    Configuration, HealthIssue, JobState, OpensPage, QuotaReport, Rdma, RdmaTrace, Snapshot, VolumeDamage,
};
use crate::requests::{
    AclChanged, AclView, AddDisk, AddGroup, AddUser, CheckVolume, CreatePool, CreateShare, CreateToken,
    CreateVolume, CreatedToken, DeletedPool, EraseDisk, ErasedDisk, ForgetPromises, ForgottenPromises,
    GroupView, ImportPool, ImportedPool, LocatedDisk, QuotaBounds, Replaced, SetAcl, SetGroup, SetPool,
    SetQuotas, SetUser, SetVolume, ShareOptions, ShareView, Started, TestedReceiver, TokenView, UserView,
};
use crate::seconds::Seconds;
use records::api_tokens::{ApiToken, TokenHash};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use types::{DiskId, NodeId, PoolId, VolumeId};
use utoipa::ToSchema;

/// The kind of a refusal or failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The object of the request does not exist: status 404.
    NotFound,
    /// The present state forbids the request: status 409.
    Conflict,
    /// The request makes no sense: status 400.
    Invalid,
    /// No token, or a wrong one.
    Unauthorized,
    /// The token's role does not reach.
    Forbidden,
    /// A destructive request without the name of the object to destroy.
    ConfirmationNeeded,
    /// The disks lack space for the change: status 507.
    NoSpace,
    /// The data plane or another server does not answer, or too few copies do: status 503.
    Unavailable,
    /// Data or records are damaged: status 500.
    Corrupt,
    /// The daemon failed: status 500.
    Internal,
}

impl ErrorKind {
    /// Returns the status that an HTTP answer has for it.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::ConfirmationNeeded => 428,
            Self::NoSpace => 507,
            Self::Unavailable => 503,
            Self::Corrupt | Self::Internal => 500,
        }
    }
}

/// Why a request failed. The message says what happened, to what, and what to do next.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error, ToSchema)]
#[error("{message}")]
pub struct ApiError {
    /// Kind of the error, for programs.
    pub kind: ErrorKind,
    /// Explanation for people.
    pub message: String,
}

impl ApiError {
    /// Makes an error of a kind, with its explanation.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// An answer to be waited for.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

/// One step in the rebalance of a pool by all servers. The requested server owns the job, and its API
/// controls the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebalanceStep {
    /// Moves data of the volumes that this server serves, as its own job.
    Own(PoolId),
    /// Begins the job for all servers' parts.
    Begin(PoolId),
    /// Notes the job's progress: bytes done and in all, and words.
    Note {
        /// Number of the job.
        job: u64,
        /// Bytes done, and in all.
        bytes: (u64, u64),
        /// The state of the job in words.
        message: String,
    },
    /// Ends the job.
    End {
        /// Number of the job.
        job: u64,
        /// `Completed` or `Cancelled`; other states count as `Failed`.
        state: JobState,
        /// The job's findings, or the reason of its failure.
        message: String,
    },
}

/// A rebalance, as the server that owns the job sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceJob {
    /// Number of the job.
    pub job: u64,
    /// No administrator has ended it.
    pub is_wanted: bool,
}

/// The daemon's operations for the API. Names ignore case.
pub trait Management: Send + Sync + 'static {
    /// Returns everything that can be shown, except clients' opens.
    fn figures(&self) -> Answer<'_, Box<Snapshot>>;
    /// Returns a part of clients' opens: with numbers above `after`, at most `most`, and no more than the
    /// daemon's own limit.
    fn opens(&self, after: Option<u64>, most: usize) -> Answer<'_, OpensPage>;
    /// Returns the figures of the last second, which a task records each second.
    fn seconds(&self) -> &Seconds;
    /// The configuration in effect, as TOML.
    fn config(&self) -> String;
    /// The same, as values by section and key.
    fn config_values(&self) -> Configuration;

    /// The cluster side.
    fn cluster(&self) -> Arc<dyn ClusterManagement>;
    /// Returns the name of the only other server that can do the work for `what`, if any.
    fn elsewhere(&self, what: Subject) -> Answer<'_, Option<String>>;

    /// Adds a disk; `by`: the caller's role, which decides on its place.
    fn add_disk(&self, request: AddDisk, by: Role) -> Answer<'_, DiskId>;
    /// Begins to move all data off a disk, which then leaves its pool.
    fn retire_disk(&self, disk: DiskId) -> Answer<'_, Started>;
    /// Ends a retirement: the disk may get slabs again.
    fn unretire_disk(&self, disk: DiskId) -> Answer<'_, ()>;
    /// Adds a disk and retires `disk`; `by`: the caller's role, which decides on its place.
    fn replace_disk(&self, disk: DiskId, request: AddDisk, by: Role) -> Answer<'_, Replaced>;
    /// Finds a disk in its enclosure, and switches the LED of its slot.
    fn locate_disk(&self, disk: DiskId, on: bool) -> Answer<'_, LocatedDisk>;
    /// Acknowledges the disk's errors so far: health reports only later ones.
    fn acknowledge_disk(&self, disk: DiskId) -> Answer<'_, ()>;
    /// Checks the confirmation itself, since the refusal names the volumes.
    fn forget_promises(&self, disk: DiskId, request: ForgetPromises) -> Answer<'_, ForgottenPromises>;
    /// Checks the confirmation itself, since the refusal names the disk's contents.
    fn erase_disk(&self, request: EraseDisk) -> Answer<'_, ErasedDisk>;
    /// Changes a pool's reserve for repair.
    fn set_pool(&self, name: String, request: SetPool) -> Answer<'_, ()>;
    /// Makes a pool of empty disks; `by`: the caller's role, which decides on their places.
    fn create_pool(&self, request: CreatePool, by: Role) -> Answer<'_, PoolId>;
    /// Gives a pool up, so that another server can import it; only on a single server.
    fn export_pool(&self, name: String) -> Answer<'_, ()>;
    /// Deletes a pool without volumes: its disks become free.
    fn delete_pool(&self, name: String) -> Answer<'_, DeletedPool>;
    /// Brings a pool back from its disks; only on a single server.
    fn import_pool(&self, request: ImportPool) -> Answer<'_, ImportedPool>;
    /// Takes one step in the rebalance of a pool by all servers.
    fn rebalance_pool(&self, step: RebalanceStep) -> Answer<'_, RebalanceJob>;
    /// Makes a volume, and takes its space if that is fixed.
    fn create_volume(&self, request: CreateVolume) -> Answer<'_, VolumeId>;
    /// Enlarges a volume, or has health warn of it at another fill level.
    fn set_volume(&self, name: String, request: SetVolume) -> Answer<'_, ()>;
    /// Destroys a volume and all data on it; refused while shares are on it.
    fn delete_volume(&self, name: String) -> Answer<'_, ()>;
    /// Begins a check of a volume's metadata, allocation and copies.
    fn check_volume(&self, name: String, request: CheckVolume) -> Answer<'_, Started>;
    /// Lists the parts of a volume without an intact copy.
    fn volume_damage(&self, name: String) -> Answer<'_, VolumeDamage>;

    /// Lists the shares, also those of volumes that other servers serve.
    fn shares(&self) -> Answer<'_, Vec<ShareView>>;
    /// Makes a share of a directory of a volume.
    fn create_share(&self, request: CreateShare) -> Answer<'_, ()>;
    /// Changes options of a share.
    fn set_share(&self, name: String, request: ShareOptions) -> Answer<'_, ()>;
    /// Deletes a share; its files stay on the volume.
    fn delete_share(&self, name: String) -> Answer<'_, ()>;

    /// Lists the users.
    fn users(&self) -> Answer<'_, Vec<UserView>>;
    /// Makes a user.
    fn add_user(&self, request: AddUser) -> Answer<'_, ()>;
    /// Changes a user; a changed name ends its sessions.
    fn set_user(&self, name: String, request: SetUser) -> Answer<'_, ()>;
    /// Deletes a user, its grants and its memberships for good.
    fn delete_user(&self, name: String) -> Answer<'_, ()>;

    /// Lists the groups, Windows' own among them.
    fn groups(&self) -> Answer<'_, Vec<GroupView>>;
    /// Makes a group.
    fn add_group(&self, request: AddGroup) -> Answer<'_, ()>;
    /// Adds members to a group, and takes others out.
    fn set_group(&self, name: String, request: SetGroup) -> Answer<'_, ()>;
    /// Deletes a group and its grants for good.
    fn delete_group(&self, name: String) -> Answer<'_, ()>;
    /// Reads accounts, groups, shares and tokens changed by another server. Returns when they are in force
    /// for all connected clients.
    fn follow_now(&self) -> Answer<'_, ()>;

    /// The quotas of one user, known or not, or of all.
    fn quotas(&self, volume: String, user: Option<String>) -> Answer<'_, QuotaReport>;
    /// Turns quotas of a volume on or off, and sets the bounds of users without own ones.
    fn set_quotas(&self, volume: String, request: SetQuotas) -> Answer<'_, ()>;
    /// `None`: the volume's defaults hold for the user.
    fn set_quota(&self, volume: String, user: String, bounds: Option<QuotaBounds>) -> Answer<'_, ()>;
    /// Reads the security descriptor of a file; `path` within the share, `\` between names.
    fn acl(&self, share: String, path: String) -> Answer<'_, AclView>;
    /// Changes the security descriptor of a file, and begins to hand it down.
    fn set_acl(&self, share: String, path: String, request: SetAcl) -> Answer<'_, AclChanged>;

    /// Interfaces, devices, listeners, connections and counters of RDMA.
    fn rdma(&self) -> Answer<'_, Rdma>;
    /// The last protocol events of a connection, also of one of the last that ended.
    fn rdma_trace(&self, connection: u64) -> Answer<'_, RdmaTrace>;

    /// Ends a session of a client and closes its files.
    fn close_session(&self, session: u64) -> Answer<'_, ()>;
    /// Closes an open of a client.
    fn close_file(&self, open: u64) -> Answer<'_, ()>;
    /// Stops a job; completed work stays done.
    fn cancel_job(&self, job: u64) -> Answer<'_, ()>;
    /// Resumes a job that was stopped.
    fn resume_job(&self, job: u64) -> Answer<'_, ()>;

    /// Lists the named tokens, without their texts.
    fn tokens(&self) -> Answer<'_, Vec<TokenView>>;
    /// Makes a named token; its text is in this answer only.
    fn create_token(&self, request: CreateToken) -> Answer<'_, CreatedToken>;
    /// Deletes a named token: its holder is refused from then on.
    fn delete_token(&self, name: String) -> Answer<'_, ()>;
    /// Returns the named token with this hash, expired or not. Does not wait.
    fn token_of(&self, hash: TokenHash) -> Option<ApiToken>;

    /// Sends each receiver of changes of health a test notice.
    fn test_alerts(&self) -> Answer<'_, Vec<TestedReceiver>>;

    /// Writes an entry to the audit log before the request is answered. `actor`: the caller.
    fn audit_by(&self, actor: &str, source: &str, action: &str, target: &str, outcome: Outcome, detail: &str);
    /// The same for a request that no named token came with.
    fn audit(&self, source: &str, action: &str, target: &str, outcome: Outcome, detail: &str) {
        self.audit_by("api", source, action, target, outcome, detail);
    }
}

/// The object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A disk by its id.
    Disk(DiskId),
    /// A volume by its name.
    Volume(String),
    /// The volume of a share, by the share's name.
    Share(String),
    /// A job by its number, which contains the server that runs it.
    Job(u64),
}

/// The daemon's cluster side.
pub trait ClusterManagement: Send + Sync + 'static {
    /// Returns the number of this server; `None`: it is in no cluster.
    fn own(&self) -> Option<NodeId>;
    /// Returns the cluster's view, with every server's answers; on a single server, that there is none.
    fn view(&self) -> Answer<'_, ClusterView>;
    /// The same by this server's knowledge, without asking the others.
    fn known(&self) -> Answer<'_, ClusterView> {
        self.view()
    }
    /// Returns numbers and names of its servers without the witness, as last read; none if unknown. Does
    /// not wait.
    fn servers(&self) -> Vec<(NodeId, String)> {
        Vec::new()
    }
    /// Returns whether another server lives, if heartbeats tell.
    fn is_up(&self, _: NodeId) -> Option<bool> {
        None
    }
    /// Whether it is the name of this server.
    fn is_own(&self, name: &str) -> bool {
        let own = self.own();
        let is_it = |(id, known): &(NodeId, String)| Some(*id) == own && known.eq_ignore_ascii_case(name);
        own.is_none() || self.servers().iter().any(is_it)
    }
    /// Returns why this server serves no volume; `None`: it may serve. Does not wait.
    fn unserved(&self) -> Option<Unserved> {
        None
    }
    /// Returns why the cluster refuses this server after its removal; `None`: it was not removed. Does not
    /// wait.
    fn removed(&self) -> Option<String> {
        None
    }
    /// Makes this server the first of a new cluster.
    fn create(&self, request: CreateCluster) -> Answer<'_, ClusterView>;
    /// Makes a token with which one server may join.
    fn new_token(&self) -> Answer<'_, NewToken>;
    /// Joins this server, which must be empty, to a cluster.
    fn join(&self, request: JoinCluster) -> Answer<'_, Joined>;
    /// Checks that servers fit together and reach each other; changes nothing.
    fn test(&self, request: TestCluster) -> Answer<'_, Vec<PreflightCheck>>;
    /// Removes the server `name`, which is lost for good or has no data left.
    fn remove_node(&self, name: String) -> Answer<'_, ()>;
    /// Has a server's volumes move to others, or lets it have some again.
    fn set_draining(&self, name: String, is_draining: bool) -> Answer<'_, ()>;
    /// Has a server's volumes move to others, also if some are not served while that server is away.
    fn force_draining(&self, name: String) -> Answer<'_, ()>;
    /// Returns the issues of the cluster that this server has seen. Does not wait.
    fn issues(&self) -> Vec<HealthIssue>;
    /// Returns the cluster's figures for metrics; `None`: a single server. Does not wait.
    fn figures(&self) -> Option<ClusterFigures> {
        None
    }
    /// Has another server of the cluster carry out a request of this API that `caller` made, and may make.
    fn send_for(&self, name: String, errand: Errand, caller: Caller) -> Answer<'_, Carried>;
    /// The same for a request of this server's own.
    fn send(&self, name: String, errand: Errand) -> Answer<'_, Carried> {
        self.send_for(name, errand, Caller::of_token_file())
    }
}
