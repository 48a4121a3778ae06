//! The control plane's commands, handed to the part that does each. Each command is answered once.

use super::Plane;
use super::show::{show_damage, show_opens, show_peer, show_trace};
use crate::control::{
    ClusterCommand, Command, CommandError, DiskCommand, FileCommand, NewVolume, Reply, StorageCommand,
};
use crate::quotas;
use api::{RebalanceJob, RebalanceStep, model};
use node::Node;
use node::jobs::{JobId, JobState};
use node::tasks::until;
use records::{Provisioning, Resiliency};
use std::rc::Rc;
use std::time::Duration;

type Done<T> = Result<T, CommandError>;

/// Answers, whether or not the caller still waits.
fn answer<T>(reply: Reply<T>, result: Done<T>) {
    let _ = reply.send(result);
}

/// Timeout for closing clients' connections at a stop: bytes not taken by then are lost with them.
const CLOSING_MAX: Duration = Duration::from_millis(500);

impl Plane {
    /// Does a command, or begins to.
    pub fn command(self: Rc<Self>, command: Command) {
        let now = self.node.tasks.now();
        match command {
            Command::Storage(command) => self.storage_command(command),
            Command::Files(command) => self.file_command(command),
            Command::Cluster(ClusterCommand::ReadyToJoin { reply }) => answer(reply, self.ready_to_join()),
            Command::Cluster(ClusterCommand::Stay) => self.stay(),
            Command::Cluster(ClusterCommand::Join { options, reply }) => self.join(&options, reply),
            Command::Cluster(command) => match self.bus.get() {
                Some(bus) => bus.command(&self.node, command),
                None => tracing::error!("a single server is told of other nodes"),
            },
            Command::Opens { after, most, reply } => {
                answer(reply, Ok(show_opens(&self.frontend, now, after, most)));
            }
            Command::Figures { reply } => {
                let mut shown = self.show.figures(&self.node, &self.frontend);
                // The caller may have stopped waiting.
                let peers = self.bus.get().into_iter().flat_map(|bus| bus.peers(&self.node));
                shown.bus = peers.map(|peer| show_peer(&peer)).collect();
                let _ = reply.send(Box::new(shown));
            }
            Command::RdmaTrace { connection, reply } => {
                let trace = show_trace(&self.frontend, connection);
                answer(reply, trace.ok_or_else(|| CommandError::not_found("RDMA connection", connection)));
            }
            Command::CloseSession { session, reply } => {
                let found = self.frontend.server_mut().close_session(session);
                answer(reply, found.then_some(()).ok_or_else(|| CommandError::not_found("session", session)));
            }
            Command::CloseOpen { open, reply } => {
                let found = self.frontend.server_mut().close_open(open, now);
                answer(reply, found.then_some(()).ok_or_else(|| CommandError::not_found("open file", open)));
            }
            Command::DirectoryChanged { reply } => {
                self.frontend.server_mut().directory_changed(now);
                answer(reply, Ok(()));
            }
            Command::AnswerPipe { pipe, outcome } => {
                self.frontend.server_mut().answer_pipe(pipe, outcome, now);
            }
            Command::Interfaces(interfaces) => self.frontend.server_mut().set_interfaces(interfaces),
            Command::Drain { within, reply } => {
                let plane = self.clone();
                self.node.tasks.spawn(async move {
                    plane.drain(within).await;
                    let _ = reply.send(());
                    plane.ended.set(true);
                });
            }
        }
    }

    /// Does a command on disks, pools or volumes, or begins to.
    fn storage_command(self: Rc<Self>, command: StorageCommand) {
        use StorageCommand as Storage;
        match command {
            Storage::Disk(command) => self.disk_command(command),
            Storage::CreatePool { name, disks, reserve_disks, reply } => {
                self.change(reply, async move |node| node.pool_care.create(name, disks, reserve_disks).await);
            }
            Storage::ExportPool { pool, reply } => {
                self.change(reply, async move |node| node.pool_care.export(pool).await);
            }
            Storage::DeletePool { pool, reply } => {
                self.change(reply, async move |node| node.pool_care.delete(pool).await);
            }
            Storage::AdoptPool { pool, reply } => {
                self.change(reply, async move |node| node.pool_care.adopt(pool).await);
            }
            Storage::SetReserve { pool, reserve_disks, reply } => {
                self.change(reply, async move |node| node.pool_care.set_reserve(pool, reserve_disks).await);
            }
            Storage::Rebalance { step, reply } => self.rebalance(step, reply),
            Storage::CreateVolume { volume, reply } => {
                self.change(reply, async move |node| node.volume_care.create(translate(volume)).await);
            }
            Storage::ResizeVolume { volume, size_bytes, reply } => {
                self.change(reply, async move |node| node.volume_care.resize(volume, size_bytes).await);
            }
            Storage::WarnAt { volume, percent, reply } => {
                self.change(reply, async move |node| node.volume_care.set_warning_at(volume, percent).await);
            }
            Storage::DeleteVolume { volume, reply } => {
                self.change(reply, async move |node| node.volume_care.delete(volume).await);
            }
            Storage::CheckVolume { volume, repair, reply } => {
                answer(reply, self.node.checks.begin(volume, repair).map(|job| job.0));
            }
            Storage::VolumeDamage { volume, reply } => {
                self.task(reply, async move |node| node.damage_search.list(volume).await.map(show_damage));
            }
            Storage::CancelJob { job, reply } => answer(reply, self.node.job_control.cancel(JobId(job))),
            Storage::ResumeJob { job, reply } => answer(reply, self.node.job_control.resume(JobId(job))),
        }
    }

    /// Does a step of a pool's rebalance.
    fn rebalance(self: Rc<Self>, step: RebalanceStep, reply: Reply<RebalanceJob>) {
        let begun = |job: JobId| RebalanceJob { job: job.0, is_wanted: true };
        match step {
            RebalanceStep::Own(pool) => {
                self.change(reply, async move |node| node.pool_care.rebalance(pool).map(begun));
            }
            RebalanceStep::Begin(pool) => {
                answer(reply, self.node.job_control.begin_rebalance(pool).map(begun))
            }
            RebalanceStep::Note { job, bytes, message } => {
                let is_wanted = self.node.job_control.note_rebalance(JobId(job), bytes, message);
                answer(reply, Ok(RebalanceJob { job, is_wanted }));
            }
            RebalanceStep::End { job, state, message } => {
                let state = match state {
                    model::JobState::Completed => JobState::Completed,
                    model::JobState::Cancelled => JobState::Cancelled,
                    _ => JobState::Failed,
                };
                self.node.job_control.end_rebalance(JobId(job), state, message);
                answer(reply, Ok(RebalanceJob { job, is_wanted: false }));
            }
        }
    }

    /// Does a command on the files of a volume, or begins to.
    fn file_command(self: Rc<Self>, command: FileCommand) {
        use FileCommand as Files;
        match command {
            Files::QuerySecurity { volume, path, reply } => {
                self.task(reply, async move |node| node.volume_paths.query_security(volume, &path).await);
            }
            Files::MakeDirectory { volume, path, reply } => {
                self.task(reply, async move |node| node.volume_paths.make_directory(volume, &path).await);
            }
            Files::SetSecurity { volume, path, descriptor: wanted, reply } => {
                let work =
                    async move |node: &Node| node.volume_paths.set_security(volume, &path, wanted).await;
                self.task(reply, work);
            }
            Files::VolumeQuotas { volume, user, reply } => {
                answer(reply, self.node.volume_quotas.report(volume, user.as_ref()));
            }
            Files::SetQuotas { volume, request, reply } => {
                self.task(reply, async move |node| {
                    let change = |settings: &mut _| quotas::change(settings, &request);
                    node.volume_quotas.set_settings(volume, change).await
                });
            }
            Files::SetQuota { volume, user, limits, reply } => {
                self.task(reply, async move |node| {
                    node.volume_quotas.set_limits(volume, &user, limits).await
                });
            }
            Files::PropagateAcl { volume, path, own, reply } => {
                let number = |job: Option<JobId>| job.map(|job| job.0);
                self.task(reply, async move |node| {
                    node.acl_propagations.begin(volume, &path, own).await.map(number)
                });
            }
        }
    }

    /// Begins a command on disks.
    fn disk_command(self: Rc<Self>, command: DiskCommand) {
        match command {
            DiskCommand::Add { pool, disk, reply } => {
                self.change(reply, async move |node| node.disk_admin.add(pool, disk).await);
            }
            DiskCommand::Replace { disk, new, reply } => {
                let replaced = |(disk, job): (_, JobId)| (disk, job.0);
                self.change(reply, async move |node| node.disk_admin.replace(disk, new).await.map(replaced));
            }
            DiskCommand::Retire { disk, reply } => {
                self.change(reply, async move |node| Ok(node.disk_admin.retire(disk).await?.0));
            }
            DiskCommand::Unretire { disk, reply } => {
                self.change(reply, async move |node| node.disk_admin.unretire(disk).await);
            }
            DiskCommand::Acknowledge { disk, reply } => {
                self.change(reply, async move |node| node.damage_keeper.acknowledge(disk).await);
            }
            DiskCommand::ForgetPromises { disk, is_confirmed, reply } => {
                self.change(reply, async move |node| node.promises.forget_beyond(disk, is_confirmed).await);
            }
            DiskCommand::Erase { path, is_confirmed, reply } => {
                self.change(reply, async move |node| node.erasing.erase(path, is_confirmed).await);
            }
        }
    }

    /// Begins work of the node that takes many turns and changes records of disks, pools or volumes.
    fn change<T: 'static>(
        self: &Rc<Self>,
        reply: Reply<T>,
        work: impl AsyncFnOnce(&Node) -> Done<T> + 'static,
    ) {
        if let Err(why) = self.joining.begin_change() {
            return answer(reply, Err(why));
        }
        let plane = self.clone();
        self.node.tasks.spawn(async move {
            let done = work(&plane.node).await;
            plane.joining.end_change();
            answer(reply, done);
        });
    }

    /// Begins work of the node that takes many turns.
    fn task<T: 'static>(
        self: &Rc<Self>,
        reply: Reply<T>,
        work: impl AsyncFnOnce(&Node) -> Done<T> + 'static,
    ) {
        let plane = self.clone();
        self.node.tasks.spawn(async move { answer(reply, work(&plane.node).await) });
    }

    /// Refuses new requests and sends outstanding answers, hands the volumes over to other servers, closes
    /// clients' connections, makes everything durable, and closes the volumes. Clients are not told of a
    /// volume's removal, which would end their handles; they reconnect when their connection closes.
    async fn drain(&self, within: Duration) {
        let tasks = &self.node.tasks;
        let deadline = tasks.now().after(within);
        self.node.stop();
        self.frontend.drain();
        if let Some(bus) = self.bus.get() {
            bus.announce_stop(true);
        }
        let is_late = || {
            tasks.wake_at(deadline);
            tasks.now() >= deadline
        };
        until(|| (self.frontend.is_idle() || is_late()).then_some(())).await;
        self.node.hand_over(deadline).await;
        self.frontend.part_from_clients();
        let closed = tasks.now().after(CLOSING_MAX);
        until(|| {
            tasks.wake_at(closed);
            (!self.frontend.has_clients() || tasks.now() >= closed).then_some(())
        })
        .await;
        self.node.close_volumes(deadline).await;
        if let Some(bus) = self.bus.get() {
            bus.await_others(tasks, deadline).await;
        }
        tracing::info!("drained");
    }
}

/// The volume in the node's words.
fn translate(new: NewVolume) -> node::NewVolume {
    let NewVolume { name, pool, resiliency, provisioning, size_bytes, warn_at_percent } = new;
    let resiliency = match resiliency {
        model::Resiliency::Simple => Resiliency::Simple,
        model::Resiliency::TwoWayMirror => Resiliency::TwoWay,
        model::Resiliency::ThreeWayMirror => Resiliency::ThreeWay,
    };
    let provisioning = match provisioning {
        model::Provisioning::Thin => Provisioning::Thin,
        model::Provisioning::Fixed => Provisioning::Fixed,
    };
    node::NewVolume { name, pool, resiliency, provisioning, size_bytes, warn_at_percent }
}
