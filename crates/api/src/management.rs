//! The daemon as the API uses it: its operations, and its refusals.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    NotFound,
    Conflict,
    Invalid,
    /// No token, or a wrong one.
    Unauthorized,
    /// The token's role does not reach.
    Forbidden,
    /// A destructive request without the name of the thing that it destroys.
    ConfirmationNeeded,
    NoSpace,
    Unavailable,
    Corrupt,
    Internal,
}

impl ErrorKind {
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

/// Why a request was not done. The message says what happened, to what, and what to do next.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error, ToSchema)]
#[error("{message}")]
pub struct ApiError {
    pub kind: ErrorKind,
    pub message: String,
}

impl ApiError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// An answer to be waited for.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

/// One step in the rebalance of a pool by all servers. The server that was asked for it owns the job,
/// and its API conducts the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebalanceStep {
    /// Moves what belongs to the volumes that this server serves, as a job of its own.
    Own(PoolId),
    /// Begins the job that stands for all servers' parts.
    Begin(PoolId),
    /// Notes the job's progress: bytes done and in all, and words.
    Note {
        job: u64,
        bytes: (u64, u64),
        message: String,
    },
    End {
        job: u64,
        state: JobState,
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceJob {
    pub job: u64,
    /// No administrator has ended it.
    pub is_wanted: bool,
}

/// Operations that the API asks of the daemon, which resolves names ignoring case.
pub trait Management: Send + Sync + 'static {
    /// Returns everything that can be shown, except clients' opens.
    fn figures(&self) -> Answer<'_, Box<Snapshot>>;
    /// Returns a part of clients' opens: with higher numbers than `after`, at most `most`, and no more than
    /// the daemon likes to show at once.
    fn opens(&self, after: Option<u64>, most: usize) -> Answer<'_, OpensPage>;
    /// Returns the figures of the last second, which a task notes each second.
    fn seconds(&self) -> &Seconds;
    /// The configuration in effect, as TOML.
    fn config(&self) -> String;
    /// The same, as values by section and key.
    fn config_values(&self) -> Configuration;

    /// The cluster side.
    fn cluster(&self) -> Arc<dyn ClusterManagement>;
    /// Returns the name of another server of the cluster, if only that one can do the work for `what`.
    fn elsewhere(&self, what: Subject) -> Answer<'_, Option<String>>;

    /// `by`: the caller's role, which decides where a disk may be.
    fn add_disk(&self, request: AddDisk, by: Role) -> Answer<'_, DiskId>;
    fn retire_disk(&self, disk: DiskId) -> Answer<'_, Started>;
    fn unretire_disk(&self, disk: DiskId) -> Answer<'_, ()>;
    fn replace_disk(&self, disk: DiskId, request: AddDisk, by: Role) -> Answer<'_, Replaced>;
    fn locate_disk(&self, disk: DiskId, on: bool) -> Answer<'_, LocatedDisk>;
    fn acknowledge_disk(&self, disk: DiskId) -> Answer<'_, ()>;
    /// Checks the confirmation itself, since the refusal names the volumes.
    fn forget_promises(&self, disk: DiskId, request: ForgetPromises) -> Answer<'_, ForgottenPromises>;
    /// Checks the confirmation itself, since the refusal names the disk's contents.
    fn erase_disk(&self, request: EraseDisk) -> Answer<'_, ErasedDisk>;
    fn set_pool(&self, name: String, request: SetPool) -> Answer<'_, ()>;
    fn create_pool(&self, request: CreatePool, by: Role) -> Answer<'_, PoolId>;
    fn export_pool(&self, name: String) -> Answer<'_, ()>;
    fn delete_pool(&self, name: String) -> Answer<'_, DeletedPool>;
    fn import_pool(&self, request: ImportPool) -> Answer<'_, ImportedPool>;
    fn rebalance_pool(&self, step: RebalanceStep) -> Answer<'_, RebalanceJob>;
    fn create_volume(&self, request: CreateVolume) -> Answer<'_, VolumeId>;
    fn set_volume(&self, name: String, request: SetVolume) -> Answer<'_, ()>;
    fn delete_volume(&self, name: String) -> Answer<'_, ()>;
    fn check_volume(&self, name: String, request: CheckVolume) -> Answer<'_, Started>;
    fn volume_damage(&self, name: String) -> Answer<'_, VolumeDamage>;

    fn shares(&self) -> Answer<'_, Vec<ShareView>>;
    fn create_share(&self, request: CreateShare) -> Answer<'_, ()>;
    fn set_share(&self, name: String, request: ShareOptions) -> Answer<'_, ()>;
    fn delete_share(&self, name: String) -> Answer<'_, ()>;

    fn users(&self) -> Answer<'_, Vec<UserView>>;
    fn add_user(&self, request: AddUser) -> Answer<'_, ()>;
    fn set_user(&self, name: String, request: SetUser) -> Answer<'_, ()>;
    fn delete_user(&self, name: String) -> Answer<'_, ()>;

    fn groups(&self) -> Answer<'_, Vec<GroupView>>;
    fn add_group(&self, request: AddGroup) -> Answer<'_, ()>;
    fn set_group(&self, name: String, request: SetGroup) -> Answer<'_, ()>;
    fn delete_group(&self, name: String) -> Answer<'_, ()>;

    /// `path` within the share, `\` between names.
    /// The quotas of one user, known or not, or of all.
    fn quotas(&self, volume: String, user: Option<String>) -> Answer<'_, QuotaReport>;
    fn set_quotas(&self, volume: String, request: SetQuotas) -> Answer<'_, ()>;
    /// `None`: the volume's defaults hold for the user.
    fn set_quota(&self, volume: String, user: String, bounds: Option<QuotaBounds>) -> Answer<'_, ()>;
    fn acl(&self, share: String, path: String) -> Answer<'_, AclView>;
    fn set_acl(&self, share: String, path: String, request: SetAcl) -> Answer<'_, AclChanged>;

    /// Interfaces, devices, listeners, connections and counters of RDMA.
    fn rdma(&self) -> Answer<'_, Rdma>;
    /// The last protocol events of a connection, also of one of the last that ended.
    fn rdma_trace(&self, connection: u64) -> Answer<'_, RdmaTrace>;

    fn close_session(&self, session: u64) -> Answer<'_, ()>;
    fn close_file(&self, open: u64) -> Answer<'_, ()>;
    fn cancel_job(&self, job: u64) -> Answer<'_, ()>;
    fn resume_job(&self, job: u64) -> Answer<'_, ()>;

    fn tokens(&self) -> Answer<'_, Vec<TokenView>>;
    fn create_token(&self, request: CreateToken) -> Answer<'_, CreatedToken>;
    fn delete_token(&self, name: String) -> Answer<'_, ()>;
    /// The named token of which this is the hash, expired or not. Waits for nobody.
    fn token_of(&self, hash: TokenHash) -> Option<ApiToken>;

    /// Sends each receiver of changes of health a test notice.
    fn test_alerts(&self) -> Answer<'_, Vec<TestedReceiver>>;

    /// Writes a line to the audit log before the request is answered. `actor`: the caller.
    fn audit_by(&self, actor: &str, source: &str, action: &str, target: &str, outcome: Outcome, detail: &str);
    /// The same for a request that no named token came with.
    fn audit(&self, source: &str, action: &str, target: &str, outcome: Outcome, detail: &str) {
        self.audit_by("api", source, action, target, outcome, detail);
    }
}

/// The object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Disk(DiskId),
    /// A volume by its name.
    Volume(String),
    /// The volume of a share, by the share's name.
    Share(String),
    /// A job by its number, which carries the server that runs it.
    Job(u64),
}

/// The daemon's cluster side.
pub trait ClusterManagement: Send + Sync + 'static {
    /// The number of this server; `None`: it is in no cluster.
    fn own(&self) -> Option<NodeId>;
    fn view(&self) -> Answer<'_, ClusterView>;
    /// The same by this server's knowledge, without asking the others.
    fn known(&self) -> Answer<'_, ClusterView> {
        self.view()
    }
    /// Numbers and names of its servers without the witness, as they were read last; none if that is not known. Waits for nobody.
    fn servers(&self) -> Vec<(NodeId, String)> {
        Vec::new()
    }
    /// Tells whether another server lives, if heartbeats tell.
    fn is_up(&self, _: NodeId) -> Option<bool> {
        None
    }
    /// Whether it is the name of this server.
    fn is_own(&self, name: &str) -> bool {
        let own = self.own();
        let is_it = |(id, known): &(NodeId, String)| Some(*id) == own && known.eq_ignore_ascii_case(name);
        own.is_none() || self.servers().iter().any(is_it)
    }
    /// Why this server serves no volume; `None`: it may serve. Waits for nobody.
    fn unserved(&self) -> Option<Unserved> {
        None
    }
    /// Why the cluster refuses this server, which was removed from it; `None`: it was not. Waits for nobody.
    fn removed(&self) -> Option<String> {
        None
    }
    fn create(&self, request: CreateCluster) -> Answer<'_, ClusterView>;
    fn new_token(&self) -> Answer<'_, NewToken>;
    fn join(&self, request: JoinCluster) -> Answer<'_, Joined>;
    fn test(&self, request: TestCluster) -> Answer<'_, Vec<PreflightCheck>>;
    /// `name`: a server that is gone for good, or from which everything was moved away.
    fn remove_node(&self, name: String) -> Answer<'_, ()>;
    /// Has a server's volumes move to others, or lets it have some again.
    fn set_draining(&self, name: String, is_draining: bool) -> Answer<'_, ()>;
    /// Has a server's volumes move to others, also if some are not served while that server is away.
    fn force_draining(&self, name: String) -> Answer<'_, ()>;
    /// Returns the issues of the cluster that this server has seen; waits for nobody.
    fn issues(&self) -> Vec<HealthIssue>;
    /// Returns the cluster's figures for metrics; `None`: this is a single server. Waits for nobody.
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
