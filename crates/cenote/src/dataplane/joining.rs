//! A single server becomes the first node of a cluster, and its data plane serves on.
//!
//! While the records move to the cluster's state, no command begins that would record a disk, pool or
//! volume as a single server's. Clients' connections, sessions, opens and work in progress stay.

use super::Plane;
use super::bus::{Bus, NodeDisks};
use crate::control::{ClusterOptions, CommandError, CommandErrorKind, Reply};
use ::bus::{Exports, Served};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Timeout of the node's first lease, and of its volumes' records naming it: the time in which a state
/// or a disk may return.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that change disks, pools and volumes, and whether they may.
#[derive(Default)]
pub(super) struct Joining {
    is_under_way: Cell<bool>,
    changes: Cell<usize>,
}

impl Joining {
    /// Lets no such command begin.
    ///
    /// # Errors
    /// `Conflict`: some are under way.
    fn begin(&self) -> Result<(), CommandError> {
        if self.changes.get() > 0 || self.is_under_way.get() {
            let why = "disks, pools or volumes are being changed: wait until that is done, and create the cluster then";
            return Err(CommandError::new(CommandErrorKind::Conflict, why));
        }
        self.is_under_way.set(true);
        Ok(())
    }

    fn end(&self) {
        self.is_under_way.set(false);
    }

    /// Takes note of such a command that begins.
    ///
    /// # Errors
    /// `Unavailable` while the records move.
    pub fn begin_change(&self) -> Result<(), CommandError> {
        if self.is_under_way.get() {
            let why = "the server is becoming the first of a cluster: try again in a moment";
            return Err(CommandError::new(CommandErrorKind::Unavailable, why));
        }
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// One that began has ended.
    pub fn end_change(&self) {
        debug_assert!(self.changes.get() > 0);
        self.changes.set(self.changes.get() - 1);
    }
}

impl Plane {
    /// Readies itself for becoming a node.
    pub(super) fn ready_to_join(&self) -> Result<(), CommandError> {
        if self.bus.get().is_some() {
            return Err(CommandError::new(CommandErrorKind::Conflict, "the server is a node already"));
        }
        self.joining.begin()
    }

    /// Stays a single server.
    pub(super) fn stay(&self) {
        self.joining.end();
    }

    /// Becomes the first node of a cluster. Answers when others may be admitted.
    pub(super) fn join(self: Rc<Self>, options: &ClusterOptions, reply: Reply<()>) {
        if let Err(why) = self.begin_bus(options) {
            let _ = reply.send(Err(why));
            return;
        }
        let plane = self.clone();
        self.node.tasks.spawn(async move {
            let node = &plane.node;
            let late = node.tasks.now().after(PATIENCE);
            let joined = node.tasks.until_late(late, || node.has_joined().then_some(())).await;
            plane.joining.end();
            let joined = joined.ok_or_else(|| {
                let why = "the server has no lease as a node of the cluster yet, or the records of its volumes do not name it";
                CommandError::new(CommandErrorKind::Unavailable, why)
            });
            // The caller may have stopped waiting.
            let _ = reply.send(joined);
        });
    }

    fn begin_bus(&self, options: &ClusterOptions) -> Result<(), CommandError> {
        let bus = Bus::new(&self.driver, options, self.node.tasks.now()).map_err(super::no_bus)?;
        self.node.join(bus.membership(options));
        let exports = Exports::new(NodeDisks(Rc::downgrade(&self.node)));
        self.frontend.server_mut().add_volume(::bus::VOLUME, Served::Bus(exports));
        let is_first = self.bus.set(bus).is_ok();
        debug_assert!(is_first, "it was asked whether the server is a node already");
        Ok(())
    }
}
