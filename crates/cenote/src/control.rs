//! The channel between control plane (API, configuration) and data plane (disks, volumes, SMB connections).
//!
//! Owns the commands, their errors and the data plane's start options. Promises: a command is answered once,
//! with [`CommandErrorKind::Unavailable`] after the data plane's end. Never blocks the data plane: it takes
//! commands from the queue when its waker fires, and answers through the sender in the command.

use crate::directory::SharedDirectory;
use crate::limits::Limits;
use crate::logon_lines::LogonLines;
use crate::pipe_queue::PipeChanges;
use crate::rdma_devices::RdmaDevices;
use api::model::{OpensPage, Provisioning, RdmaTrace, Resiliency, Snapshot, VolumeDamage};
use api::requests::SetQuotas;
use api::{RebalanceJob, RebalanceStep};
use heartbeat::shell::HeartbeatLink;
use node::Described;
use node::pulse::Pulse;
pub use node::{Error as CommandError, ErrorKind as CommandErrorKind, NewDisk};
use records::State;
use smb::rpc::{RpcDone, RpcRefusal};
use smb::wire::NetworkInterface;
use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{DiskId, NodeId, PoolId, Sid, VolumeId};
use volume::fs::QuotaLimits;
use volume::security::OwnEntries;

/// The sender of an answer. Sending never blocks; an error means that the caller has stopped waiting.
pub type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// Commands of the control plane to the data plane.
#[derive(Debug)]
pub enum Command {
    /// Returns everything that can be shown, except clients' opens.
    Figures {
        /// Sender of everything that can be shown.
        reply: oneshot::Sender<Box<Snapshot>>,
    },
    /// Returns a part of clients' opens: with higher numbers than `after`, at most `most`.
    Opens {
        /// Number of the caller's last open; `None`: from the first.
        after: Option<u64>,
        /// Most opens of the answer.
        most: usize,
        /// Sender of the part, with whether there are more.
        reply: Reply<OpensPage>,
    },
    /// The last protocol events of a connection over SMB Direct.
    RdmaTrace {
        /// Number of the connection, as listings show it.
        connection: u64,
        /// Sender of the events; `NotFound` for another kind of connection.
        reply: Reply<RdmaTrace>,
    },
    /// Ends the session and its opens.
    CloseSession {
        /// SessionId, as listings show it.
        session: u64,
        /// Sender of the outcome; `NotFound` if there is no such session.
        reply: Reply<()>,
    },
    /// Ends the open, as its client's CLOSE would.
    CloseOpen {
        /// Number of the open, as listings show it.
        open: u64,
        /// Sender of the outcome; `NotFound` if there is no such open.
        reply: Reply<()>,
    },
    /// Applies changed shares or accounts. Replies when the change is in force for all connected clients.
    DirectoryChanged {
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Returns the outcome of an administrator's change through a named pipe.
    AnswerPipe {
        /// Open of the pipe, as the change named it.
        pipe: u64,
        /// Answer to the client's call, or the reason why it is refused.
        outcome: Result<RpcDone, RpcRefusal>,
    },
    /// Sets the interfaces that clients learn of from now on.
    Interfaces(Vec<NetworkInterface>),
    /// Takes no new requests, finishes those in flight (within `within`), makes everything durable, and ends the data plane.
    Drain {
        /// Time after which requests in work are abandoned.
        within: Duration,
        /// Sender that reports the end of all work.
        reply: oneshot::Sender<()>,
    },
    /// Commands about the node's disks, pools and volumes.
    Storage(StorageCommand),
    /// Commands about the files on a volume.
    Files(FileCommand),
    /// Commands about the cluster, for its nodes only.
    Cluster(ClusterCommand),
}

/// Commands of the control plane about the cluster.
#[derive(Debug)]
pub enum ClusterCommand {
    /// All other nodes on record. Their accounts are exchanged in [`DataPlaneOptions::accounts`], before
    /// [`Command::DirectoryChanged`].
    Peers(Vec<bus::Peer>),
    /// Whether each node lives, as a majority sees it: at first and after each change.
    Nodes(BTreeMap<NodeId, node::NodeLife>),
    /// Prepares to become a node: refuses changes of disks, pools and volumes from now on; fails during
    /// one.
    ReadyToJoin { reply: Reply<()> },
    /// Stays a single server after all.
    Stay,
    /// Becomes the first node of a cluster that now holds the records. Replies when others may be admitted.
    Join { options: Box<ClusterOptions>, reply: Reply<()> },
    /// Reports the connections to other nodes, and the counters of each.
    Bus { reply: oneshot::Sender<Vec<(bus::PeerStatus, space::coordinator::LateReads)>> },
}

impl From<ClusterCommand> for Command {
    fn from(command: ClusterCommand) -> Self {
        Self::Cluster(command)
    }
}

/// Options that make a server a node of a cluster.
pub struct ClusterOptions {
    /// Number of this node in the cluster.
    pub node: NodeId,
    /// Name of the node in the fault domains of its disks.
    pub name: String,
    /// Time for which a majority of the nodes lets one answer for its volumes.
    pub lease: Duration,
    /// The way to other nodes.
    pub bus: bus::RemoteOptions,
    /// State that the data plane and the heartbeats share, such as this node's lease.
    pub heartbeats: HeartbeatLink,
}

impl fmt::Debug for ClusterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.node, self.name)
    }
}

/// Commands about disks.
#[derive(Debug)]
pub enum DiskCommand {
    /// Adds a disk that holds nothing to the pool.
    Add { pool: PoolId, disk: NewDisk, reply: Reply<DiskId> },
    /// Adds `new` to the disk's pool, and moves the disk's data to others; answers new disk and job's id.
    Replace { disk: DiskId, new: NewDisk, reply: Reply<(DiskId, u64)> },
    /// Moves the disk's slabs to others; answers the id of the job, which ends when the disk has left the
    /// pool.
    Retire { disk: DiskId, reply: Reply<u64> },
    /// Lets the disk get slabs again.
    Unretire { disk: DiskId, reply: Reply<()> },
    /// Acknowledges the errors found on the disk so far.
    Acknowledge { disk: DiskId, reply: Reply<()> },
    /// Has the disk forget promises out of owners' reach, if confirmed; answers its path and the promises.
    ForgetPromises { disk: DiskId, is_confirmed: bool, reply: Reply<Vec<node::Beyond>> },
    /// Erases a disk of no pool here, if confirmed; answers the disk's contents.
    Erase { path: PathBuf, is_confirmed: bool, reply: Reply<String> },
}

impl From<DiskCommand> for Command {
    fn from(command: DiskCommand) -> Self {
        Self::Storage(StorageCommand::Disk(command))
    }
}

/// Commands about disks, pools and volumes.
#[derive(Debug)]
pub enum StorageCommand {
    /// Commands about disks.
    Disk(DiskCommand),
    /// Writes labels to disks that hold nothing, and makes them a pool.
    CreatePool {
        /// Name of the pool, unique among pools.
        name: String,
        /// Disks of the pool, at least one.
        disks: Vec<NewDisk>,
        /// Disks' worth of space kept for repair; `None`: the default.
        reserve_disks: Option<u32>,
        /// Sender of the new pool's id.
        reply: Reply<PoolId>,
    },
    /// Closes the pool's volumes, releases its disks, and forgets pool, disks, volumes and shares.
    ExportPool {
        /// Pool to release.
        pool: PoolId,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Forgets a pool without volumes, and erases its disks; answers the paths of those whose labels are still there.
    DeletePool {
        /// Pool to forget.
        pool: PoolId,
        /// Sender of the paths of disks that could not be erased.
        reply: Reply<Vec<String>>,
    },
    /// Opens a pool that was just recorded; answers the names of volumes that are not served, and why.
    AdoptPool {
        /// Pool that was recorded.
        pool: PoolId,
        /// Sender of each unserved volume's name with the reason.
        reply: Reply<Vec<String>>,
    },
    /// Keeps this many disks' worth of the pool's space for repair.
    SetReserve {
        /// Pool whose reserve changes.
        pool: PoolId,
        /// Disks' worth of space to keep for repair.
        reserve_disks: u32,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// A step in evening out the fill of the pool's disks.
    Rebalance {
        /// Step, of this server's part or of the job for all servers.
        step: RebalanceStep,
        /// Sender of the job.
        reply: Reply<RebalanceJob>,
    },
    /// Makes a virtual disk with an empty file layer on it, and serves it.
    CreateVolume {
        /// Name, pool, size and resiliency of the volume.
        volume: NewVolume,
        /// Sender of the new volume's id.
        reply: Reply<VolumeId>,
    },
    /// Grows the volume.
    ResizeVolume {
        /// Volume to grow.
        volume: VolumeId,
        /// New size in bytes; a smaller one than now is refused.
        size_bytes: u64,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Sets the fill level, in percent, from which health warns.
    WarnAt {
        /// Volume whose warning changes.
        volume: VolumeId,
        /// Fill level in percent.
        percent: u8,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Returns all slabs of the volume. Its data is lost.
    DeleteVolume {
        /// Volume to delete.
        volume: VolumeId,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Compares metadata, allocation and copies; answers with the job's id.
    CheckVolume {
        /// Volume to check.
        volume: VolumeId,
        /// Damage that can be repaired is repaired.
        repair: bool,
        /// Sender of the job's number.
        reply: Reply<u64>,
    },
    /// Lists data without an intact copy, by file.
    VolumeDamage {
        /// Volume to search.
        volume: VolumeId,
        /// Sender of the damaged files and ranges.
        reply: Reply<VolumeDamage>,
    },
    /// Ends a job before its end; a job of a volume may be resumed.
    CancelJob {
        /// Number of the job.
        job: u64,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Resumes a job that was stopped.
    ResumeJob {
        /// Number of the job.
        job: u64,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
}

/// Commands about the files on a volume.
#[derive(Debug)]
pub enum FileCommand {
    /// The self-relative security descriptor (MS-DTYP 2.4.6) of `path` (`\` between names, empty: the root).
    QuerySecurity {
        /// Volume that has the file.
        volume: VolumeId,
        /// Path from the volume's root.
        path: String,
        /// Sender of the descriptor.
        reply: Reply<Described>,
    },
    /// Makes the directory, and those it is in, if they are missing.
    MakeDirectory {
        /// Volume to make the directory on.
        volume: VolumeId,
        /// Path from the volume's root, `\` between names.
        path: String,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Propagates a directory's entries; answers the job's id, if there is a directory at `path`.
    PropagateAcl {
        /// Volume that has the directory.
        volume: VolumeId,
        /// Path from the volume's root, `\` between names.
        path: String,
        /// Fate of the own entries of files below the directory.
        own: OwnEntries,
        /// Sender of the job's number; `None`: no such directory.
        reply: Reply<Option<u64>>,
    },
    /// The quotas of one user, or of all.
    VolumeQuotas {
        /// Volume whose quotas are shown.
        volume: VolumeId,
        /// User to show; `None`: all.
        user: Option<Sid>,
        /// Sender of settings and users.
        reply: Reply<node::QuotaReport>,
    },
    /// Changes mode and default limits of a volume's quotas.
    SetQuotas {
        /// Volume whose quotas change.
        volume: VolumeId,
        /// New settings, of which absent ones stay.
        request: SetQuotas,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Gives a user limits; without any the volume's defaults apply.
    SetQuota {
        /// Volume on which the limits hold.
        volume: VolumeId,
        /// User to limit.
        user: Sid,
        /// Limits of the user; `None`: the volume's defaults.
        limits: Option<QuotaLimits>,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
    /// Replaces owner, group and DACL, as far as the descriptor has them.
    SetSecurity {
        /// Volume that has the file.
        volume: VolumeId,
        /// Path from the volume's root, `\` between names.
        path: String,
        /// Self-relative descriptor (MS-DTYP 2.4.6).
        descriptor: Vec<u8>,
        /// Sender of the outcome.
        reply: Reply<()>,
    },
}

impl From<FileCommand> for Command {
    fn from(command: FileCommand) -> Self {
        Self::Files(command)
    }
}

impl From<StorageCommand> for Command {
    fn from(command: StorageCommand) -> Self {
        Self::Storage(command)
    }
}

/// A volume to make.
#[derive(Debug, Clone)]
pub struct NewVolume {
    /// Name of the volume, unique among volumes.
    pub name: String,
    /// Pool of the volume's slabs.
    pub pool: PoolId,
    /// Number of copies of each chunk.
    pub resiliency: Resiliency,
    /// Whether slabs are allocated immediately (fixed) or at the first write (thin).
    pub provisioning: Provisioning,
    /// Size in bytes, rounded up to whole slabs.
    pub size_bytes: u64,
    /// Fill level in percent from which health warns; `None`: the default.
    pub warn_at_percent: Option<u8>,
}

fn ended() -> CommandError {
    CommandError::new(
        CommandErrorKind::Unavailable,
        "the data plane has ended; see the daemon's log for the reason, then start it again",
    )
}

/// Demands of the SMB server on its clients.
#[derive(Debug, Clone, Default)]
pub struct SmbPolicy {
    /// NetBIOS-style name of the server, as NTLM and srvsvc show it.
    pub server_name: String,
    /// Requests that are neither signed nor encrypted are refused.
    pub require_signing: bool,
    /// Further names of the server.
    pub names: Vec<String>,
    /// Logons for servers of other names are refused also if signing is required.
    pub refuse_other_names: bool,
    /// Clients that do not encrypt are refused.
    pub require_encryption: bool,
    /// iWARP in software does without CRC if the client does.
    pub rdma_crc_optional: bool,
    /// Interfaces that clients learn of.
    pub interfaces: Vec<NetworkInterface>,
}

/// Options to start the data plane with.
pub struct DataPlaneOptions {
    /// Bound and listening already, so that a port in use is found before any disk is touched.
    pub smb_listeners: Vec<TcpListener>,
    /// The same for SMB Direct over iWARP.
    pub rdma_listeners: Vec<TcpListener>,
    /// SMB Direct by RDMA devices.
    pub rdma_devices: RdmaDevices,
    /// Recorded pools, disks and volumes. A recorded disk that is not found becomes a health issue, not a
    /// failed start.
    pub state: State,
    /// `None`: a single server.
    pub cluster: Option<ClusterOptions>,
    /// The nodes that may use the bus, of which a single server has none.
    pub accounts: bus::NodeAccounts,
    /// Paths to search for labelled disks besides those recorded in the state.
    pub disk_paths: Vec<PathBuf>,
    /// Server GUID (MS-SMB2 2.2.4): stays the same from start to start.
    pub server_guid: [u8; 16],
    /// Demands of the SMB server on its clients.
    pub smb: SmbPolicy,
    /// Bounds on clients, memory and disks.
    pub limits: Limits,
    /// Accounts and shares in force, exchanged by the control plane.
    pub directory: SharedDirectory,
    /// Way of failed and refused logons to the audit log.
    pub logon_lines: LogonLines,
    /// Way of administrators' changes through named pipes.
    pub pipe_changes: PipeChanges,
    /// Beats once a turn of the loop.
    pub pulse: Pulse,
}

/// A running data plane, as `dataplane::start(DataPlaneOptions, OnLoop) -> Result<DataPlane, CommandError>` answers it once every
/// recorded volume that can be served is open.
pub struct DataPlane {
    /// Way to the data plane; clones share it.
    pub control: ControlHandle,
    /// Ends after [`Command::Drain`], or with the reason why it cannot continue.
    pub thread: JoinHandle<Result<(), CommandError>>,
}

/// The control plane's end of the channel. Cheap to clone.
#[derive(Clone)]
pub struct ControlHandle {
    sender: Sender<Command>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// Makes a channel: the handle for the control plane, the queue for the data plane. `wake` makes the
/// data plane poll its queue; it is called after every command, from any thread, and must not block.
pub fn channel_with(wake: Arc<dyn Fn() + Send + Sync>) -> (ControlHandle, Receiver<Command>) {
    let (sender, receiver) = channel();
    (ControlHandle { sender, wake }, receiver)
}

impl ControlHandle {
    /// Sends without waiting. `false`: the data plane has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.sender.send(command).is_ok();
        self.wake();
        sent
    }

    /// Has the data plane's loop take a turn now.
    pub fn wake(&self) {
        (self.wake)();
    }

    /// Sends the command that `make` builds around a reply sender, and waits for the answer.
    ///
    /// # Errors
    /// As the data plane answers; [`CommandErrorKind::Unavailable`] if it has ended.
    pub async fn call<T, C: Into<Command>>(
        &self,
        make: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, CommandError> {
        let (reply, answer) = oneshot::channel();
        if !self.send(make(reply).into()) {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())?
    }

    /// Returns everything that can be shown, except clients' opens.
    ///
    /// # Errors
    /// [`CommandErrorKind::Unavailable`] if the data plane has ended.
    pub async fn figures(&self) -> Result<Box<Snapshot>, CommandError> {
        let (reply, answer) = oneshot::channel();
        if !self.send(Command::Figures { reply }) {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())
    }

    /// Waits until the data plane has finished its work, and has ended.
    pub async fn drain(&self, within: Duration) {
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Drain { within, reply }) {
            // An error means that it ended without an answer: there is nothing to wait for.
            let _ = answer.await;
        }
    }
}
