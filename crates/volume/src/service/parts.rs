//! The parts that an operation works on, lent to it for one try.

use super::agenda::Agenda;
use super::caching::{BreakRequest, Caching};
use super::descriptors::Descriptors;
use super::file_opens::Doomed;
use super::locks::{self, Locks};
use super::notify::{self, Watches};
use super::open::ParentLease;
use super::opens::Opens;
use super::reclaims::Reclaims;
use super::replays::Replays;
use super::short_names::ShortNames;
use super::suspend::Suspend;
use super::transfers::Transfers;
use super::tunnel::Tunnel;
use crate::backend::{AccessToken, OpenId};
use crate::fs::{Attributes, FileId, FileSystem};
use crate::security::SecurityDescriptor;
use std::rc::Rc;
use std::time::Duration;
use types::FileTime;

/// The neighbours of an operation that touches many of them. Each owns its state and keeps its own invariant; an operation that needs
/// only a few takes those as arguments instead.
pub struct Parts<'a> {
    pub fs: &'a mut FileSystem,
    pub opens: &'a mut Opens,
    pub caching: &'a mut Caching,
    pub locks: &'a mut Locks,
    pub watches: &'a mut Watches,
    pub names: &'a mut ShortNames,
    pub tunnel: &'a mut Tunnel,
    pub descriptors: &'a mut Descriptors,
    pub replays: &'a mut Replays,
    pub transfers: &'a mut Transfers,
    pub reclaims: &'a mut Reclaims,
    pub agenda: &'a mut Agenda,
    pub durable_timeouts: DurableTimeouts,
}

/// Timeouts of durable opens of disconnected clients.
#[derive(Debug, Clone, Copy)]
pub struct DurableTimeouts {
    /// The time if the client does not say.
    pub usual: Duration,
    pub max: Duration,
}

impl Parts<'_> {
    /// Returns the wall clock's time.
    pub fn time(&self) -> FileTime {
        self.agenda.clock.time()
    }

    /// Returns the descriptor of a file.
    pub fn descriptor(&mut self, attributes: &Attributes) -> Result<Rc<SecurityDescriptor>, Suspend> {
        self.descriptors.of(self.fs, &mut self.agenda.turn, attributes)
    }

    /// Returns the rights on an entry that follow from the rights on its directory; none if it has no
    /// directory.
    pub fn parent_grants(&mut self, parent: Option<FileId>, token: &AccessToken) -> Result<u32, Suspend> {
        let Some(parent) = parent else { return Ok(0) };
        self.descriptors.parent_grants(self.fs, &mut self.agenda.turn, parent, token)
    }

    /// Spends the steps that the file layer took since the last call.
    pub fn spend_metadata(&mut self) {
        self.agenda.turn.spend_metadata(self.fs.take_steps());
    }

    /// Breaks holders' caching. Returns whether to wait for that.
    pub fn ask(&mut self, request: &BreakRequest) -> Result<bool, Suspend> {
        self.caching.ask(self.opens, self.agenda, request)
    }

    /// Breaks the handle caching of others on an open's file, and waits for that.
    pub fn break_handles(&mut self, id: OpenId, file: FileId) -> Result<(), Suspend> {
        if self.caching.break_handles(self.opens, self.agenda, id)? {
            Err(Suspend::Break(file))
        } else {
            Ok(())
        }
    }

    /// Breaks others' caching after an open has changed data.
    pub fn contend(&mut self, id: OpenId) {
        self.caching.contend(self.opens, self.agenda, id);
    }

    /// Breaks caching of a directory whose entries changed, except for the lease `by`.
    pub fn directory_changed(&mut self, directory: FileId, by: Option<ParentLease>) {
        self.caching.directory_changed(self.opens, self.agenda, directory, by);
    }

    /// Notes a write's changes beside the data. Returns whether it has to be durable immediately.
    pub fn before_write(&mut self, id: OpenId) -> bool {
        self.opens.mark_archive(id, self.fs);
        self.contend(id);
        self.opens.note_write(id, self.agenda)
    }

    /// Lets the file's times show the writes of an open.
    pub fn apply_write_time(&mut self, id: OpenId) {
        self.opens.apply_write_time(id, self.fs, self.agenda);
    }

    /// Notes that an open changed something that has to become durable.
    pub fn mark_dirty(&mut self, id: OpenId) {
        if let Some(open) = self.opens.get_mut(id) {
            open.dirty = true;
        }
    }

    /// Notifies watchers and holders of directory leases of a change of an open's file.
    pub fn tell_modified(&mut self, id: OpenId, what: u32) {
        let Some(open) = self.opens.get(id) else { return };
        let by = open.parent_lease();
        let parent = open.link.as_ref().map(|link| link.parent);
        if !self.watches.is_empty() {
            let action = if open.stream.index != 0 { notify::MODIFIED_STREAM } else { notify::MODIFIED };
            self.watches.changed(&open.path, action, what);
        }
        if let Some(parent) = parent {
            self.directory_changed(parent, by);
        }
    }

    /// Marks a name or a stream for deletion with its last open; `keep`: also after a restart of the
    /// server. Notifies watchers of a directory immediately.
    pub fn mark_deleting(&mut self, file: FileId, doomed: Doomed, keep: bool) {
        let Some(node) = self.opens.file_mut(file) else { return };
        match &doomed {
            Doomed::Stream(index) => node.delete_stream(*index),
            Doomed::Link(link) => {
                if node.delete_link(link.clone()) {
                    for id in node.opens.iter() {
                        self.watches.interrupt(id, self.agenda);
                    }
                }
            }
        }
        if keep && node.keep(doomed.clone()) {
            self.agenda.records.deletion(file, doomed, true);
        }
    }

    /// Unmarks a name or a stream, or notes its removal.
    pub fn forget_deletion(&mut self, file: FileId, doomed: Doomed) {
        let Some(node) = self.opens.file_mut(file) else { return };
        let was_kept = match &doomed {
            Doomed::Stream(index) => node.forget_stream(*index),
            Doomed::Link(link) => node.forget_link(link),
        };
        if was_kept {
            self.agenda.records.deletion(file, doomed, false);
        }
    }

    /// Lends the neighbours of a change of locks.
    pub fn around_locks(&mut self) -> (&mut Locks, locks::Around<'_>) {
        let around =
            locks::Around { opens: &mut *self.opens, caching: &mut *self.caching, agenda: &mut *self.agenda };
        (&mut *self.locks, around)
    }
}
