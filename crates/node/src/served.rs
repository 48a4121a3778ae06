//! A served volume: the file layer's service, shared by the SMB server and administrative commands.
//!
//! In a cluster every answer, from any part of memory, waits for the node's lease
//! ([`crate::lease_gate`]).

use crate::lease_gate::LeaseGate;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Event, OpenId, Operation, OperationId, Reply, Ruling, Standing};
use volume::service::Service;

/// Bit of the operations of commands; those of the server do not have it.
const COMMAND: u64 = 1 << 63;

/// Answers to commands' operations; `None` while a command waits.
type Answers = HashMap<u64, Option<Result<Reply, NtStatus>>>;

struct Shared {
    service: RefCell<Service>,
    answers: RefCell<Answers>,
    lease_gate: Rc<LeaseGate>,
    /// Events that wait for the lease, in order; bounded by the number of operations in progress.
    held: RefCell<Vec<Event>>,
    next: Cell<u64>,
    /// Whether the service is not polled any more.
    dismounted: Cell<bool>,
}

/// A volume that is served. Clones share it.
///
/// Invariant: no borrow of the service is held over a wait, so that the server and commands
/// alternate.
#[derive(Clone)]
pub struct ServedVolume(Rc<Shared>);

impl ServedVolume {
    pub(crate) fn new(service: Service, lease_gate: Rc<LeaseGate>) -> Self {
        Self(Rc::new(Shared {
            service: RefCell::new(service),
            answers: RefCell::default(),
            lease_gate,
            held: RefCell::default(),
            next: Cell::new(COMMAND),
            dismounted: Cell::new(false),
        }))
    }

    /// Ends the volume for good. Commands in progress on it, and later ones, get the answer that it
    /// is gone.
    pub fn dismount(&self) {
        self.0.dismounted.set(true);
    }

    /// Whether no command is in progress on it: there is no other clone.
    pub fn is_sole(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Reads the service.
    pub fn with<T>(&self, look: impl FnOnce(&Service) -> T) -> T {
        look(&self.0.service.borrow())
    }

    /// Changes the service.
    pub fn with_mut<T>(&self, change: impl FnOnce(&mut Service) -> T) -> T {
        change(&mut self.0.service.borrow_mut())
    }

    /// Performs an operation for a command. It continues when the server polls the volume.
    pub async fn perform(&self, request: Operation, now: Monotonic) -> Result<Reply, NtStatus> {
        let id = self.expect();
        self.0.service.borrow_mut().submit(OperationId(id), request, now);
        crate::tasks::until(|| self.take(id)).await
    }

    /// Makes all data and metadata durable. Waits until that is done, or `give_up` returns true.
    pub async fn make_durable(&self, give_up: impl Fn() -> bool) -> Result<(), NtStatus> {
        let id = self.expect();
        self.0.service.borrow_mut().make_durable(OperationId(id));
        let late = || give_up().then_some(Err(NtStatus::IO_TIMEOUT));
        crate::tasks::until(|| self.take(id).or_else(late)).await.map(|_| ())
    }

    /// As [`ServedVolume::make_durable`], for a volume that the server does not poll any more.
    pub async fn make_durable_alone(&self, give_up: impl Fn() -> bool) -> Result<(), NtStatus> {
        let id = self.expect();
        self.0.service.borrow_mut().make_durable(OperationId(id));
        let mut volume = self.clone();
        crate::tasks::until(|| {
            // The session's opens are gone: nothing waits for these events.
            volume.poll(&mut Vec::new());
            self.take(id).or_else(|| give_up().then_some(Err(NtStatus::IO_TIMEOUT)))
        })
        .await
        .map(|_| ())
    }

    /// Holds back the service's events from `begin` on, or releases the held ones, by the state of
    /// the lease once all of them are gathered.
    fn hold(&self, out: &mut Vec<Event>, begin: usize) {
        let mut held = self.0.held.borrow_mut();
        if out.len() == begin && held.is_empty() {
            return;
        }
        if self.0.lease_gate.may_answer() {
            if !held.is_empty() {
                out.splice(begin..begin, held.drain(..));
            }
            return;
        }
        held.extend(out.drain(begin..));
        if self.with(|service| service.failure().is_some()) {
            // The service stopped, perhaps because another node has the volume. Earlier results are
            // withheld, and no caller waits for ever.
            out.extend(held.drain(..).map(|event| match event {
                Event::Done { operation, result: Ok(_) } => {
                    Event::Done { operation, result: Err(NtStatus::VOLUME_DISMOUNTED.into()) }
                }
                event => event,
            }));
        }
    }

    fn expect(&self) -> u64 {
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        self.0.answers.borrow_mut().insert(id, None);
        id
    }

    fn take(&self, id: u64) -> Option<Result<Reply, NtStatus>> {
        let mut answers = self.0.answers.borrow_mut();
        match answers.get(&id) {
            Some(Some(_)) => answers.remove(&id).flatten(),
            _ if self.0.dismounted.get() => Some(Err(NtStatus::VOLUME_DISMOUNTED)),
            _ => None,
        }
    }
}

impl Backend for ServedVolume {
    #[inline]
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        self.0.service.borrow_mut().submit(operation, request, now);
    }

    fn cancel(&mut self, operation: OperationId) {
        self.0.service.borrow_mut().cancel(operation);
    }

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic) {
        self.0.service.borrow_mut().review(judge, now);
    }

    #[inline]
    fn poll(&mut self, out: &mut Vec<Event>) {
        let begin = out.len();
        self.0.service.borrow_mut().poll(out);
        self.hold(out, begin);
        if self.0.answers.borrow().is_empty() {
            return;
        }
        let mut answers = self.0.answers.borrow_mut();
        for at in (0..out.len()).rev() {
            if let Event::Done { operation, .. } | Event::Pending { operation } = &out[at]
                && operation.0 & COMMAND != 0
                && let Event::Done { operation, result } = out.remove(at)
                && let Some(waiting) = answers.get_mut(&operation.0)
            {
                *waiting = Some(result.map_err(|refusal| refusal.status));
            }
        }
    }

    fn lock_count(&self, open: OpenId) -> usize {
        self.0.service.borrow().lock_count(open)
    }

    #[inline]
    fn next_timeout(&self) -> Option<Monotonic> {
        self.0.service.borrow().next_timeout()
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.0.service.borrow_mut().handle_timeout(now);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use types::{BlockCount, FileTime};
    use volume::fs::{Config, FileSystem, Format};
    use volume::service::ServiceConfig;

    /// Makes a new volume that nothing polls.
    pub(crate) fn unpolled() -> ServedVolume {
        let blocks = BlockCount(65_536);
        let disk = Box::new(space::memory::MemoryVirtualDisk::new(blocks, 4096, blocks));
        let root_security = volume::security::volume_root().build().expect("short enough");
        let (id, now) = ([3; 16], FileTime(1_000_000));
        let format = Format { id, label: "test".into(), serial: 1, now, root_security };
        let fs = FileSystem::format(disk, &format, Config::default());
        let service = Service::new(fs, ServiceConfig::default(), Monotonic(1), now);
        ServedVolume::new(service, LeaseGate::new(None))
    }

    #[test]
    fn commands_on_a_volume_that_is_gone_are_answered() {
        let (volume, now) = (unpolled(), Monotonic(2));
        let mut context = Context::from_waker(Waker::noop());
        let mut under_way = pin!(volume.make_durable(|| false));
        assert!(under_way.as_mut().poll(&mut context).is_pending());
        volume.dismount();
        assert_eq!(under_way.poll(&mut context), Poll::Ready(Err(NtStatus::VOLUME_DISMOUNTED)));
        let close = Operation::Close { open: volume::backend::OpenId(7), query: false };
        let later = pin!(volume.perform(close, now)).poll(&mut context);
        assert!(matches!(later, Poll::Ready(Err(NtStatus::VOLUME_DISMOUNTED))));
    }
}
