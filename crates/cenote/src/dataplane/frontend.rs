//! The SMB server with the connections of its clients.

use super::clients::{Behind, Clients, SmbServer};
use crate::logon_lines::LogonLines;
use crate::pipe_queue::PipeChanges;
use bus::Served;
use node::{Front, ServedVolume};
use smb::rpc::RpcRefusal;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;
use types::{FileTime, Monotonic, VolumeId};

/// Longest wait of the loop if the only due work waits for a disk's answer.
const DUE_PAUSE: Duration = Duration::from_millis(1);

/// The server and its connections.
///
/// Invariant: both are borrowed only within a call, so that tasks of the node may add and remove volumes between.
pub(super) struct Frontend {
    server: Rc<RefCell<SmbServer>>,
    clients: RefCell<Clients>,
    logon_lines: LogonLines,
    pipe_changes: PipeChanges,
    /// Set once no more connections are accepted.
    draining: Cell<bool>,
    /// Bytes of messages that are not sent yet, over all connections by TCP. Counted while the server drains.
    unsent_bytes: Cell<usize>,
}

/// Puts the node's volumes before clients.
pub(super) struct ServerFront(pub Rc<RefCell<SmbServer>>);

impl Front for ServerFront {
    fn add_volume(&self, volume: VolumeId, served: ServedVolume) {
        self.0.borrow_mut().add_volume(volume, Served::Volume(served));
    }

    fn remove_volume(&self, volume: VolumeId, now: Monotonic) {
        self.0.borrow_mut().remove_volume(volume, now);
    }
}

impl Frontend {
    pub(super) fn new(
        server: Rc<RefCell<SmbServer>>,
        clients: Clients,
        logon_lines: LogonLines,
        pipe_changes: PipeChanges,
    ) -> Self {
        let (draining, unsent_bytes) = (Cell::default(), Cell::default());
        Self { server, clients: RefCell::new(clients), logon_lines, pipe_changes, draining, unsent_bytes }
    }

    pub(super) fn server(&self) -> Ref<'_, SmbServer> {
        self.server.borrow()
    }

    pub(super) fn server_mut(&self) -> RefMut<'_, SmbServer> {
        self.server.borrow_mut()
    }

    pub(super) fn clients(&self) -> Ref<'_, Clients> {
        self.clients.borrow()
    }

    /// Passes clients' messages to the server. Returns whether there were any.
    pub(super) fn hear_clients(&self, now: Monotonic) -> bool {
        let mut clients = self.clients.borrow_mut();
        if self.draining.get() {
            clients.drain();
        }
        clients.hear(&mut Behind(&mut self.server.borrow_mut()), now)
    }

    /// Lets the server work, and carries its messages to clients; returns whether something moved.
    pub(super) fn poll(&self, now: Monotonic) -> bool {
        let mut server = self.server.borrow_mut();
        let moved = server.poll(now);
        let mut clients = self.clients.borrow_mut();
        clients.transmit(&mut Behind(&mut server));
        if server.has_noted_latencies() {
            server.record_latencies(sys::monotonic_now());
        }
        if self.draining.get() {
            self.unsent_bytes.set(clients.unsent_bytes());
        }
        moved
    }

    /// Gives the kernel the messages for clients.
    pub(super) fn put_on_wire(&self, now: Monotonic) -> bool {
        self.clients.borrow_mut().put_on_wire(now)
    }

    /// Passes the time to the server, logs its logons, and hands on changes that pipes wait for.
    pub(super) fn end_turn(&self, now: Monotonic) {
        let mut server = self.server.borrow_mut();
        if server.next_timeout().is_some_and(|at| at <= now) {
            server.handle_timeout(now);
        }
        let lines = server.take_logon_lines();
        if !lines.is_empty() {
            self.logon_lines.send(lines);
        }
        for change in server.take_pipe_changes() {
            if let Err(pipe) = self.pipe_changes.send(change) {
                server.answer_pipe(pipe, Err(RpcRefusal::Failed), now);
            }
        }
    }

    /// Returns when the server or a connection is due. Call it after [`Frontend::end_turn`]: work still due
    /// in the server then waits for disks (data to write while enough of it is under way), whose
    /// completions come first.
    pub(super) fn next_timeout(&self, now: Monotonic) -> Option<Monotonic> {
        let server = self.server.borrow().next_timeout();
        let server = server.map(|at| if at <= now { now.after(DUE_PAUSE) } else { at });
        let clients = self.clients.borrow().next_timeout();
        server.into_iter().chain(clients).min()
    }

    /// Clients wait to be received from again.
    pub(super) fn has_held(&self) -> bool {
        self.clients.borrow().has_held()
    }

    pub(super) fn set_wall_clock(&self, now: Monotonic, wall_clock: FileTime) {
        self.server.borrow_mut().set_wall_clock(now, wall_clock);
    }

    /// Takes no new requests of clients from now on. Other servers still reach the disks of this one.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.server.borrow_mut().drain(Some(::bus::VOLUME));
    }

    /// Returns whether all earlier requests of clients are answered, and the answers sent.
    pub(super) fn is_idle(&self) -> bool {
        !self.server.borrow().owes_answers() && self.unsent_bytes.get() == 0
    }

    /// Closes the connections of clients, which reconnect to another server, or after a restart.
    pub(super) fn part_from_clients(&self) {
        self.server.borrow_mut().part_from_clients();
    }

    pub(super) fn has_clients(&self) -> bool {
        self.server.borrow().has_clients()
    }
}
